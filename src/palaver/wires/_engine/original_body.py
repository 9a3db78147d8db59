"""The body that a request was decoded from, and the spelling of what was not edited since.

- The fields beside the list of messages are laid over those of the original as one object (``core.overlay``).
- An item of the list that is written as an item of the original was keeps that item's text, wherever it stands now. Any
  other is laid over the item of the original at its place. So a turn that is appended costs what is new in it.

Stability: experimental.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.overlay import laid_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.core.request import Request


class OriginalBody:
    """A body, the request that it says (with its ``origin``), and how that request is written."""

    def __init__(self, body: bytes, says: Request, name: str, write: Callable[[], bytes]) -> None:
        """Keep ``body``. ``name`` is that of the list, and ``write`` writes ``says`` on first use."""
        self.body = body
        self.says = says
        self._name = name
        self._write = write
        self._head: tuple[bytes, bytes] | None = None

    @cached_property
    def _before(self) -> bytes:
        return self._write()

    @cached_property
    def _heads(self) -> tuple[bytes, bytes]:
        """The fields beside the list: of the original, and as they are written for it."""
        heads = (jsontext.fields(self.body), jsontext.fields(self._before))
        one, other = (jsontext.encode({key: raw for key, raw in head.items() if key != self._name}) for head in heads)
        return one, other

    @cached_property
    def _items(self) -> tuple[list[bytes], list[bytes], dict[bytes, bytes]]:
        """The items of the original, those that are written for it, and the former by the latter."""
        try:
            original = [*map(bytes, jsontext.items(jsontext.fields(self.body)[self._name]))]
            before = [*map(bytes, jsontext.items(jsontext.fields(self._before)[self._name]))]
        except (DecodeError, KeyError):
            return [], [], {}
        if len(original) != len(before):
            return [], [], {}
        return original, before, dict(zip(reversed(before), reversed(original), strict=True))

    @property
    def pairs(self) -> bool:
        """Whether items of the original can be told apart; else only a whole body can be laid over it."""
        return bool(self._items[0])

    def whole(self, written: bytes) -> bytes:
        """Lay a whole body over the original."""
        return laid_over(self.body, self._before, written)

    def head(self, written: bytes) -> bytes:
        """Lay the head of a body, up to and including the bracket that opens the list, over the original's."""
        if self._head is None or self._head[0] != written:
            opening = b'"' + self._name.encode() + b'":['
            fields = written.removesuffix(opening).removesuffix(b",") + b"}"
            over = laid_over(*self._heads, fields)[:-1].rstrip()
            self._head = written, over + (b"" if over.endswith(b"{") else b",") + opening
        return self._head[1]

    def item(self, place: int, written: bytes) -> bytes:
        """Spell an item of the list as the original does; ``place`` is where it stands."""
        original, before, known = self._items
        spelled = known.get(written)
        if spelled is None and place < len(original):
            return laid_over(original[place], before[place], written)
        return written if spelled is None else spelled
