"""The paths of the Responses API that read and delete what is stored (https://platform.openai.com/docs/api-reference).

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Raw, json
from starlette.responses import Response
from starlette.routing import Route

from palaver.core.errors import DecodeError, NotFoundError, PalaverError
from palaver.gateway.apis import responses
from palaver.gateway.client_api import ApiError
from palaver.gateway.http_io import error_response, read_body, refusal
from palaver.gateway.response_table import ResponseTable, input_items
from palaver.gateway.stored_responses import StoredResponses, caller_id
from palaver.serve.http.errors import Refused
from palaver.store.store import to_thread

if TYPE_CHECKING:
    from starlette.requests import Request

    from palaver.gateway.gateway import Gateway
    from palaver.gateway.live import LiveGateway

_Answer: TypeAlias = Callable[[ResponseTable, "Request", str, bytes], Any]
_ROOTS: Final = ("/v1", "", "/openai/v1", "/openai")
_PAGE: Final = 20
_MOST: Final = 100
_NUMBER: Final = re.compile("[1-9][0-9]{0,3}")


def response_routes(live: LiveGateway) -> list[Route]:
    """Return the routes; where no responses are stored they answer 404."""
    return [
        Route(root + path, partial(_handle, live, answer), methods=[method])
        for root in _ROOTS
        for method, path, answer in _TABLE
    ]


async def _handle(live: LiveGateway, answer: _Answer, request: Request) -> Response:
    """Answer a request, or refuse it in the shape of the API."""
    gateway = live.gateway
    try:
        caller = await gateway.caller(responses.API, request)
        body = await read_body(request, gateway.config.listen)
        made = await to_thread(answer, _table_of(gateway), request, caller_id(caller), body)
    except NotFoundError as error:
        return error_response(responses.API, ApiError(404, "not_found", str(error)))
    except (Refused, PalaverError) as error:
        return refusal(responses.API, error)
    return Response(bytes(made) if isinstance(made, Raw) else json.encode(made), media_type="application/json")


def _table_of(gateway: Gateway) -> ResponseTable:
    stored = gateway.component(StoredResponses)
    if stored is None:
        raise NotFoundError("no responses are stored here")
    return stored.table


def _id(request: Request) -> str:
    return str(request.path_params["id"])


# -- responses -----------------------------------------------------------------------------------------------------


def _retrieve(table: ResponseTable, request: Request, caller: str, _: bytes) -> Any:
    return table.find(_id(request), caller).response


def _delete(table: ResponseTable, request: Request, caller: str, _: bytes) -> Any:
    table.delete(_id(request), caller)
    return {"id": _id(request), "object": "response", "deleted": True}


def _cancel(table: ResponseTable, request: Request, caller: str, _: bytes) -> Any:
    table.find(_id(request), caller)
    raise DecodeError("Cannot cancel a synchronous response.", source=responses.API.wire)


def _input_items(table: ResponseTable, request: Request, caller: str, _: bytes) -> Any:
    return _page(request, _id(request), table.find(_id(request), caller).input)


def _page(request: Request, owner: str, items: Sequence[Raw]) -> Any:
    """Return a page of items, the newest first unless the query says ``order=asc``."""
    named = [(f"item_{owner}_{place}", item) for place, item in enumerate(items)]
    if request.query_params.get("order") != "asc":
        named.reverse()
    after = request.query_params.get("after")
    start = next((place + 1 for place, (name, _) in enumerate(named) if name == after), 0)
    asked = request.query_params.get("limit", "")
    limit = min(int(asked), _MOST) if _NUMBER.fullmatch(asked) else _PAGE
    shown = [_with_id(item, name) for name, item in named[start : start + limit]]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": start + limit < len(named),
    }


def _with_id(item: Raw, id: str) -> dict[str, Any]:
    """Return an item as a list shows it: with its type and id, and content as parts."""
    fields: dict[str, Any] = {"type": "message", **json.decode(item, type=dict[str, Any]), "id": id}
    if isinstance(fields.get("content"), str):
        kind = "output_text" if fields.get("role") == "assistant" else "input_text"
        fields["content"] = [{"type": kind, "text": fields["content"]}]
    return fields


# -- conversations -------------------------------------------------------------------------------------------------


def _create_conversation(table: ResponseTable, _: Request, caller: str, body: bytes) -> Any:
    fields = _fields(body or b"{}")
    made = table.create_conversation(caller, _metadata(fields))
    items = input_items(fields.get("items"))
    if items:
        table.add_items(made, caller, items)
    return _conversation(made.id, made.created_at, made.metadata)


def _retrieve_conversation(table: ResponseTable, request: Request, caller: str, _: bytes) -> Any:
    found = table.conversation(_id(request), caller)
    return _conversation(found.id, found.created_at, found.metadata)


def _delete_conversation(table: ResponseTable, request: Request, caller: str, _: bytes) -> Any:
    table.delete_conversation(_id(request), caller)
    return {"id": _id(request), "object": "conversation.deleted", "deleted": True}


def _conversation_items(table: ResponseTable, request: Request, caller: str, _: bytes) -> Any:
    found = table.conversation(_id(request), caller)
    return _page(request, found.id, [] if found.head is None else table.history(found.head, caller))


def _add_items(table: ResponseTable, request: Request, caller: str, body: bytes) -> Any:
    found = table.conversation(_id(request), caller)
    before = 0 if found.head is None else len(table.history(found.head, caller))
    items = input_items(_fields(body).get("items"))
    table.add_items(found, caller, items)
    shown = [_with_id(item, f"item_{found.id}_{before + place}") for place, item in enumerate(items)]
    ends = {"first_id": shown[0]["id"], "last_id": shown[-1]["id"]} if shown else {"first_id": None, "last_id": None}
    return {"object": "list", "data": shown, "has_more": False, **ends}


def _conversation(id: str, created_at: int, metadata: dict[str, Any]) -> dict[str, Any]:
    return {"id": id, "object": "conversation", "created_at": created_at, "metadata": metadata}


def _metadata(fields: dict[str, Raw]) -> dict[str, Any]:
    try:
        return json.decode(fields.get("metadata", Raw(b"{}")), type=dict[str, Any] | None) or {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error), path="metadata", source=responses.API.wire) from None


def _fields(body: bytes) -> dict[str, Raw]:
    try:
        return json.decode(body, type=dict[str, Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error), source=responses.API.wire) from None


_TABLE: Final[tuple[tuple[str, str, _Answer], ...]] = (
    ("GET", "/responses/{id}", _retrieve),
    ("DELETE", "/responses/{id}", _delete),
    ("POST", "/responses/{id}/cancel", _cancel),
    ("GET", "/responses/{id}/input_items", _input_items),
    ("POST", "/conversations", _create_conversation),
    ("GET", "/conversations/{id}", _retrieve_conversation),
    ("DELETE", "/conversations/{id}", _delete_conversation),
    ("GET", "/conversations/{id}/items", _conversation_items),
    ("POST", "/conversations/{id}/items", _add_items),
)
"""Method, path and answer of each call."""
