"""Fields of a client's request that mean the same in another wire, or that newer ones have replaced.

- ``functions`` and ``function_call`` of Chat Completions are tools. The answer has its call in ``function_call``.
- ``n`` of Chat Completions and ``candidateCount`` of Gemini are the number of answers.

Source: https://platform.openai.com/docs/api-reference/chat/create; https://ai.google.dev/api/generate-content.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from msgspec import UNSET, structs

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.jsontext import NULL, Fields
from palaver.core.request import ToolChoice
from palaver.core.tools import Tool

if TYPE_CHECKING:
    from typing import Any

    from palaver.core.request import Request

CHAT: Final = "openai_chat"
_COUNTS: Final[Mapping[str, tuple[str, ...]]] = {
    CHAT: ("n",),
    "google_generate": ("generationConfig", "candidateCount"),
}
"""Where a wire has the number of answers."""


def has_functions(request: Request) -> bool:
    """Whether a client of Chat Completions sends functions in place of tools."""
    return _own(request, CHAT).get("functions", NULL) != NULL


def in_fields_of(request: Request, client: str, wire: str) -> Request:
    """Return a client's request with its fields as ``wire`` has them. Raises ``DecodeError``."""
    own = _own(request, client)
    if not own:
        return request
    if client == CHAT and not own.keys().isdisjoint(("functions", "function_call")):
        request = _with_functions(request, own)
    stored: dict[str, Any] = {**jsontext.fields(cast("Any", request.provider_json)), client: own}
    if client in _COUNTS and wire in _COUNTS:
        count = _take(own, _COUNTS[client])
        if count is not None:
            stored[wire] = _inside({**_own(request, wire)}, _COUNTS[wire], count)
    stored = {key: fields for key, fields in stored.items() if fields}
    return structs.replace(request, provider_json=jsontext.raw(stored) if stored else UNSET)


def _own(request: Request, wire: str) -> Fields:
    """Return the fields of a request that one wire has."""
    if request.provider_json is UNSET:
        return {}
    return dict(jsontext.fields(jsontext.fields(request.provider_json).get(wire, jsontext.EMPTY_OBJECT)))


def _with_functions(request: Request, own: Fields) -> Request:
    functions, choice = own.pop("functions", NULL), jsontext.value(own.pop("function_call", NULL))
    try:
        rows = [] if functions == NULL else jsontext.rows(functions)
        tools = tuple([_tool(each) for each in rows])
    except DecodeError as error:
        raise DecodeError(error.reason, path=f"functions{error.path}", source=CHAT) from None
    settings = structs.replace(request.settings, parallel_tool_calls=False) if tools else request.settings
    match choice:
        case "none" | "auto":
            settings = structs.replace(settings, tool_choice=ToolChoice(choice))
        case {"name": str(name)}:
            settings = structs.replace(settings, tool_choice=ToolChoice("required", (name,)))
        case None:
            pass
        case _:
            raise DecodeError("expected none, auto or a function", path="function_call", source=CHAT)
    return structs.replace(request, tools=(*request.tools, *tools), settings=settings)


def _tool(function: Fields) -> Tool:
    name, description = jsontext.value(function.get("name", NULL)), jsontext.value(function.get("description", NULL))
    if not isinstance(name, str):
        raise DecodeError("expected a function with a name")
    parameters = function.get("parameters", NULL)
    return Tool(
        name,
        description if isinstance(description, str) else None,
        UNSET if parameters == NULL else jsontext.own(parameters),
    )


def _take(fields: Fields, path: tuple[str, ...]) -> int | None:
    """Take the number of answers from its place; ``None`` where there is none."""
    key, *further = path
    raw = fields.get(key, NULL)
    if not further:
        count = jsontext.value(raw)
        if not isinstance(count, int) or isinstance(count, bool):
            return None
        del fields[key]
        return count
    if jsontext.kind(raw) != "an object":
        return None
    inner = jsontext.fields(raw)
    count = _take(inner, tuple(further))
    if inner:
        fields[key] = jsontext.raw(inner)
    else:
        del fields[key]
    return count


def _inside(fields: dict[str, Any], path: tuple[str, ...], count: int) -> dict[str, Any]:
    """Put the number of answers at its place."""
    key, *further = path
    fields[key] = _inside({}, tuple(further), count) if further else count
    return fields
