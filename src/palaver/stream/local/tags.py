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

_NEVER: Final = re.compile(r"(?!)")


class Tags:
    """A set of tags. Raises ``MessageError`` when one is empty, or part of another."""

    __slots__ = ("_longest", "_names", "_pattern")

    def __init__(self, *names: str) -> None:
        self._names = tuple(dict.fromkeys(names))
        if "" in self._names:
            raise MessageError("a tag cannot be empty")
        for one, other in permutations(self._names, 2):
            if one in other:
                raise MessageError(f"the tag {excerpt(one)!r} is part of the tag {excerpt(other)!r}")
        self._pattern = re.compile("|".join(map(re.escape, self._names))) if names else _NEVER
        self._longest = max(map(len, self._names), default=1)

    def find(self, text: str, at: int) -> tuple[int, str] | None:
        """Where the first tag stands, at ``at`` or behind it, and which it is."""
        match = self._pattern.search(text, at)
        return None if match is None else (match.start(), match[0])

    def held(self, text: str, at: int) -> int:
        """Where the text begins that may become a tag, at ``at`` or behind it; the length of ``text`` when none may."""
        size = len(text)
        for start in range(max(at, size - self._longest + 1), size):
            rest = text[start:]
            if any(name.startswith(rest) for name in self._names):
                return start
        return size
