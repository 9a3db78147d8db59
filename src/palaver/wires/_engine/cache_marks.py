"""Cache marks: a wire's form for a place up to which the provider caches the request.

- A ``CachePlan`` says where marks shall stand, and knows no provider. A ``Marking`` is a wire's row of data: the name
  of a mark, and what can carry one. A wire whose provider caches by itself has no row.
- A mark is a field (``cache_control``) or a block after what it marks (``cachePoint``), and may have a lifetime
  (``ttl``: ``5m`` or ``1h``). Marks are put on copies for one request; ``unmarked`` returns the originals.
- A request has at most ``most`` marks: those of the head first, since they are the oldest and stay, then the last
  places in the messages. If a message cannot carry a mark, the nearest before it does.
- With ``automatic`` the provider chooses the places in the messages, and only older ones (``bridges``) are marked.
- Marks that a request has itself stay. Those of another wire are carried to where the target marks the same kind of
  thing for this model, and dropped with a loss elsewhere. The codec of the target drops marks beyond its limit.
- The mark of a whole request, which moves by itself, is not carried to another wire: a block would stay in its place.

Sources: docs/spec/codebuff.md#2.4, CBF-15; docs/spec/kairo.md#D32; docs/spec/wires.md#4.3.7, #6.2.7;
docs/spec/message-fields.md#R10; https://platform.claude.com/docs/en/build-with-claude/prompt-caching;
https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html;
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_CachePointBlock.html.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Raw, Struct, structs

from palaver.core import jsontext, trusted
from palaver.core.messages import DeveloperMessage, FlushMarker, Message, RescueMarker, SystemMessage, ToolMessage
from palaver.core.parts import AnyPart, Opaque, Text
from palaver.core.request import Request
from palaver.core.tools import AnyTool, ProviderTool, Tool
from palaver.core.value import Value
from palaver.wires._engine import json_fields

if TYPE_CHECKING:
    from palaver.wires._engine.encode_state import Context


Places: TypeAlias = Callable[[Sequence[Message]], Sequence[int]]
"""Returns the places of the messages behind which a mark shall stand, in ascending order."""
MarkForm: TypeAlias = Literal["field", "block"]
"""A field on what it marks, or a block of its own behind it."""
_V = TypeVar("_V", bound=Value)

KEY_LENGTH: Final = 64
"""A provider's longest name of a cache (https://developers.openai.com/api/docs/api-reference/responses/create)."""


def no_places(_messages: Sequence[Message]) -> Sequence[int]:
    """Mark no message."""
    return ()


class CachePlan(Struct, frozen=True, kw_only=True):
    """What a provider caches of a prompt.

    ``places`` gets the messages behind the leading system messages, and is called only for wires with marks. ``head``
    also marks the end of the tools and of the system prompt. ``automatic``: where the provider moves a mark in the
    messages itself, ``bridges`` is called instead. ``key`` names the conversation, so that its requests use the same
    cache.
    """

    places: Places = no_places
    bridges: Places = no_places
    head: bool = True
    automatic: bool = True
    key: str | None = None


class Marking(Struct, frozen=True, kw_only=True):
    """The form of a mark on a wire: its ``name`` and ``value``, and what carries it.

    ``results``: whether the mark of a tool result stands on the message or on a part in it. ``tools``: how one is said
    behind the tools; ``None`` where it cannot be. ``models``: which models take any (``None``: all); an unknown model
    is ``""``.
    """

    wire: str
    name: str
    value: Raw
    form: MarkForm = "field"
    carriers: tuple[type[AnyPart], ...] = (Text,)
    results: Literal["message", "part"] = "part"
    tools: MarkForm | None = None
    automatic: bool = False
    most: int = 4
    models: re.Pattern[str] | None = None
    ttls: bool = True
    """A mark may name how long it lasts."""

    def places(
        self, plan: CachePlan, messages: Sequence[Message], *, tools: Sequence[AnyTool], system: bool
    ) -> Sequence[int]:
        """The places of a plan for which the head leaves marks: the last ones."""
        moved = self.automatic and plan.automatic
        head = sum((plan.head and system, plan.head and self.tools is not None and bool(tools), moved))
        if head >= self.most:
            return ()
        return (plan.bridges if moved else plan.places)(messages)[head - self.most :]


def marking_of(rows: Sequence[Marking], model: str | None) -> Marking | None:
    """The first row of a wire that holds for a model."""
    return next((row for row in rows if row.models is None or row.models.search(model or "")), None)


# -- a request -------------------------------------------------------------------------------------


