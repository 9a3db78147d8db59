"""Values that the reader and the writer of Responses share: names, fields with several forms, and usage.

Source: docs/spec/wires.md#1.2, #3.2, #3.6; https://platform.openai.com/docs/api-reference/responses/create;
https://platform.openai.com/docs/api-reference/responses/object, ``usage``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.request import OutputFormat, ToolChoice
from palaver.core.tools import AnyTool, ProviderTool
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import provider
from palaver.wires._engine.shapes import ABSENT, Shape, Union

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import FinishReason


WIRE: Final = "openai_responses"

FINISH: Final[dict[str, FinishReason]] = {
    "completed": "stop",
    "incomplete": "other",
    "failed": "error",
    "cancelled": "error",
    "queued": "pause",
    "in_progress": "pause",
}
"""docs/spec/wires.md#3.6. ``completed`` is refined by what the output holds, ``incomplete`` by its reason."""

INCOMPLETE: Final[dict[str, FinishReason]] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}
"""``incomplete_details.reason``."""

FINISH_WORD: Final[dict[FinishReason, tuple[str, str | None]]] = {
    "stop": ("completed", None),
    "tool_calls": ("completed", None),
    "length": ("incomplete", "max_output_tokens"),
    "content_filter": ("incomplete", "content_filter"),
    "error": ("failed", None),
    "other": ("incomplete", None),
}
"""Status, and reason of being incomplete. The others are approximated by ``incomplete``."""

NEAR_WORD: Final[dict[FinishReason, tuple[str, str | None]]] = {"refusal": ("incomplete", "content_filter")}
"""What a reason without a word is sent as, other than ``incomplete`` alone."""

CONTINUES: Final = frozenset({"previous_response_id", "conversation"})
"""Fields that say that earlier items are kept by the provider (docs/spec/wires.md#3.3.4)."""

ELSEWHERE: Final = CONTINUES | {"prompt"}
"""Fields under which ``input`` may be left out (docs/spec/wires.md#3.3.7)."""


def optional(take: Callable[[Fields, str], Any], rest: Fields, key: str) -> Any:
    """Take an optional field out; one of an odd type is left in place."""
    try:
        return take(rest, key)
    except DecodeError:
        return None


def peek(rest: Fields, key: str) -> str | None:
    """Look at a string, and leave it in place."""
    raw = rest.get(key)
    return None if raw is None else string(raw)


def string(raw: Raw) -> str | None:
    """Read a string; ``None`` for anything else."""
    return jsontext.text(raw) if raw is not ABSENT and jsontext.kind(raw) == "a string" else None


def beside(found: Shape, *names: str) -> Fields:
    """What is kept of a shape: its fields of these names, and those that it does not name."""
    named: Fields = {name: raw for name in names if (raw := getattr(found, name)) is not ABSENT}
    return {**named, **found.rest} if named else found.rest


def merged(fields: dict[str, Any], stored: Fields) -> dict[str, Any]:
    """Write the provider's own fields behind ours; an edit wins over a null that was found."""
    return {**fields, **stored, **fields} if stored else fields


# -- tool choice -----------------------------------------------------------------------------------


class _Function(Shape, tag="function", tag_field="type"):
    name: str


class _Custom(_Function, tag="custom", tag_field="type"):
    pass


class _Allowed(Shape, tag="allowed_tools", tag_field="type"):
    mode: Literal["auto", "required"]
    tools: Raw


_TOOLS: Final = Union[_Function](_Function, _Custom)
_CHOICES: Final = Union[_Function | _Allowed](_Function, _Custom, _Allowed)


def take_tool_choice(rest: Fields, notes: Fields, tools: Sequence[AnyTool]) -> ToolChoice | None:
    """Take ``tool_choice`` out; ``None``, and left in place, for a form that has no neutral meaning.

    The note ``tool_choice`` has the fields beside its meaning; under ``tools`` those of each tool by its name, with its
    ``type`` where that is another than in its declaration.
    """
    raw = rest.get("tool_choice")
    if raw is None:
        return None
    choice: ToolChoice | None = None
    left: Fields = {}
    kind = jsontext.kind(raw)
    if kind == "a string":
        match jsontext.text(raw):
            case "auto" | "none" | "required" as mode:
                choice = trusted.ToolChoice(mode)
            case _:
                return None
    elif kind == "an object":
        choice, left = _read_choice(raw, tool_types(tools))
    if choice is not None:
        del rest["tool_choice"]
        if left:
            notes["tool_choice"] = jsontext.raw(left)
    return choice


def _read_choice(raw: Raw, types: Mapping[str, str]) -> tuple[ToolChoice | None, Fields]:
    try:
        found = _CHOICES.item(raw)
        chosen = _TOOLS.items(found.tools) if isinstance(found, _Allowed) else [found]
    except DecodeError:
        return None, {}
    functions = [each for each in chosen if isinstance(each, _Function) and each.name]
    names = tuple(each.name for each in functions)
    if isinstance(found, Raw) or not chosen or len(functions) < len(chosen) or len({*names}) < len(names):
        return None, {}
    others: dict[str, Fields] = {}
    for each in functions:
        kind = "custom" if isinstance(each, _Custom) else "function"
        fields = {**each.rest, "type": jsontext.raw(kind)} if kind != types.get(each.name, "function") else each.rest
        if fields:
            others[each.name] = fields
    left = found.rest if isinstance(found, _Allowed) else {}
    mode = found.mode if isinstance(found, _Allowed) else "required"
    return trusted.ToolChoice(mode, names), {**left, **({"tools": jsontext.raw(others)} if others else {})}


