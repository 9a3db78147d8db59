"""How much of a model's window a prompt may take.

Rules (docs/spec/kairo.md#3.1, KAI-03; golden ``effective_budget``):

- ``effective = window - max_output - 13,000``: what the model may write is reserved, and room for what an estimate
  cannot know. In a window under 52,000 that room is a quarter of it, so that something is left (ours).
- Of a model of which nothing is known, a window of 128,000 and an output of 8,192 are taken.
- Reasoning is reserved with the output: where the caller gave it a budget of its own, besides ``max_tokens``.
- Nobody writes more than the model can: of a larger ``max_tokens`` or budget, what the model gives is reserved, which
  is what it is asked for in the end.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.core.request import Settings

WINDOW: Final = 128_000
MAX_OUTPUT: Final = 8_192
ROOM: Final = 13_000
_MOST_RESERVED: Final = 32_000
"""Tokens that are reserved for an answer at most, where the caller did not say how long it may be."""


def effective(window: int, max_output: int) -> int:
    """Tokens that a prompt may take; below 1 when the output leaves nothing."""
    return window - max_output - min(ROOM, window // 4)


def capacity(window: int | None, max_output: int | None, settings: Settings = Settings()) -> int:  # noqa: B008 (frozen)
    """Tokens that a prompt may take, with what a caller asked for; at least a quarter of the window."""
    known = WINDOW if window is None else window
    asked = settings.max_tokens
    if asked is None:
        most = MAX_OUTPUT if max_output is None else max_output
        asked = min(most, _MOST_RESERVED, max(known // 4, 1)) + (settings.reasoning_tokens or 0)
    elif settings.reasoning_tokens is not None and settings.reasoning_tokens >= asked:
        asked += settings.reasoning_tokens
    if max_output is not None:
        asked = min(asked, max_output)
    return max(effective(known, asked), known // 4)
