"""Patterns of names, in which ``*`` stands for any text: what a key may ask for, and what a limit is for.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

LONGEST_NAME: Final = 256
"""The most characters of a name. No longer one matches, and none is asked for, so that what is kept of names has a
bound."""


def matches(patterns: Iterable[str], name: str) -> bool:
    """Return whether one of the patterns matches the whole name, in upper or lower case."""
    if len(name) > LONGEST_NAME:
        return False
    lower = name.lower()
    return any(match_pieces(each, lower) is not None for each in _split(tuple(patterns)))


def match_pieces(pieces: Sequence[str], name: str) -> tuple[str, ...] | None:
    """Return the texts between the pieces of a pattern in a name; ``None`` where the name is not all of them, in order.

    A piece is taken where it is found first: what is left then is longest, so nothing needs to be tried again.
    """
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return () if name == first else None
    end = len(name) - len(last)
    if end < len(first) or not (name.startswith(first) and name.endswith(last)):
        return None
    between, start = list[str](), len(first)
    for each in pieces[1:-1]:
        found = name.find(each, start, end)
        if found < 0:
            return None
        between.append(name[start:found])
        start = found + len(each)
    return (*between, name[start:end])


@lru_cache(1024)
def _split(patterns: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple([tuple(each.lower().split("*")) for each in patterns])
