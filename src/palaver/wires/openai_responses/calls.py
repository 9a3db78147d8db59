"""Calls and their results, read and written side by side.

Rules:

- ``function_call`` and ``custom_tool_call`` are tool calls, their outputs tool messages. The arguments are the model's
  own text.
- The provider's own tools have an item type each (``NATIVE``). Those that the provider runs are calls with
  ``provider_executed``, and what came back, which stands in the same item, is a ``ServerToolResult`` (an
  ``Image``, for a generated one) with the note ``field``: the field of that item. Those that the application runs
  (computer, shell, patches, a tool search of its own) are calls that wait for a tool message.
- The type of a native item is the note ``type``, on the call and on the tool message; what has no neutral place stays
  beside it. The note ``call_id`` of a result is ``id`` where that field names the call, as it does for a local shell.
- Content of one text is a string, and no content an empty one; an ``apply_patch_call_output`` of no text has none.
- A native call whose result has no native form is sent, with its result, as a plain function call.

Source: docs/spec/wires.md#3.1, #3.3; https://platform.openai.com/docs/guides/tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import UNSET, Raw, Struct

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.jsontext import NULL
from palaver.core.messages import ToolMessage
from palaver.core.parts import (
    AnyPart,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    ServerToolResult,
    Text,
    ToolCall,
)
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import native, notes as notes_of, provider, word
from palaver.wires._engine.shapes import Shape, from_fields
from palaver.wires.openai_responses import parts
from palaver.wires.openai_responses.shapes import WIRE, merged, optional, peek

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.core.jsontext import Fields
    from palaver.wires._engine.encode_state import Context


class Native(Struct, frozen=True):
    """How an item of a native tool is read: its name, its arguments, and what came back.

    ``form`` of the arguments: an ``object``, a ``text`` that holds JSON, or a value that is ``wrapped`` under its key.
    ``nullable`` are results that the provider wants there, if only as null. ``output`` is the item type of the
    result that the application gives; without one the provider runs the tool.
    """

    name: str | None
    arguments: str = ""
    form: Literal["object", "text", "wrapped"] = "object"
    results: tuple[str, ...] = ()
    nullable: bool = False
    output: str | None = None


NATIVE: Final[dict[str, Native]] = {
    "web_search_call": Native("web_search", "action"),
    "file_search_call": Native("file_search", "queries", "wrapped", ("results",)),
    "code_interpreter_call": Native("code_interpreter", "code", "wrapped", ("outputs",), nullable=True),
    "image_generation_call": Native("image_generation", results=("result",), nullable=True),
    "mcp_call": Native(None, "arguments", "text", ("output", "error")),
    "mcp_approval_request": Native(None, "arguments", "text"),
    "program": Native("program", "code", "wrapped"),
    "tool_search_call": Native("tool_search", "arguments", output="tool_search_output"),
    "computer_call": Native("computer", "action", output="computer_call_output"),
    "local_shell_call": Native("local_shell", "action", output="local_shell_call_output"),
    "shell_call": Native("shell", "action", output="shell_call_output"),
    "apply_patch_call": Native("apply_patch", "operation", output="apply_patch_call_output"),
}

OUTPUTS: Final[dict[str, str]] = {
    "function_call_output": "output",
    "custom_tool_call_output": "output",
    "computer_call_output": "output",
    "local_shell_call_output": "output",
    "shell_call_output": "output",
    "apply_patch_call_output": "output",
    "tool_search_output": "tools",
    "program_output": "result",
}
"""Item types of results, and the field that holds the result."""

_PLAIN: Final = ("function_call_output", "custom_tool_call_output")


def item_type(notes: Fields) -> str | None:
    """Return the native item type that a call or a result came with."""
    return peek(notes, "type")


# -- reading calls ---------------------------------------------------------------------------------


class FunctionCall(Shape):
    """A call with arguments, as the text that the model wrote."""

    call_id: str
    name: str
    arguments: str


class CustomCall(Shape):
    """A call with free text."""

    call_id: str
    name: str
    input: Raw


def read_function(rest: Fields, notes: Fields) -> AnyPart:
    """Read a ``function_call``. ``notes`` are those that its place gives it."""
    found = from_fields(FunctionCall, rest)
    return json_fields.call(found.call_id, found.name, found.arguments, provider(WIRE, rest, notes))


def read_custom(rest: Fields, notes: Fields) -> AnyPart:
    """Read a ``custom_tool_call``, whose input is free text."""
    found = from_fields(CustomCall, rest)
    if jsontext.kind(found.input) != "a string":
        raise DecodeError(f"expected a string, got {jsontext.kind(found.input)}", path="input")
    text = bytes(found.input).decode()
    return trusted.ToolCall(found.call_id, found.name, text, custom=True, provider_json=provider(WIRE, rest, notes))


def is_served(kind: str, rest: Fields) -> bool:
    """Whether the provider runs the call."""
    if kind == "tool_search_call":
        return peek(rest, "execution") != "client"
    if kind == "shell_call":
        raw = rest.get("environment")
        inner = {} if raw is None or jsontext.kind(raw) != "an object" else jsontext.fields(raw)
        return peek(inner, "type") == "container_reference"
    return NATIVE[kind].output is None


def read_native(kind: str, rest: Fields, notes: Fields, place: str) -> list[AnyPart] | None:
    """Read a call of a native tool, and what came back where it stands in the same item.

    ``None`` when it is to be kept as it is. ``notes`` are those that its place gives it, ``place`` is the id of a call
    without one.
    """
    row = NATIVE[kind]
    served = is_served(kind, rest)
    name = row.name or json_fields.need_text(rest, "name")
    arguments = _arguments(row, rest)
    if arguments is None:
        return None
    known = peek(rest, "call_id") or peek(rest, "id") or place
    call_id = known if served else json_fields.need_text(rest, "call_id")
    results = [found for key in row.results if (found := _result(call_id, name, key, rest)) is not None]
    stored = provider(WIRE, rest, {**notes, "type": word(kind)})
    return [trusted.ToolCall(call_id, name, arguments, provider_executed=served, provider_json=stored), *results]


def _arguments(row: Native, rest: Fields) -> str | None:
    """Take the arguments out as JSON text; ``None`` when they are a text that holds none."""
    if row.form == "text":
        text = json_fields.need_text(rest, row.arguments)
        return text if not text.strip() or jsontext.is_json(text) else None
    raw = rest.get(row.arguments)
    if raw is None or raw == NULL:
        return ""
    del rest[row.arguments]
    text = bytes(raw).decode()
    return text if row.form == "object" else f'{{"{row.arguments}":{text}}}'


def _result(call_id: str, name: str, key: str, rest: Fields) -> AnyPart | None:
    raw = rest.get(key)
    if raw is None or raw == NULL:
        return None
    stored = provider(WIRE, {}, {"field": word(key)})
    if name == "image_generation" and jsontext.kind(raw) == "a string":
        del rest[key]
        return trusted.Image(trusted.Inline(jsontext.text(raw)), _image_type(rest), provider_json=stored)
    del rest[key]
    return ServerToolResult(call_id, jsontext.own(raw), WIRE, name, key == "error", provider_json=stored)


def _image_type(rest: Fields) -> str | None:
    kind = peek(rest, "output_format")
    return None if kind is None else f"image/{kind}"


# -- writing calls ---------------------------------------------------------------------------------


def write_call(part: ToolCall | MalformedToolCall, stored: Fields, notes: Fields) -> dict[str, Any]:
    """Write a call as the item it came as, else as a function or custom call."""
    if isinstance(part, MalformedToolCall):
        fields: dict[str, Any] = {"call_id": part.id or "", "name": part.name or ""}
        return {"type": "function_call", **fields, "arguments": part.raw, **stored}
    kind = item_type(notes)
    if kind in NATIVE:
        return _write_native(part, kind, stored)
    fields = {"call_id": part.id, "name": part.name}
    if part.custom:
        return {"type": "custom_tool_call", **fields, "input": _input(part), **stored}
    return {"type": "function_call", **fields, "arguments": part.arguments_json, **stored}


def _input(part: ToolCall) -> object:
    text = part.arguments_json.encode()
    return Raw(text) if jsontext.kind(text) == "a string" else part.arguments_json


def _write_native(part: ToolCall, kind: str, stored: Fields) -> dict[str, Any]:
    row = NATIVE[kind]
    fields: dict[str, Any] = {"type": kind}
    if not part.provider_executed:
        fields["call_id"] = part.id
    if row.name is None:
        fields["name"] = part.name
    text = part.arguments_json
    if row.form == "text":
        fields[row.arguments] = text
    elif row.form == "object" and text:
        fields[row.arguments] = Raw(text.encode()) if jsontext.is_json(text) else text
    elif text and not jsontext.is_json(text):  # cut off
        fields[row.arguments] = text
    elif text and jsontext.kind(text.encode()) == "an object":
        inner = jsontext.fields(text.encode()).get(row.arguments)
        if inner is not None:
            fields[row.arguments] = inner
    return merged(fields, stored)


def write_result(part: ServerToolResult | Image, notes: Fields, item: dict[str, Any] | None) -> bool:
    """Put what came back into the item of its call; ``False`` when that is not the item before it."""
    key = jsontext.text(notes["field"])
    row = None if item is None else NATIVE.get(str(item.get("type")))
    if item is None or row is None or key not in row.results:
        return False
    if isinstance(part, ServerToolResult):
        item[key] = part.output_json
    else:
        item[key] = part.source.data if isinstance(part.source, Inline) else None
    return True


# -- reading results -------------------------------------------------------------------------------


def read_output(kind: str, rest: Fields) -> ToolMessage:
    """Read the result of a call that the application ran."""
    notes: Fields = {} if kind == "function_call_output" else {"type": word(kind)}
    call_id = optional(json_fields.take_text, rest, "call_id")
    if call_id is None and kind == "local_shell_call_output":
        call_id = json_fields.take_text(rest, "id")
        notes["call_id"] = word("id")
    key = OUTPUTS[kind]
    raw = rest.pop(key, None)
    content: tuple[Any, ...] = ()
    if raw is None and kind != "apply_patch_call_output":
        raise DecodeError("missing", path=key)
    if raw is not None:
        content = _READ[kind](raw) if kind in _READ else read_content(raw, key)
    return trusted.ToolMessage(content=content, tool_call_id=call_id, provider_json=provider(WIRE, rest, notes))


def read_content(raw: Raw, key: str) -> tuple[Any, ...]:
    """Read a field that is a text, a list of input parts or null."""
    try:
        return tuple(parts.content(raw, lambda raw: parts.read(raw, "input_text")))
    except DecodeError as error:
        raise error.within(key) from None


def is_plain(content: tuple[Any, ...]) -> bool:
    """Whether the content is one text and nothing else, which is written as a string."""
    return (
        len(content) == 1
        and type(content[0]) is Text
        and content[0].provider_json is UNSET
        and not content[0].citations
    )


def _read_json(raw: Raw) -> tuple[Any, ...]:
    return (trusted.Json(jsontext.own(raw)),)


def _read_screenshot(raw: Raw) -> tuple[Any, ...]:
    rest = jsontext.fields(raw) if jsontext.kind(raw) == "an object" else {}
    url = optional(json_fields.take_text, rest, "image_url")
    if url is None or peek(rest, "type") != "computer_screenshot":
        return _read_json(raw)
    del rest["type"]
    return (trusted.Image(*parts.source(url), provider_json=provider(WIRE, rest)),)


_READ: Final[dict[str, Callable[[Raw], tuple[Any, ...]]]] = {
    "computer_call_output": _read_screenshot,
    "shell_call_output": _read_json,
    "tool_search_output": _read_json,
    "program_output": _read_json,
}


# -- writing results -------------------------------------------------------------------------------


def write_output(message: ToolMessage, kind: str, context: Context) -> dict[str, Any]:
    """Write the result of a call as an item of type ``kind``."""
    stored, notes = native(message, WIRE), notes_of(message, WIRE)
    fields: dict[str, Any] = {"type": kind}
    if message.tool_call_id is not None:
        fields["id" if "call_id" in notes else "call_id"] = message.tool_call_id
    found = item_type(notes) or _PLAIN[0]
    if kind in _PLAIN:
        fields[OUTPUTS[kind]] = write_content(message.content, context)
        return merged(fields, stored if found in _PLAIN else {})
    result = spelled(message, kind, context) or {}
    return merged({**fields, **result}, stored if found == kind else {})


def write_content(content: tuple[Any, ...], context: Context) -> object:
    """Write a field that is a text or a list of input parts: the plainest form that holds it."""
    if not content:
        return ""
    if is_plain(content):
        return content[0].text
    if len(content) == 1 and isinstance(content[0], Json):
        return bytes(content[0].value_json).decode()
    return [parts.write(part, native(part, WIRE), notes_of(part, WIRE), "input_text", context) for part in content]


def spelled(message: ToolMessage, kind: str, context: Context) -> dict[str, Any] | None:
    """Write a result in the form of a native tool; ``None`` when there is none."""
    key = OUTPUTS.get(kind)
    if key is None:
        return None
    same = item_type(notes_of(message, WIRE)) == kind
    match message.content:
        case (Json() as only,) if kind in _READ and (same or _is_array(only)):
            return {key: only.value_json}
        case (Image() as only, *_) if kind == "computer_call_output":
            screenshot = {"type": "computer_screenshot", **parts.linked(only, "image_url")}
            return {key: merged(screenshot, native(only, WIRE))}
        case () if kind == "apply_patch_call_output" and same:
            return {}
        case content if same and kind not in _READ:
            return {key: write_content(content, context)}
        case content if all(isinstance(part, (Text, Json)) for part in content):
            return _text_result(kind, "".join(map(_text, content)), message)
        case _:
            return None


def _is_array(part: Json) -> bool:
    return jsontext.kind(part.value_json) == "an array"


def _text(part: AnyPart) -> str:
    return part.text if isinstance(part, Text) else bytes(part.value_json).decode() if isinstance(part, Json) else ""


def _text_result(kind: str, text: str, message: ToolMessage) -> dict[str, Any] | None:
    """Write a text as the result of a native tool."""
    match kind:
        case "local_shell_call_output":
            return {"id": message.tool_call_id, "output": text}
        case "shell_call_output":
            outcome = {"type": "exit", "exit_code": 1 if message.is_error else 0}
            return {"output": [{"stdout": text, "stderr": "", "outcome": outcome}]}
        case "apply_patch_call_output":
            return {"status": "failed" if message.is_error else "completed", "output": text}
        case _:
            return None
