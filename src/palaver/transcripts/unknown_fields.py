"""Unknown and damaged contents of a file: the drift report.

Rules (docs/spec/dialects.md#0.14, #0.19):

- Nothing here is an error: everything that is reported was kept, in its place, byte for byte.
- One ``UnknownFields`` for each kind and name, with the number of occurrences and the line of the first. So a report
  stays short for a file of any length.

Stability: experimental.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from msgspec import Struct, structs

from palaver.core import jsontext
from palaver.core.request import Loss

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from msgspec import Raw

T = TypeVar("T")

UnknownKind: TypeAlias = Literal[
    "record", "key", "block", "value", "type", "unread", "version", "torn", "garbage", "glued", "link", "deprecated"
]
"""``record``, ``key``, ``block``: an unknown name. ``value``: a field has an invalid value. ``type``: a field has a
value of another JSON type, which is in no message. ``unread``: a message, or a part of one, cannot be read; its bytes
are kept. ``version``: a version newer than we know. ``torn``, ``garbage``, ``glued``: a line is cut off, is not a
record, or holds several. ``link``: a reference has no target. ``deprecated``: its program no longer writes it, and we
never do."""


class UnknownFields(Struct, frozen=True):
    """A content of a file that its format does not expect. ``line`` counts from 1; ``None`` in a document."""

    kind: UnknownKind
    name: str
    count: int = 1
    line: int | None = None

    def __str__(self) -> str:
        """``line 17: unknown key message.foo (3 times)``."""
        said = f"unknown {self.kind}" if self.kind in {"record", "key", "block"} else self.kind
        times = "" if self.count == 1 else f" ({self.count:,} times)"
        where = "" if self.line is None else f"line {self.line}: "
        return f"{where}{said}{' ' if self.name else ''}{self.name}{times}"


_UNREAD: Final = {"unread": "message", "type": "field", "garbage": "line", "torn": "line"}
"""The kinds of drift that are in no message, and are left out."""

_FAILED: Final = frozenset((*_UNREAD, "value", "record"))


def losses_of(unknown: Iterable[UnknownFields]) -> tuple[Loss, ...]:
    """Return the losses of a conversation in another format: one for each message that could not be read."""
    return tuple(
        [
            Loss("dropped", _UNREAD[each.kind], _place(each))
            for each in unknown
            if each.kind in _UNREAD
            for _ in range(each.count)
        ]
    )


def failure_of(unknown: Iterable[UnknownFields]) -> str | None:
    """Return why a file gave no message; ``None`` when it had nothing unexpected."""
    return next((_place(each) for each in unknown if each.kind in _FAILED), None)


def _place(unknown: UnknownFields) -> str:
    where = "" if unknown.line is None else f"line {unknown.line}: "
    return f"{where}{unknown.name or unknown.kind}"


class Watch:
    """Gathers the drift of one file."""

    def __init__(self) -> None:
        """Start without drift."""
        self._met: dict[tuple[UnknownKind, str], UnknownFields] = {}
        self._mistyped: dict[int, Raw] = {}
        self._lists: list[tuple[str, list[Raw]]] = []
        self.line: int | None = None
        """The line of the current record."""

    def note(self, kind: UnknownKind, name: str, line: int | None = None) -> None:
        """Count one occurrence."""
        met = self._met.get((kind, name))
        self._met[kind, name] = (
            UnknownFields(kind, name, 1, line) if met is None else structs.replace(met, count=met.count + 1)
        )

    def keys(self, fields: Mapping[str, Raw], known: Collection[str], where: str, line: int | None = None) -> None:
        """Count the unknown keys; ``where`` names their record or block."""
        for key in fields:
            if key not in known:
                self.note("key", f"{where}.{key}", line)

    def mistyped(self, key: str, raw: Raw, wanted: str) -> None:
        """Count a field of the current record with a value of another JSON type; once, however often it is read.

        ``key`` is empty for an item of a list.
        """
        if id(raw) not in self._mistyped:
            self._mistyped[id(raw)] = raw
            self.note("type", f"{key or self._item(raw)} is {jsontext.kind(raw)}, not {wanted}", self.line)

    def listed(self, key: str, items: list[Raw]) -> None:
        """Remember the items of a list, to name it when one has a value of another type."""
        self._lists.append((key, items))

    def _item(self, raw: Raw) -> str:
        name = next((key for key, items in reversed(self._lists) if any(each is raw for each in items)), "")
        return f"an item of {name}" if name else "an item"

    def during(self, steps: Callable[[], Iterable[T]], line: int | None) -> Iterator[T]:
        """Yield the steps of reading a record; drift that the getters of ``fields`` find meanwhile is counted here."""
        self.line = line
        self._mistyped.clear()
        self._lists.clear()
        given: Iterator[T] | None = None
        while True:
            token = WATCHING.set(self)
            try:
                given = iter(steps()) if given is None else given
                step = next(given, None)
            finally:
                WATCHING.reset(token)
            if step is None:
                return
            yield step

    @property
    def report(self) -> tuple[UnknownFields, ...]:
        """The drift, in the order of the first occurrences."""
        return tuple(self._met.values())


WATCHING: Final[ContextVar[Watch | None]] = ContextVar("watching", default=None)
"""The watch of the current file; ``None`` outside of a reader."""
