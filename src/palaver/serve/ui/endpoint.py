"""An endpoint for web front ends: requests in, server-sent events out, whatever the protocol.

Rules:

- ``routes(path)`` gives the routes for an application; ``respond(request)`` answers one request inside a route of your
  own, with the conversation that you name.
- The names of clients' conversations begin with ``prefix``, so no client can name another thread of the store, another
  client of the swarm, or what ``respond`` was given as ``conversation``. Who may read which conversation is for the
  application to decide: give ``conversation``, or use ``respond``.
- A conversation answers one request at a time; another one gets 409, at any endpoint over the same store or swarm in
  this process. In two processes, the one that writes second ends with an error (``AgentTurns``).
- With ``resume`` an answer goes on when its reader leaves, and can be read again from its beginning; without it the
  run is cancelled.
- A body that is not of the protocol gets 400 and the place of the mistake. Decisions that do not fit the calls that
  wait get 409 and the reason; where another process decides meanwhile, the answer ends with the reason.
- Limits are for each conversation, as those of ``palaver.serve.http.access`` for each client: requests, readers of
  streams, answers that are awaited, bytes of a body, and the seconds that a reader may take. Over a swarm, whose
  clients the conversations are, clients name them by the same rules as there.
- An error is a response with a status and ``{"error": {"code", "message"}}``: ``useChat`` shows its text as the message
  of the error, and ``HttpAgent`` throws it with the status.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import anyio
from anyio import to_thread
from msgspec import Struct, structs
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.type_checks import check_arguments
from palaver.serve.http import openapi
from palaver.serve.http.access import Access, ClientLimiter, Limits, body_of
from palaver.serve.http.errors import Refused, as_json, refusal
from palaver.serve.http.event_stream import HEARTBEAT
from palaver.serve.http.openapi import DocumentedRoute
from palaver.serve.ui.client_messages import checked_id
from palaver.serve.ui.history import History
from palaver.serve.ui.sources import turns_of
from palaver.serve.ui.turns import Ended, Placed, Turn, Turns, UiRequest
from palaver.swarm.call import LOGGER
from palaver.turn.events import RunStarted

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from palaver.store.store import Store

Chunk: TypeAlias = dict[str, Any]
"""One event of a protocol, as a JSON object."""


_HISTORY: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"id": openapi.TEXT, "role": openapi.TEXT},
        "required": ["id", "role"],
    },
}
_STOPPED: Final = {"type": "object", "properties": {"stopped": {"type": "boolean"}}, "required": ["stopped"]}


class TurnWriter(Protocol):
    """Writes the events of one answer in a protocol."""

    @abstractmethod
    def write(self, event: Turn) -> Iterator[Chunk]:
        """Return the protocol's events for one event of the turn."""
        ...


class UiProtocol(Struct, frozen=True, kw_only=True):
    """A protocol: how a body is read, how an answer is written, and the headers of the response.

    ``history`` writes the messages of a conversation, and ``end`` are the bytes behind the last event of an answer.
    ``about`` is what a request does, and ``body`` the JSON Schema of what it sends, for the OpenAPI document.
    """

    name: str
    parse: Callable[[bytes], UiRequest]
    writer: Callable[[UiRequest], TurnWriter]
    history: Callable[[History], list[Chunk]]
    about: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = {}
    end: bytes = b""


