"""``generationConfig``, ``toolConfig`` and ``tools``, each with its reader and writer.

- A value of another type than ours stays where it is (protobuf also takes counts as strings). ``effort`` is
  ``thinkingLevel`` in lower case.
- An entry of ``tools`` has function declarations, tools that Google runs, or both. Each declaration becomes a ``Tool``,
  and the rest of an entry a ``ProviderTool``. Consecutive declarations are written into one entry.
- A schema in Gemini's own form (``parameters``, ``responseSchema``) is read as JSON Schema, and written back in its
  field, with types in capitals and ``nullable``.

Notes (``provider["@google_generate"]``):

- of a tool: ``entry``, where a declaration begins an entry behind one of declarations; ``joined`` on a tool of Google
  that shares the entry before it; ``field``: ``parameters``, where the schema stood there;
- of the form of the answer: ``field``: ``responseSchema``;
- of the request: ``mode``, a word for the choice of tools that we would not write for its meaning.

Source: docs/spec/wires.md#5.1, #5.2.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, UnsetType, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.jsontext import TRUE, Fields
from palaver.core.request import OutputFormat, Settings, ToolChoice
from palaver.core.tools import AnyTool, ProviderTool, Tool
from palaver.wires._engine import json_fields
from palaver.wires._engine.fit import declared_name, fitting_name
from palaver.wires._engine.json_fields import native, provider, word
from palaver.wires._engine.shapes import ABSENT, list_reader
from palaver.wires._engine.thinking import fit_effort
from palaver.wires._engine.tools import lose_parameters
from palaver.wires.google_generate import field_names
from palaver.wires.google_generate.field_names import Spelled, camel, joined
from palaver.wires.google_generate.shapes import (
    WIRE,
    gemini_schema,
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


def read_settings(rest: Fields, notes: Fields) -> Settings:
    """Take settings out of a request body."""
    choice = _tool_choice(rest, notes)
    config = field_names.soft(rest, "generationConfig", json_fields.take_fields)
    if config is None:
        return trusted.Settings(tool_choice=choice)
    config = camel(config)
    found = {name: field_names.soft(config, key, read) for name, (key, read) in _SCALARS.items()}
    found |= {"output": _output(config), **_thinking(config)}
    if config:
        rest["generationConfig"] = jsontext.raw(config)
    return structs.replace(trusted.Settings(tool_choice=choice), **found)


def _thinking(config: Fields) -> dict[str, Any]:
    thinking = field_names.soft(config, "thinkingConfig", json_fields.take_fields)
    if thinking is None:
        return {}
    thinking = camel(thinking)
    budget = field_names.soft(thinking, "thinkingBudget", _take_whole)
    effort = _effort(thinking.get("thinkingLevel", jsontext.NULL))
    if effort is not None:
        del thinking["thinkingLevel"]
    if thinking:
        config["thinkingConfig"] = jsontext.raw(thinking)
    return {"reasoning_tokens": budget, "effort": effort}


def _effort(raw: Raw) -> str | None:
    word = jsontext.text(raw).lower() if jsontext.kind(raw) == "a string" else None
    return word if word in _LEVELS else None


_JSON, _PLAIN = word("application/json"), word("text/plain")


def _output(config: Fields) -> OutputFormat | None:
    """Read the form of the answer, which a media type and one of two schemas give."""
    media_type = config.get("responseMimeType")
    if media_type not in (_JSON, _PLAIN):
        return None
    del config["responseMimeType"]
    if media_type == _PLAIN:
        return trusted.OutputFormat(kind="text")
    for name in ("responseJsonSchema", "responseSchema"):
        schema = config.get(name, jsontext.NULL)
        if jsontext.kind(schema) != "an object":
            continue
        del config[name]
        if name == "responseJsonSchema":
            return trusted.OutputFormat(kind="json_schema", schema_json=jsontext.own(schema))
        note = provider(WIRE, {}, {"field": word("responseSchema")})
        return trusted.OutputFormat(kind="json_schema", schema_json=json_schema(schema), provider_json=note)
    return trusted.OutputFormat(kind="json")


def _tool_choice(rest: Fields, notes: Fields) -> ToolChoice | None:
    config = field_names.soft(rest, "toolConfig", json_fields.take_fields)
    if config is None:
        return None
    config = camel(config)
    choice = None
    calling = field_names.soft(config, "functionCallingConfig", json_fields.take_fields)
    if calling is not None:
        calling = camel(calling)
        choice = read_tool_choice(calling, notes)
        if calling:
            config["functionCallingConfig"] = jsontext.raw(calling)
    if config:
        rest["toolConfig"] = jsontext.raw(config)
    return choice


# -- writing ---------------------------------------------------------------------------------------


def write_settings(request: Request, rest: Fields, context: Context) -> dict[str, Any]:
    """Write ``toolConfig`` and ``generationConfig``; what remained of them is taken out of ``rest``."""
    settings = request.settings
    fields: dict[str, Any] = {}
    tools = _write_tool_config(request, rest, context)
    if tools:
        fields["toolConfig"] = tools
    if settings.parallel_tool_calls is not None:
        context.lose("dropped", "parallel_tool_calls", "the wire has no such setting")
    stored = field_names.inside(rest, "generationConfig")
    written: dict[str, Any] = {
        key: value for name, (key, _) in _SCALARS.items() if (value := getattr(settings, name)) is not None
    }
    if settings.output is not None:
        written |= _write_output(settings.output, context)
    thinking = _write_thinking(request, stored, context)
    if thinking:
        written["thinkingConfig"] = thinking
    if written or stored:
        fields["generationConfig"] = joined(written, stored)
    return fields


def _write_tool_config(request: Request, rest: Fields, context: Context) -> dict[str, Any]:
    stored = field_names.inside(rest, "toolConfig")
    calling = field_names.inside(stored, "functionCallingConfig")
    choice = request.settings.tool_choice
    written: dict[str, Any] = {}
    if choice is not None:
        server_side = stored.get("includeServerSideToolInvocations") == TRUE and choice.mode == "auto"
        if context.own or server_side or _declares(request):
            if not context.own:
                names = tuple([fitting_name(name, context) for name in choice.names])
                choice = trusted.ToolChoice(choice.mode, names)
            mode = json_fields.notes(request, WIRE).get("mode")
            written = write_tool_choice(choice, mode, own=context.own)
        else:
            context.lose("dropped", "tool_choice", "refused where no function is declared")
    written = joined(written, calling)
    return joined({"functionCallingConfig": written} if written else {}, stored)


def _declares(request: Request) -> bool:
    """Whether any function is declared."""
    return any(isinstance(tool, Tool) for tool in request.tools)


def _write_output(output: OutputFormat, context: Context) -> dict[str, Any]:
    for key in ("name", "description", "strict"):
        if getattr(output, key):
            context.lose("dropped", f"output {key}", "the wire has no such setting")
    if output.kind == "text":
        return {"responseMimeType": "text/plain"}
    written: dict[str, Any] = {"responseMimeType": "application/json"}
    schema = output.schema_json
    if output.kind == "json_schema" and isinstance(schema, Raw):
        if "field" in json_fields.notes(output, WIRE):
            written["responseSchema"] = gemini_schema(schema)
        else:
            written["responseJsonSchema"] = schema
    return written


def _write_thinking(request: Request, stored: Fields, context: Context) -> dict[str, Any]:
    rest = field_names.inside(stored, "thinkingConfig")
    settings = fit_effort(request.settings, context)
    written: dict[str, Any] = {}
    if settings.effort is not None:
        written["thinkingLevel"] = settings.effort.upper()
    if settings.reasoning_tokens is not None:
        written["thinkingBudget"] = settings.reasoning_tokens
    return joined(written, rest)


_LIST: Final = "functionDeclarations"


# -- reading tools ---------------------------------------------------------------------------------


def read_tools(raw: Raw) -> tuple[AnyTool, ...]:
    """Read the entries of ``tools``, or the only one."""
    if raw in _NOTHING:
        return ()
    try:
        entries = [raw] if jsontext.kind(raw) == "an object" else jsontext.items(raw)
    except DecodeError as error:
        raise error.within("tools") from None
    tools: list[AnyTool] = []
    for found in json_fields.each(entries, "tools", _entry):
        if tools and isinstance(tools[-1], Tool) and isinstance(found[0], Tool):
            found[0] = json_fields.with_native(
                found[0], f"@{WIRE}", {**json_fields.notes(found[0], WIRE), "entry": TRUE}
            )
        tools += found
    return tuple(tools)


_NOTHING: Final = (ABSENT, jsontext.NULL)


def _entry(raw: Raw) -> list[AnyTool]:
    rest = camel(jsontext.fields(raw))
    declared = rest.pop(_LIST, jsontext.NULL)
    tools: list[AnyTool] = []
    if jsontext.kind(declared) == "an array":
        try:
            tools += map(_tool, _read_declarations(declared))
        except DecodeError as error:
            raise error.within(_LIST) from None
    if not tools:
        return [trusted.ProviderTool(WIRE, jsontext.own(raw))]
    if rest:
        tools.append(trusted.ProviderTool(WIRE, jsontext.raw(rest), provider_json=_JOINED))
    return tools


_JOINED: Final = provider(WIRE, {}, {"joined": TRUE})


class _Declaration(Spelled):
    SOFT = frozenset({"description"})
    name: str
    description: str | UnsetType = UNSET
    parameters: Raw = ABSENT
    parameters_json_schema: Raw = ABSENT


_read_declarations = list_reader(_Declaration)


def _tool(found: _Declaration) -> Tool:
    rest = found.rest
    notes: Fields = {}
    schema: Raw | UnsetType = UNSET
    if found.parameters_json_schema not in _NOTHING:
        schema = jsontext.own(found.parameters_json_schema)
        if found.parameters not in _NOTHING:
            rest = {**rest, "parameters": found.parameters}
    elif found.parameters not in _NOTHING:
        schema = json_schema(found.parameters)
        notes["field"] = word("parameters")
    description = None if found.description is UNSET else found.description
    return trusted.Tool(found.name, description, schema, provider_json=provider(WIRE, rest, notes))


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
            if "joined" in json_fields.notes(tool, WIRE) and entries and isinstance(entries[-1], dict):
                entries[-1] = {**entries[-1], **jsontext.fields(tool.raw_json)}
            else:
                entries.append(tool.raw_json)
            continue
        if declared is None or "entry" in json_fields.notes(tool, WIRE):
            declared = []
            entries.append({_LIST: declared})
        declared.append(_write_declaration(tool, native(tool, WIRE), context))
    return entries


def _write_declaration(tool: Tool, rest: Fields, context: Context) -> dict[str, Any]:
    for wire, key, _ in json_fields.foreign(tool, WIRE):
        context.lose("dropped", key, f"a field of {wire}")
    if tool.strict:
        context.lose("dropped", "strict", f"tool {tool.name!r}: the wire has no such field")
    fields: dict[str, Any] = {"name": declared_name(tool.name, context)}
    if tool.description is not None:
        fields["description"] = tool.description
    schema: Raw | UnsetType = tool.parameters_json
    if tool.custom:
        lose_parameters(tool, context)
        why = "declared as a function with one text argument, “input”"
        context.lose("converted", "custom tool", why)
        fields["parametersJsonSchema"] = _INPUT
    elif not isinstance(schema, UnsetType):
        if "field" in json_fields.notes(tool, WIRE):
            fields["parameters"] = gemini_schema(schema)
        else:
            fields["parametersJsonSchema"] = schema
    if not context.own and "parametersJsonSchema" in fields and "parameters" in rest:
        del rest["parameters"]
        why = f"tool {tool.name!r}: two schemas exclude each other"
        context.lose("dropped", "parameters", why)
    return joined(fields, rest)


_INPUT: Final = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
