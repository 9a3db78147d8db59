"""JSON without halves of surrogate pairs, for programs that cannot read them.

Rules (dialects.md 0.12):

- A lone surrogate is valid JSON, as an escape, and stays in a file that had it. But what is read with pydantic's parser
  (Harbor, Inspect) is refused whole for one. So new records of such formats have a mark in its place.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Final

_SURROGATE: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
WHY: Final = "half a character, which the program that reads this refuses; U+FFFD in its place"


def whole(text: bytes) -> bytes:
    """JSON with U+FFFD for every escape that is half a character."""
    return _SURROGATE.sub(lambda found: found[0] if found[1] is None else b"\\ufffd", text) if b"\\u" in text else text
