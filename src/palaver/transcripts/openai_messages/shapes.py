"""The shapes of a record, recognized by its keys.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.transcripts.detection import Detection, Head, word
from palaver.transcripts.fields import inner, split

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

    from palaver.core.jsontext import Fields

NAME: Final = "openai_messages"
WIRE: Final = "openai_chat"
RESPONSES: Final = "openai_responses"

Shape: TypeAlias = Literal[
    "messages", "message", "completion", "chosen", "preference", "batch", "sharegpt", "alpaca", "list"
]

_LISTED: Final[dict[str, float]] = {"messages": 0.7, "message": 0.5}
"""The confidence of a shape in a list: no request is a list of conversations, but one may be a list of messages."""
COLUMNS: Final = frozenset(
    (
        "messages",
        "conversations",
        "role",
        "prompt",
        "chosen",
        "rejected",
        "completion",
        "input",
        "instruction",
        "output",
    )
)
"""The keys under which a record has messages."""

_BESIDE: Final = frozenset(("label", "kto_tag", "images", "videos", "audios", "chosen", "rejected"))
"""Columns of training data, none of which is a field of a request."""
_READ: Final[Mapping[Shape, frozenset[str]]] = {
    "messages": frozenset(("messages",)),
    "completion": frozenset(("prompt", "completion")),
    "chosen": frozenset(("prompt", "messages", "chosen", "rejected")),
    "preference": frozenset(("input", "preferred_output", "non_preferred_output")),
    "sharegpt": frozenset(("conversations", "system", "chosen", "rejected")),
    "alpaca": frozenset(("instruction", "input", "output", "system", "history", "chosen", "rejected")),
}
"""The columns from which the messages of a record are read, for each shape that has further columns."""
_EMPTY: Final = frozenset((b"null", b'""', b"[]", b"{}"))

_ROLES: Final = frozenset(("system", "developer", "user", "assistant", "tool", "function"))


def detect(head: Head) -> Detection | None:
    """Return the keys of the shapes, on the first line or in the first object of a list."""
    lines = head.lines
    document: object = head.document
    if isinstance(document, list):
        first: Mapping[str, Any] = head.items[0] if head.items else {}
        shape = _shape(first)
        if shape is None:
            return Detection(0.5) if _listed(cast("list[object]", document)[0] if document else None) else None
        return Detection(_LISTED.get(shape[0], shape[1]))
    if not lines:
        return Detection(0.7) if list_shape(head.data.partition(b"\n")[0]) else None
    shape = _shape(head.fields or lines[0])
    if shape is None:
        return None
    name, confidence = shape
    if len(lines) > 1 and name in {"message", "messages"} and _shape(lines[1]) == shape:
        confidence = 0.7
    return Detection(confidence)


def shape_of(fields: Fields) -> Shape | None:
    """Return the shape of a record; ``None`` when it is not a conversation."""
    shape = _shape({key: _peek(raw) for key, raw in fields.items()})
    return None if shape is None else shape[0]


def beside(fields: Fields, shape: Shape, *, images: bool) -> list[str]:
    """Return the non-empty columns of a record that are in no message; ``images`` says that those are."""
    read = _READ.get(shape)
    if read is None:
        return []
    left = {key: raw for key, raw in fields.items() if key not in read and not (images and key == "images")}
    if shape == "preference":
        left |= {f"input.{key}": raw for key, raw in inner(fields, "input").items() if key != "messages"}
    elif shape == "chosen" and "prompt" in fields and "messages" in fields:
        left["messages"] = fields["messages"]
    return [key for key, raw in left.items() if bytes(raw).strip() not in _EMPTY]


def list_shape(raw: bytes) -> Shape | None:
    """Return whether a record that is not an object is a list of messages."""
    body = bare(raw)
    if not body.startswith(b"["):
        return None
    try:
        return "list" if _listed(jsontext.value(body)) else None
    except PalaverError:
        return None


def bare(raw: bytes) -> bytes:
    """Return a record without the bytes around it."""
    return raw.strip(b"\xef\xbb\xbf ,\t\r\n")


def _listed(value: object) -> bool:
    first = _first(value)
    return isinstance(first, dict) and (_shape(cast("dict[str, Any]", first)) or ("",))[0] == "message"


def _first(value: object) -> Any:
    return cast("list[object]", value)[0] if isinstance(value, list) and value else None


def _shape(record: Mapping[str, Any]) -> tuple[Shape, float] | None:
    """Return the shape of a record, and how sure that is."""
    if _has(record, "conversations", "from", "value"):
        return "sharegpt", 0.9
    if "custom_id" in record and ("body" in record or "response" in record):
        return "batch", 0.9
    if "preferred_output" in record and "input" in record:
        return "preference", 0.9
    if isinstance(record.get("instruction"), str) and ("output" in record or {"chosen", "rejected"} <= record.keys()):
        return "alpaca", 0.8
    if "chosen" in record and "rejected" in record:
        return "chosen", 0.8
    if "prompt" in record and "completion" in record:
        return "completion", 0.8
    if _has(record, "messages", "role"):
        return "messages", 0.5 if _BESIDE.isdisjoint(record) else 0.8
    if word(record, "role") in _ROLES and ("content" in record or "tool_calls" in record) and "type" not in record:
        return "message", 0.5
    return None


def _has(record: Mapping[str, Any], key: str, *keys: str) -> bool:
    """Return whether a record has a list of objects with these keys, and without keys of another format's messages."""
    items = record.get(key)
    first = cast("list[object]", items)[0] if isinstance(items, list) and items else None
    if not isinstance(first, dict):
        return False
    return all(each in first for each in keys) and "parts" not in first and "info" not in first


def _peek(raw: Raw) -> Any:
    """Return a value as far as it decides the shape: only the first item of a list."""
    match jsontext.kind(raw):
        case "an array":
            items = jsontext.items(raw)
            return [dict.fromkeys(split(items[0])) if jsontext.kind(items[0]) == "an object" else None] if items else []
        case "a string":
            return jsontext.text(raw)
        case _:
            return None
