"""The contents of a line of the message log: a whole message, and its context.

Rules:

- The line of a message (kind ``message`` of ``lines``) has ``time`` (UTC, ISO 8601, milliseconds), the fields of its
  ``LogContext`` that are set, and ``message`` in the canonical form (C26, DAS-20).
- ``model`` and ``generation_seconds`` occur only on lines of assistants; seconds are rounded to milliseconds, half
  away from zero, by the number as it is written: 1.23456 is 1.235, 1.0005 is 1.001.
- A key that this version does not know is read into ``extra``, like the application's own keys.

Stability: experimental.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, Struct

from palaver.core import canonical, jsontext
from palaver.core.errors import DecodeError, MessageError, StoreError
from palaver.core.messages import AssistantMessage, Message
from palaver.core.value import short_repr
from palaver.store.jsonl import lines
from palaver.store.records import unreadable

if TYPE_CHECKING:
    from palaver.store.jsonl.lines import Line

KIND: Final = "message"
_ASSISTANT: Final = frozenset({"model", "generation_seconds"})
_MILLISECOND: Final = Decimal("0.001")
_DIGITS: Final = Context(prec=330, rounding=ROUND_HALF_UP)  # as many as a float has before and behind its point
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SOURCE: Final = "log"


class LogContext(Struct, frozen=True, kw_only=True):
    """The context of a message.

    ``round`` counts the answers of a run from 1, and is absent for input. ``entry`` and ``parent`` are those of the
    thread's entry (``parent`` is ``None`` for the first), ``branch`` is the branch that it was appended to. ``kept`` is
    set with the first message after a compaction: the branch with the conversation as it was before. ``extra`` holds
    JSON values of the application, under names that are not fields here.
    """

    thread: str
    run: str | None = None
    agent: str | None = None
    model: str | None = None
    round: int | None = None
    generation_seconds: float | None = None
    entry: str | None = None
    parent: str | None = None
    branch: str | None = None
    kept: str | None = None
    extra: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        """Refuse values that no line can hold when the context is made: a log raises nothing later."""
        if self.round is not None and self.round < 1:
            raise StoreError(f"round: {self.round}: rounds count from 1")
        if self.generation_seconds is not None and not math.isfinite(self.generation_seconds):
            raise StoreError(f"generation_seconds: {self.generation_seconds} is not a duration")
        taken = sorted(_OURS & self.extra.keys())
        if taken:
            raise StoreError(f"extra: the name {taken[0]!r} is a field of the line")
        try:
            jsontext.checked(dict(self.extra), "extra")
        except MessageError as error:
            raise StoreError(str(error)) from None

    def __repr__(self) -> str:
        """Return the set fields, shortened."""
        return short_repr(self)


class LogLine(Struct, frozen=True, kw_only=True):
    """A line of a log. ``time`` is in Unix milliseconds; ``id`` is the writer and the number of the line.

    It is in ``file``, at byte ``offset``.
    """

    id: str
    time: int
    context: LogContext
    message: Message
    file: str
    offset: int

    def __repr__(self) -> str:
        """Return the set fields, shortened."""
        return short_repr(self)


_TEXT: Final = (str, NoneType)
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "thread": (str,),
    "run": _TEXT,
    "agent": _TEXT,
    "model": _TEXT,
    "round": (int, NoneType),
    "generation_seconds": (int, float, NoneType),
    "entry": _TEXT,
    "parent": _TEXT,
    "branch": _TEXT,
    "kept": _TEXT,
}
_OURS: Final = frozenset({*lines.FRAME, *_TYPES, "time", "message"})


def fields(message: Message, context: LogContext, now: int) -> Iterator[tuple[str, bytes]]:
    """Yield the fields of a line, by name. Raises ``EncodeError`` for a value that JSON cannot express."""
    yield "time", b'"%b"' % _iso_time(now).encode()
    assistant = isinstance(message, AssistantMessage)
    for name in _TYPES:
        item = getattr(context, name)
        if item is None or (name in _ASSISTANT and not assistant):
            continue
        yield name, jsontext.encode(_rounded(item) if name == "generation_seconds" else item)
    for name, item in context.extra.items():
        yield name, jsontext.encode(item)
    yield "message", canonical.encode(message)


def read(line: Line, *, salvage: bool = False) -> LogLine:
    """Read a line of kind ``message``. Raises ``DecodeError``, source ``log``, with the path of the error.

    With ``salvage``, an unreadable message is not an error: a record stands for it (``store.unreadable``).
    """
    table = dict(line.fields)
    try:
        time = _time(_value(table, "time", (str,)))
        known = {name: _value(table, name, types) for name, types in _TYPES.items()}
        message = _message(table.pop("message", None), f"{line.file}, byte {line.offset}" if salvage else None)
        extra = jsontext.frozen({name: jsontext.value(text) for name, text in table.items()})
        context = LogContext(**known, extra=extra)
    except StoreError as error:
        raise DecodeError(str(error), source=_SOURCE) from None
    except DecodeError as error:
        error.source = _SOURCE
        raise
    return LogLine(
        id=f"{line.writer}-{line.number}",
        time=time,
        context=context,
        message=message,
        file=line.file,
        offset=line.offset,
    )


def _message(text: Raw | None, salvage: str | None) -> Message:
    """Read the message of a line; ``salvage`` is the place of a line whose message may be unreadable."""
    if text is None:
        raise DecodeError("not there", path="message")
    try:
        return canonical.decode(text)
    except DecodeError as error:
        if salvage is None:
            raise error.within("message") from None
        return unreadable(bytes(text), f"{salvage}: {error}")


def _value(table: jsontext.Fields, name: str, types: tuple[type, ...]) -> Any:
    text = table.pop(name, jsontext.NULL)
    item = jsontext.value(text)
    if not isinstance(item, types) or isinstance(item, bool):
        raise DecodeError(f"got {jsontext.kind(text)}", path=name)
    return item


def _rounded(seconds: float) -> float:
    return float(Decimal(repr(seconds)).quantize(_MILLISECOND, context=_DIGITS))


def _iso_time(now: int) -> str:
    return (_EPOCH + timedelta(milliseconds=now)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(text: str) -> int:
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, TypeError) as error:  # TypeError: a time without a zone
        raise DecodeError(str(error), path="time") from None
