"""The ASGI application of the gateway.

Rules:

- Each call of each API is a route. ``HEAD /`` and ``GET /`` answer 200, which some clients ask before anything else.
  Any other path gets 404, in the shape of the API whose headers the client sends, or of Chat Completions.
- An error before the answer is written in the client's shape; what goes wrong in the middle of a stream, in the stream.
- A client that goes away cancels what was asked for it.
- There are no keys yet, so only this machine is answered, under a name of this machine, and no page of another site
  (``palaver.serve.http.access``): a page could spend money, although it cannot read the answer.

Stability: experimental.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, final

import anyio
from msgspec import json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from palaver.core.errors import PalaverError
from palaver.gateway.apis import APIS
from palaver.gateway.client_api import ApiError, Call, ClientApi, api_error
from palaver.gateway.config import GatewayConfig
from palaver.gateway.exchange import Exchange
from palaver.gateway.gateway import Gateway
from palaver.gateway.record import ClientRequest, Record
from palaver.gateway.response_routes import response_routes
from palaver.gateway.same_wire import read_head
from palaver.serve.http.access import Access
from palaver.serve.http.errors import Refused

if TYPE_CHECKING:
    from anyio import CancelScope
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from palaver.gateway.client_response import ClientResponse

_MAX_BODY: Final = 64 * 1024 * 1024
_ACCESS: Final = Access()
_OWN_PARAMETERS: Final = frozenset({"key", "alt", "api-version"})


def _no_key(_: str) -> None:
    """No key is known but those in the environment."""


def gateway_app(config: GatewayConfig | None = None, *, find_key: Callable[[str], str | None] = _no_key) -> ASGIApp:
    """Return the application of a gateway, for any ASGI server that has lifespans.

    ``config`` is what ``read_config`` returns; without it every model is asked by its name. ``find_key`` returns the
    key of a provider, given its name; where it returns ``None``, the provider's environment variables are read. Raises
    ``PalaverError`` for a configuration that cannot be used.
    """
    gateway = Gateway(config or GatewayConfig(), find_key)
    routes = [
        Route(call.path, partial(_answer, gateway, api, call), methods=["POST"]) for api in APIS for call in api.calls
    ]
    paths = sorted({each.path for api in APIS for each in api.listings})
    routes += [Route(path, partial(_list, gateway, path), methods=["GET"]) for path in paths]
    routes += response_routes(gateway)
    routes.append(Route("/", _root, methods=["GET", "HEAD"]))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with gateway.running():
            yield

    return Starlette(routes=routes, exception_handlers={HTTPException: _refuse}, lifespan=lifespan)


async def _root(_: Request) -> Response:
    return Response(json.encode({"name": "palaver gateway"}), media_type="application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer a path that there is not, or another method than that of a path."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    sent = (api for api in APIS for each in api.listings if each.header and each.header in request.headers)
    api = next(sent, APIS[0])
    return _error(api, ApiError(status, "not_found", f"there is no {request.method} {request.url.path}"))


async def _list(gateway: Gateway, path: str, request: Request) -> Response:
    """List the models that the configuration names."""
    try:
        _ACCESS.check_origin(request)
    except Refused as error:
        return error.response()
    listings = [each for api in APIS for each in api.listings if each.path == path]
    chosen = next((each for each in listings if each.header and each.header in request.headers), None)
    listing = chosen or next(each for each in listings if each.header is None)
    return Response(json.encode(listing.write(gateway.router.names)), media_type="application/json")


async def _answer(gateway: Gateway, api: ClientApi, call: Call, request: Request) -> AnswerResponse | Response:
    """Answer a call. The answer itself is asked for when it is sent."""
    try:
        _ACCESS.check_origin(request)
        body = await _body(request)
        named = request.path_params["model"] if call.names_model else None
        if body is None:
            return _error(api, ApiError(413, "too_large", f"a request of more than {_MAX_BODY:,} bytes"))
        model, stream = read_head(body, api, model=named, stream=call.stream)
    except Refused as error:
        return _error(api, ApiError(error.status, "forbidden", error.message))
    except PalaverError as error:
        return _error(api, api_error(error))
    asked = ClientRequest(
        api=api, model=model, stream=stream, body=body, headers=dict(request.headers), query=_query(request.url.query)
    )
    return AnswerResponse(gateway, Record(request=asked))


def _query(query: str) -> str:
    """Return the query of a client without its key, and without what the address of a model has itself."""
    return "&".join([each for each in query.split("&") if each and each.partition("=")[0] not in _OWN_PARAMETERS])


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
            await self._send(scope, receive, send)
            tasks.cancel_scope.cancel()

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = self._record
        try:
            await self._gateway.admit(record)
            chain = self._gateway.router.find(record.request.model, record.request.api)
            async with Exchange(record, chain) as response:
                await self._hand_on(self._gateway.rewritten(record, response), send)
        except PalaverError as error:
            told = api_error(error)
            record.error = error
            record.outcome = "failed" if record.attempts else "refused"
            if not self._begun:
                record.status = told.status
            await self._gateway.ended(record)
            if not self._begun:
                await _error(record.request.api, told)(scope, receive, send)
            # Else the body is left without its end, and the server closes the connection: nothing else says so.
        except anyio.get_cancelled_exc_class():
            record.outcome = "cancelled"
            await self._gateway.ended(record)
            raise

    async def _hand_on(self, response: ClientResponse, send: Send) -> None:
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
        async for data in response.body:
            if record.first_seconds is None:
                record.first_seconds = time.perf_counter() - record.began
            record.returned.append(data)
            await send({"type": "http.response.body", "body": data, "more_body": True})
        record.outcome = "answered" if record.error is None else "failed"
        await self._gateway.ended(record)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _cancel_when_gone(receive: Receive, scope: CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _headers(response: ClientResponse, record: Record, length: int | None = None) -> list[tuple[bytes, bytes]]:
    own = {} if record.model is None else {"palaver-model": record.model}
    own["palaver-exchange"] = record.id
    if record.losses:
        own["palaver-losses"] = str(len(record.losses))
    if length is not None:
        own["content-length"] = str(length)
    return [(name.encode("latin-1"), text.encode("latin-1")) for name, text in {**response.headers, **own}.items()]


async def _body(request: Request) -> bytes | None:
    """Return the body of a request; ``None`` for one that is too large."""
    pieces, size = list[bytes](), 0
    async for piece in request.stream():
        size += len(piece)
        if size > _MAX_BODY:
            return None
        pieces.append(piece)
    return b"".join(pieces)


def _error(api: ClientApi, error: ApiError) -> Response:
    body, headers = api.write_error(error)
    own = dict(headers)
    if error.retry_after is not None:
        own["retry-after"] = f"{error.retry_after:g}"
    return Response(json.encode(body), error.status, own, "application/json")
