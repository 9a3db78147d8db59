"""Cache marks: at most four in a request, and none on thinking (docs/spec/wires.md#4.3.7).

The first four stand, in the order of the body: the top-level one, tools, ``system``, messages. So the marks of what was
sent do not change when a conversation grows, and its beginning keeps its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext
from palaver.core.jsontext import Fields
from palaver.core.parts import Opaque, Reasoning
from palaver.core.tools import ProviderTool
from palaver.core.value import Value
from palaver.wires.anthropic_messages.shapes import WIRE

if TYPE_CHECKING:
    from palaver.core.messages import Message
    from palaver.core.parts import AnyPart
    from palaver.wires._engine.encode_state import Context

MARK: Final = "cache_control"
MOST_MARKS: Final = 4
TOO_MANY: Final = f"more than {MOST_MARKS} marks are refused"

_NAME: Final = b'"cache_control"'
_V = TypeVar("_V", bound=Value)


def as_fields(item: Raw | dict[str, Any]) -> dict[str, Any]:
    """Give a written object as a dict."""
    return item if isinstance(item, dict) else jsontext.fields(item)


def is_marked(item: Raw | dict[str, Any]) -> bool:
    """Whether a written object bears a mark."""
    if not isinstance(item, dict) and (_NAME not in bytes(item) or jsontext.kind(item) != "an object"):
        return False
    return as_fields(item).get(MARK) not in (None, jsontext.NULL)


def head_marks(context: Context) -> int:
    """Count the marks that the head spends."""
    request = context.request
    if request is None:
        return 0
    count = int(_bears(request))
    for tool in request.tools:
        count += is_marked(tool.raw_json) if isinstance(tool, ProviderTool) and tool.wire == WIRE else _bears(tool)
    return count + sum(_bears(part) for message in context.system for part in message.content)


def _bears(value: Value) -> bool:
    """Whether a value bears a mark of ours."""
    if isinstance(value, Opaque):
        return value.wire == WIRE and is_marked(value.raw_json)
    held = value.provider_json
    if held is UNSET or _NAME not in bytes(held):
        return False
    return is_marked(jsontext.fields(held).get(WIRE, jsontext.EMPTY_OBJECT))


def _bare(value: _V) -> _V:
    """Take the mark off."""
    if isinstance(value, Opaque):
        return structs.replace(value, raw_json=_without(value.raw_json))
    if value.provider_json is UNSET:
        return value
    held: Fields = jsontext.fields(value.provider_json)
    return structs.replace(value, provider_json=jsontext.raw({**held, WIRE: _without(held[WIRE])}))


def _without(raw: Raw) -> Raw:
    return jsontext.raw({key: item for key, item in jsontext.fields(raw).items() if key != MARK})


def thinned(message: Message, left: int, index: int, context: Context) -> tuple[Message, int]:
    """Take off marks beyond those that are ``left``, and any on thinking; give how many are left then."""
    content: list[AnyPart] = list(message.content)
    changed = False
    for position, part in enumerate(content):
        if not _bears(part):
            continue
        if not isinstance(part, Reasoning) and left > 0:
            left -= 1
            continue
        content[position] = _bare(part)
        changed = True
        why = "not taken on thinking" if isinstance(part, Reasoning) else TOO_MANY
        context.lose("dropped", MARK, why, index)
    if changed:
        message = message.replace(content=tuple(content))
    if _bears(message):  # on the result that a tool message is
        if left > 0:
            return message, left - 1
        context.lose("dropped", MARK, TOO_MANY, index)
        message = _bare(message)
    return message, left
