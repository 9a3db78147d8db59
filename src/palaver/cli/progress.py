"""A progress bar for long work, and Ctrl-C handling.

The bar appears on standard error, only on a terminal and only after one second. It disappears when the work is done.

Stability: experimental.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final

from palaver.cli.terminal import errors

if TYPE_CHECKING:
    from types import FrameType

    from rich.progress import Progress as Drawn, TaskID

    from palaver.store.store import Progress


_DELAY: Final = 1.0


class _Bar:
    """Draws itself when the work takes longer than ``_DELAY`` seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._started = monotonic()
        self._drawn: tuple[Drawn, TaskID] | None = None

    def __call__(self, done: int, total: int | None) -> None:
        if self._drawn is None and monotonic() - self._started > _DELAY:
            self._drawn = self._start()
        if self._drawn is not None:
            drawn, task = self._drawn
            drawn.update(task, completed=done, total=total)

    def _start(self) -> tuple[Drawn, TaskID]:
        from rich.progress import BarColumn, Progress as Bars, TaskProgressColumn, TextColumn, TimeRemainingColumn

        drawn = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(show_speed=True),
            TimeRemainingColumn(),
            console=errors(),
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # lines for a file or pipe must not be redirected
        )
        drawn.start()
        return drawn, drawn.add_task(self._what, total=None)

    def end(self) -> None:
        """Remove the bar from the screen."""
        if self._drawn is not None:
            self._drawn[0].stop()


@contextmanager
def bar(what: str) -> Generator[Progress | None]:
    """Yield a function that reports progress; ``None`` when standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    drawn = _Bar(what)
    try:
        yield drawn
    finally:
        drawn.end()


@contextmanager
def interrupts() -> Generator[list[bool]]:
    """Yield a list that is non-empty after the first Ctrl-C. The second one raises ``KeyboardInterrupt``."""
    interrupted: list[bool] = []

    def handle(_number: int, _frame: FrameType | None) -> None:
        if interrupted:
            raise KeyboardInterrupt
        interrupted.append(True)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
