"""Bounds on results.

Stability: experimental.
"""

from __future__ import annotations

from msgspec import Struct

from palaver.core.parts import ToolPart


class Limited(Struct, frozen=True):
    """What is sent of a result, and all of its text where it was cut."""

    content: tuple[ToolPart, ...]
    whole: str | None = None


def limit(content: tuple[ToolPart, ...], characters: int, *, handle: str | None = None) -> Limited:  # noqa: ARG001
    """Cut a result."""
    return Limited(content)