def tool_types(tools: Sequence[AnyTool]) -> dict[str, str]:
    """The types of the caller's tools by their names."""
    own = [tool for tool in tools if not isinstance(tool, ProviderTool)]
    return {tool.name: "custom" if tool.custom else "function" for tool in own}


def write_tool_choice(choice: ToolChoice, notes: Fields, types: Mapping[str, str], *, own: bool) -> object:
    """Write ``tool_choice``. ``types`` are those that are declared; ``own`` says that the note goes before them."""
    if not choice.names or choice.mode == "none":
        return choice.mode
    stored = jsontext.fields(notes.get("tool_choice", jsontext.EMPTY_OBJECT))
    others = jsontext.fields(stored.pop("tools", jsontext.EMPTY_OBJECT))
    tools: list[dict[str, Any]] = []
    for name in choice.names:
        fields = jsontext.fields(others.get(name, jsontext.EMPTY_OBJECT))
        if not own and name in types:
            fields.pop("type", None)
        tools.append({"type": types.get(name, "function"), "name": name, **fields})
    if choice.mode == "required" and len(tools) == 1:
        return {**stored, **tools[0]}
    return {**stored, "type": "allowed_tools", "mode": choice.mode, "tools": tools}


# -- output format ---------------------------------------------------------------------------------

_KINDS: Final = {"text": "text", "json_object": "json", "json_schema": "json_schema"}


def read_output_format(raw: Raw) -> OutputFormat | None:
    """Read ``text.format``; ``None`` for a form that has no neutral meaning."""
    if jsontext.kind(raw) != "an object":
        return None
    rest = jsontext.fields(raw)
    kind = _KINDS.get(optional(json_fields.take_text, rest, "type") or "")
    if kind is None:
        return None
    if kind != "json_schema":
        return trusted.OutputFormat(kind=kind, provider_json=provider(WIRE, rest))  # type: ignore[arg-type] # a word of the table
    schema = rest.pop("schema", UNSET)
    return trusted.OutputFormat(
        kind="json_schema",
        schema_json=UNSET if schema is UNSET else jsontext.own(schema),
        name=optional(json_fields.take_text, rest, "name"),
        description=optional(json_fields.take_text, rest, "description"),
        strict=optional(json_fields.take_bool, rest, "strict"),
        provider_json=provider(WIRE, rest),
    )


def write_output_format(output: OutputFormat, *, own: bool) -> object:
    """Write ``text.format``. A schema gets the name that the provider requires, unless ``own`` forbids repairs."""
    rest = json_fields.native(output, WIRE)
    if output.kind != "json_schema":
        return {"type": "json_object" if output.kind == "json" else "text", **rest}
    fields: dict[str, Any] = {"type": "json_schema"}
    if output.name is not None or not own:
        fields["name"] = output.name if own else output.name or "output"
    if output.description is not None:
        fields["description"] = output.description
    if output.schema_json is not UNSET:
        fields["schema"] = output.schema_json
    if output.strict is not None:
        fields["strict"] = output.strict
    return merged(fields, rest)


# -- usage ------------------------------------------------------------------------------------------


class _InputDetails(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(Struct, gc=False):
    """The counters we read; every other field is skipped here and kept in the raw object."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


_counts = msgspec.json.Decoder(_Usage).decode
_NO_INPUT, _NO_OUTPUT = _InputDetails(), _OutputDetails()


def read_usage(raw: Raw) -> Usage:
    """Read the usage object into disjoint counters."""
    try:
        found = _counts(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):  # odd counters count nothing; raw keeps them
        return trusted.Usage(raw_json=jsontext.own(raw))
    read = (found.input_tokens_details or _NO_INPUT).cached_tokens
    written = (found.input_tokens_details or _NO_INPUT).cache_write_tokens
    reasoning = (found.output_tokens_details or _NO_OUTPUT).reasoning_tokens
    output = found.output_tokens
    return trusted.Usage(
        input=json_fields.uncached(found.input_tokens, read, written),
        cache_read=read,
        cache_write=written,
        output=output if output is None or not reasoning else max(0, output - reasoning),
        reasoning=reasoning,
        raw_json=jsontext.own(raw),
    )


def write_usage(usage: Usage) -> Any:
    """Write usage: the provider's own object when it still has the same meaning, else one made of the counters."""
    raw = usage.raw_json
    if raw is not UNSET and read_usage(raw) == usage:
        return raw
    prompt = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    completion = (usage.output or 0) + (usage.reasoning or 0)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read or 0,
            "cache_write_tokens": usage.cache_write or 0,
        },
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": prompt + completion,
    }
