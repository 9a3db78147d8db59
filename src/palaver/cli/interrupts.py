"""Ctrl-C while something works: the first one is heard, and the second one gives up.

Stability: experimental.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


@contextmanager
def interrupts() -> Generator[list[bool]]:
    """Count Ctrl-C in the list; the second one raises ``KeyboardInterrupt``."""
    heard: list[bool] = []

    def hear(_number: int, _frame: FrameType | None) -> None:
        if heard:
            raise KeyboardInterrupt
        heard.append(True)

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield heard
    finally:
        signal.signal(signal.SIGINT, before)
