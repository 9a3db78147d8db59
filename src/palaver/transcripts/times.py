"""Times as files write them, and Unix milliseconds.

Rules (docs/spec/dialects.md#0.17):

- Read: ISO 8601 with ``Z``, an offset, or no zone at all (taken as UTC), with any number of decimals; seconds,
  milliseconds, microseconds or nanoseconds since 1970, told apart by their size. Anything else gives ``None``.
- Written: ISO 8601 in UTC with milliseconds and ``Z``, as JavaScript's ``toISOString`` does.

Stability: experimental.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_SIZES: Final = ((1e17, 1e-6), (1e14, 1e-3), (1e11, 1.0))
"""From which number on a time is in nanoseconds, microseconds, milliseconds, and what makes it milliseconds."""
_LAST: Final = 253402300799999


def read_time(value: object) -> int | None:
    """Unix milliseconds of a text or a number; ``None`` for what is no time."""
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return None
        return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MS
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e20:  # noqa: PLR2004 (see above)
        factor = next((factor for least, factor in _SIZES if value >= least), 1000.0)
        if isinstance(value, int):
            return value * int(factor) if factor >= 1 else value // round(1 / factor)
        return int(value * factor)
    return None


def iso(at: int) -> str:
    """``2025-11-20T23:33:50.805Z``. A time that no calendar holds is written as its end, or its beginning."""
    stamp = _EPOCH + timedelta(milliseconds=min(max(at, 0), _LAST))
    return stamp.strftime("%Y-%m-%dT%H:%M:%S.") + f"{stamp.microsecond // 1000:03d}Z"
