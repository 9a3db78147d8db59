"""The ASGI application of the gateway.

Rules:

- Each call of each API is a route. ``HEAD /`` and ``GET /`` answer 200, which some clients ask before anything else.
  Any other path gets 404, in the shape of the API whose headers the client sends or below which the path lies.
- An error before the answer is written in the client's shape; what goes wrong in the middle of a stream, in the stream.
- A client that goes away cancels what was asked for it.
- Each request but that for ``/`` needs a key where the configuration says so, and is refused before its body is read.
  Without keys only this machine is answered, under a name of this machine. No page of another site is
  (``palaver.serve.http.access``): a page could spend money, although it cannot read the answer.

Stability: experimental.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote, unquote_plus

import anyio
from msgspec import json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from palaver.core.errors import PalaverError
from palaver.gateway.apis import APIS, api_at
from palaver.gateway.client_api import ApiError, Call, ClientApi, api_error
from palaver.gateway.config import GatewayConfig
from palaver.gateway.counts import count_routes
from palaver.gateway.credentials import without_credentials
from palaver.gateway.exchange import Exchange
from palaver.gateway.health import show_health
from palaver.gateway.http_io import error_response, field_value, read_body, refusal
from palaver.gateway.keep_alive import StreamSender
from palaver.gateway.keys import allowed, secret_hash
from palaver.gateway.live import LiveGateway
from palaver.gateway.model_routes import model_routes
from palaver.gateway.record import ClientRequest, Record
from palaver.gateway.request_body import read_head
from palaver.gateway.response_routes import response_routes
from palaver.gateway.telemetry import Metrics
from palaver.serve.http.errors import Refused

if TYPE_CHECKING:
    from anyio import CancelScope
    from anyio.abc import TaskGroup
    from starlette.types import Receive, Scope, Send

    from palaver.gateway.client_response import ClientResponse
    from palaver.gateway.gateway import Gateway

_LOGGER: Final = logging.getLogger("palaver.gateway")
_DEFECT: Final = ApiError(500, "server", "the gateway failed; its log says why")
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
_SAFE: Final = "/:@+,=()[] "
_LONGEST: Final = 256
"""Characters of a header that a client's own text is part of."""
_OWN_PARAMETERS: Final = frozenset({"key", "alt", "$alt", "api-version"})


def _no_key(_: str) -> None:
    """No key is known but those in the environment."""


def gateway_app(config: GatewayConfig | None = None, *, find_key: Callable[[str], str | None] = _no_key) -> ASGIApp:
    """Return the application of a gateway, for any ASGI server that has lifespans.

    ``config`` is what ``read_config`` returns; without it every model is asked by its name. ``find_key`` returns the
    key of a provider, given its name; where it returns ``None``, the provider's environment variables are read. Raises
    ``PalaverError`` for a configuration that cannot be used.
    """
    return live_app(LiveGateway(config or GatewayConfig(), find_key))


def live_app(live: LiveGateway) -> ASGIApp:
    """Return the application of a gateway whose configuration may be replaced."""
    routes = [Route(call.path, _Endpoint(live, api, call), methods=["POST"]) for api in APIS for call in api.calls]
    paths = sorted({each.path for api in APIS for each in api.listings})
    routes += [Route(path, partial(_list, live, path), methods=["GET"]) for path in paths]
    routes += [*model_routes(live), *count_routes(live), *response_routes(live)]
    routes.append(Route("/", _root, methods=["GET", "HEAD"]))
    routes.append(Route("/metrics", partial(_metrics, live), methods=["GET"]))
    routes.append(Route("/health", partial(show_health, live), methods=["GET", "HEAD"]))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with live.running():
            yield

    app = _Application(routes=routes, exception_handlers={HTTPException: _refuse}, lifespan=lifespan)
    app.router.redirect_slashes = False  # a redirect would name a host and a scheme that only the client has said
    return app


