"""JSON for people.

Stability: experimental.
"""

from __future__ import annotations

import msgspec


def indented(line: bytes, indent: int = 2) -> bytes:
    """Indent one JSON value, by 0 for a single line; numbers and text stay as they are written.

    What the formatter refuses stays as it is.
    """
    try:
        return msgspec.json.format(line, indent=indent)
    except msgspec.DecodeError:  # an escaped lone surrogate
        return line