def marked(request: Request, rows: Sequence[Marking], key: str | None, wire: str, plan: CachePlan) -> Request:
    """A request with the marks of a plan. ``key`` is the wire's field for ``CachePlan.key``, where it has one."""
    row = marking_of(rows, request.model)
    fields: dict[str, Any] = {}
    if key is not None and plan.key:
        fields[key] = jsontext.raw(plan.key[-KEY_LENGTH:])
    if row is None:
        return _with_fields(request, wire, fields)
    if row.automatic and plan.automatic:
        fields[row.name] = row.value
    messages = list(request.messages)
    behind = _behind_system(messages)
    system = any(isinstance(each, SystemMessage | DeveloperMessage) for each in messages[:behind])
    if plan.head and row.tools is not None and request.tools:
        request = structs.replace(request, tools=marked_tools(request.tools, row))
    if plan.head:
        _put(messages, range(behind)[-1:], row, 0)
    places = row.places(plan, tuple(messages[behind:]), tools=request.tools, system=system)
    _put(messages, [behind + place for place in places], row, behind)
    return _with_fields(structs.replace(request, messages=tuple(messages)), wire, fields)


def unmarked(request: Request, rows: Sequence[Marking], key: str | None, wire: str) -> Request:
    """A request without any mark: what ``marked`` was given, where that had none."""
    row = marking_of(rows, request.model)
    names = {name for name in (key, None if row is None else row.name) if name is not None}
    request = _without_fields(request, wire, names)
    if row is None:
        return request
    tools = tuple([_bare(each, row) for each in request.tools if not _is_mark(each, row)])
    messages = tuple([unmarked_message(each, row) for each in request.messages])
    return structs.replace(request, tools=tools, messages=messages)


def _behind_system(messages: Sequence[Message]) -> int:
    """Where the messages begin that are not leading system messages."""
    end = 0
    for place, message in enumerate(messages):
        if isinstance(message, SystemMessage | DeveloperMessage):
            end = place + 1
        elif not isinstance(message, RescueMarker | FlushMarker):
            break
    return end


def _put(messages: list[Message], places: Sequence[int], row: Marking, start: int) -> None:
    for place, message in marks_at(messages, places, row, start):
        messages[place] = message


# -- messages --------------------------------------------------------------------------------------


def marks_at(
    messages: Sequence[Message], places: Sequence[int], row: Marking, start: int = 0
) -> list[tuple[int, Message]]:
    """The messages that carry the marks of some places, with their own places.

    Where a message cannot carry one, it is the nearest before it that can and has none, from ``start`` on.
    """
    found: list[tuple[int, Message]] = []
    least = start
    for place in places:
        for at in range(place, least - 1, -1):
            message = marked_message(messages[at], row)
            if message is not None:
                found.append((at, message))
                least = at + 1
                break
    return found


def marked_message(message: Message, row: Marking) -> Message | None:
    """A message with a mark behind its last part that can carry one; ``None`` when none can."""
    content: list[Any] = list(message.content)
    last = next((at for at in range(len(content) - 1, -1, -1) if _carries(content[at], row)), None)
    if isinstance(message, ToolMessage) and row.results == "message":
        return _with_fields(message, row.wire, {row.name: row.value})
    if last is None:
        return None
    if row.form == "block":
        return message.replace(content=(*content, trusted.Opaque(row.wire, _block(row))))
    content[last] = _with_fields(content[last], row.wire, {row.name: row.value})
    return message.replace(content=tuple(content))


def unmarked_message(message: Message, row: Marking) -> Message:
    """A message without marks: the same object where it has none."""
    message = _bare(message, row)
    parts: tuple[AnyPart, ...] = message.content
    content = tuple([_bare(part, row) for part in parts if not _is_mark(part, row)])
    same = len(content) == len(parts) and all(new is old for new, old in zip(content, parts, strict=True))
    return message if same else message.replace(content=content)


def _carries(part: AnyPart, row: Marking) -> bool:
    """Whether a part can carry a mark: blank text cannot, since it may not be sent."""
    return isinstance(part, row.carriers) and not (isinstance(part, Text) and not part.text.strip())


# -- tools -----------------------------------------------------------------------------------------


def marked_tools(tools: Sequence[AnyTool], row: Marking) -> tuple[AnyTool, ...]:
    """Tools with a mark behind the last."""
    if row.tools == "block":
        return (*tools, trusted.ProviderTool(row.wire, _block(row)))
    last = next((at for at in range(len(tools) - 1, -1, -1) if isinstance(tools[at], Tool)), None)
    if last is None:
        return tuple(tools)
    return (*tools[:last], _with_fields(tools[last], row.wire, {row.name: row.value}), *tools[last + 1 :])


# -- one value -------------------------------------------------------------------------------------


def _block(row: Marking) -> Raw:
    return jsontext.raw({row.name: row.value})


def _is_mark(value: Value, row: Marking) -> bool:
    """Whether a part or a tool is nothing but a mark."""
    return isinstance(value, Opaque | ProviderTool) and value.wire == row.wire and value.raw_json == _block(row)


def _with_fields(value: _V, wire: str, fields: Mapping[str, Any]) -> _V:
    """A value with fields of a wire, but for those that it has already."""
    if not fields:
        return value
    own = json_fields.native(value, wire)
    return json_fields.with_native(
        value, wire, {**own, **{name: item for name, item in fields.items() if name not in own}}
    )


def _bare(value: _V, row: Marking) -> _V:
    return _without_fields(value, row.wire, {row.name})


