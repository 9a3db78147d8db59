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
from palaver.wires import reading
from palaver.wires.google_generate import spelling
from palaver.wires.google_generate.forms import WIRE, json_schema
from palaver.wires.handover import declared_name
from palaver.wires.reading import hint, native, provider
from palaver.wires.tools import lose_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.wires.context import Context

_LIST: Final = "functionDeclarations"
_SNAKE_LIST: Final = spelling.SNAKE[_LIST]


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
        entries = reading.need_items(rest, "tools")
        if not entries:
            rest["@@tools"] = hint("empty")
    tools: list[AnyTool] = []
    for found in reading.each(entries, "tools", _entry):
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
    tools += reading.each(jsontext.items(declared), key, _declaration)
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
    parameters = spelling.take(rest, "parametersJsonSchema", spelling.pull)
    if parameters is None and (schema := spelling.pull(rest, "parameters")) is not None:
        parameters = json_schema(schema)
        rest["@@parameters"] = TRUE if parameters == schema else schema
    return trusted.Tool(
        reading.need_text(rest, "name"),
        spelling.soft(rest, "description", reading.take_text),
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
    for wire, key, _ in reading.foreign(tool, WIRE):
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
    return spelling.spelled(fields, rest)


_INPUT: Final = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
