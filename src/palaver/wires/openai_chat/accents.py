"""Vendors that speak Chat Completions with an accent, as rows of a table (wires.md 2.9).

Rules:

- A row changes ``Speech`` and the few words that differ; the codec reads rows, and never a vendor's name or URL.
- ``base_url`` is where the vendor documents its endpoint; it is information, nothing here opens it.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from palaver.wires.openai_chat.encode import SPEECH
from palaver.wires.speech import Speech


class Accent(Struct, frozen=True, kw_only=True):
    """One vendor: what it can say, and the words that differ."""

    speech: Speech = SPEECH


ACCENTS: Final[dict[str, Accent]] = {}
