"""The HTTP endpoints.

- ``POST …/messages`` returns the answer, ``{"run", "answer", "agent"}``. With ``Accept: text/event-stream`` it streams
  the events of the turn before it. ``"pending"`` is there too when calls wait for decisions: ``POST …/decisions`` takes
  them, and returns an answer likewise. ``GET …/approvals`` returns the calls that wait.
- ``GET …/messages`` returns the history, ``GET …/events`` streams events, and
  ``DELETE …/turn`` cancels the turn in progress.
- A broken connection cancels nothing, unless the request has ``?cancel=disconnect``.
- ``since`` is a place in the bus; 0 is the oldest event. ``Last-Event-ID``, which a browser sends when it reconnects,
  takes precedence.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, Final

import anyio
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from palaver.core.errors import DecodeError
from palaver.serve.http.access import UserDecisions, UserInput, body_of, check_json, parse_decisions, parse_input
from palaver.serve.http.errors import Refused, as_json, refusal
from palaver.serve.http.event_stream import EventStream, Stream, cancel_on_disconnect
from palaver.serve.http.turns import Answer, Turns, public_messages, public_requests, show
from palaver.swarm.bus import Since
from palaver.swarm.names import checked_client

if TYPE_CHECKING:
    from palaver.serve.http.turns import History

CLIENT_CLOSED_REQUEST: Final = 499
"""nginx's status for a client that disconnected."""
_DIGITS: Final = 18
"""The most digits of a place: a bus counts in 64 bits."""


class Endpoints:
    """The HTTP endpoints over turns and a history."""

    def __init__(self, turns: Turns, history: History | None) -> None:
        """Answer requests."""
        self._turns, self._history = turns, history
        self._open: set[EventStream] = set()

    def close(self) -> None:
        """End every stream."""
        for stream in tuple(self._open):
            stream.close()

    async def post(self, request: Request) -> Response:
        """Handle a message of the client."""
        client = self._admit(request)
        check_json(request)
        return await self._answer(request, client, parse_input(await body_of(request, self._turns.limits)))

    async def decide(self, request: Request) -> Response:
        """Handle decisions of the client about calls that wait."""
        client = self._admit(request)
        check_json(request)
        decisions = parse_decisions(await body_of(request, self._turns.limits))
        return await self._answer(request, client, await self._turns.checked(client, decisions))

    async def approvals(self, request: Request) -> Response:
        """Return the client's calls that wait for decisions, and the name of their turn."""
        waiting = await self._turns.dispatcher.pending(self._admit(request))
        named = {} if waiting.run is None else {"run": waiting.run}
        return as_json({"pending": public_requests(waiting.requests), **named})

    async def _answer(self, request: Request, client: str, message: UserInput | UserDecisions) -> Response:
        cancel = cancels(request)
        if "text/event-stream" not in request.headers.get("accept", ""):
            with self._turns.limiter.pending(client):
                return await _run_until_disconnect(
                    request, lambda: self._turns.ask(client, message, cancel=cancel), message.run
                )

        async def work(stream: Stream) -> None:
            outcome = await self._turns.ask_and_show(client, message, stream, cancel=cancel)
            if isinstance(outcome, Answer):
                await stream.send("answer", outcome.body)
            else:
                await stream.send("error", refusal(outcome, message.run).body)

        return self._streamed(work, self._turns.limiter.pending(client))

    async def messages(self, request: Request) -> Response:
        """Return the client's history."""
        client = self._admit(request)
        if self._history is None:
            raise Refused(404, "not_found", "this server has no history")
        return as_json({"messages": public_messages(await self._history(client))})

    async def events(self, request: Request) -> Response:
        """Stream the client's events."""
        client = self._admit(request)
        since, run = since_of(request), request.query_params.get("run")

        async def work(stream: Stream) -> None:
            async with self._turns.events(client, run=run, since=since) as events:
                await show(events, stream)

        return self._streamed(work, self._turns.limiter.stream(client))

    async def cancel(self, request: Request) -> Response:
        """Cancel the turn in progress."""
        client = self._admit(request)
        return as_json({"cancelled": await self._turns.dispatcher.cancel(client)})

    async def health(self, _request: Request) -> Response:
        """Return that the server is up."""
        return as_json({"status": "ok"})

    def _admit(self, request: Request) -> str:
        client = checked_client(request.path_params["client"])
        self._turns.limiter.admit(client)
        return client

    def _streamed(self, work: Callable[[Stream], Awaitable[None]], slot: AbstractContextManager[None]) -> Response:
        self._turns.check_open()
        resources = ExitStack()
        resources.enter_context(slot)  # before the response starts, so that a refusal has a status
        stream = EventStream(work, self._turns.limits.io_timeout, resources)
        self._open.add(stream)
        resources.callback(self._open.discard, stream)
        return stream


def cancels(connection: HTTPConnection) -> bool:
    """Return whether a disconnect cancels the turn. Raises ``DecodeError``."""
    value = connection.query_params.get("cancel", "")
    if value not in {"", "disconnect"}:
        raise DecodeError("the only allowed value is disconnect", path="cancel", source="request")
    return bool(value)


def since_of(connection: HTTPConnection) -> Since | None:
    """Return where a reader starts. Raises ``DecodeError``."""
    place = connection.headers.get("last-event-id") or connection.query_params.get("since")
    if not place:
        return None
    if not (place.isascii() and place.isdecimal() and len(place) <= _DIGITS):
        raise DecodeError("expected the place of an event, a whole number", path="since", source="request")
    return Since(place=int(place))


async def _run_until_disconnect(request: Request, work: Callable[[], Awaitable[Answer]], run: str | None) -> Response:
    """Return the outcome of ``work`` as a response. A disconnect cancels the work."""
    outcome: Any = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_on_disconnect, request.receive, tasks.cancel_scope)
        try:
            outcome = await work()
        except Exception as error:  # noqa: BLE001 (the client gets it as a response)
            outcome = refusal(error, run)
        tasks.cancel_scope.cancel()
    if isinstance(outcome, Refused):
        return outcome.response()
    return Response(status_code=CLIENT_CLOSED_REQUEST) if outcome is None else as_json(outcome.body)
