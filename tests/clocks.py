"""Time that jumps: when every task waits, the clock advances to the first deadline.

A test of a deadline then behaves alike on any machine, and does not wait.
"""

import asyncio
from typing import Any

import pytest
from trio.testing import MockClock


class JumpingLoop(asyncio.SelectorEventLoop):
    """The event loop of asyncio with such a clock, which stands still while there is work."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        select: Any = self._selector.select

        def jump(timeout: float | None = None) -> Any:
            found = select(timeout and min(timeout, 0))
            if not found and timeout is not None and timeout > 0:
                self._now += timeout
            return found

        self._selector.select = jump

    def time(self) -> float:
        return self._now


BACKENDS: dict[str, tuple[str, dict[str, Any]]] = {
    "asyncio": ("asyncio", {"loop_factory": JumpingLoop}),
    "trio": ("trio", {"clock": MockClock(autojump_threshold=0)}),
}
JUMPING = pytest.mark.parametrize("anyio_backend", BACKENDS.values(), ids=BACKENDS)
"""Run the test on both event loops. Work in threads is not waited for."""
