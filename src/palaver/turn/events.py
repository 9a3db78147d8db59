"""Events of a run, and their way to whoever watches it.

Rules (docs/spec/codebuff.md#8):

- A run begins with ``RunStarted`` and ends with one ``RunFinished``. Text comes as deltas, then ``MessageAdded`` has
  the whole message. ``ToolStarted`` stands before ``ToolFinished``; results come as they are ready. Events of a
  sub-agent are wrapped in ``SubagentEvent``.
- One reader reads a ``Watch`` with ``async for``. A slow one holds the run up once ``ROOM`` events wait; none is
  dropped.
- Observers get every event in order and cannot hold a run up: plain functions run in a thread, async ones in a task.
  One that raises, takes longer than ``EVENT_SECONDS``, or falls ``BACKLOG`` events behind is left out, with a
  ``Warned``.
- After a run, observers have ``GRACE_SECONDS`` for what they have not seen. A thread that hangs is abandoned.

Stability: experimental.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from queue import SimpleQueue
from threading import get_ident
from typing import Any, Final, Self, TypeAlias

import anyio
from anyio import from_thread
from msgspec import Struct

from palaver.context.compaction import Failure
from palaver.context.plan import Change
from palaver.core import events
from palaver.core.errors import MessageError, excerpt
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.parts import MalformedToolCall, ToolCall
from palaver.core.request import Loss
from palaver.turn.approvals import ApprovalRequest, Decision
from palaver.turn.run import Run
from palaver.turn.tool import called

# --- events -----------------------------------------------------------------------------------------------------------


TextDelta = events.TextDelta
"""More text of the answer; ``agent`` and ``run`` say whose. The same class as in every stream."""
ReasoningDelta = events.ReasoningDelta
"""More reasoning, likewise."""


class _AgentEvent(Struct, frozen=True, kw_only=True):
    """Base of all events: whose run it is."""

    agent: str
    run: str


class RunStarted(_AgentEvent, frozen=True):
    """A run begins. ``length`` is that of the conversation, its input included."""

    thread: str
    length: int


class IterationStarted(_AgentEvent, frozen=True):
    """The model is asked, for the ``number``-th time in this run. ``final``: without tools."""

    number: int
    final: bool = False


class MessageAdded(_AgentEvent, frozen=True):
    """A message joined the thread, and is kept."""

    message: Message


class Lost(_AgentEvent, frozen=True):
    """The receipt of a request: what could not be carried to the model. Each loss is published once."""

    model: str
    losses: tuple[Loss, ...]


class ContextCompacted(_AgentEvent, frozen=True):
    """The conversation was made to fit the model's window, or should have been. Sizes are in tokens.

    ``changes`` says what each stage did; ``failures`` which came to nothing, and left everything as it was.
    """

    before: int
    after: int
    capacity: int
    changes: tuple[Change, ...] = ()
    failures: tuple[Failure, ...] = ()


class Retrying(_AgentEvent, frozen=True):
    """The model is asked again after ``wait`` seconds; with ``fallback``, the next one instead."""

    model: str
    error: Exception
    attempt: int
    wait: float
    fallback: bool = False


class ToolStarted(_AgentEvent, frozen=True):
    """A tool begins to run."""

    call: ToolCall
    tool: str


class ToolProgress(_AgentEvent, frozen=True):
    """A tool shows how far it is: any value."""

    call: ToolCall
    value: Any


class ToolFinished(_AgentEvent, frozen=True):
    """A tool ended, well or badly. ``outcome`` is ``success``, ``error`` or ``timeout``; seconds of its own."""

    call: ToolCall
    message: ToolMessage
    outcome: str
    seconds: float = 0.0


class ApprovalNeeded(_AgentEvent, frozen=True):
    """Somebody must decide."""

    requests: tuple[ApprovalRequest, ...]


class ApprovalGiven(_AgentEvent, frozen=True):
    """Something was decided."""

    call: ToolCall
    decision: Decision


class Warned(_AgentEvent, frozen=True):
    """Something went wrong that the run survives."""

    text: str
    error: Exception | None = None


class ValuesChanged(_AgentEvent, frozen=True):
    """What tools and middleware share has changed: the names that are new or different."""

    names: tuple[str, ...]
    values: dict[str, Any]


class SubagentEvent(_AgentEvent, frozen=True):
    """An event of a sub-agent that was started by a call."""

    call: ToolCall
    event: AgentEvent


class CallRefused(_AgentEvent, frozen=True):
    """A call that cannot be run was refused, and left no call in the thread (``invalid_calls="note"``, CBF-18)."""

    call: MalformedToolCall


class RunFinished(_AgentEvent, frozen=True):
    """A run is over."""

    result: Run[Any]


def deltas(agent: str, run: str, message: AssistantMessage) -> Iterator[ReasoningDelta | TextDelta]:
    """What is told of an answer that nobody saw while it came."""
    if message.reasoning:
        yield ReasoningDelta(0, message.reasoning, agent, run)
    if message.text:
        yield TextDelta(0, message.text, agent, run)


AgentEvent: TypeAlias = (
    RunStarted
    | IterationStarted
    | TextDelta
    | ReasoningDelta
    | MessageAdded
    | Lost
    | ContextCompacted
    | Retrying
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | ApprovalNeeded
    | ApprovalGiven
    | Warned
    | CallRefused
    | ValuesChanged
    | SubagentEvent
    | RunFinished
)


# --- watching ---------------------------------------------------------------------------------------------------------


ROOM: Final = 256


class Watch:
    """A queue of events between one run and one reader."""

    def __init__(self) -> None:
        """Begin with nothing, in the thread of the event loop."""
        self._home = get_ident()
        self._waiting: deque[AgentEvent] = deque()
        self._closed = False
        self._arrived = anyio.Event()
        self._taken = anyio.Event()

    def put(self, event: AgentEvent) -> None:
        """Add an event; never waits for the reader. A tool may call it from a worker thread."""
        if self._closed:
            return
        self._waiting.append(event)
        if get_ident() == self._home:
            self._arrived.set()
        else:
            with suppress(RuntimeError):  # the event loop is gone, and the reader with it
                from_thread.run_sync(self._arrive)

    def _arrive(self) -> None:
        self._arrived.set()

    async def room(self) -> None:
        """Wait until the reader has caught up."""
        while len(self._waiting) >= ROOM and not self._closed:
            self._taken = anyio.Event()
            await self._taken.wait()

    def close(self) -> None:
        """Nothing follows."""
        self._closed = True
        self._arrived.set()
        self._taken.set()

    def __aiter__(self) -> Self:
        """The events, until the run is over. It may be left at any of them: there is nothing to close."""
        return self

    async def __anext__(self) -> AgentEvent:
        """The next event."""
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._arrived = anyio.Event()
            await self._arrived.wait()
        self._taken.set()
        return self._waiting.popleft()


# --- observing --------------------------------------------------------------------------------------------------------


Observer: TypeAlias = Callable[[AgentEvent], Awaitable[None] | None]

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

    def begin(self, spawn: Callable[..., object]) -> None:
        """Begin to look at events."""
        if self._is_async:
            spawn(self._in_task)
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
                self._pass(Warned(agent=event.agent, run=event.run, text=text, error=each.error))
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
            self.begin(group.start_soon)
            try:
                yield
            finally:
                await self.finish()

    def begin(self, spawn: Callable[..., object]) -> None:
        """Let the observers work until ``finish``; ``spawn`` starts a coroutine function as a task."""
        for each in self._observed:
            each.begin(spawn)

    async def finish(self) -> None:
        """Give the observers the time of grace for what they have not seen yet."""
        for each in self._observed:
            each.put(None)
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(GRACE_SECONDS):
                while not all(each.done for each in self._observed):  # noqa: ASYNC110 (a thread cannot set an event)
                    await anyio.sleep(_LOOK)
            for each in self._observed:
                if not each.done:
                    each.abandon()
