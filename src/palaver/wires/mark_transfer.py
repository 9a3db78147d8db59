"""Cache marks of one wire, said as another says them.

Rules:

- A mark is a field (``cache_control``) or a block behind what it marks (``cachePoint``), and may name how long it
  lasts (``ttl``: ``5m`` or ``1h``, the same words everywhere). It is carried where the target marks the same kind of
  thing for the model that is asked; else it is dropped, on the receipt.
- Both kinds of wires take marks behind tools, ``system`` and messages, in this order, and at most four; the target's
  codec leaves out what is too many.
- The mark of a whole request (``Marking.automatic``), which moves by itself, is not carried: a block would stay behind.

Sources: https://platform.claude.com/docs/en/build-with-claude/prompt-caching;
https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html;
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_CachePointBlock.html.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.messages import ToolMessage
from palaver.core.parts import AnyPart, Opaque, Text
from palaver.core.tools import ProviderTool, Tool
from palaver.core.value import Value
from palaver.wires import reading
from palaver.wires.marking import Marking, marking_of

if TYPE_CHECKING:
    from palaver.core.messages import Message
    from palaver.core.request import Request
    from palaver.core.tools import AnyTool
    from palaver.wires.context import Context

_FIELD: Final = "cache_control"
_BLOCK: Final = "cachePoint"
_NAMES: Final = (_FIELD.encode(), _BLOCK.encode())
_V = TypeVar("_V", bound=Value)


def target_of(context: Context) -> Marking | None:
    """How the target says a mark, for the model that is asked; for a model that nobody named as for most."""
    rows = context.speech.marking
    if context.request is None or context.own or not rows:
        return None
    return rows[0] if context.request.model is None else marking_of(rows, context.request.model)


def carried(message: Message, context: Context) -> Message:
    """A tool result whose foreign mark, which stands on the message, is said in the target's way."""
    if not isinstance(message, ToolMessage) or not _has_marks(message):
        return message
    row = target_of(context)
    if row is None or row.results != "message":
        return message
    bare, mark = _taken(message, row.wire)
    return message if mark is None else _marked(bare, row, mark, context)


def taken(part: AnyPart, context: Context) -> tuple[AnyPart | None, Raw | None]:
    """A part without its foreign mark (``None``: it was nothing else), and the mark, if the target can say one."""
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
    held = jsontext.EMPTY_OBJECT if value.provider_json is UNSET else value.provider_json
    for wire, raw in jsontext.fields(held).items():
        if wire == target or jsontext.kind(raw) != "an object":
            continue
        fields = jsontext.fields(raw)
        for name in (_FIELD, _BLOCK):
            mark = fields.get(name)
            if mark is not None and jsontext.kind(mark) == "an object":
                rest = {key: item for key, item in fields.items() if key != name}
                return reading.with_native(value, wire, rest), mark
    return value, None


def put(content: list[AnyPart], mark: Raw, context: Context, index: int, position: int) -> None:
    """Put a mark on, or behind, the last of the parts that were fitted."""
    row = target_of(context)
    last = content[-1] if content else None
    if row is None or not isinstance(last, row.carriers) or (isinstance(last, Text) and not last.text.strip()):
        context.lose("dropped", "cache mark", "what stands before it cannot carry one", index, position)
    elif row.said == "block":
        content.append(trusted.Opaque(row.wire, jsontext.raw({row.name: _value(row, mark, context)})))
    else:
        content[-1] = _marked(last, row, mark, context)


def _marked(value: _V, row: Marking, mark: Raw, context: Context) -> _V:
    fields = reading.native(value, row.wire)
    return reading.with_native(value, row.wire, {row.name: _value(row, mark, context), **fields})


def _value(row: Marking, mark: Raw, context: Context) -> Raw:
    """The target's mark, as long-lived as the source's."""
    ttl = jsontext.fields(mark).get("ttl", jsontext.NULL) if jsontext.kind(mark) == "an object" else jsontext.NULL
    if jsontext.kind(ttl) != "a string":
        return row.value
    if not row.ttls:
        context.lose("approximated", "cache mark", f"lasts as long as the provider says, not {jsontext.text(ttl)}")
        return row.value
    return jsontext.raw({**jsontext.fields(row.value), "ttl": ttl})
