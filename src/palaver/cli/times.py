"""Times as people type them.

Rules:

- ``2026-11-20`` is the beginning of that day, here; ``2026-11-20T14:30`` a time, here, or where its offset says
  (``+01:00``, ``Z``). ``7d`` is so long ago: minutes (``m``), hours (``h``), days (``d``) or weeks (``w``).

Stability: experimental.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import click

from palaver.core.errors import excerpt
from palaver.threads.ids import now_ms

_AGO: Final = re.compile(r"([0-9]{1,6})([mhdw])")
_MINUTES: Final = {"m": 1, "h": 60, "d": 24 * 60, "w": 7 * 24 * 60}


def moment(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """Read a time into Unix milliseconds: a callback of an option."""
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        return now_ms() - int(ago[1]) * _MINUTES[ago[2]] * 60_000
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{excerpt(text)!r} is no time such as 2026-11-20, 2026-11-20T14:30 or 7d") from None
