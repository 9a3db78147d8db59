"""Fields of one vendor, in its answers and in requests to it, on a wire that many vendors speak.

Rules:

- An answer that was decoded with a variant keeps the variant's name in the note ``vendor``, where it keeps any field
  at all. An answer without the note comes from the wire's own provider; a message that is no answer comes from nobody.
- In a request, fields that an answer keeps go back to the vendor that wrote them. For any other vendor they are
  dropped, each with a loss, but for ``WireCapabilities.answer_fields``, which every vendor of the wire takes.
- Fields of a request that was read as one vendor's go to another only where ``WireCapabilities.request_fields`` names
  them; each other one is a loss. Fields that are not in the body which was read are the caller's, and go to any vendor.
- An empty field (``null``, ``[]``, ``""``, an object of such) is not sent back: providers refuse
  ``tool_calls: []``.
- Wires whose ``WireCapabilities.answer_fields`` is ``None`` have one vendor only, or vendors that are all alike.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext
from palaver.core.jsontext import NULL, Fields
from palaver.core.parts import Opaque, Reasoning, Text
from palaver.wires._engine import json_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.core.messages import AssistantMessage
    from palaver.core.parts import AssistantPart
    from palaver.core.request import Request, Response
    from palaver.wires._engine.encode_state import Context

_NOTE: Final = "vendor"


def signed(response: Response, wire: str, variant: str) -> Response:
    """An answer whose messages name the vendor that wrote them, where they keep fields."""
    message = signed_message(response.message, response.message.content, wire, variant)
    others = tuple([signed_message(each, each.content, wire, variant) for each in response.alternatives])
    return structs.replace(response, message=message, alternatives=others)


def signed_message(
    message: AssistantMessage, content: Iterable[AssistantPart], wire: str, variant: str
) -> AssistantMessage:
    """One message of an answer with the name of its vendor; ``content`` are its parts, which may stand elsewhere."""
    if message.provider_json is UNSET and not any(_keeps(part) for part in content):
        return message
    notes = {**json_fields.notes(message, wire), _NOTE: jsontext.raw(variant)}
    return structs.replace(message, provider_json=json_fields.provider(wire, json_fields.native(message, wire), notes))


def _keeps(part: AssistantPart) -> bool:
    return (
        part.provider_json is not UNSET or isinstance(part, Opaque) or bool(isinstance(part, Text) and part.citations)
    )


def _vendor(message: AssistantMessage, wire: str) -> str | None:
    """Return whose answer a message is: a variant, ``""`` for the wire's own provider, ``None`` for no provider."""
    noted = json_fields.notes(message, wire).get(_NOTE)
    if noted is not None:
        return jsontext.text(noted)
    return None if message.response_id is None and message.finish_reason_raw is UNSET else ""


def fit_fields(message: AssistantMessage, context: Context, index: int) -> tuple[AssistantMessage, Sequence[int]]:
    """Leave out of a message what its vendor wrote and the vendor of the request does not take.

    Also returns where the parts that are left stood.
    """
    stood: Sequence[int] = range(len(message.content))
    taken = context.capabilities.answer_fields
    if taken is None or context.request is None:
        return message, stood
    if message.provider_json is UNSET and not any(_keeps(part) for part in message.content):
        return message, stood
    wire = context.wire
    rest = json_fields.native(message, wire)
    vendor = _vendor(message, wire)
    foreign = vendor is not None and vendor != (context.variant or "")
    name = f"{wire}:{vendor}" if vendor else wire
    left = {key: raw for key, raw in rest.items() if not is_blank(raw)}
    if foreign:
        left = _known(left, taken, name, context, index, None)
        preserved = [_fit_part(part, name, context, index, at) for at, part in enumerate(message.content)]
        stood = [at for at, part in enumerate(preserved) if part is not None]
        message = message.replace(content=tuple([part for part in preserved if part is not None]))
    return message if len(left) == len(rest) else json_fields.with_native(message, wire, left), stood


def is_blank(raw: Raw) -> bool:
    """Whether the value of a field is empty: ``null``, ``""``, ``[]``, or an object that holds only such."""
    if len(bytes(raw)) <= _SHORT or jsontext.kind(raw) != "an object":
        return raw in _EMPTY
    return all(is_blank(each) or each == _ZERO for each in jsontext.fields(raw).values())


_SHORT: Final = 4
_EMPTY: Final = (NULL, Raw(b"[]"), Raw(b'""'), jsontext.EMPTY_OBJECT)
_ZERO: Final = Raw(b"0")


def _known(  # noqa: PLR0917 (fields, what may stay, and where a loss is)
    rest: Fields, taken: frozenset[str], vendor: str, context: Context, index: int, part: int | None
) -> dict[str, Any]:
    """The fields that every vendor takes; each other field is a loss."""
    left: dict[str, Any] = {}
    for key, raw in rest.items():
        if key in taken:
            left[key] = raw
        else:
            for path, _ in json_fields.fields_of(key, raw):
                context.lose("dropped", path, f"a field of {vendor}", index, part)
    return left


def _fit_part(part: AssistantPart, vendor: str, context: Context, index: int, at: int) -> AssistantPart | None:
    wire = context.wire
    if isinstance(part, Opaque) and part.wire == wire:
        context.lose("dropped", "opaque block", f"belongs to {vendor}", index, at)
        return None
    if isinstance(part, Text) and any(each.wire == wire for each in part.citations):
        context.lose("dropped", "citations", f"belong to {vendor}; the text stays", index, at)
        part = part.replace(citations=tuple([each for each in part.citations if each.wire != wire]))
    if isinstance(part, Reasoning):  # goes into the field that the vendor reads; the wire's own provider reads none
        return json_fields.without(part, wire) if context.variant is None else part
    rest = json_fields.native(part, wire)
    if not rest:
        return part
    left = _known(rest, frozenset(), vendor, context, index, at)
    return part if len(left) == len(rest) else json_fields.with_native(part, wire, left)


# -- requests --------------------------------------------------------------------------------------


def other_vendor(request: Request | None, wire: str, variant: str | None) -> str | None:
    """The vendor whose request was read, where it is another one of the same wire; also of an edited request."""
    if request is None:
        return None
    origin = request.origin or (None if request.original is None else request.original.wire)
    if origin is None or origin.partition(":")[0] != wire:
        return None
    return None if origin == (wire if variant is None else f"{wire}:{variant}") else origin


def fit_request_fields(rest: Fields, context: Context) -> Fields:
    """The fields that a request keeps, without those of another vendor which this one is not known to take."""
    request, taken = context.request, context.capabilities.request_fields
    vendor = other_vendor(request, context.wire, context.variant)
    if request is None or vendor is None or taken is None:
        return rest
    read = rest if request.original is None else jsontext.fields(request.original.body_json)
    left: Fields = {}
    for key, raw in rest.items():
        if key not in read or (key in taken and not is_blank(raw)):
            left[key] = raw
        elif not is_blank(raw):
            for path, _ in json_fields.fields_of(key, raw):
                context.lose("dropped", path, f"a field of {vendor}")
    return left
