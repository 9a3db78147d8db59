"""Copy metadata that the caller allows to leave into the provider's field, and times of answers from wire to wire.

- Only keys that the caller names are sent (``Options.metadata``), and no key has a meaning for a wire.
- A request has one such field, so the last value of a key counts. Tool results are not read: their metadata are records
  of what a tool did.
- The field that the request itself sets stays, and its keys come first.
- The field of another wire or vendor for such data, on a request that was read from there, has keys of the whole
  request: they follow the same rules, before the keys of messages (``of_request``).
- ``compaction``, the mark of the context layer on what it shortened, is not sent.
- Each key that is not sent is named once on the receipt, with the reason.
- ``created`` or ``created_at`` of an answer holds seconds since 1970, or an ISO time. An answer without ``sent_at``
  gets this time where the target has a time (``WireCapabilities.has_time``). A field that says the same as the finish
  reason is no loss.

Source: docs/spec/message-fields.md, R09, C12 and MSG-07.

Stability: experimental.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw

from palaver.core import jsontext
from palaver.core.messages import FlushMarker, RescueMarker, ToolMessage
from palaver.wires._engine import json_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from palaver.core.messages import FinishReason, Message
    from palaver.core.request import Request, Response
    from palaver.wires._engine.capabilities import MetadataRule
    from palaver.wires._engine.encode_state import Context


_WHAT: Final = "metadata"
_MARK: Final = "compaction"
_UNREAD: Final = (ToolMessage, RescueMarker, FlushMarker)


def gather(messages: Iterable[Message], found: dict[str, Any]) -> bool:
    """Take the metadata of messages over; whether anything is new."""
    changed = False
    for message in messages:
        if message.metadata_json is UNSET or isinstance(message, _UNREAD):
            continue
        for key, value in message.metadata.items():
            if key == _MARK:
                continue
            if key not in found or found[key] != value or type(found[key]) is not type(value):
                found[key] = value
                changed = True
    return changed


BODY_FIELDS: Final = {
    "openai_chat": "metadata",
    "openai_responses": "metadata",
    "anthropic_messages": "metadata",
    "google_generate": "labels",
    "bedrock_converse": "requestMetadata",
}
"""The field of a request for such keys, by wire; other wires have none."""


def of_request(request: Request, wire: str | None) -> tuple[Request, dict[str, Any]]:
    """Take what other wires than ``wire`` call metadata out of a request: the request without it, keys and values.

    ``None`` takes out those of all wires, for a request that was read from another vendor.
    """
    found: dict[str, Any] = {}
    if request.provider_json is UNSET:
        return request, found
    for other, field in BODY_FIELDS.items():
        rest = {} if other == wire else json_fields.native(request, other)
        if field not in rest or jsontext.kind(rest[field]) != "an object":
            continue
        values: dict[str, Any] = jsontext.value(rest.pop(field))
        found |= {key: value for key, value in values.items() if value is not None}
        request = json_fields.with_native(request, other, rest)
    return request, found


def write(fields: dict[str, Any], found: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Return the fields of a request with the metadata that may be sent and that the wire can express."""
    allowed: dict[str, Any] = {}
    for key, value in found.items():
        if key in context.options.metadata:
            allowed[key] = value
        else:
            _drop(key, "not among the keys that may leave", context)
    rule = context.capabilities.metadata
    if not allowed:
        return fields
    given: Any = {} if rule is None else _fields_of(fields.get(rule.field))
    why = _refusal(rule, given, fields)
    if rule is None or why is not None:
        for key in allowed:
            _drop(key, why or "the wire has no field for it", context)
        return fields
    texts = dict(given)
    for key, value in allowed.items():
        if key in texts:
            _drop(key, "the request sets it itself", context)
        elif len(texts) == rule.most and rule.key.fullmatch(key):
            _drop(key, f"the wire takes at most {rule.most} keys", context)
        elif (text := _text(key, value, rule, context)) is not None:
            texts[key] = text
    return {**fields, rule.field: texts} if texts else fields


def _fields_of(value: object) -> object:
    """The keys of the request itself in the field."""
    if value is None:
        return {}
    raw = value if isinstance(value, Raw) else jsontext.raw(value)
    return jsontext.fields(raw) if jsontext.kind(raw) == "an object" else value


def _refusal(rule: MetadataRule | None, given: object, fields: Mapping[str, Any]) -> str | None:
    """Why none of it can be sent."""
    if rule is None:
        return "the wire has no field for it"
    if not isinstance(given, dict):
        return f"the request sets {rule.field!r} itself"
    if rule.needs is not None:
        value = fields.get(rule.needs)
        if not (value is True or (isinstance(value, Raw) and bytes(value) == b"true")):
            return f"taken only beside {rule.needs!r}: true, which the request does not set"
    return None


def _text(key: str, value: object, rule: MetadataRule, context: Context) -> str | None:
    """The text that is sent for a value; ``None`` for what cannot be sent."""
    if not isinstance(value, (str, int, float)):
        _drop(key, "only text is taken", context)
        return None
    text = value if isinstance(value, str) else jsontext.encode(value).decode()
    if rule.key.fullmatch(key) is None:
        _drop(key, "the wire takes no such key", context)
        return None
    if rule.value.fullmatch(text) is None:
        _drop(key, "its value is too long for the wire, or holds other characters than it takes", context)
        return None
    if text is not value:
        context.lose("converted", _WHAT, f"{key!r}: only text is taken; {text!r} was sent")
    return text


def _drop(key: str, why: str, context: Context) -> None:
    context.lose("dropped", _WHAT, f"{key!r}: {why}")


# -- times of answers ------------------------------------------------------------------------------


__all__ = ["iso", "lose_fields", "with_time"]

_FIELDS: Final = ("created", "created_at")
_ENDINGS: Final[Mapping[str, Collection[FinishReason]]] = {
    "incomplete_details.reason": frozenset({"length", "content_filter"})
}
"""Fields of an answer of which these finish reasons say the same."""


def with_time(response: Response) -> Response:
    """The answer with the time when it was made, where its provider said one and the message has none."""
    message = response.message
    if message.sent_at is not None or response.provider_json is UNSET:
        return response
    for raw in jsontext.fields(response.provider_json).values():
        if jsontext.kind(raw) != "an object":
            continue
        stored = jsontext.fields(raw)
        for key in _FIELDS:
            time = _milliseconds(jsontext.value(stored[key])) if key in stored else None
            if time:  # 1970 stands for none
                return response.replace(message=message.replace(sent_at=time), origin=response.origin)
    return response


def lose_fields(response: Response, context: Context) -> None:
    """Name the fields of other wires that an answer keeps, but for what its time and its finish reason say."""
    timed = context.capabilities.has_time and response.message.sent_at is not None
    for wire, key, _ in json_fields.foreign(response, context.wire):
        if not (timed and key in _FIELDS) and response.finish_reason not in _ENDINGS.get(key, ()):
            context.lose("dropped", key, f"a field of {wire}")


def _milliseconds(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return None
        return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    return int(value * 1000) if isinstance(value, int | float) and 0 < value < _LATEST else None


_LAST: Final = 253_402_300_799
_LATEST: Final = 1e11
"""Seconds beyond any calendar."""


def iso(milliseconds: int) -> str:
    """Write a time as ISO 8601, in whole seconds of UTC; one before 1970 or after 9999 as the nearest within."""
    return datetime.fromtimestamp(min(max(milliseconds // 1000, 0), _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