class _Answer:
    """An answer that is under way: what was written, for every reader."""

    def __init__(self, endpoint: UiEndpoint) -> None:
        self.endpoint = endpoint
        self.pieces: list[bytes] = []
        self.over = False
        self.began = 0
        """How many entries the conversation had when it began."""
        self.scope = anyio.CancelScope()
        self._grown = anyio.Event()

    def add(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self._wake()

    def end(self) -> None:
        self.over = True
        self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = anyio.Event()

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the answer from its beginning; a comment after each ``HEARTBEAT`` seconds of silence."""
        place = 0
        while True:
            while place < len(self.pieces):
                place += 1
                yield self.pieces[place - 1]
            if self.over:
                return
            grown = self._grown
            with anyio.move_on_after(HEARTBEAT) as silence:
                await grown.wait()
            if silence.cancelled_caught:
                yield b":\n\n"


_UNDER_WAY: Final[WeakKeyDictionary[object, dict[str, _Answer]]] = WeakKeyDictionary()
"""The answers that are under way, by the name of their conversation, of each store and each swarm in this process."""


class UiEndpoint:
    """Serves an agent or a swarm by a protocol. An ASGI application; ``routes`` and ``respond`` fit it into another."""

    def __init__(
        self,
        source: object,
        *,
        store: Store | None = None,
        prefix: str | None = None,
        conversation: Callable[[Request, str], str] | None = None,
        resume: bool = True,
        show_tools: bool | None = None,
        access: Access | None = None,
        limits: Limits | ClientLimiter | None = None,
    ) -> None:
        """Serve ``source``: an ``Agent``, or a swarm that has been started (``LiveSwarm``).

        ``store`` keeps an agent's conversations; without one the client's messages are the conversation. ``prefix``
        begins the names of the conversations that clients name: ``chat/`` for an agent, ``chat:`` for a swarm, whose
        clients they are. With an empty one, they reach all threads of the store, and all clients of the swarm.
        ``conversation`` gives the name of the conversation for a request and the id that
        the client sent (the user's own name in front of it, say); it may raise ``Refused``. ``resume``: answers go on
        without a reader. ``show_tools``: whether clients see calls with their arguments and results; by default those
        of an agent, and not those of a swarm, whose clients see what is said to them. Calls that a client decides or
        runs are always shown, with their results. ``access`` checks hosts, origins
        and tokens, where the application does not. ``limits`` are for each conversation, by default those of ``Limits``
        with bodies of 4 MiB; a ``ClientLimiter`` counts its requests together with those at other routes. Raises
        ``MessageError`` for arguments of another type.
        """
        given = {key: value for key, value in locals().items() if key not in {"source", "self"}}
        check_arguments(type(self).__name__, UiEndpoint.__init__, given)
        self._turns: Turns = turns_of(source, store, show_tools=show_tools)
        self._prefix = self._turns.prefix if prefix is None else prefix
        self._conversation = conversation
        self._resume = resume
        self._access = access
        given_limits = Limits(body=4 * 1024 * 1024) if limits is None else limits
        self.limiter = given_limits if isinstance(given_limits, ClientLimiter) else ClientLimiter(given_limits)
        owner = self._turns.owner
        self._answers: dict[str, _Answer] = {} if owner is None else _UNDER_WAY.setdefault(owner, {})
        self._app = Starlette(routes=self.routes("/"))

    @property
    @abstractmethod
    def protocol(self) -> UiProtocol:
        """The protocol that is spoken."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        await self._app(scope, receive, send)

    def routes(self, path: str) -> list[Route]:
        """Return the routes at ``path``: post a request, read the answer that is under way again, stop it, load a page.

        They are ``POST path``, ``GET path/ID/stream``, ``DELETE path/ID`` and ``GET path/ID``, which gives the messages
        of a conversation that is kept.
        """
        base, one = path.rstrip("/"), [openapi.parameter("id")]
        events = {openapi.EVENTS: openapi.TEXT}
        answer = openapi.operation(
            openapi.name_of(base, "answer"),
            self.protocol.about,
            events,
            body=self.protocol.body,
            errors=openapi.WRITES,
        )
        again = openapi.operation(
            openapi.name_of(base, "stream"),
            "Read the answer that is under way from its beginning",
            events,
            parameters=one,
            errors=openapi.READS,
            others={"204": "No answer is under way"},
        )
        load = openapi.operation(
            openapi.name_of(base, "history"),
            "List the messages of a conversation",
            {openapi.JSON: _HISTORY},
            parameters=one,
            errors=openapi.READS,
        )
        stop = openapi.operation(
            openapi.name_of(base, "stop"),
            "Stop the answer that is under way",
            {openapi.JSON: _STOPPED},
            parameters=one,
            errors=openapi.READS,
        )
        return [
            DocumentedRoute(base or "/", self.respond, method="POST", operation=answer),
            DocumentedRoute(f"{base}/{{id:path}}/stream", self._read_again, method="GET", operation=again),
            DocumentedRoute(f"{base}/{{id:path}}", self._load, method="GET", operation=load),
            DocumentedRoute(f"{base}/{{id:path}}", self._stop, method="DELETE", operation=stop),
        ]

    async def respond(self, request: Request, *, conversation: str | None = None) -> Response:
        """Answer one ``request``. ``conversation`` names the conversation in place of what the client sent."""
        try:
            self._check(request)
            asked = await to_thread.run_sync(self.protocol.parse, await body_of(request, self.limiter.limits))
            name = self._admitted(request, asked.id) if conversation is None else conversation
            if conversation is not None:
                self.limiter.admit(name)
            if name in self._answers:
                return _busy()
            asked = structs.replace(asked, id=name)
            await self._turns.check(asked)
        except (PalaverError, Refused) as error:
            return refusal(error).response()
        return _Streaming(self, name, _Answer(self), asked)

    async def messages(self, conversation: str) -> list[Chunk]:
        """Return the messages of a conversation for a page that loads it, as JSON objects of the protocol.

        ``conversation`` is a whole name, as ``respond`` takes it. Empty for one that is not there, or not kept. An
        answer that is under way is left out: the page reads it from the stream. Raises as ``Store.path`` does.
        """
        answer = self._answers.get(conversation)
        began = answer.began if answer is not None and answer.endpoint is self else None
        return self.protocol.history(await self._turns.history(conversation, began))

    async def _load(self, request: Request) -> Response:
        try:
            self._check(request)
            return as_json(await self.messages(self._admitted(request, request.path_params["id"])))
        except Exception as error:  # noqa: BLE001 (the client gets it as a response)
            return refusal(error).response()

    async def _read_again(self, request: Request) -> Response:
        try:
            self._check(request)
            name = self._admitted(request, request.path_params["id"])
        except (PalaverError, Refused) as error:
            return refusal(error).response()
        answer = self._answers.get(name)
        if answer is None or answer.endpoint is not self:  # another endpoint's is of another protocol
            return Response(status_code=204)
        return _Streaming(self, name, answer, None)

    async def _stop(self, request: Request) -> Response:
        try:
            self._check(request)
            answer = self._answers.get(self._admitted(request, request.path_params["id"]))
        except (PalaverError, Refused) as error:
            return refusal(error).response()
        if answer is not None:
            answer.scope.cancel()
        return as_json({"stopped": answer is not None})

    def _check(self, request: Request) -> None:
        """Raise ``Refused`` for a request that may not be made."""
        if self._access is not None:
            self._access.check_origin(request)
            self._access.client_of(request)
        if request.method == "POST":
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise Refused(415, "media_type", "the body is sent as application/json")

    def _admitted(self, request: Request, id: str) -> str:
        """Return the name of the conversation that the client calls ``id``, and count a request of it."""
        checked_id(id, "id")
        self._turns.check_name(id)
        name = id if self._conversation is None else self._conversation(request, id)
        if self._access is not None:
            self._access.check_token(request, name)
        self.limiter.admit(self._prefix + name)
        return self._prefix + name

    def begin(self, name: str, answer: _Answer) -> bool:
        """Note that ``answer`` is under way in the conversation ``name``; ``False`` where another one is."""
        return self._answers.setdefault(name, answer) is answer

    async def run(self, name: str, answer: _Answer, request: UiRequest) -> None:
        """Write an answer to its end. Cancelling ``answer.scope`` stops the run, which is written too.

        Raises nothing but cancellation: whatever else is raised ends the answer as an error.
        """
        writer = self.protocol.writer(request)
        try:
            with answer.scope:
                try:
                    async with aclosing(self._turns.answer(request)) as turn:
                        async for event in turn:
                            answer.began = event.length if isinstance(event, RunStarted | Placed) else answer.began
                            _write(writer, event, answer)
                except Exception as error:  # noqa: BLE001 (the client gets it as the end of the answer)
                    _write(writer, Ended(outcome="failed", error=error), answer)
            if answer.scope.cancelled_caught:
                _write(writer, Ended(outcome="cancelled"), answer)
            answer.add(self.protocol.end)
        finally:
            self._answers.pop(name, None)
            answer.end()

    @property
    def resumes(self) -> bool:
        """Whether answers go on without a reader."""
        return self._resume


def _busy() -> Response:
    return Refused(409, "conflict", "an answer of this conversation is under way").response()


def _write(writer: TurnWriter, event: Turn, answer: _Answer) -> None:
    """Write one event. What is no JSON is left out, and logged."""
    for chunk in writer.write(event):
        try:
            answer.add(b"data: %b\n\n" % jsontext.encode(chunk))
        except PalaverError as error:
            LOGGER.warning("not sent to the client: %s: %s", chunk.get("type"), error)


class _Streaming(Response):
    """A response that writes an answer, and runs it where it has a request."""

    def __init__(self, endpoint: UiEndpoint, name: str, answer: _Answer, request: UiRequest | None) -> None:
        headers = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no", **endpoint.protocol.headers}
        super().__init__(None, media_type="text/event-stream", headers=headers)
        del self.headers["content-length"]
        self._endpoint, self._name, self._answer, self._request = endpoint, name, answer, request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response. The run goes on behind it where the endpoint resumes."""
        limiter = self._endpoint.limiter
        try:
            with (limiter.stream if self._request is None else limiter.pending)(self._name):
                await self._answered(scope, receive, send)
        except Refused as refused:  # before anything was sent
            await refused.response()(scope, receive, send)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._request is not None and not self._endpoint.begin(self._name, self._answer):
            await _busy()(scope, receive, send)
            return
        async with anyio.create_task_group() as tasks:
            if self._request is not None:
                tasks.start_soon(self._endpoint.run, self._name, self._answer, self._request)
            with anyio.CancelScope() as reader, suppress(OSError):  # that of a server whose client has left (ASGI 2.4)
                tasks.start_soon(_until_disconnect, receive, reader)
                async for message in self._messages():
                    with anyio.move_on_after(self._endpoint.limiter.limits.io_timeout) as slow:
                        await send(message)
                    if slow.cancelled_caught:
                        reader.cancel()
            if self._request is not None and not self._answer.over and not self._endpoint.resumes:
                self._answer.scope.cancel()
            while self._request is not None and not self._answer.over:
                async for _ in self._answer.read():
                    pass
            tasks.cancel_scope.cancel()

    async def _messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what is sent (ASGI), to the end of the answer."""
        yield {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        async for piece in self._answer.read():
            yield {"type": "http.response.body", "body": piece, "more_body": True}
        yield {"type": "http.response.body", "body": b"", "more_body": False}


async def _until_disconnect(receive: Receive, reader: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.cancel()
