"""Write the fields of a request beside its messages.

A request that is not sent back as it was read follows these rules:

- ``max_tokens`` is present and at least 1. A budget for reasoning is at least 1024 and below ``max_tokens``; one
  that does not fit, or that stands for an effort, leaves a quarter of ``max_tokens`` for the answer.
- Thinking is switched off when a tool is forced, and when the open tool loop does not begin with thinking
  (docs/spec/wires.md#4.3.4, #4.3.8). With thinking, ``temperature`` and ``top_k`` are dropped
  (docs.anthropic.com, "Extended thinking").
- A temperature is from 0 to 1. Blank stop sequences are dropped (BerriAI/litellm#3286).
- The schema of a tool is an object. At least one tool is not deferred (docs/spec/wires.md#4.3.10).
- At most four cache marks stay: top level, tools, ``system``, in this order (docs/spec/wires.md#4.3.7).

Source: docs/spec/wires.md#4.1 to #4.3; anthropic-sdk-python ``types``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.jsontext import Fields
from palaver.core.parts import Text
from palaver.core.request import Settings, ToolChoice
from palaver.core.tools import ProviderTool
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.fit import declared_name, fitting_name
from palaver.wires._engine.json_fields import native, word
from palaver.wires._engine.schemas import ANTHROPIC, fit_output, fit_tool
from palaver.wires._engine.tools import NO_TOOLS, lose_parameters
from palaver.wires.anthropic_messages.encode_parts import text_block
from palaver.wires.anthropic_messages.repairs import (
    MARK,
    MOST_MARKS,
    TOO_MANY,
    TurnState,
    as_fields,
    declares,
    is_marked,
    is_new,
)
from palaver.wires.anthropic_messages.shapes import (
    LEAST_BUDGET,
    WIRE,
    Choosing,
    write_output_format,
    write_thinking,
    write_tool_choice,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.messages import SystemMessage
    from palaver.core.request import Request
    from palaver.core.tools import AnyTool, Tool
    from palaver.wires._engine.encode_state import Context

DEFAULT_MAX_TOKENS: Final = 4096
"""What every model of the provider takes."""

_UNSUPPORTED: Final = ("seed", "frequency_penalty", "presence_penalty")


def head(request: Request, system: Sequence[SystemMessage], context: Context) -> dict[str, Any]:
    """Write model, settings, system and tools."""
    rest, notes = native(request, WIRE), json_fields.notes(request, WIRE)
    settings = request.settings if context.own else _fitted(request, notes, context)
    fields: dict[str, Any] = {}
    if request.model is not None:
        fields["model"] = request.model
    for name, key in _PLAIN.items():
        value = getattr(settings, name)
        if value is not None:
            fields[key] = value
    for key in _UNSUPPORTED:
        if getattr(settings, key) is not None:
            context.lose("dropped", key, "the wire has no such setting")
    if settings.reasoning_tokens is not None:
        fields["thinking"] = json_fields.with_note(write_thinking(settings.reasoning_tokens), notes, "thinking")
    _put_output_config(fields, rest, settings, context)
    _put_tool_choice(fields, notes, request, settings, context)
    tools = [
        written for tool in request.tools if (written := _tool(fit_tool(tool, ANTHROPIC, context), context)) is not None
    ]
    if tools:
        fields["tools"] = tools
    if system:
        _put_system(fields, system, context)
    for wire, key, _ in json_fields.foreign(request, WIRE):
        context.lose("dropped", key, f"a field of {wire}")
    fields = {**fields, **rest, **fields}  # an edit wins over a null that was found
    if not context.own:
        _limit_marks(fields, context)
        _load_one(fields, context)
    return fields


_PLAIN: Final = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop": "stop_sequences",
    "stream": "stream",
}


# -- settings --------------------------------------------------------------------------------------


def _fitted(request: Request, notes: Fields, context: Context) -> Settings:
    """Bring the settings within what the provider takes."""
    alone = notes.get("thinking") == word("absent")
    requested = request.settings
    newer = requested.effort is not None and notes.get("effort") == jsontext.raw(requested.effort)
    requested = (
        structs.replace(requested, effort=None) if newer else requested
    )  # a word that the wire has, and we do not know
    given = thinking.fit_effort(requested, context, alone=alone)
    found = {name: getattr(given, name) for name in Settings.__struct_fields__}
    found["effort"] = request.settings.effort if newer else found["effort"]
    forced = found["tool_choice"] is not None and found["tool_choice"].mode == "required" and declares(request)
    _fit_budget(found, context, forced=forced)
    _fit_max_tokens(found, notes, context, chosen=requested.reasoning_tokens not in {None, thinking.DYNAMIC})
    if found["reasoning_tokens"] not in {None, thinking.OFF}:
        for key in ("temperature", "top_k"):
            if found[key] is not None and not (key == "temperature" and found[key] == 1):
                context.lose("dropped", key, "not taken beside thinking")
                found[key] = None
    elif found["temperature"] is not None and not 0 <= found["temperature"] <= 1:
        nearest = 1 if found["temperature"] > 1 else 0
        context.lose("approximated", "temperature", f"{found['temperature']} is not within 0 to 1; {nearest} was sent")
        found["temperature"] = nearest
    if found["stop"] is not None and not all(word.strip() for word in found["stop"]):
        context.lose("dropped", "stop", "a stop sequence of white space only is not taken")
        found["stop"] = tuple(word for word in found["stop"] if word.strip()) or None
    return trusted.Settings(**found)


def _fit_budget(found: dict[str, Any], context: Context, *, forced: bool) -> None:
    budget: int | None = found["reasoning_tokens"]
    if budget is None or budget in {thinking.OFF, thinking.DYNAMIC}:
        return
    turn_state = context.state
    why = None
    if forced:
        why = "thinking is switched off: a tool is forced"
    elif isinstance(turn_state, TurnState) and turn_state.unproven:
        why = "thinking is switched off: the open tool loop does not begin with thinking"
    if why is not None:
        context.lose("dropped", "reasoning_tokens", why)
        found["reasoning_tokens"] = None


_LEFT: Final = 4
"""A budget that is cut, or that stands for an effort, leaves one part in so many of ``max_tokens`` for the answer."""


def _fit_max_tokens(found: dict[str, Any], notes: Fields, context: Context, *, chosen: bool) -> None:
    """Fit the limit, and the budget below it. ``chosen``: the request names the budget, not only an effort."""
    most, budget = found["max_tokens"], found["reasoning_tokens"]
    if most is None:
        found["max_tokens"] = DEFAULT_MAX_TOKENS + max(budget or 0, 0)
        context.lose("approximated", "max_tokens", f"required, and not given; {found['max_tokens']} was sent")
        return
    if most < 1 and "max_tokens" not in notes:
        context.lose("approximated", "max_tokens", f"{most} is below 1; 1 was sent")
        found["max_tokens"] = most = 1
    room = most - most // _LEFT
    if budget is None or budget <= (most - 1 if chosen else room) or "budget" in notes:
        return
    if room >= LEAST_BUDGET:
        why = f"{budget} leaves too little of max_tokens ({most}) for the answer; {room} was sent"
        context.lose("approximated", "reasoning_tokens", why)
        found["reasoning_tokens"] = room
    else:
        context.lose("dropped", "reasoning_tokens", f"max_tokens of {most} leaves no room for the least budget")
        found["reasoning_tokens"] = None


def _put_output_config(fields: dict[str, Any], rest: Fields, settings: Settings, context: Context) -> None:
    config: dict[str, Any] = {}
    if settings.effort is not None:
        config["effort"] = settings.effort
    output = settings.output
    if output is not None and output.kind == "json_schema":
        config["format"] = write_output_format(fit_output(output, ANTHROPIC, context))
        for key in ("name", "description", "strict"):
            if getattr(output, key) is not None:
                context.lose("dropped", f"output {key}", "the wire's format has no such field")
    elif output is not None and output.kind == "json":
        context.lose("dropped", "output", "JSON without a schema cannot be asked for")
    if config:
        fields["output_config"] = {**config, **jsontext.fields(rest.pop("output_config", jsontext.EMPTY_OBJECT))}


# -- tools -----------------------------------------------------------------------------------------


def _put_tool_choice(
    fields: dict[str, Any], notes: Fields, request: Request, settings: Settings, context: Context
) -> None:
    choice, parallel = settings.tool_choice, settings.parallel_tool_calls
    if choice is None:
        if parallel is not False:
            return
        choice = trusted.ToolChoice("auto")
    if not context.own:
        if not declares(request):
            if choice.mode == "required":
                context.lose("dropped", "tool_choice", "there is no tool to choose")
            if parallel is False:
                context.lose("dropped", "parallel_tool_calls", NO_TOOLS)
            return
        choice = _fitting_choice(choice, context)
    fields["tool_choice"] = json_fields.with_note(write_tool_choice(Choosing(choice, parallel)), notes, "tool_choice")


def _fitting_choice(choice: ToolChoice, context: Context) -> ToolChoice:
    names = tuple(fitting_name(name, context) for name in choice.names)
    if names and choice.mode != "none" and (choice.mode == "auto" or len(names) > 1):
        context.lose("approximated", "tool_choice", "a choice among some tools has no form here; all may be called")
        return trusted.ToolChoice(choice.mode)
    return trusted.ToolChoice(choice.mode, names)


_TEXT_INPUT: Final = jsontext.raw(
    {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
)


def _tool(tool: AnyTool, context: Context) -> object:
    if isinstance(tool, ProviderTool):
        if tool.wire == WIRE and jsontext.kind(tool.raw_json) == "an object":
            return tool.raw_json
        context.lose("dropped", "provider tool", f"belongs to {tool.wire}" if tool.wire != WIRE else "no tool at all")
        return None
    rest = native(tool, WIRE)
    for wire, key, _ in json_fields.foreign(tool, WIRE):
        context.lose("dropped", key, f"a field of {wire}")
    fields: dict[str, Any] = {}
    fields["name"] = declared_name(tool.name, context)
    if fields["name"] != tool.name:
        context.lose("converted", "tool name", f"{tool.name!r} is not taken; sent as {fields['name']!r}")
    if tool.description is not None:
        fields["description"] = tool.description
    schema = tool.parameters_json if context.own else _schema(tool, context)
    if schema is not UNSET:
        rest.pop("input_schema", None)
        fields["input_schema"] = schema
    if tool.strict is not None:
        fields["strict"] = tool.strict
    return {**fields, **rest}


_OBJECT: Final = Raw(b'"object"')


def _schema(tool: Tool, context: Context) -> Raw:
    """Return the schema of the arguments, which must be an object."""
    if tool.custom:
        lose_parameters(tool, context)
        context.lose("converted", "custom tool", f'{tool.name!r} takes {{"input": text}}')
        return _TEXT_INPUT
    raw = tool.parameters_json
    if raw is UNSET:
        return jsontext.raw({"type": "object"})
    table = jsontext.fields(raw) if jsontext.kind(raw) == "an object" else {"type": raw}
    kind = table.get("type", jsontext.NULL)
    if kind == _OBJECT:
        return raw
    if kind == jsontext.NULL:
        context.lose("converted", "parameters", f"the schema of {tool.name!r} got the type “object”")
        return jsontext.raw({**table, "type": "object"})
    context.lose("converted", "parameters", f"the schema of {tool.name!r} is not of type object; wrapped in one")
    return jsontext.raw({"type": "object", "properties": {"value": raw}, "required": ["value"]})


def _load_one(fields: dict[str, Any], context: Context) -> None:
    """Load one tool from the start, when every tool is deferred."""
    tools: list[Any] = fields["tools"] if isinstance(fields.get("tools"), list) else []
    if tools and all(as_fields(each).get(_DEFERS) == jsontext.TRUE for each in tools):
        context.lose("dropped", _DEFERS, "not every tool may be deferred")
        tools[0] = {key: stored for key, stored in as_fields(tools[0]).items() if key != _DEFERS}


_DEFERS: Final = "defer_loading"


# -- system ----------------------------------------------------------------------------------------


def _put_system(fields: dict[str, Any], system: Sequence[SystemMessage], context: Context) -> None:
    blocks: list[Any] = []
    for message in system:
        moved = not context.own and "place" in json_fields.notes(message, WIRE)
        if moved:
            context.lose("converted", "system message", "may not stand before the first user message; sent in `system`")
        for part in message.content:
            if isinstance(part, Text):
                blocks.append(text_block(part))
            elif context.own or (not moved and is_new(part.raw_json)):
                blocks.append(part.raw_json)
            else:
                context.lose("dropped", "opaque block", "not taken in `system`")
    if blocks or context.own:
        fields["system"] = blocks


def _limit_marks(fields: dict[str, Any], context: Context) -> None:
    """Take off the marks of tools and ``system`` that are too many."""
    left = MOST_MARKS - (fields.get(MARK) not in (None, jsontext.NULL))
    for key in ("tools", "system"):
        if not isinstance(fields.get(key), list):
            continue
        found: list[Any] = fields[key]
        for position, item in enumerate(found):
            if not is_marked(item):
                continue
            left -= 1
            if left < 0:
                found[position] = {name: stored for name, stored in as_fields(item).items() if name != MARK}
                context.lose("dropped", MARK, TOO_MANY)
