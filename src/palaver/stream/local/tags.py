"""Literal tags in text that arrives in pieces.

Rules:

- The leftmost tag counts. No tag of a set may hold another, else it would depend on the pieces which of them counts.
- Text at the end that may be the beginning of a tag is held back: the longest such text, always shorter than a tag.
- Case matters. Each character is looked at a bounded number of times.

Stability: experimental.
"""

from __future__ import annotations

import re
from itertools import permutations
from typing import Final

from palaver.core.errors import MessageError, excerpt

_LIMIT: Final = 200
_NEVER: Final = re.compile(r"(?!)")


class Tags:
    """A set of tags. Raises ``MessageError`` when one is empty, very long, or part of another."""

    __slots__ = ("_beginning", "_longest", "_pattern")

    def __init__(self, *names: str) -> None:
        names = tuple(dict.fromkeys(names))
        if not all(0 < len(name) <= _LIMIT for name in names):
            raise MessageError(f"a tag has 1 to {_LIMIT} characters")
        for one, other in permutations(names, 2):
            if one in other:
                raise MessageError(f"the tag {excerpt(one)!r} is part of the tag {excerpt(other)!r}")
        self._longest = max(map(len, names), default=1)
        self._pattern = re.compile("|".join(map(re.escape, names))) if names else _NEVER
        beginnings = {name[:size] for name in names for size in range(1, len(name))}
        self._beginning = re.compile(f"(?:{'|'.join(map(re.escape, sorted(beginnings)))})\\Z") if beginnings else _NEVER

    def find(self, text: str, at: int) -> tuple[int, str] | None:
        """Where the first tag stands, at ``at`` or behind it, and which it is."""
        match = self._pattern.search(text, at)
        return None if match is None else (match.start(), match[0])

    def held(self, text: str, at: int) -> int:
        """Where the text begins that may become a tag, at ``at`` or behind it; the length of ``text`` when none may."""
        match = self._beginning.search(text, max(at, len(text) - self._longest + 1))
        return len(text) if match is None else match.start()
