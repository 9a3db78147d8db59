"""A document with a list in it, cut into records: the part before the list, each item, and the part behind it.

Rules:

- Joined, the records are the document, byte for byte. An item's bytes begin with the separator before it; the bytes
  behind the last item belong to the tail.
- The head has number 0, the items count from 1, the tail is ``TAIL``, so that items can be added before it.
- A document that cannot be cut (a repeated key, no such list) is one record, the head.
- Lone surrogates and numbers beyond a double, which the fast parser refuses, are cut with the standard library. An item
  with ``NaN`` in it is a record without fields.

Stability: experimental.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.transcripts.fields import inner, listed
from palaver.transcripts.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.core.jsontext import Fields

TAIL: Final = 1 << 40
"""The number of the record behind all items."""

_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_KEY: Final = re.compile(rb'[ \t\r\n]*"(?:[^"\\]|\\.)*"[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_BETWEEN: Final = re.compile(rb"[ \t\r\n]*,?[ \t\r\n]*")
_scan: Final = json.JSONDecoder(strict=False).raw_decode
_LEAD: Final = re.compile(rb"[ \t\r\n]*,?[ \t\r\n]*")


class Cut(Struct, frozen=True):
    """A document in pieces. ``tail`` is ``None`` for one that could not be cut; then ``items`` is empty."""

    head: Record
    items: tuple[Record, ...] = ()
    tail: Record | None = None


def cut(data: bytes, *keys: str) -> Cut:
    """Cut a document at the list that ``keys`` lead to; without keys, the document is the list."""
    place = _start(data, keys)
    found = None if place is None else _items(data, *place)
    if found is None:
        found = _slowly(data, keys)
    if found is None:
        _note_other_type(data, keys)
        return Cut(_record(0, data))
    spans, end = found
    begin = end if not spans else spans[0][0]
    items = [_record(number, data[start:stop], data) for number, (start, stop) in enumerate(spans, 1)]
    return Cut(_record(0, data[:begin]), tuple(items), _record(TAIL, data[end:]))


def _note_other_type(data: bytes, keys: Sequence[str]) -> None:
    """Count a value on the path to the list that is of another type."""
    fields = fields_of(data) if keys else {}
    for key in keys[:-1]:
        fields = inner(fields, key)
    if keys:
        listed(fields, keys[-1])


def span(data: bytes, *path: str | int) -> tuple[int, int] | None:
    """Return the span of the value at ``path`` in a document; ``None`` when it does not exist."""
    keys = [key for key in path if isinstance(key, str)]
    found = _start(data, keys)
    if found is None:
        return None
    place, value = found
    if len(keys) == len(path):
        return place, place + len(value)
    spans, _ = _items(data, place, value) or ([], 0)
    number = path[-1]
    if not isinstance(number, int) or not 0 <= number < len(spans):
        return None
    start, end = spans[number]
    return start + len(lead_of(data[start:end])), end


def replaced(data: bytes, values: Mapping[tuple[str | int, ...], bytes]) -> bytes:
    """Replace values; unknown paths are skipped. A number may end a path."""
    for path, value in values.items():
        if (found := span(data, *path)) is not None:
            data = data[: found[0]] + value + data[found[1] :]
    return data


def extended(data: bytes, key: str, items: Sequence[bytes]) -> bytes:
    """Append items to a list of a document, which is created if it is missing."""
    found = span(data, key)
    if found is not None and data[found[1] - 1 : found[1]] == b"]":
        body = data[found[0] : found[1] - 1].rstrip()
        made = body + b",".join(items) if body == b"[" else b",".join((body, *items))
        return data[: found[0]] + made + b"]" + data[found[1] :]
    made = jsontext.encode(key) + b":[" + b",".join(items) + b"]"
    if found is not None:  # null
        return replaced(data, {(key,): b"[" + b",".join(items) + b"]"})
    end = data.rstrip().rfind(b"}")
    return data[:end].rstrip() + b"," + made + data[end:]


def lead_of(item: bytes) -> bytes:
    """Return the separator between an item and the one before it."""
    found = _LEAD.match(item)
    return found.group() if found else b""


def _record(at: int, raw: bytes, _whole: bytes = b"") -> Record:
    fields = None
    body = raw[len(lead_of(raw)) :]
    if at not in {0, TAIL} and body.startswith(b"{"):
        fields = fields_of(body) or None
    return Record(at, 1, raw, fields)


def _start(data: bytes, keys: Sequence[str]) -> tuple[int, bytes] | None:
    """Return where the list begins, and its text."""
    place = len(_BOM) if data.startswith(_BOM) else 0
    place = _after(_SPACE, data, place)
    value = data[place:].rstrip(b" \t\r\n")
    for key in keys:
        found = _field(data, place, value, key)
        if found is None:
            return None
        place, value = found
    return place, value


def _field(data: bytes, place: int, value: bytes, wanted: str) -> tuple[int, bytes] | None:
    try:
        fields = jsontext.fields(value)
    except DecodeError:
        return None
    place += 1
    for key, raw in fields.items():
        found = _KEY.match(data, place)
        text = bytes(raw)
        if found is None or not data.startswith(text, found.end()):
            return None
        if key == wanted:
            return found.end(), text
        place = _after(_BETWEEN, data, found.end() + len(text))
    return None


def _items(data: bytes, place: int, value: bytes) -> tuple[list[tuple[int, int]], int] | None:
    """Return the spans of the items, each with its separator except the first, and the end of the last one."""
    if not value.startswith(b"["):
        return None
    try:
        raws = jsontext.items(value)
    except DecodeError:
        return None
    spans: list[tuple[int, int]] = []
    start = end = _after(_SPACE, data, place + 1)
    for raw in raws:
        text = bytes(raw)
        begin = _after(_BETWEEN, data, start) if spans else start
        if not data.startswith(text, begin):
            return None
        end = begin + len(text)
        spans.append((start, end))
        start = end
    return spans, end


def _slowly(data: bytes, keys: Sequence[str]) -> tuple[list[tuple[int, int]], int] | None:
    """Return the same as ``_start`` and ``_items``, value by value, for documents that the fast parser refuses."""
    try:
        text = data.decode()
        place = _skipped(text, len("\ufeff") if text.startswith("\ufeff") else 0)
        for key in keys:
            place = _value_of(text, place, key)
        spans = list(_each(text, place))
        if text[_skipped(text, _scan(text, place)[1]) :].strip(" \t\r\n") and not keys:
            return None
        _scan(text, _skipped(text, len("\ufeff") if text.startswith("\ufeff") else 0))
    except (ValueError, IndexError, KeyError, RecursionError):
        return None
    ends = [place + 1, *(end for span in spans for end in span)]
    sizes = [len(text[one:other].encode()) for one, other in zip([0, *ends], ends, strict=False)]
    offsets: list[int] = []
    for size in sizes:
        offsets.append(size + (offsets[-1] if offsets else 0))
    start = _after(_SPACE, data, offsets[0])
    found = [(offsets[at], offsets[at + 1]) for at in range(1, len(offsets), 2)]
    return ([(start, found[0][1]), *found[1:]], found[-1][1]) if found else ([], start)


def _skipped(text: str, place: int) -> int:
    while text[place : place + 1] in {" ", "\t", "\r", "\n"}:
        place += 1
    return place


def _value_of(text: str, place: int, wanted: str) -> int:
    """Return where the value of a key begins. Raises ``KeyError`` for a missing or repeated key."""
    found: list[int] = []
    for start, _ in _each(text, place, opened="{"):
        key, colon = _scan(text, _skipped_comma(text, start))
        if key == wanted:
            found.append(_skipped(text, _skipped(text, colon) + 1))
    if len(found) != 1:
        raise KeyError(wanted)
    return found[0]


def _skipped_comma(text: str, place: int) -> int:
    place = _skipped(text, place)
    return _skipped(text, place + 1) if text[place] == "," else place


def _each(text: str, place: int, opened: str = "[") -> Iterator[tuple[int, int]]:
    """Yield the spans of the items of a list, or of the pairs of an object, each with its separator."""
    if text[place] != opened:
        raise ValueError(opened)
    start = place + 1
    while text[(begin := _skipped_comma(text, start))] not in "]}":
        _, end = _scan(text, begin)
        if opened == "{":
            _, end = _scan(text, _skipped(text, _skipped(text, end) + 1))
        yield start, end
        start = end


def _after(pattern: re.Pattern[bytes], data: bytes, place: int) -> int:
    found = pattern.match(data, place)
    return place if found is None else found.end()


def fields_of(data: bytes) -> Fields:
    """Return the fields of a document; empty when it is not an object."""
    try:
        return jsontext.fields(jsontext.source(data)) if _is_text(data) else {}
    except (DecodeError, msgspec.MsgspecError):
        return {}


def _is_text(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False
