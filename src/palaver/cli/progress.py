"""A progress bar for what takes long.

Rules:

- It is drawn on standard error, only when that is a terminal, and only when a second has passed.
- It is gone when the work is done.

Ctrl-C while something works: the first one is heard, and the second one gives up.

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


# --- progress ---------------------------------------------------------------------------------------------------------


_PATIENCE: Final = 1.0


class _Bar:
    """Begins to draw when the work has taken long enough."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._begun = monotonic()
        self._drawn: tuple[Drawn, TaskID] | None = None

    def __call__(self, done: int, total: int | None) -> None:
        if self._drawn is None and monotonic() - self._begun > _PATIENCE:
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
            redirect_stdout=sys.stdout.isatty(),  # lines for a file or pipe must go there
        )
        drawn.start()
        return drawn, drawn.add_task(self._what, total=None)

    def end(self) -> None:
        """Leave nothing on the screen."""
        if self._drawn is not None:
            self._drawn[0].stop()


@contextmanager
def bar(what: str) -> Generator[Progress | None]:
    """What to tell of the progress of some work; ``None`` where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    drawn = _Bar(what)
    try:
        yield drawn
    finally:
        drawn.end()


# --- interrupts -------------------------------------------------------------------------------------------------------


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
