"""Observers: functions that are told every event of a run, and can neither stop nor hold it up.

Rules (docs/spec/codebuff.md#8, CBF-24):

- An observer is called with one ``AgentEvent`` after the other, in order, each observer by itself. A function that is
  not async runs in a thread of its own; an async one in a task, with ``EVENT_SECONDS`` for each event.
- One that raises, takes longer than that, or falls ``BACKLOG`` events behind is told once as ``Warned``, to the others
  and to whoever reads the events, before the next event; from then on it is left out.
- When a run is over, what observers have not seen yet has ``GRACE_SECONDS``; then they are left alone. A thread that
  hangs is abandoned, not stopped. Nothing follows ``RunFinished``: what goes wrong after it is told to nobody.
- An async observer that blocks the event loop does hold up the run; nothing can be done about it from outside.
- Without observers none of this is there.

Stability: experimental.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio

from palaver.agent import events
from palaver.agent.invoking import called
from palaver.agent.watching import Watch
from palaver.core.errors import MessageError, excerpt

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from palaver.agent.events import AgentEvent

Observer: TypeAlias = "Callable[[AgentEvent], Awaitable[None] | None]"

EVENT_SECONDS: Final = 5.0
GRACE_SECONDS: Final = 1.0
BACKLOG: Final = 10_000
_LOOK: Final = 0.002
"""Seconds between two looks at a thread that is about to end."""


class _Observed:
    """One observer: its events on their way, and what became of it."""

    def __init__(self, observer: Observer, seconds: float) -> None:
        self.name = excerpt(getattr(observer, "__qualname__", type(observer).__name__))
        self.fault: str | None = None
        self.error: Exception | None = None
        self.told = False
        self._observer, self._seconds = observer, seconds
        self._queue: SimpleQueue[AgentEvent | None] = SimpleQueue()
        self._since: float | None = None  # when it was given the event that it is busy with
        self._is_async = iscoroutinefunction(called(observer))
        self._arrived, self._ended = anyio.Event(), False
        self._scope = anyio.CancelScope(shield=True)

    def begin(self, group: TaskGroup) -> None:
        """Begin to look at events."""
        if self._is_async:
            group.start_soon(self._in_task)
        else:
            threading.Thread(target=self._in_thread, name=f"observer {self.name}", daemon=True).start()

    def put(self, event: AgentEvent | None) -> None:
        """Hand over an event, or the end. Never waits."""
        self._queue.put(event)
        self._arrived.set()

    @property
    def done(self) -> bool:
        """Whether nothing more will come of it."""
        return self._ended or self.fault is not None

    def look(self) -> bool:
        """Whether it is well."""
        since = self._since
        if self.fault is None and since is not None and time.monotonic() - since > self._seconds:
            self.fault = f"took longer than {self._seconds:g} seconds"
        if self.fault is None and self._queue.qsize() >= BACKLOG:
            self.fault = f"is {BACKLOG} events behind"
        return self.fault is None

    def _failed(self, error: Exception) -> None:
        self.error, self.fault = error, excerpt(f"{type(error).__name__}: {error}")

    def _in_thread(self) -> None:
        while self.fault is None and (event := self._queue.get()) is not None:
            self._since = time.monotonic()
            try:
                _unawaited(self._observer(event))
            except Exception as error:  # noqa: BLE001 (whatever an observer raises stays here)
                self._failed(error)
            self._since = None
        self._ended = True

    async def _in_task(self) -> None:
        with self._scope:
            while self.fault is None:
                while self._queue.empty():
                    self._arrived = anyio.Event()
                    await self._arrived.wait()
                event = self._queue.get()
                if event is None:
                    break
                await self._told(event)
        self._ended = True

    async def _told(self, event: AgentEvent) -> None:
        with anyio.move_on_after(self._seconds) as limit:
            try:
                given: Any = self._observer(event)
                await given
            except Exception as error:  # noqa: BLE001 (whatever an observer raises stays here)
                self._failed(error)
        if limit.cancelled_caught:
            self.fault = f"took longer than {self._seconds:g} seconds"

    def abandon(self) -> None:
        """Wait for it no longer."""
        self.fault = self.fault or "was not ready when the run was over"
        if self._is_async:
            self._scope.cancel()


def _unawaited(given: object) -> None:
    """Refuse what nobody would await."""
    if isawaitable(given):
        if iscoroutine(given):
            given.close()
        raise MessageError("an observer that gives an awaitable must be an async function")


class Observing(Watch):
    """Hands every event to observers, and to the watch behind it where there is one."""

    def __init__(self, observers: Sequence[Observer], behind: Watch | None, *, seconds: float = EVENT_SECONDS) -> None:
        """Take the observers."""
        super().__init__()
        self._behind = behind
        self._observed = [_Observed(each, seconds) for each in observers]

    def put(self, event: AgentEvent) -> None:
        """Hand an event over; what went wrong with an observer is told before it."""
        for each in self._observed:
            if not each.look() and not each.told:
                each.told = True
                text = f"the observer {each.name} is left out: {each.fault}"
                self._pass(events.Warned(agent=event.agent, run=event.run, text=text, error=each.error))
        self._pass(event)

    def _pass(self, event: AgentEvent) -> None:
        for each in self._observed:
            if each.fault is None:
                each.put(event)
        if self._behind is not None:
            self._behind.put(event)

    async def room(self) -> None:
        """Wait for the reader behind; for observers nobody waits."""
        if self._behind is not None:
            await self._behind.room()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Let the observers work as long as the block lasts, and then the time of grace."""
        async with anyio.create_task_group() as group:
            for each in self._observed:
                each.begin(group)
            try:
                yield
            finally:
                await self._finish()

    async def _finish(self) -> None:
        for each in self._observed:
            each.put(None)
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(GRACE_SECONDS):
                while not all(each.done for each in self._observed):  # noqa: ASYNC110 (a thread cannot set an event)
                    await anyio.sleep(_LOOK)
            for each in self._observed:
                if not each.done:
                    each.abandon()
