"""JSON for people.

Stability: experimental.
"""

from __future__ import annotations

import msgspec


def indented(line: bytes) -> bytes:
    """Indent one JSON value; numbers and text stay as they are written. What the formatter refuses stays one line."""
    try:
        return msgspec.json.format(line, indent=2)
    except msgspec.DecodeError:  # an escaped lone surrogate
        return line
