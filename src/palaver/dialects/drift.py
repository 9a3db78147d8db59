"""What a reader met that it does not know, or that was broken: the drift report.

Rules (docs/spec/dialects.md#0.14, #0.19):

- Nothing here is an error: what is reported was kept, in its place, byte for byte.
- One ``Drift`` for each kind and name, with how often it was met and the line where it was met first. So a report stays
  short however long the file is.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct, structs

from palaver.core import jsontext
from palaver.core.request import Loss

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from msgspec import Raw

DriftKind: TypeAlias = Literal[
    "record", "key", "block", "value", "unread", "version", "torn", "garbage", "glued", "link", "deprecated"
]
"""``record``, ``key``, ``block``: a name nobody told us of. ``value``: a field holds what it should not. ``unread``: a
message, or a part of one, that cannot be read; its bytes are kept. ``version``: one newer than we know. ``torn``,
``garbage``, ``glued``: a line that is cut, is no record, or holds several. ``link``: what is referred to is not there.
``deprecated``: what its program no longer writes, and we never do."""


class Drift(Struct, frozen=True):
    """One thing that a file holds and its dialect does not foresee. ``line`` counts from 1; ``None`` in a document."""

    kind: DriftKind
    name: str
    count: int = 1
    line: int | None = None

    def __str__(self) -> str:
        """``line 17: unknown key message.foo (3 times)``."""
        said = f"unknown {self.kind}" if self.kind in {"record", "key", "block"} else self.kind
        times = "" if self.count == 1 else f" ({self.count:,} times)"
        where = "" if self.line is None else f"line {self.line}: "
        return f"{where}{said}{' ' if self.name else ''}{self.name}{times}"


_UNREAD: Final = {"unread": "message", "garbage": "line", "torn": "line"}
"""The kinds of drift that are in no message, and what was left out."""

_FAILED: Final = frozenset((*_UNREAD, "value", "record"))


def losses_of(drift: Iterable[Drift]) -> tuple[Loss, ...]:
    """What a conversation lacks that is written in another format: a loss for each message that could not be read."""
    return tuple(
        [
            Loss("dropped", _UNREAD[each.kind], _place(each))
            for each in drift
            if each.kind in _UNREAD
            for _ in range(each.count)
        ]
    )


def failure_of(drift: Iterable[Drift]) -> str | None:
    """Why a file that gave no message gave none; ``None`` when nothing in it was unexpected."""
    return next((_place(each) for each in drift if each.kind in _FAILED), None)


def _place(drift: Drift) -> str:
    where = "" if drift.line is None else f"line {drift.line}: "
    return f"{where}{drift.name or drift.kind}"


class Watch:
    """Gathers the drift of one file. ``texts`` are the keys that hold text (``Dialect.texts``)."""

    def __init__(self, texts: Collection[str] = ()) -> None:
        """Begin with nothing met."""
        self._met: dict[tuple[DriftKind, str], Drift] = {}
        self._texts = texts
        self._texts_of: dict[str, frozenset[str]] = {}

    def note(self, kind: DriftKind, name: str, line: int | None = None) -> None:
        """Count one thing."""
        met = self._met.get((kind, name))
        self._met[kind, name] = Drift(kind, name, 1, line) if met is None else structs.replace(met, count=met.count + 1)

    def keys(self, fields: Mapping[str, Raw], known: Collection[str], where: str, line: int | None = None) -> None:
        """Count the keys that are not among those known, and texts that hold another value.

        ``where`` names the record or block they stand in.
        """
        texts = self._texts_in(where)
        for key, raw in fields.items():
            if key not in known:
                self.note("key", f"{where}.{key}", line)
            elif key in texts and (kind := jsontext.kind(raw)) not in {"a string", "null"}:
                self.note("unread", f"{where}.{key} is {kind}, not a string", line)

    def _texts_in(self, where: str) -> frozenset[str]:
        """The keys that hold text in a record or block of that name."""
        found = self._texts_of.get(where)
        if found is None:
            named = (each.removeprefix(f"{where}.") for each in self._texts)
            found = self._texts_of[where] = frozenset([each for each in named if "." not in each])
        return found

    @property
    def report(self) -> tuple[Drift, ...]:
        """What was met, in the order in which it was met first."""
        return tuple(self._met.values())