class _Application(Starlette):
    """Finds the calls whose path has no parameter in a table: routes are tried one after the other."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        known = self._calls.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if known is None:
            await super().__call__(scope, receive, send)
            return
        scope["path_params"] = {}
        await known(scope, receive, send)

    @cached_property
    def _calls(self) -> dict[str, ASGIApp]:
        found = [each for each in self.routes if isinstance(each, Route) and isinstance(each.endpoint, _Endpoint)]
        return {each.path: each.endpoint for each in found if "{" not in each.path}


async def _root(_: Request) -> Response:
    return Response(json.encode({"name": "palaver gateway"}), media_type="application/json")


async def _metrics(live: LiveGateway, request: Request) -> Response:
    """Answer with what Prometheus reads."""
    try:
        await live.gateway.caller(APIS[0], request)
    except (Refused, PalaverError) as error:
        return refusal(APIS[0], error)
    found = live.gateway.component(Metrics)
    if found is None:
        return Response("there are no metrics: telemetry.metrics is false\n", 404, media_type="text/plain")
    return Response(found.render(live), media_type=_METRICS)


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer a path that there is not, or another method than that of a path."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    known = (error.headers or {}) if isinstance(error, HTTPException) else {}
    if request.method == "OPTIONS" and status == 405:  # noqa: PLR2004 (the path is known)
        return Response(status_code=204, headers=known)
    api = api_at(request.url.path, request.headers)
    return error_response(api, ApiError(status, "no_path", f"there is no {request.method} {request.url.path}"), known)


async def _list(live: LiveGateway, path: str, request: Request) -> Response:
    """List the models that the configuration names."""
    gateway = live.gateway
    listings = [(api, each) for api in APIS for each in api.listings if each.path == path]
    chosen = next((each for each in listings if each[1].header and each[1].header in request.headers), None)
    api, listing = chosen or next(each for each in listings if each[1].header is None)
    try:
        caller = await gateway.caller(api, request)
    except (Refused, PalaverError) as error:
        return refusal(api, error)
    return Response(json.encode(listing.write(allowed(caller, gateway.router.names))), media_type="application/json")


@final
class _Endpoint:
    """Answers a call, as long as the gateway takes further exchanges."""

    def __init__(self, live: LiveGateway, api: ClientApi, call: Call) -> None:
        self._live = live
        self._api = api
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (full := self._live.refusal()) is not None:
            await error_response(self._api, full, {"connection": "close"})(scope, receive, send)
            return
        with self._live.exchange() as gateway, suppress(ClientDisconnect):
            response = await _answer(gateway, self._api, self._call, Request(scope, receive, send))
            await response(scope, receive, send)


async def _answer(gateway: Gateway, api: ClientApi, call: Call, request: Request) -> AnswerResponse | Response:
    """Answer a call. The answer itself is asked for when it is sent."""
    try:
        caller = await gateway.caller(api, request)
        body = await read_body(request, gateway.config.listen)
        named = request.path_params["model"] if call.names_model else None
        model, stream = read_head(body, api, model=named, stream=call.stream)
    except (Refused, PalaverError) as error:
        return refusal(api, error)
    headers = without_credentials(request.headers.items())
    query, listed = _query(request.url.query), stream and api.lists(request.query_params)
    asked = ClientRequest(api=api, model=model, stream=stream, body=body, headers=headers, query=query, listed=listed)
    made = Record(request=asked, caller=caller, max_answer=gateway.config.listen.max_answer)
    return AnswerResponse(gateway, made)


def _query(query: str) -> str:
    """Return the query of a client without its key, and without what the address of a model has itself."""
    return "&".join([each for each in query.split("&") if each and _goes_on(each)])


def _goes_on(parameter: str) -> bool:
    name, _, text = unquote_plus(parameter).partition("=")
    return name not in _OWN_PARAMETERS and secret_hash(text) is None


@final
class AnswerResponse:
    """Asks models, and sends the answer as it comes. A client that goes away cancels that."""

    def __init__(self, gateway: Gateway, record: Record) -> None:
        """Keep the arguments; nothing is sent yet."""
        self._gateway = gateway
        self._record = record
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_gone, receive, tasks.cancel_scope)
            await self._send(scope, receive, send, tasks)
            tasks.cancel_scope.cancel()

    async def _send(self, scope: Scope, receive: Receive, send: Send, tasks: TaskGroup) -> None:
        record = self._record
        try:
            await self._gateway.admit(record)
            chain = self._gateway.router.find(record.request.model, record.request.api)
            async with Exchange(record, chain, self._gateway.translator) as response:
                await self._hand_on(self._gateway.rewritten(record, response), send, tasks)
        except PalaverError as error:
            record.error = error
            record.outcome = "failed" if record.attempts else "refused"
            await self._fail(api_error(error), scope, receive, send)
        except anyio.get_cancelled_exc_class():
            record.outcome = "cancelled"
            await self._gateway.ended(record)
            raise
        except Exception:
            _LOGGER.exception("the exchange %s failed", record.id)
            record.outcome = "failed"
            await self._fail(_DEFECT, scope, receive, send)

    async def _fail(self, error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        """Note the end; answer with an error where no answer has begun."""
        record = self._record
        if not self._begun:
            record.status = error.status
        await self._gateway.ended(record)
        if not self._begun:
            await error_response(record.request.api, error)(scope, receive, send)
        # Else the body is left without its end, and the server closes the connection: nothing else says so.

    async def _hand_on(self, response: ClientResponse, send: Send, tasks: TaskGroup) -> None:
        """Send an answer as it comes; note its end before the client sees it."""
        record = self._record
        record.status = response.status
        head = {"type": "http.response.start", "status": response.status}
        if not record.request.stream or response.error is not None:
            data = b"".join([each async for each in response.body])
            record.returned.append(data)
            record.error = response.error
            record.outcome = "answered" if response.error is None else "refused"
            await self._gateway.ended(record)
            await send({**head, "headers": _headers(response, record, len(data))})
            self._begun = True
            await send({"type": "http.response.body", "body": data})
            return
        await send({**head, "headers": _headers(response, record)})
        self._begun = True
        sender = StreamSender(send, record.request.api, self._gateway.config.listen.keep_alive)
        tasks.start_soon(sender.run)
        async for data in response.body:
            if record.first_seconds is None:
                record.first_seconds = time.perf_counter() - record.began
            record.returned.append(data)
            await sender.send(data)
        sender.stop()
        record.outcome = "answered" if record.error is None else "failed"
        await self._gateway.ended(record)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _cancel_when_gone(receive: Receive, scope: CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _headers(response: ClientResponse, record: Record, length: int | None = None) -> list[tuple[bytes, bytes]]:
    own = {} if record.model is None else {"palaver-model": quote(record.model, safe=_SAFE)[:_LONGEST]}
    own["palaver-exchange"] = record.id
    if record.losses:
        own["palaver-losses"] = str(len(record.losses))
    if length is not None:
        own["content-length"] = str(length)
    return [(name.encode("latin-1"), field_value(text)) for name, text in {**response.headers, **own}.items()]
