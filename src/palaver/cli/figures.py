"""Numbers and times for people.

Stability: experimental.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

_KIB: Final = 1024


def count(number: int, thing: str) -> str:
    """``1 message``, ``2,000 messages``."""
    if number != 1:
        thing = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}es" if thing.endswith("ch") else f"{thing}s"
    return f"{number:,} {thing}"


def size(number: int) -> str:
    """``17 B``, ``1.5 KB``, ``2.0 MB``."""
    if number < _KIB:
        return f"{number} B"
    return f"{number / _KIB:.1f} KB" if number < _KIB * _KIB else f"{number / _KIB / _KIB:.1f} MB"


def when(at: int | None) -> str:
    """A time in Unix milliseconds, as the clock on the wall shows it: ``2026-11-20 22:10``."""
    if at is None:
        return ""
    try:
        return datetime.fromtimestamp(at / 1000).astimezone().strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):  # a message may say any number
        return str(at)
