"""Ids that sort by time: UUID version 7 (RFC 9562, section 5.7).

Rules:

- 48 bits of Unix milliseconds, then a counter in the 12 bits of ``rand_a`` (method 1 of section 6.2), then 62 random
  bits. Within one process, each id is greater than the one before, also when the clock steps back.

Stability: experimental.
"""

from __future__ import annotations

import os
import re
import sys
import time
from threading import Lock
from typing import Final

_lock = Lock()
_last = 0  # milliseconds and counter of the newest id, as one number of 60 bits
_COUNTER_BITS: Final = 12
_UUID: Final = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VARIANT: Final = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
"""The first digit of the random part, with its two highest bits set to the variant."""


def now_ms() -> int:
    """Return the Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def uuid7(at: int | None = None) -> str:
    """Make an id, for now or for a time in Unix milliseconds: ``"01931f2e-7a10-7cc3-98c4-dc0c0c07398f"``."""
    global _last  # noqa: PLW0603 (the state of the clock is the process's)
    stamp = (now_ms() if at is None else at) << _COUNTER_BITS
    if at is None:
        with _lock:
            _last = stamp = max(stamp, _last + 1)
    head, tail = f"{stamp:015x}", os.urandom(8).hex()
    return f"{head[:8]}-{head[8:12]}-7{head[12:]}-{_VARIANT[tail[0]]}{tail[1:4]}-{tail[4:]}"


def _forked() -> None:
    """Replace the lock in the child of a fork: a thread of the parent may hold it."""
    global _lock  # noqa: PLW0603 (as above)
    _lock = Lock()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forked)


def is_uuid(text: str) -> bool:
    """Whether a text is a UUID as this module writes them: 36 characters, lower case."""
    return _UUID.fullmatch(text) is not None
