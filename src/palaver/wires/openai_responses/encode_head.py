"""Write the fields of a request beside its items: model, instructions, settings, tools.

- ``instructions`` holds the message that was read from it. Other system messages are items, which a chained request
  keeps, and in which the provider looks for the word JSON (docs/spec/wires.md#3.3.7).
- A function without ``strict`` gets ``false``, unless it had none on this wire: the default is true here and false on
  others.
- ``input`` is a list. It is left out where there are no messages, and the provider keeps some.
- Fields that the provider refuses beside others are dropped (docs/spec/wires.md#3.3.7, #3.3.9).

Source: docs/spec/wires.md#3.1 to #3.3; https://platform.openai.com/docs/api-reference/responses/create.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from palaver.core import jsontext
from palaver.core.messages import SystemMessage, ToolMessage
from palaver.core.parts import Text
from palaver.core.tools import ProviderTool
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.encoder import ABSENT
from palaver.wires._engine.fit import declared_name, fitting_name
from palaver.wires._engine.json_fields import native, word
from palaver.wires._engine.schemas import OPENAI, fit_output, fit_tool
from palaver.wires._engine.tools import NO_TOOLS, lose_parameters
from palaver.wires.openai_responses import calls
from palaver.wires.openai_responses.shapes import (
    ELSEWHERE,
    WIRE,
    merged,
    tool_types,
    write_output_format,
    write_tool_choice,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.request import Request, ToolChoice
    from palaver.core.tools import AnyTool
    from palaver.wires._engine.encode_state import Context


def hoists(message: SystemMessage, context: Context) -> bool:
    """Whether a leading system message came from ``instructions``, and can go back there."""
    return (
        json_fields.notes(message, WIRE).get("field") == _INSTRUCTIONS
        and calls.is_plain(message.content)
        and context.take("instructions")
    )


_INSTRUCTIONS: Final = word("instructions")

_SETTINGS: Final = {
    "max_output_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "parallel_tool_calls": "parallel_tool_calls",
    "stream": "stream",
}
_UNSUPPORTED: Final = ("stop", "seed", "frequency_penalty", "presence_penalty", "top_k")


def head(request: Request, system: Sequence[SystemMessage], context: Context) -> dict[str, Any]:
    """Write model, instructions, settings and tools."""
    rest, notes = native(request, WIRE), json_fields.notes(request, WIRE)
    settings = thinking.fit_effort(request.settings, context)
    fields: dict[str, Any] = {}
    if request.model is not None:
        fields["model"] = request.model
    for message in system:
        fields["instructions"] = message.text
    plain = {wire_key: getattr(settings, key) for wire_key, key in _SETTINGS.items()}
    fields |= {key: value for key, value in plain.items() if value is not None}
    _put_inner(fields, rest, "reasoning", "effort", settings.effort)
    for key in _UNSUPPORTED:
        if getattr(settings, key) is not None:
            context.lose("dropped", key, "the wire has no such setting")
    _put_tools(fields, request, notes, context)
    if settings.output is not None:
        output = fit_output(settings.output, OPENAI, context, strict=True)
        _put_inner(fields, rest, "text", "format", write_output_format(output, own=context.own))
    for stored in (request, *request.tools):
        for wire, key, _ in json_fields.foreign(stored, WIRE):
            context.lose("dropped", key, f"a field of {wire}")
    if len(request.messages) == len(system) and context.names(ELSEWHERE):
        fields["input"] = ABSENT
    fields = merged(fields, rest)
    if not context.own:
        _drop_refused(fields, request, settings.effort, context)
    return fields


def _put_inner(fields: dict[str, Any], rest: Fields, outer: str, key: str, value: object) -> None:
    """Write a field of an inner object, beside what else stood there."""
    if value is not None:
        raw = rest.pop(outer, jsontext.EMPTY_OBJECT)
        fields[outer] = merged({key: value}, jsontext.fields(raw) if jsontext.kind(raw) == "an object" else {})


def _put_tools(fields: dict[str, Any], request: Request, notes: Fields, context: Context) -> None:
    tools = [
        written for tool in request.tools if (written := _tool(fit_tool(tool, OPENAI, context), context)) is not None
    ]
    if tools:
        fields["tools"] = tools
    choice = request.settings.tool_choice
    if choice is not None:
        fields["tool_choice"] = _choice(choice, request, notes, context)


def _choice(choice: ToolChoice, request: Request, notes: Fields, context: Context) -> object:
    types = tool_types(request.tools)
    if not context.own:
        types = {fitting_name(name, context): kind for name, kind in types.items()}
        choice = type(choice)(choice.mode, tuple(fitting_name(n, context) for n in choice.names))
    return write_tool_choice(choice, notes, types, own=context.own)


def _tool(tool: AnyTool, context: Context) -> object:
    if isinstance(tool, ProviderTool):
        if tool.wire == WIRE:
            return tool.raw_json
        context.lose("dropped", "provider tool", f"belongs to {tool.wire}")
        return None
    rest = native(tool, WIRE)
    name = declared_name(tool.name, context)
    fields: dict[str, Any] = {"type": "custom" if tool.custom else "function", "name": name}
    if tool.description is not None:
        fields["description"] = tool.description
    if not tool.custom:
        fields["parameters"] = None if tool.parameters_json is UNSET else tool.parameters_json
        if tool.strict is not None:
            fields["strict"] = tool.strict
        elif "strict" not in rest and "strict" not in json_fields.notes(tool, WIRE):
            fields["strict"] = False
    else:
        lose_parameters(tool, context)
        if tool.strict is not None:
            context.lose("dropped", "strict", f"{tool.name!r} takes free text")
    return merged(fields, rest)


def _drop_refused(fields: dict[str, Any], request: Request, effort: str | None, context: Context) -> None:
    """Leave out what the provider refuses beside other fields (docs/spec/wires.md#3.3.7, #3.3.9)."""
    if effort in thinking.SCALE[1:]:
        for key in ("temperature", "top_p", "top_logprobs"):
            if fields.get(key, jsontext.NULL) != jsontext.NULL:
                del fields[key]
                context.lose("dropped", key, "refused beside a reasoning effort")
    choice = fields.get("tool_choice")
    tools = fields.get("tools") or context.names(("prompt",))  # a stored prompt may have tools of its own
    if not tools and choice not in (None, "auto", "none", jsontext.NULL):
        del fields["tool_choice"]
        context.lose("dropped", "tool_choice", "there are no tools to choose from")
    if not tools and fields.get("parallel_tool_calls", jsontext.NULL) != jsontext.NULL:
        del fields["parallel_tool_calls"]
        context.lose("dropped", "parallel_tool_calls", NO_TOOLS)
    output = request.settings.output
    if output is not None and output.kind == "json" and not _mentions_json(request):
        del fields["text"]["format"]
        if not fields["text"]:
            del fields["text"]
        context.lose("dropped", "output", "the word JSON must be in a message, and is not")


def _mentions_json(request: Request) -> bool:
    texts = (
        part.text
        for message in request.messages
        if not isinstance(message, ToolMessage) and json_fields.notes(message, WIRE).get("field") != _INSTRUCTIONS
        for part in message.content
        if isinstance(part, Text)
    )
    return any("json" in text.lower() for text in texts)
