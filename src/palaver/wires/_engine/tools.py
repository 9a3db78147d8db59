"""Tool definitions in the form ``{"type": "function", "function": {…}}``, and calls that wait for their results.

- ``parameters`` stay text. An unknown field stays with the tool, on its level.
- ``type`` may be absent, and is always written. Any type but ``function`` (and ``custom``, where the wire has it) is
  the provider's own tool.
- On a wire without free-text tools, one is declared as a function with one text argument, ``input``.
- ``OpenCalls`` serves wires whose results need not name a call by its id. A call is stored under several keys; a result
  takes the first open call of its key. Each step is one look-up.

Source: docs/spec/wires.md#2.3, #7, #8.

Stability: experimental.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.tools import AnyTool, ProviderTool, Tool
from palaver.wires._engine import json_fields
from palaver.wires._engine.fit import declared_name
from palaver.wires._engine.json_fields import native, nested, provider

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from palaver.core.parts import ToolCall
    from palaver.wires._engine.encode_state import Context


NO_TOOLS: Final = "there are no tools to call"
"""Why a rule on parallel calls is left out; OpenAI answers 400 to one without tools (openai/swarm#30)."""

_INPUT: Final = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def read_tool(raw: Raw, wire: str, *, kinds: tuple[str, ...] = ("function",), strict: bool = False) -> AnyTool:
    """Read a definition. ``strict`` says that the wire has such a field. Raises ``DecodeError``."""
    rest = jsontext.fields(raw)
    kind = json_fields.take_text(rest, "type")
    if kind is None and "type" not in rest:
        kind = "function"
    if kind not in kinds:
        return trusted.ProviderTool(wire, jsontext.own(raw))
    inner = json_fields.need_fields(rest, kind)
    try:
        parameters = inner.pop("parameters", None) if kind == "function" else None
        return trusted.Tool(
            json_fields.need_text(inner, "name"),
            json_fields.take_text(inner, "description"),
            UNSET if parameters is None else jsontext.own(parameters),
            json_fields.take_bool(inner, "strict") if strict else None,
            kind == "custom",
            provider_json=provider(wire, nested(rest, kind, inner)),
        )
    except DecodeError as error:
        raise error.within(kind) from None


def lose_parameters(tool: Tool, context: Context) -> None:
    """Name the schema of a free-text tool, which takes none."""
    if tool.parameters_json is not UNSET:
        context.lose("dropped", "parameters", f"{tool.name!r} takes free text")


def write_tool(tool: AnyTool, context: Context, *, strict: bool = False, needs_parameters: bool = False) -> object:
    """Write a definition; ``None`` for one that belongs to another wire.

    ``strict`` says that the wire has such a field, ``needs_parameters`` that it refuses a function without a schema.
    """
    if isinstance(tool, ProviderTool):
        if tool.wire == context.wire:
            return tool.raw_json
        context.lose("dropped", "provider tool", f"belongs to {tool.wire}")
        return None
    for wire, name, _ in json_fields.foreign(tool, context.wire):
        context.lose("dropped", name, f"a field of {wire}")
    rest = native(tool, context.wire)
    key = "custom" if tool.custom and (context.own or context.capabilities.custom_calls) else "function"
    inner: dict[str, Any] = {"name": declared_name(tool.name, context)}
    if tool.description is not None:
        inner["description"] = tool.description
    schema = tool.parameters_json
    if context.own:
        if schema is not UNSET:
            inner["parameters"] = schema
    elif tool.custom:
        lose_parameters(tool, context)
        if key == "function":
            context.lose("converted", "custom tool", "declared as a function with one text argument, “input”")
            rest.pop("custom", None)
            inner["parameters"] = _INPUT
    elif schema is not UNSET and (not needs_parameters or jsontext.kind(schema) == "an object"):
        inner["parameters"] = schema
    elif needs_parameters:
        if schema is not UNSET:
            context.lose("dropped", "parameters", f"the schema of {tool.name!r} is not of type object")
        inner["parameters"] = {"type": "object", "properties": {}}
    if tool.strict is not None and strict:
        inner["strict"] = tool.strict
    elif tool.strict is not None:
        context.lose("dropped", "strict", "the wire has no such field")
    inner = {**inner, **jsontext.fields(rest.pop(key, jsontext.EMPTY_OBJECT))}
    return {"type": key, key: inner, **rest}


# -- calls that wait for results -------------------------------------------------------------------


class OpenCalls:
    """Calls in order. ``keys`` gives all keys of a call."""

    def __init__(self, calls: Iterable[ToolCall], keys: Callable[[ToolCall], Iterable[Hashable]]) -> None:
        """File the calls."""
        self._keys = keys
        self._open: dict[int, ToolCall] = {}
        self._filed: dict[Hashable, deque[int]] = {}
        self._count = 0
        self.add(calls)

    def add(self, calls: Iterable[ToolCall]) -> None:
        """File more calls behind those that are filed."""
        for call in calls:
            self._open[self._count] = call
            for key in self._keys(call):
                self._filed.setdefault(key, deque()).append(self._count)
            self._count += 1

    def __bool__(self) -> bool:
        """Whether a call is open."""
        return bool(self._open)

    def take(self, key: Hashable) -> ToolCall | None:
        """Close the first open call that is filed under ``key``; ``None`` when there is none."""
        filed = self._filed.get(key, deque())
        while filed:
            call = self._open.pop(filed.popleft(), None)
            if call is not None:
                return call
        return None
