"""Nulls of a table: Arrow gives every row of a column of dicts every key that any row has.

Rules (docs/spec/dialects.md#4):

- Keys that are ``null`` are removed from messages, their parts and calls, from arguments that are objects, and from
  ``tools``. Columns of the row stay, and so does the ``content`` of a message, where ``null`` has a meaning.
- No reader does this by itself: a ``null`` that a model wrote into its arguments looks the same.
- A line without such keys stays byte for byte.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final, cast

from palaver.core import jsontext
from palaver.core.errors import PalaverError

_COLUMNS: Final = frozenset(
    (
        "messages",
        "prompt",
        "completion",
        "chosen",
        "rejected",
        "conversations",
        "preferred_output",
        "non_preferred_output",
        "input",
        "tools",
    )
)


def without_padding(data: bytes) -> bytes:
    """Return a file of lines without the nulls of padding. Lines that are not JSON objects stay as they are."""
    return b"\n".join([_line(line) for line in data.split(b"\n")]) if b"null" in data else data


def _line(line: bytes) -> bytes:
    body = line.rstrip(b"\r")
    try:
        fields = jsontext.fields(body) if b"null" in body else {}
        kept = {
            key: raw if key not in _COLUMNS or b"null" not in bytes(raw) else _stripped(jsontext.value(raw))
            for key, raw in fields.items()
        }
        if not fields or jsontext.equal(jsontext.raw(kept), jsontext.raw(fields)):
            return line
        return jsontext.encode(kept) + line[len(body) :]
    except PalaverError:
        return line


def _stripped(value: Any) -> Any:
    match value:
        case dict():
            fields = cast("dict[str, Any]", value)
            said = "role" in fields
            return {
                key: _stripped(each) for key, each in fields.items() if each is not None or (said and key == "content")
            }
        case list():
            return [_stripped(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value
