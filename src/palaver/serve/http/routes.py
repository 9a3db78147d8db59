"""The routes of a front over HTTP.

Rules:

- ``POST …/messages`` waits for the answer, ``{"run", "answer", "agent"}``; with ``Accept: text/event-stream`` it tells
  what happens meanwhile. ``GET …/messages`` is what was said, ``GET …/events`` what happens, ``DELETE …/turn`` cancels.
- A connection that breaks cancels nothing, unless ``?cancel=disconnect`` says so.
- ``since`` is a place in the bus; 0 is the oldest event that it keeps. ``Last-Event-ID`` comes before it: so says a
  browser that connects again where it goes on.

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
from palaver.serve.http.access import check_json
from palaver.serve.http.errors import Refused, as_json, refusal
from palaver.serve.http.event_stream import EventStream, Stream, gone
from palaver.serve.http.request_body import body_of, said
from palaver.serve.http.turns import Answer, Turns, show, told
from palaver.swarm.bus import Since
from palaver.swarm.names import checked_client

if TYPE_CHECKING:
    from palaver.serve.http.turns import History

LEFT: Final = 499
"""The status of an answer that nobody reads (nginx's)."""
_DIGITS: Final = 18
"""Of a place, at most: a bus counts in 64 bits."""


class Http:
    """The endpoints, over turns and a history."""

    def __init__(self, turns: Turns, history: History | None) -> None:
        """Answer requests."""
        self._turns, self._history = turns, history
        self._open: set[EventStream] = set()

    def close(self) -> None:
        """End every stream."""
        for stream in tuple(self._open):
            stream.leave()

    async def post(self, request: Request) -> Response:
        """Say something."""
        client = self._admitted(request)
        check_json(request)
        message = said(await body_of(request, self._turns.limits))
        cancel = cancels(request)
        if "text/event-stream" not in request.headers.get("accept", ""):
            with self._turns.gate.waiting(client):
                return await _unless_gone(request, lambda: self._turns.ask(client, message, cancel=cancel), message.run)

        async def work(stream: Stream) -> None:
            outcome = await self._turns.ask_and_show(client, message, stream, cancel=cancel)
            if isinstance(outcome, Answer):
                await stream.say("answer", outcome.told)
            else:
                await stream.say("error", refusal(outcome, message.run).told)

        return self._streamed(work, self._turns.gate.waiting(client))

    async def messages(self, request: Request) -> Response:
        """What was said."""
        client = self._admitted(request)
        if self._history is None:
            raise Refused(404, "not_found", "this front keeps no history")
        return as_json({"messages": told(await self._history(client))})

    async def events(self, request: Request) -> Response:
        """What happens."""
        client = self._admitted(request)
        since, run = since_of(request), request.query_params.get("run")

        async def work(stream: Stream) -> None:
            async with self._turns.events(client, run=run, since=since) as events:
                await show(events, stream)

        return self._streamed(work, self._turns.gate.stream(client))

    async def cancel(self, request: Request) -> Response:
        """Cancel the turn under way."""
        client = self._admitted(request)
        return as_json({"cancelled": await self._turns.dispatcher.cancel(client)})

    async def health(self, _request: Request) -> Response:
        """Say that it answers."""
        return as_json({"status": "ok"})

    def _admitted(self, request: Request) -> str:
        client = checked_client(request.path_params["client"])
        self._turns.gate.admit(client)
        return client

    def _streamed(self, work: Callable[[Stream], Awaitable[None]], counted: AbstractContextManager[None]) -> Response:
        self._turns.check_open()
        held = ExitStack()
        held.enter_context(counted)  # before the answer begins, so that a refusal has a status
        stream = EventStream(work, self._turns.limits.patience, held)
        self._open.add(stream)
        held.callback(self._open.discard, stream)
        return stream


def cancels(connection: HTTPConnection) -> bool:
    """Whether the end of a connection cancels the turn. Raises ``DecodeError``."""
    asked = connection.query_params.get("cancel", "")
    if asked not in {"", "disconnect"}:
        raise DecodeError("the only value is disconnect", path="cancel", source="request")
    return bool(asked)


def since_of(connection: HTTPConnection) -> Since | None:
    """Where a reader begins. Raises ``DecodeError``."""
    place = connection.headers.get("last-event-id") or connection.query_params.get("since")
    if not place:
        return None
    if not (place.isascii() and place.isdecimal() and len(place) <= _DIGITS):
        raise DecodeError("the place of an event is expected, a whole number", path="since", source="request")
    return Since(place=int(place))


async def _unless_gone(request: Request, work: Callable[[], Awaitable[Answer]], run: str) -> Response:
    """Answer with what comes of some work, which is cancelled when the client goes away."""
    outcome: Any = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gone, request.receive, tasks.cancel_scope)
        try:
            outcome = await work()
        except Exception as error:  # noqa: BLE001 (it is what the client is told)
            outcome = refusal(error, run)
        tasks.cancel_scope.cancel()
    if isinstance(outcome, Refused):
        return outcome.response()
    return Response(status_code=LEFT) if outcome is None else as_json(outcome.told)
