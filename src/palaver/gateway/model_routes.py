"""Routes that show one model, and those that are always answered alike.

A name that the configuration does not list is shown, too, where it can be asked.

Stability: experimental.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import json
from starlette.responses import Response
from starlette.routing import Route

from palaver.core.errors import PalaverError, UnknownNameError
from palaver.gateway.apis import APIS
from palaver.gateway.http_io import read_body, refusal
from palaver.gateway.keys import allowed
from palaver.gateway.request_body import read_head
from palaver.serve.http.errors import Refused

if TYPE_CHECKING:
    from starlette.requests import Request

    from palaver.gateway.client_api import ClientApi
    from palaver.gateway.live import LiveGateway


def model_routes(live: LiveGateway) -> list[Route]:
    """Return the routes of all APIs."""
    rows = sorted({(each.path, each.method) for api in APIS for each in api.lookups})
    routes = [Route(path, partial(_show, live, path), methods=[method]) for path, method in rows]
    fixed = {path: (api, body) for api in APIS for path, body in api.fixed.items()}
    return routes + [
        Route(path, partial(_answer_alike, live, api, body), methods=["GET"]) for path, (api, body) in fixed.items()
    ]


async def _show(live: LiveGateway, path: str, request: Request) -> Response:
    rows = [(api, each) for api in APIS for each in api.lookups if each.path == path]
    chosen = [row for row in rows if row[1].header and row[1].header in request.headers]
    api, lookup = (chosen or [row for row in rows if row[1].header is None])[0]
    gateway = live.gateway
    try:
        caller = await gateway.caller(api, request)
        name = request.path_params.get("model")
        if name is None:
            name, _ = read_head(await read_body(request, gateway.config.listen), api, model=None, stream=False)
        gateway.router.find(name, api)
        if not allowed(caller, [name]):
            raise UnknownNameError(f"no model {name!r}")
    except (Refused, PalaverError) as error:
        return refusal(api, error)
    return Response(json.encode(lookup.write(name)), media_type="application/json")


async def _answer_alike(live: LiveGateway, api: ClientApi, body: Any, request: Request) -> Response:
    try:
        await live.gateway.caller(api, request)
    except (Refused, PalaverError) as error:
        return refusal(api, error)
    return Response(json.encode(body), media_type="application/json")
