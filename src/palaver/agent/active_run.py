"""A run under way, as its caller holds it.

Rules:

- ``async with`` begins the run, ``async for`` gives its events; when they are over, ``result`` is the run.
- Leaving the block early cancels the run; what was said until then is in its thread. ``cancel`` does the same and lets
  the events come to their end. Neither raises: the outcome of the run is ``cancelled``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Generic, Self

import anyio

from palaver.agent.driver import Driver
from palaver.core.errors import MessageError
from palaver.threads.thread import Path
from palaver.turn import notes
from palaver.turn.events import Watch
from palaver.turn.run import Run

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import TypeVar

    from palaver.turn.events import AgentEvent

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


class ActiveRun(Generic[T]):
    """A run under way."""

    def __init__(self, make: Callable[[Watch], Driver]) -> None:
        """Keep ``make``, which gets the watch and returns the driver; entering the block calls it."""
        self._make = make
        self._watch: Watch | None = None
        self._driver: Driver | None = None
        self._group = anyio.create_task_group()
        self._scope = anyio.CancelScope()

    def __repr__(self) -> str:
        """Return the agent and the state, not the conversation."""
        if self._driver is None:
            return "ActiveRun(not started)"
        run = self._driver.result
        return f"ActiveRun({self._driver.agent.name!r}, {'running' if run is None else run.outcome})"

    async def __aenter__(self) -> Self:
        """Begin. Raises ``MessageError`` for input that cannot be, and the second time."""
        if self._watch is not None:
            raise MessageError("a run can be started only once")
        self._watch = Watch()
        self._driver = self._make(self._watch)
        await self._group.__aenter__()
        self._group.start_soon(self._drive, self._driver, self._watch)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """End: a run that is not over is cancelled."""
        if self._watch is not None:
            self._watch.close()
        self._scope.cancel()
        await self._group.__aexit__(None, None, None)
        return None

    async def _drive(self, driver: Driver, watch: Watch) -> None:
        try:
            with self._scope:
                await driver.drive()
        finally:
            watch.close()

    def __aiter__(self) -> AsyncIterator[AgentEvent]:
        """The events, until the run is over."""
        if self._watch is None:
            raise MessageError(
                "a run starts in a with block: async with agent.stream(…) as run, or with agent.sync.stream(…) as run"
            )
        return self._watch

    def steer(self, text: str) -> None:
        """Add ``text`` to the conversation as a user message, at the next boundary of steps.

        Added at the very end, it is kept, and the next run gets it. Raises ``MessageError`` when the run is over.
        """
        if self._driver is not None:
            if self._driver.result is not None:
                raise MessageError("the run has finished; pass the message as the prompt of a new run")
            self._driver.steer(notes.steering(text))

    def cancel(self, reason: str = "") -> None:
        """Stop the run; its outcome is ``cancelled``, and its thread has everything that was said.

        ``reason`` becomes the ``reason`` of the run, and the note that the model gets names it.
        """
        if self._driver is not None:
            self._driver.cancel_reason = reason
        self._scope.cancel()

    async def wait(self) -> Run[T]:
        """Let the run come to its end without reading events, and give it."""
        async for _ in self:
            pass
        return self.result

    @property
    def path(self) -> Path:
        """The conversation so far, as a window that never changes: a snapshot that costs nothing.

        It grows when messages were kept, and not otherwise; one of the thread that is cut behind it can be gone on
        with.
        """
        return Path([]) if self._driver is None else self._driver.journal.path

    @property
    def result(self) -> Run[T]:
        """The run, when it is over. Raises ``MessageError`` before."""
        if self._driver is None or self._driver.result is None:
            raise MessageError("the run has not finished")
        return self._driver.result
