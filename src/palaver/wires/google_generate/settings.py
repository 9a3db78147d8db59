"""``generationConfig``, ``toolConfig`` and ``tools``, each with its reader and writer.

- A value of another type than ours stays where it is (protobuf also takes counts as strings). ``effort`` is
  ``thinkingLevel`` in lower case.
- An entry of ``tools`` has function declarations, tools that Google runs, or both. Each declaration becomes a ``Tool``,
  and the rest of an entry a ``ProviderTool``. Consecutive declarations are written into one entry. ``@@entry`` on a
  declaration marks the beginning of an entry and has the name of its list; ``@@joined`` marks a tool of Google that
  shares the entry before it.

Source: docs/spec/wires.md#5.1, #5.2.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, UnsetType, structs

from palaver.core import jsontext, trusted
from palaver.core.jsontext import TRUE, Fields
from palaver.core.request import OutputFormat, Settings, ToolChoice
from palaver.core.tools import AnyTool, ProviderTool, Tool
from palaver.wires._engine import json_fields
from palaver.wires._engine.fit import declared_name, fitting_name
from palaver.wires._engine.json_fields import hint, native, provider
from palaver.wires._engine.thinking import fit_effort
from palaver.wires._engine.tools import lose_parameters
from palaver.wires.google_generate import field_names
from palaver.wires.google_generate.shapes import (
    WIRE,
    json_schema,
    read_tool_choice,
    write_tool_choice,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palaver.core.request import Request
    from palaver.wires._engine.encode_state import Context


_LEVELS: Final = ("minimal", "low", "medium", "high", "xhigh")
_NOT_DECIMAL: Final = frozenset(b".eE")


def _take_whole(rest: Fields, key: str) -> int | None:
    """Take an integer that is written as one; ``40.0`` stays, so that it is sent as it came in."""
    raw = rest.get(key)
    return None if raw is None or not _NOT_DECIMAL.isdisjoint(bytes(raw)) else json_fields.take_int(rest, key)


_SCALARS: Final[dict[str, tuple[str, Callable[[Fields, str], Any]]]] = {
    "max_tokens": ("maxOutputTokens", _take_whole),
    "temperature": ("temperature", json_fields.take_number),
    "top_p": ("topP", json_fields.take_number),
    "top_k": ("topK", _take_whole),
    "seed": ("seed", _take_whole),
    "frequency_penalty": ("frequencyPenalty", json_fields.take_number),
    "presence_penalty": ("presencePenalty", json_fields.take_number),
    "stop": ("stopSequences", json_fields.take_texts),
}
"""Neutral settings that stand in ``generationConfig``: their names there, and how to read them."""


# -- reading ---------------------------------------------------------------------------------------


def read_settings(rest: Fields) -> Settings:
    """Take settings out of a request body."""
    choice = _tool_choice(rest)
    config = field_names.soft(rest, "generationConfig", json_fields.take_fields)
    if config is None:
        return trusted.Settings(tool_choice=choice)
    found = {name: field_names.soft(config, key, read) for name, (key, read) in _SCALARS.items()}
    found |= {"output": _output(config), **_thinking(config)}
    field_names.keep(rest, "generationConfig", config, bare=all(value is None for value in found.values()))
    return structs.replace(trusted.Settings(tool_choice=choice), **found)


def _thinking(config: Fields) -> dict[str, Any]:
    thinking = field_names.soft(config, "thinkingConfig", json_fields.take_fields)
    if thinking is None:
        return {}
    budget = field_names.soft(thinking, "thinkingBudget", _take_whole)
    raw = field_names.raw(thinking, "thinkingLevel")
    effort = None if raw is None else _effort(raw)
    if effort is not None:
        word = field_names.take(thinking, "thinkingLevel", field_names.pull)
        json_fields.keep_form(thinking, "thinkingLevel", word or jsontext.NULL, effort.upper())
    field_names.keep(config, "thinkingConfig", thinking, bare=budget is None and effort is None)
    return {"reasoning_tokens": budget, "effort": effort}


def _effort(raw: Raw) -> str | None:
    word = jsontext.text(raw).lower() if jsontext.kind(raw) == "a string" else None
    return word if word in _LEVELS else None


def _output(config: Fields) -> OutputFormat | None:
    """Read the form of the answer, which a media type and one of two schemas give."""
    raw = field_names.raw(config, "responseMimeType")
    word = jsontext.text(raw) if raw is not None and jsontext.kind(raw) == "a string" else None
    if word not in ("application/json", "text/plain"):
        return None
    field_names.take(config, "responseMimeType", field_names.pull)
    if word == "text/plain":
        return trusted.OutputFormat(kind="text")
    for name in ("responseJsonSchema", "responseSchema"):
        schema = field_names.raw(config, name)
        if schema is None or jsontext.kind(schema) != "an object":
            continue
        field_names.take(config, name, field_names.pull)
        if name == "responseJsonSchema":
            return trusted.OutputFormat(kind="json_schema", schema_json=jsontext.own(schema))
        converted = json_schema(schema)
        config["@@responseSchema"] = TRUE if converted == schema else schema
        return trusted.OutputFormat(kind="json_schema", schema_json=converted)
    return trusted.OutputFormat(kind="json")


def _tool_choice(rest: Fields) -> ToolChoice | None:
    config = field_names.soft(rest, "toolConfig", json_fields.take_fields)
    if config is None:
        return None
    raw = field_names.raw(config, "functionCallingConfig")
    choice = None if raw is None else read_tool_choice(raw)
    if raw is not None and choice is not None:
        field_names.take(config, "functionCallingConfig", field_names.pull)
        json_fields.keep_form(config, "functionCallingConfig", raw, write_tool_choice(choice))
    field_names.keep(rest, "toolConfig", config, bare=choice is None)
    return choice


# -- writing ---------------------------------------------------------------------------------------


def write_settings(request: Request, rest: Fields, context: Context) -> dict[str, Any]:
    """Write ``toolConfig`` and ``generationConfig``; what remained of them is taken out of ``rest``."""
    settings = request.settings
    fields: dict[str, Any] = {}
    tools = _write_tool_config(request, rest, context)
    if tools is not None:
        fields["toolConfig"] = tools
    if settings.parallel_tool_calls is not None:
        context.lose("dropped", "parallel_tool_calls", "the wire has no such setting")
    config = field_names.preserved(rest, "generationConfig")
    stored: Fields = {} if config is None else config
    written: dict[str, Any] = {
        key: value for name, (key, _) in _SCALARS.items() if (value := getattr(settings, name)) is not None
    }
    if settings.output is not None:
        written |= _write_output(settings.output, stored, context)
    thinking = _write_thinking(request, stored, context)
    if thinking is not None:
        written["thinkingConfig"] = thinking
    if written or config is not None:
        fields["generationConfig"] = field_names.spelled(written, stored)
    return fields


def _write_tool_config(request: Request, rest: Fields, context: Context) -> dict[str, Any] | None:
    config = field_names.preserved(rest, "toolConfig")
    stored: Fields = {} if config is None else config
    choice = request.settings.tool_choice
    written: dict[str, Any] = {}
    if choice is not None:
        form = json_fields.form(stored, "functionCallingConfig", choice, read_tool_choice)
        server_side = stored.get("includeServerSideToolInvocations") == TRUE and choice.mode == "auto"
        if context.own or server_side or _declares(request):
            if not context.own and form is None:
                names = tuple([fitting_name(name, context) for name in choice.names])
                choice = trusted.ToolChoice(choice.mode, names)
            written["functionCallingConfig"] = write_tool_choice(choice) if form is None else form
        else:
            context.lose("dropped", "tool_choice", "refused where no function is declared")
    return field_names.spelled(written, stored) if written or config is not None else None


def _declares(request: Request) -> bool:
    """Whether any function is declared."""
    return any(isinstance(tool, Tool) for tool in request.tools)


def _write_output(output: OutputFormat, stored: Fields, context: Context) -> dict[str, Any]:
    for key in ("name", "description", "strict"):
        if getattr(output, key):
            context.lose("dropped", f"output {key}", "the wire has no such setting")
    form = stored.pop("@@responseSchema", None)
    if output.kind == "text":
        return {"responseMimeType": "text/plain"}
    written: dict[str, Any] = {"responseMimeType": "application/json"}
    schema = output.schema_json
    if output.kind == "json_schema" and isinstance(schema, Raw):
        if form == TRUE:
            written["responseSchema"] = schema
        elif form is not None and jsontext.equal(json_schema(form), schema):
            written["responseSchema"] = form
        else:
            written["responseJsonSchema"] = schema
    return written


def _write_thinking(request: Request, stored: Fields, context: Context) -> dict[str, Any] | None:
    thinking = field_names.preserved(stored, "thinkingConfig")
    rest: Fields = {} if thinking is None else thinking
    settings = fit_effort(request.settings, context, request.model)
    written: dict[str, Any] = {}
    if settings.effort is not None:
        form = json_fields.form(rest, "thinkingLevel", settings.effort, _effort)
        written["thinkingLevel"] = settings.effort.upper() if form is None else form
    if settings.reasoning_tokens is not None:
        written["thinkingBudget"] = settings.reasoning_tokens
    return field_names.spelled(written, rest) if written or thinking is not None else None


_LIST: Final = "functionDeclarations"
_SNAKE_LIST: Final = field_names.SNAKE[_LIST]


# -- reading tools ---------------------------------------------------------------------------------


def read_tools(rest: Fields) -> tuple[AnyTool, ...]:
    """Take the tools out of a request body."""
    raw = rest.get("tools")
    if raw is None or raw == jsontext.NULL:
        return ()
    if jsontext.kind(raw) == "an object":
        rest["@@tools"] = hint("object")
        entries = [rest.pop("tools")]
    else:
        entries = json_fields.need_items(rest, "tools")
        if not entries:
            rest["@@tools"] = hint("empty")
    tools: list[AnyTool] = []
    for found in json_fields.each(entries, "tools", _entry):
        if tools and isinstance(tools[-1], Tool) and isinstance(found[0], Tool):
            found[0] = _mark_entry(found[0], _LIST)
        tools += found
    return tuple(tools)


def _mark_entry(tool: Tool, key: str) -> Tool:
    stored = native(tool, WIRE)
    return tool.replace(provider_json=provider(WIRE, {"@@entry": hint(key), **stored}))


def _entry(raw: Raw) -> list[AnyTool]:
    rest = jsontext.fields(raw)
    key = _LIST if _LIST in rest else _SNAKE_LIST
    declared = rest.get(key)
    if declared is None or jsontext.kind(declared) != "an array" or declared == Raw(b"[]"):
        return [trusted.ProviderTool(WIRE, jsontext.own(raw))]
    del rest[key]
    tools: list[AnyTool] = []
    tools += json_fields.each(jsontext.items(declared), key, _declaration)
    if not tools:
        return [trusted.ProviderTool(WIRE, jsontext.own(raw))]
    if key == _SNAKE_LIST and isinstance(tools[0], Tool):
        tools[0] = _mark_entry(tools[0], key)
    if rest:
        joined = provider(WIRE, {"@@joined": TRUE})
        tools.append(trusted.ProviderTool(WIRE, jsontext.raw(rest), provider_json=joined))
    return tools


def _declaration(raw: Raw) -> Tool:
    rest = jsontext.fields(raw)
    parameters = field_names.take(rest, "parametersJsonSchema", field_names.pull)
    if parameters is None and (schema := field_names.pull(rest, "parameters")) is not None:
        parameters = json_schema(schema)
        rest["@@parameters"] = TRUE if parameters == schema else schema
    return trusted.Tool(
        json_fields.need_text(rest, "name"),
        field_names.soft(rest, "description", json_fields.take_text),
        UNSET if parameters is None else jsontext.own(parameters),
        provider_json=provider(WIRE, rest),
    )


# -- writing tools ---------------------------------------------------------------------------------


def write_tools(tools: Sequence[AnyTool], context: Context) -> list[Any]:
    """Write the entries of ``tools``."""
    entries: list[Any] = []
    declared: list[Any] | None = None
    for tool in tools:
        if isinstance(tool, ProviderTool):
            if tool.wire != WIRE:
                context.lose("dropped", "provider tool", f"belongs to {tool.wire}")
                continue
            declared = None
            if "@@joined" in native(tool, WIRE) and entries and isinstance(entries[-1], dict):
                entries[-1] = {**entries[-1], **jsontext.fields(tool.raw_json)}
            else:
                entries.append(tool.raw_json)
            continue
        rest = native(tool, WIRE)
        key = rest.pop("@@entry", None)
        if declared is None or key is not None:
            declared = []
            entries.append({_LIST if key is None else jsontext.text(key): declared})
        declared.append(_write_declaration(tool, rest, context))
    return entries


def _write_declaration(tool: Tool, rest: Fields, context: Context) -> dict[str, Any]:
    for wire, key, _ in json_fields.foreign(tool, WIRE):
        context.lose("dropped", key, f"a field of {wire}")
    if tool.strict:
        context.lose("dropped", "strict", f"tool {tool.name!r}: the wire has no such field")
    fields: dict[str, Any] = {"name": declared_name(tool.name, context)}
    if tool.description is not None:
        fields["description"] = tool.description
    form = rest.pop("@@parameters", None)
    schema: Raw | UnsetType = tool.parameters_json
    if tool.custom:
        lose_parameters(tool, context)
        why = "declared as a function with one text argument, “input”"
        context.lose("converted", "custom tool", why)
        fields["parametersJsonSchema"] = _INPUT
    elif not isinstance(schema, UnsetType):
        if form == TRUE:
            fields["parameters"] = schema
        elif form is not None and jsontext.equal(json_schema(form), schema):
            fields["parameters"] = form
        else:
            fields["parametersJsonSchema"] = schema
    if not context.own and "parametersJsonSchema" in fields and "parameters" in rest:
        del rest["parameters"]
        why = f"tool {tool.name!r}: two schemas exclude each other"
        context.lose("dropped", "parameters", why)
    return field_names.spelled(fields, rest)


_INPUT: Final = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
