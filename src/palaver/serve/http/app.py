"""The ASGI application over a dispatcher: routes, access checks, and WebSockets.

- The dispatcher is open already and outlives the application. It decides who answers: this process or workers.
- ``palaver.serve.http.access`` checks who may send requests. ``/health`` answers everybody.
- Every error has the same shape (``palaver.serve.http.errors``), also for unknown paths.
- ``close`` ends every stream and WebSocket and refuses new ones, so that a server can stop in time.

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
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from palaver.core.errors import PalaverError
from palaver.serve.http import home_page, openapi
from palaver.serve.http.access import Access, ClientLimiter, Limits
from palaver.serve.http.errors import Refused, as_json, refusal
from palaver.serve.http.openapi import own_route
from palaver.serve.http.routes import CLIENT_CLOSED_REQUEST, Endpoints
from palaver.serve.http.turns import Turns
from palaver.serve.http.websocket import GOING_AWAY, Socket
from palaver.swarm.names import checked_client

if TYPE_CHECKING:
    from palaver.serve.http.turns import History
    from palaver.serve.workers import Dispatcher

Endpoint: TypeAlias = "Callable[[Request], Awaitable[Response]]"

_CODES: Final = {404: "not_found", 405: "method"}


class _AnyText(Convertor[str]):
    """Accepts any name, also an invalid one (with a slash or a line break), so that the error can say what is wrong."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        """Return the text unchanged."""
        return value

    def to_string(self, value: str) -> str:
        """Return the text unchanged."""
        return value


register_url_convertor("palaver_client", _AnyText())


class HttpApp:
    """An ASGI application that answers HTTP and WebSocket for a swarm."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        history: History | None = None,
        limits: Limits | ClientLimiter | None = None,
        token: str | None = None,
        tokens: Mapping[str, str] | None = None,
        hosts: Collection[str] | None = None,
        origins: Collection[str] = (),
        swarm: str | None = None,
        middleware: Sequence[Middleware] = (),
        routes: Sequence[BaseRoute] = (),
        title: str = "Palaver",
        agents: Sequence[str] = (),
    ) -> None:
        """Serve a swarm through its dispatcher.

        ``history`` returns a client's messages. ``limits`` are for each client; a ``ClientLimiter`` counts its requests
        together with those at other routes. ``swarm`` names the swarm, when several share a bus. ``token`` reads
        every client; ``tokens`` maps each client to its token. ``hosts`` are names of the server besides
        ``localhost``; ``"*"``, the default with a token, allows any. ``origins`` are origins of other pages that may
        send requests (``https://app.example``). ``middleware`` is Starlette's. ``routes`` are further routes, which
        check access themselves: those of ``palaver.serve.ui``. They are listed at ``/openapi.json``, too. ``title`` and
        ``agents`` are shown at ``/``. Raises ``SwarmError``.
        """
        limiter = limits if isinstance(limits, ClientLimiter) else ClientLimiter(limits)
        self._turns = Turns(dispatcher, limiter, swarm)
        self._access = Access(token=token, tokens=tokens, hosts=hosts, origins=origins)
        self._title, self._agents = title, tuple(agents)
        self._open: set[Socket] = set()
        self._endpoints = endpoints = Endpoints(self._turns, history)
        client = "/v1/clients/{client:palaver_client}"
        self._app = Starlette(
            routes=[
                *routes,
                own_route("/", self._home_page),
                own_route("/openapi.json", self._openapi),
                own_route("/health", endpoints.health),
                own_route(f"{client}/messages", self._guarded(endpoints.post), "POST"),
                own_route(f"{client}/messages", self._guarded(endpoints.messages), "GET"),
                own_route(f"{client}/approvals", self._guarded(endpoints.approvals), "GET"),
                own_route(f"{client}/decisions", self._guarded(endpoints.decide), "POST"),
                own_route(f"{client}/turn", self._guarded(endpoints.cancel), "DELETE"),
                own_route(f"{client}/events", self._guarded(endpoints.events), "GET"),
                WebSocketRoute(client, self._socket),
            ],
            middleware=[*self._access.middleware, *middleware],
            exception_handlers={HTTPException: _http_error},
            lifespan=self._lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        await self._app(scope, receive, send)

    def close(self) -> None:
        """End every stream and WebSocket. Turns go on."""
        self._turns.closing = True
        for socket in tuple(self._open):
            socket.close(GOING_AWAY, "the server is stopping")
        self._endpoints.close()

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncGenerator[None]:
        yield
        self._turns.close()

    async def _home_page(self, request: Request) -> Response:
        """Show what is served. It needs no token, and shows nothing of any conversation."""
        try:
            self._access.check_origin(request)
        except Refused as error:
            return error.response()
        origin = f"{request.url.scheme}://{request.url.netloc}"
        text = home_page.page(self._title, self._agents, self._app.routes, origin=origin, secured=self._access.required)
        headers = {"content-security-policy": home_page.CONTENT_SECURITY_POLICY, "x-frame-options": "DENY"}
        return Response(text, media_type="text/html", headers=headers)

    async def _openapi(self, request: Request) -> Response:
        """Describe the routes."""
        try:
            self._access.check_origin(request)
        except Refused as error:
            return error.response()
        return as_json(openapi.document(self._title, self._app.routes, secured=self._access.required))

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        """Wrap an endpoint with the access checks and the common shape of errors."""

        async def guarded(request: Request) -> Response:
            try:
                self._access.check_origin(request)
                self._access.check_token(request, request.path_params["client"])
                return await endpoint(request)
            except ClientDisconnect:
                return Response(status_code=CLIENT_CLOSED_REQUEST)
            except Exception as error:  # noqa: BLE001 (the client gets it as a response)
                return refusal(error).response()

        return guarded

    async def _socket(self, websocket: WebSocket) -> None:
        try:
            self._access.check_origin(websocket)
            self._access.check_token(websocket, websocket.path_params["client"])
            client = checked_client(websocket.path_params["client"])
            self._turns.limiter.admit(client)
            self._turns.check_open()
            socket = Socket(self._turns, client, websocket)
            resources = ExitStack()
            resources.enter_context(self._turns.limiter.stream(client))
        except (Refused, PalaverError) as error:
            await websocket.send_denial_response(refusal(error).response())
            return
        with resources:
            self._open.add(socket)
            resources.callback(self._open.discard, socket)
            await socket.serve()


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 (it is registered for these)
    code = _CODES.get(error.status_code, "http")
    response = Refused(error.status_code, code, error.detail.lower()).response()
    response.headers.update(error.headers or {})
    return response
