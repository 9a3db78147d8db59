"""A name for one call of one run, the same whenever that call is run (KAI-27).

Stability: experimental.
"""

from __future__ import annotations

import hashlib

_DIGITS = 32


def idempotency_key(run: str, step: int, index: int) -> str:
    """32 hexadecimal digits; ``index`` is the place of the call among those of its step."""
    return hashlib.sha256(f"{run}:{step}:{index}".encode()).hexdigest()[:_DIGITS]
