"""How often a process of the gateway looks for garbage: it remembers many objects, and answers wait meanwhile.

With Python's own thresholds a gateway that translates stops for 40 ms again and again to look through all conversations
that it remembers. What is not in a cycle is freed at once all the same.

Stability: experimental.
"""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (10_000, 20, 100)


def collect_rarely() -> None:
    """Look for garbage rarely, and not in what is there now. For a process that serves until its end."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
