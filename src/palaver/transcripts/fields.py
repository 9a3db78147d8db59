"""Fields of a record, read without trust: a value of another type counts as missing.

A reader asks for a type only if the format allows no other. So a value of another type (except ``null``) is lost text,
and the watch of the file counts it; if a format allows several types, call ``kind_of`` first.

Times in files, and Unix milliseconds.

Rules (docs/spec/dialects.md#0.17):

- Read: ISO 8601 with ``Z``, an offset, or no zone at all (taken as UTC), with any number of decimals; seconds,
  milliseconds, microseconds or nanoseconds since 1970, told apart by their size. Anything else gives ``None``.
- Written: ISO 8601 in UTC with milliseconds and ``Z``, as JavaScript's ``toISOString`` does.

Stability: experimental.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from palaver.core import jsontext, trusted
from palaver.core.jsontext import sayable_json
from palaver.core.parts import Reasoning
from palaver.transcripts.unknown_fields import WATCHING

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.core.usage import Usage


_NOTHING: Final[Fields] = {}
_text = msgspec.json.Decoder(str).decode


def value(fields: Fields, key: str) -> Any:
    """Return any value, parsed; ``None`` when it is missing."""
    raw = fields.get(key)
    return None if raw is None else jsontext.value(raw)


def kind_of(fields: Fields, key: str) -> str:
    """Return the JSON type of a value, as ``jsontext.kind`` names it; ``null`` when it is missing."""
    raw = fields.get(key)
    return "null" if raw is None else jsontext.kind(raw)


def string(fields: Fields, key: str) -> str | None:
    """Return a string."""
    raw = fields.get(key)
    if raw is None:
        return None
    try:
        return _text(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return jsontext.text(raw) if _is("a string", raw, key) else None


def integer(fields: Fields, key: str) -> int | None:
    """Return an integer; a boolean is not one."""
    raw = fields.get(key)
    if raw is None or not _is("a number", raw, key):
        return None
    found = jsontext.value(raw)
    return found if isinstance(found, int) else None


def flag(fields: Fields, key: str) -> bool:
    """Return whether the value is ``true``."""
    raw = fields.get(key)
    if raw is None or raw == jsontext.TRUE:
        return raw is not None
    if jsontext.kind(raw) != "false":
        _is("a boolean", raw, key)
    return False


def inner(fields: Fields, key: str) -> Fields:
    """Return the fields of an object; empty for any other value."""
    raw = fields.get(key)
    return split(raw, key) if raw is not None else _NOTHING


def split(raw: Raw, key: str = "") -> Fields:
    """Return the fields of an object; empty for others. ``key`` is that of the value, empty for an item of a list."""
    return jsontext.fields(raw) if _is("an object", raw, key) else _NOTHING


def as_object(raw: Raw) -> Fields:
    """Return the fields of an object; empty for a value of any other type, which the format allows or keeps."""
    return jsontext.fields(raw) if jsontext.kind(raw) == "an object" else _NOTHING


def listed(fields: Fields, key: str) -> list[Raw]:
    """Return the items of an array; empty for any other value."""
    raw = fields.get(key)
    if raw is None or not _is("an array", raw, key):
        return []
    items = jsontext.items(raw)
    if items and (watch := WATCHING.get()) is not None:
        watch.listed(key, items)
    return items


def either(raw: Raw | None, key: str, *wanted: str) -> str:
    """Return the JSON type of a value that may have several, as ``jsontext.kind`` names it; ``null`` for others."""
    found = "null" if raw is None else jsontext.kind(raw)
    if raw is None or found in wanted:
        return found
    _is(" or ".join(wanted), raw, key)
    return "null"


def _is(wanted: str, raw: Raw, key: str) -> bool:
    """Return whether a value is of a type; when a file is read, a value of another type is counted."""
    found = jsontext.kind(raw)
    if found not in {wanted, "null"} and (watch := WATCHING.get()) is not None:
        watch.mistyped(key, raw, wanted)
    return found == wanted


def usage_of_totals(
    given: int | None, made: int | None, *, cached: int | None, written: int | None, reasoning: int | None, raw: Raw
) -> Usage:
    """Return the usage of counters that include each other.

    ``given`` are all input tokens, with those ``cached`` and ``written`` to a cache; ``made`` are all output tokens,
    with those of ``reasoning``. ``raw`` is the object that was read.
    """
    return trusted.Usage(
        input=None if given is None else max(given - (cached or 0) - (written or 0), 0),
        cache_read=cached,
        cache_write=written,
        output=None if made is None else max(made - (reasoning or 0), 0),
        reasoning=reasoning,
        raw_json=jsontext.own(raw),
    )


def check_summary(item: Fields) -> None:
    """Check the texts of a reasoning item of Responses: its wire keeps other values apart."""
    if string(item, "type") == "reasoning":
        for key in ("summary", "content"):
            for each in listed(item, key):
                string(split(each), "text")


@contextmanager
def probing() -> Generator[None]:
    """Count no values of other types in the block: its fields may be of any type."""
    token = WATCHING.set(None)
    try:
        yield
    finally:
        WATCHING.reset(token)


def wire_of(message: Message, known: Collection[str], otherwise: str) -> str:
    """Return the known wire of a message: that of its reasoning, or that whose fields it keeps."""
    named = [part.wire for part in message.content if isinstance(part, Reasoning) and part.wire]
    return next((each for each in (*named, *message.provider) if each in known), otherwise)


NO_JSON: Final = "INVALID_JSON"
"""The key of text that should be JSON, and is not, in an object, as on the wires."""


def as_json(text: str) -> Raw:
    """Return JSON text for a document: unchanged if it can be encoded, else written again.

    Text that is not JSON (the arguments of a call may be any text) is put into an object, under ``NO_JSON``.
    """
    if not jsontext.is_json(text):
        return jsontext.raw({NO_JSON: text})
    try:
        return Raw(text.strip().encode())
    except UnicodeEncodeError:
        return jsontext.raw(jsontext.value(text))


def one_line(text: str) -> Raw:
    """Return JSON text for a line: as ``as_json`` does, written again if it has several lines."""
    raw = as_json(text)
    return raw if b"\n" not in bytes(raw) and b"\r" not in bytes(raw) else jsontext.raw(jsontext.value(raw))


HALVES: Final = "a lone surrogate, which the program refuses; U+FFFD in its place"


def whole(text: bytes) -> bytes:
    """Return JSON with U+FFFD for every escape of a lone surrogate.

    A lone surrogate is valid JSON, and stays in a file that had it (docs/spec/dialects.md#0.12). But pydantic's parser
    (Harbor, Inspect) refuses a whole file with one, so new records of such formats have U+FFFD in its place.
    """
    return sayable_json(text.decode()).encode() if b"\\u" in text else text


# -- times -----------------------------------------------------------------------------------------


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_SIZES: Final = ((1e17, 1e-6), (1e14, 1e-3), (1e11, 1.0))
"""The least number that is a time in nanoseconds, microseconds, milliseconds, and its factor to milliseconds."""
_LAST: Final = 253402300799999


def read_time(value: object) -> int | None:
    """Return the Unix milliseconds of a text or a number; ``None`` when it is not a time."""
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return None
        return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MS
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e20:  # noqa: PLR2004 (see above)
        factor = next((factor for least, factor in _SIZES if value >= least), 1000.0)
        if isinstance(value, int):
            return value * int(factor) if factor >= 1 else value // round(1 / factor)
        return int(value * factor)
    return None


def iso(at: int) -> str:
    """``2025-11-20T23:33:50.805Z``. A time out of the calendar's range is written as its end, or its beginning."""
    stamp = _EPOCH + timedelta(milliseconds=min(max(at, 0), _LAST))
    return stamp.strftime("%Y-%m-%dT%H:%M:%S.") + f"{stamp.microsecond // 1000:03d}Z"
