"""The front of a swarm: an ASGI application over a desk.

Rules:

- The desk is entered already, and outlives the front. Who answers, this process or workers elsewhere, is the desk's
  affair.
- Who may ask, and from where, stands in ``palaver.serve.http.access``; ``/health`` answers everybody.
- Every error has one shape (``palaver.serve.http.errors``), also for paths that there are not.
- ``close`` ends every stream and WebSocket, and lets no other begin, so that a server can stop in time.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from palaver.core.errors import PalaverError
from palaver.serve.http.access import Access, Limits
from palaver.serve.http.errors import Refused, refusal
from palaver.serve.http.routes import LEFT, Http
from palaver.serve.http.turns import Turns
from palaver.serve.http.websocket import GOING_AWAY, Socket
from palaver.swarm.names import checked_client

if TYPE_CHECKING:
    from palaver.serve.http.turns import History
    from palaver.serve.workers import Dispatcher

Endpoint: TypeAlias = "Callable[[Request], Awaitable[Response]]"

_CODES: Final = {404: "not_found", 405: "method"}


class _AnyText(Convertor[str]):
    """Any name, also one that no client may have (with a slash, a line break): the error then says so."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        """Take it as it is."""
        return value

    def to_string(self, value: str) -> str:
        """Write it as it is."""
        return value


register_url_convertor("palaver_client", _AnyText())


class Front:
    """Answers HTTP and WebSocket for a swarm. It is an ASGI application."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        history: History | None = None,
        limits: Limits | None = None,
        token: str | None = None,
        tokens: Mapping[str, str] | None = None,
        hosts: Collection[str] | None = None,
        origins: Collection[str] = (),
        swarm: str | None = None,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        """Hand messages in at a desk.

        ``history`` gives what was said; ``swarm`` names the one whose events are told, where several share a bus.
        ``token`` is shown for any client, ``tokens`` (client: token) for one. ``hosts`` are the names by which the
        server is called beside ``localhost``, ``"*"`` for any, the default with a token; ``origins`` are those of
        pages elsewhere that may ask (``https://app.example``). ``middleware`` is Starlette's. Raises ``SwarmError``.
        """
        self._turns = Turns(dispatcher, limits or Limits(), swarm)
        self._access = Access(token=token, tokens=tokens, hosts=hosts, origins=origins)
        self._open: set[Socket] = set()
        self._http = http = Http(self._turns, history)
        client = "/v1/clients/{client:palaver_client}"
        self._app = Starlette(
            routes=[
                Route("/health", http.health, methods=["GET"]),
                Route(f"{client}/messages", self._guarded(http.post), methods=["POST"]),
                Route(f"{client}/messages", self._guarded(http.messages), methods=["GET"]),
                Route(f"{client}/turn", self._guarded(http.cancel), methods=["DELETE"]),
                Route(f"{client}/events", self._guarded(http.events), methods=["GET"]),
                WebSocketRoute(client, self._socket),
            ],
            middleware=[*self._access.middleware, *middleware],
            exception_handlers={HTTPException: _http_error},
            lifespan=self._lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, as ASGI says."""
        await self._app(scope, receive, send)

    def close(self) -> None:
        """End every stream and WebSocket, and say so. Turns go on."""
        self._turns.closing = True
        for socket in tuple(self._open):
            socket.leave(GOING_AWAY, "the server stops")
        self._http.close()

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncGenerator[None]:
        yield
        self._turns.close()

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        """An endpoint that is asked only by those who may, and whose errors have our shape."""

        async def guarded(request: Request) -> Response:
            try:
                self._access.check_origin(request)
                self._access.check_token(request, request.path_params["client"])
                return await endpoint(request)
            except ClientDisconnect:
                return Response(status_code=LEFT)
            except Exception as error:  # noqa: BLE001 (it is what the client is told)
                return refusal(error).response()

        return guarded

    async def _socket(self, websocket: WebSocket) -> None:
        try:
            self._access.check_origin(websocket)
            self._access.check_token(websocket, websocket.path_params["client"])
            client = checked_client(websocket.path_params["client"])
            self._turns.gate.admit(client)
            self._turns.check_open()
            socket = Socket(self._turns, client, websocket)
            held = ExitStack()
            held.enter_context(self._turns.gate.stream(client))
        except (Refused, PalaverError) as error:
            await websocket.send_denial_response(refusal(error).response())
            return
        with held:
            self._open.add(socket)
            held.callback(self._open.discard, socket)
            await socket.serve()


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 (it is registered for these)
    code = _CODES.get(error.status_code, "http")
    response = Refused(error.status_code, code, error.detail.lower()).response()
    response.headers.update(error.headers or {})
    return response
