"""JSON without halves of surrogate pairs, for programs that cannot read them.

Rules (docs/spec/dialects.md#0.12):

- A lone surrogate is valid JSON, as an escape, and stays in a file that had it. But what is read with pydantic's parser
  (Harbor, Inspect) is refused whole for one. So new records of such formats have a mark in its place.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.core.surrogates import sayable_json

WHY: Final = "half a character, which the program that reads this refuses; U+FFFD in its place"


def whole(text: bytes) -> bytes:
    """JSON with U+FFFD for every escape that is half a character."""
    return sayable_json(text.decode()).encode() if b"\\u" in text else text
