"""Tool definitions, read and written side by side (docs/spec/wires.md#5.1).

An entry of ``tools`` may hold function declarations, tools that Google runs, or both. Each declaration is a ``Tool``,
what else an entry holds a ``ProviderTool``. Declarations that follow each other go out in one entry; hints tell where
that was not so: ``@@entry`` on a declaration that began an entry (the name its list had), ``@@joined`` on a tool of
Google that stood in the entry before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.jsontext import TRUE, Fields
from palaver.core.tools import AnyTool, ProviderTool, Tool
from palaver.wires._engine import json_fields
from palaver.wires._engine.fit import declared_name
from palaver.wires._engine.json_fields import hint, native, provider
from palaver.wires._engine.tools import lose_parameters
from palaver.wires.google_generate import field_names
from palaver.wires.google_generate.shapes import WIRE, json_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.wires._engine.encode_state import Context

_LIST: Final = "functionDeclarations"
_SNAKE_LIST: Final = field_names.SNAKE[_LIST]


# -- reading ---------------------------------------------------------------------------------------


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
            found[0] = _begun(found[0], _LIST)
        tools += found
    return tuple(tools)


def _begun(tool: Tool, key: str) -> Tool:
    held = native(tool, WIRE)
    return tool.replace(provider_json=provider(WIRE, {"@@entry": hint(key), **held}))


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
        tools[0] = _begun(tools[0], key)
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


# -- writing ---------------------------------------------------------------------------------------


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