def _without_fields(value: _V, wire: str, names: set[str]) -> _V:
    """A value without fields of a wire; one that had no others has no fields again."""
    own = json_fields.native(value, wire)
    if names.isdisjoint(own):
        return value
    return json_fields.with_native(value, wire, {key: item for key, item in own.items() if key not in names})


# -- marks of another wire -------------------------------------------------------------------------


_FIELD: Final = "cache_control"
_BLOCK: Final = "cachePoint"
_NAMES: Final = (_FIELD.encode(), _BLOCK.encode())


def target_of(context: Context) -> Marking | None:
    """The form of a mark on the target, for the model of the request; an unknown model gets that of most."""
    rows = context.capabilities.marking
    if context.request is None or context.own or not rows:
        return None
    return rows[0] if context.request.model is None else marking_of(rows, context.request.model)


def carried(message: Message, context: Context) -> Message:
    """A tool result with the foreign mark of its message in the target's form."""
    if not isinstance(message, ToolMessage) or not _has_marks(message):
        return message
    row = target_of(context)
    if row is None or row.results != "message":
        return message
    bare, mark = _taken(message, row.wire)
    return message if mark is None else _marked(bare, row, mark, context)


def taken(part: AnyPart, context: Context) -> tuple[AnyPart | None, Raw | None]:
    """A part without its foreign mark (``None``: it was nothing else), and the mark, if the target can express one."""
    row = target_of(context) if _has_marks(part) else None
    if row is None:
        return part, None
    bare, mark = _taken(part, row.wire)
    return None if mark is not None and isinstance(part, Opaque) else bare, mark


def carried_tools(request: Request, context: Context) -> Request:
    """A request whose tools bear their foreign marks in the target's way."""
    row = target_of(context)
    if row is None or not any(map(_has_marks, request.tools)):
        return request
    tools: list[AnyTool] = []
    for tool in request.tools:
        bare, mark = _taken(tool, row.wire)
        alone = isinstance(tool, ProviderTool) and mark is not None
        if not alone:
            tools.append(bare)
        if mark is None:
            continue
        if row.tools == "block" and tools:
            tools.append(trusted.ProviderTool(row.wire, jsontext.raw({row.name: _value(row, mark, context)})))
        elif row.tools == "field" and tools and isinstance(tools[-1], Tool):
            tools[-1] = _marked(tools[-1], row, mark, context)
        else:
            context.lose("dropped", "cache mark", "the model takes none behind tools")
    return structs.replace(request, tools=tuple(tools))


def _has_marks(value: Value) -> bool:
    if isinstance(value, Opaque | ProviderTool):
        return any(name in bytes(value.raw_json) for name in _NAMES)
    return value.provider_json is not UNSET and any(name in bytes(value.provider_json) for name in _NAMES)


def _taken(value: _V, target: str) -> tuple[_V, Raw | None]:
    """A value without the mark of another wire, and the mark."""
    if not _has_marks(value):
        return value, None
    if isinstance(value, Opaque | ProviderTool):
        fields = jsontext.fields(value.raw_json) if jsontext.kind(value.raw_json) == "an object" else {}
        return value, fields[_BLOCK] if value.wire != target and list(fields) == [_BLOCK] else None
    stored = jsontext.EMPTY_OBJECT if value.provider_json is UNSET else value.provider_json
    for wire, raw in jsontext.fields(stored).items():
        if wire == target or jsontext.kind(raw) != "an object":
            continue
        fields = jsontext.fields(raw)
        for name in (_FIELD, _BLOCK):
            mark = fields.get(name)
            if mark is not None and jsontext.kind(mark) == "an object":
                rest = {key: item for key, item in fields.items() if key != name}
                return json_fields.with_native(value, wire, rest), mark
    return value, None


def put(content: list[AnyPart], mark: Raw, context: Context, index: int, position: int) -> None:
    """Put a mark on, or behind, the last of the parts that were fitted."""
    row = target_of(context)
    last = content[-1] if content else None
    if row is None or not isinstance(last, row.carriers) or (isinstance(last, Text) and not last.text.strip()):
        context.lose("dropped", "cache mark", "the block before it cannot have one", index, position)
    elif row.form == "block":
        content.append(trusted.Opaque(row.wire, jsontext.raw({row.name: _value(row, mark, context)})))
    else:
        content[-1] = _marked(last, row, mark, context)


def _marked(value: _V, row: Marking, mark: Raw, context: Context) -> _V:
    fields = json_fields.native(value, row.wire)
    return json_fields.with_native(value, row.wire, {row.name: _value(row, mark, context), **fields})


def _value(row: Marking, mark: Raw, context: Context) -> Raw:
    """The target's mark, as long-lived as the source's."""
    ttl = jsontext.fields(mark).get("ttl", jsontext.NULL) if jsontext.kind(mark) == "an object" else jsontext.NULL
    if jsontext.kind(ttl) != "a string":
        return row.value
    if not row.ttls:
        context.lose("approximated", "cache mark", f"lasts as long as the provider says, not {jsontext.text(ttl)}")
        return row.value
    return jsontext.raw({**jsontext.fields(row.value), "ttl": ttl})
