"""A message of a rollout that may not have ended, and the texts of it that stand twice in the file.

Rules (docs/spec/dialects.md#3, *Two histories*):

- An item has a text for each of its parts, and all of them as one. An event tells one of these, once. What events told
  more often than items said, or items more often than events, stays apart: they match as a multiset.
- Spaces do not count, nor what a cut left of a character: the program trims what it shows.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.transcripts.codex.items import texts_of

if TYPE_CHECKING:
    from msgspec import Raw

    from palaver.transcripts.record import Record


class Open:
    """A message that may not have ended, and what came behind it. ``claims`` are its texts that no event told."""

    def __init__(self, role: str, model: str | None = None) -> None:
        """Begin without items. ``model`` is that of the turn."""
        self.role = role
        self.model = model
        self.items: list[tuple[Record, Raw]] = []
        self.beside: list[Record] = []  # lines that say of it what its items do not
        self.waiting: list[Record] = []
        self.claims: list[frozenset[str]] = []
        self.told = False
        self.ended = False
        self.usage: Raw | None = None
        self.response: str | None = None
        self.aborted: str | None = None

    def add(self, record: Record, item: Raw) -> None:
        """Take one of its items in."""
        self.items.append((record, item))
        self.claims += _claims(self.role, item)

    def claim(self, text: str) -> bool:
        """Whether an event tells one of its texts, each once."""
        found = claimed(self.claims, text)
        self.told = self.told or found
        return found


def _plain(text: str) -> str:
    """A text as far as both places keep it: without spaces, and without what a cut left of a character."""
    return "".join(text.encode("utf-8", "ignore").decode().split())


def _claims(role: str, item: Raw) -> list[frozenset[str]]:
    texts = [_plain(text) for text in texts_of(item)]
    whole = "".join(texts)
    if role == "user":
        return [frozenset((*texts, whole))]
    return [frozenset((text, whole)) if place == 0 else frozenset((text,)) for place, text in enumerate(texts)]


def claimed(claims: list[frozenset[str]], text: str) -> bool:
    """Whether one of the texts is told; then it is told no more."""
    plain = _plain(text)
    for place, each in enumerate(claims):
        if plain in each:
            del claims[place]
            return True
    return False
