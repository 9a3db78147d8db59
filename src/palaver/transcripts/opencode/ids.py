"""Ids as opencode makes them: a prefix, twelve hex digits that grow with time, fourteen letters and digits.

Rules (docs/spec/dialects.md#7):

- ``opencode import`` takes ids with the prefixes of their kind only. Messages are put in the order of their times,
  parts in the order of their ids; so both grow, also where a conversation has no times.
- The same conversation gives the same ids: what is random in opencode's is a hash here.

Stability: experimental.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TIME: Final = re.compile(r"[a-z]{3}_([0-9a-f]{12})")
_SIZE: Final = 14
_BITS: Final = (1 << 48) - 1


class Ids:
    """Makes ids that grow; ``after`` are those that stand before them."""

    def __init__(self, *after: str) -> None:
        """Begin behind all of ``after``."""
        found = (_TIME.match(each) for each in after)
        self._last = max((int(each[1], 16) for each in found if each), default=0)

    def made(self, prefix: str, at: int, *names: object) -> str:
        """The next id, of Unix milliseconds and whatever names the thing."""
        self._last = max(self._last + 1, at << 12 & _BITS)
        return f"{prefix}_{self._last:012x}{_letters(*names)}"


def session_id(at: int, *names: object) -> str:
    """The id of a session: the latest first."""
    return f"ses_{~(at << 12) & _BITS:012x}{_letters(*names)}"


def _letters(*names: object) -> str:
    number = int.from_bytes(sha256("\0".join(map(str, names)).encode("utf-8", "surrogatepass")).digest())
    letters: list[str] = []
    for _ in range(_SIZE):
        number, digit = divmod(number, len(_DIGITS))
        letters.append(_DIGITS[digit])
    return "".join(letters)
