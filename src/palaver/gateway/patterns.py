"""Patterns of names, in which ``*`` stands for any text: what a key may ask for, and what a limit is for.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

LONGEST_NAME: Final = 256
"""The most characters of a name. No longer one matches, so that a client cannot make a pattern slow, and none is asked
for, so that what is kept of names has a bound."""


def matches(patterns: Iterable[str], name: str) -> bool:
    """Return whether one of the patterns matches the whole name, in upper or lower case."""
    return len(name) <= LONGEST_NAME and _compiled(tuple(patterns)).fullmatch(name) is not None


@lru_cache(1024)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    one = [".*".join(map(re.escape, re.split(r"\*+", each))) for each in patterns]
    return re.compile("|".join(one) if one else r"(?!)", re.DOTALL | re.IGNORECASE)
