"""Events of a run, and their delivery to readers and observers.

Rules (docs/spec/codebuff.md#8):

- A run starts with ``RunStarted`` and ends with one ``RunFinished``. Text comes as deltas, then ``MessageAdded`` has
  the whole message. ``ToolStarted`` comes before ``ToolFinished``; results come as they are ready. Events of a subagent
  are wrapped in ``SubagentEvent``.
- One reader reads a ``Watch`` with ``async for``. A slow reader blocks the run once ``ROOM`` events wait; no event is
  dropped.
- Observers get every event in order and cannot block a run: plain functions run in a thread, async ones in a task. An
  observer that raises, takes longer than ``EVENT_SECONDS``, or is ``BACKLOG`` events behind is removed, with a
  ``Warned``.
- After a run, observers have ``GRACE_SECONDS`` to finish. A thread that hangs is abandoned.

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
"""More text of the answer; ``agent`` and ``run`` name its run. The same class as in every stream."""
ReasoningDelta = events.ReasoningDelta
"""More reasoning of the answer."""


class _AgentEvent(Struct, frozen=True, kw_only=True):
    """Base of all events: the agent and the run."""

    agent: str
    run: str


class RunStarted(_AgentEvent, frozen=True):
    """A run starts. ``length`` is the length of the conversation, its input included."""

    thread: str
    length: int


class IterationStarted(_AgentEvent, frozen=True):
    """A model call starts; it is call ``number`` of this run. ``final``: without tools."""

    number: int
    final: bool = False


class MessageAdded(_AgentEvent, frozen=True):
    """A message was appended to the thread and is stored."""

    message: Message


class Lost(_AgentEvent, frozen=True):
    """The receipt of a request: losses of its conversion for the model. Each loss is published once."""

    model: str
    losses: tuple[Loss, ...]


class ContextCompacted(_AgentEvent, frozen=True):
    """The conversation was compacted to fit the model's window, or compaction failed. Sizes are in tokens.

    ``changes`` lists the changes of each stage; ``failures`` the stages that failed and changed nothing.
    """

    before: int
    after: int
    capacity: int
    changes: tuple[Change, ...] = ()
    failures: tuple[Failure, ...] = ()


class Retrying(_AgentEvent, frozen=True):
    """The model is called again after ``wait`` seconds; with ``fallback``, the next model instead."""

    model: str
    error: Exception
    attempt: int
    wait: float
    fallback: bool = False


class ToolStarted(_AgentEvent, frozen=True):
    """A tool starts."""

    call: ToolCall
    tool: str


class ToolProgress(_AgentEvent, frozen=True):
    """A tool reports progress: any value."""

    call: ToolCall
    value: Any


class ToolFinished(_AgentEvent, frozen=True):
    """A tool ended. ``outcome`` is ``success``, ``error`` or ``timeout``; ``seconds`` is its run time."""

    call: ToolCall
    message: ToolMessage
    outcome: str
    seconds: float = 0.0


class ApprovalNeeded(_AgentEvent, frozen=True):
    """Calls need decisions."""

    requests: tuple[ApprovalRequest, ...]


class ApprovalGiven(_AgentEvent, frozen=True):
    """A call was decided."""

    call: ToolCall
    decision: Decision


class Warned(_AgentEvent, frozen=True):
    """Something went wrong, and the run continues."""

    text: str
    error: Exception | None = None


class ValuesChanged(_AgentEvent, frozen=True):
    """The shared values of tools and middleware changed: the names of new or different ones."""

    names: tuple[str, ...]
    values: dict[str, Any]


class SubagentEvent(_AgentEvent, frozen=True):
    """An event of a subagent that a call started."""

    call: ToolCall
    event: AgentEvent


class CallRefused(_AgentEvent, frozen=True):
    """A call that cannot run was refused, and is not in the thread (``invalid_calls="note"``)."""

    call: MalformedToolCall


class RunFinished(_AgentEvent, frozen=True):
    """A run ended."""

    result: Run[Any]


def deltas(agent: str, run: str, message: AssistantMessage) -> Iterator[ReasoningDelta | TextDelta]:
    """The deltas of an answer that was not streamed."""
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
        """Create an empty queue, in the thread of the event loop."""
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
            with suppress(RuntimeError):  # the event loop has stopped, and the reader with it
                from_thread.run_sync(self._arrive)

    def _arrive(self) -> None:
        self._arrived.set()

    async def room(self) -> None:
        """Wait until the reader has caught up."""
        while len(self._waiting) >= ROOM and not self._closed:
            self._taken = anyio.Event()
            await self._taken.wait()

    def close(self) -> None:
        """End the events."""
        self._closed = True
        self._arrived.set()
        self._taken.set()

    def __aiter__(self) -> Self:
        """Iterate over the events until the run ends. A reader may stop at any event: there is nothing to close."""
        return self

    async def __anext__(self) -> AgentEvent:
        """Return the next event."""
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
"""Seconds between two checks of a thread that is about to end."""


class _Observed:
    """One observer, its queue of events, and its failure."""

    def __init__(self, observer: Observer, seconds: float) -> None:
        self.name = excerpt(getattr(observer, "__qualname__", type(observer).__name__))
        self.fault: str | None = None
        self.error: Exception | None = None
        self.is_reported = False
        self._observer, self._seconds = observer, seconds
        self._queue: SimpleQueue[AgentEvent | None] = SimpleQueue()
        self._since: float | None = None  # when it got the event that it is handling
        self._is_async = iscoroutinefunction(called(observer))
        self._arrived, self._ended = anyio.Event(), False
        self._scope = anyio.CancelScope(shield=True)

    def begin(self, spawn: Callable[..., object]) -> None:
        """Start handling events."""
        if self._is_async:
            spawn(self._in_task)
        else:
            threading.Thread(target=self._in_thread, name=f"observer {self.name}", daemon=True).start()

    def put(self, event: AgentEvent | None) -> None:
        """Queue an event, or the end. Never waits."""
        self._queue.put(event)
        self._arrived.set()

    @property
    def done(self) -> bool:
        """Whether it has ended or failed."""
        return self._ended or self.fault is not None

    def look(self) -> bool:
        """Return whether it has not failed."""
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
                await self._deliver(event)
        self._ended = True

    async def _deliver(self, event: AgentEvent) -> None:
        with anyio.move_on_after(self._seconds) as limit:
            try:
                given: Any = self._observer(event)
                await given
            except Exception as error:  # noqa: BLE001 (whatever an observer raises stays here)
                self._failed(error)
        if limit.cancelled_caught:
            self.fault = f"took longer than {self._seconds:g} seconds"

    def abandon(self) -> None:
        """Stop waiting for it."""
        self.fault = self.fault or "was not ready when the run was over"
        if self._is_async:
            self._scope.cancel()


def _unawaited(given: object) -> None:
    """Raise ``MessageError`` for an awaitable that a plain function returned."""
    if isawaitable(given):
        if iscoroutine(given):
            given.close()
        raise MessageError("an observer that returns an awaitable must be an async function")


class Observing(Watch):
    """Passes every event to observers, and to the reader's watch if there is one."""

    def __init__(self, observers: Sequence[Observer], behind: Watch | None, *, seconds: float = EVENT_SECONDS) -> None:
        """Store the observers."""
        super().__init__()
        self._behind = behind
        self._observed = [_Observed(each, seconds) for each in observers]

    def put(self, event: AgentEvent) -> None:
        """Pass an event on. The failure of an observer is reported before it."""
        for each in self._observed:
            if not each.look() and not each.is_reported:
                each.is_reported = True
                text = f"the observer {each.name} was removed: {each.fault}"
                self._pass(Warned(agent=event.agent, run=event.run, text=text, error=each.error))
        self._pass(event)

    def _pass(self, event: AgentEvent) -> None:
        for each in self._observed:
            if each.fault is None:
                each.put(event)
        if self._behind is not None:
            self._behind.put(event)

    async def room(self) -> None:
        """Wait for the reader; never for observers."""
        if self._behind is not None:
            await self._behind.room()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the observers while the block runs, and then for the grace period."""
        async with anyio.create_task_group() as group:
            self.begin(group.start_soon)
            try:
                yield
            finally:
                await self.finish()

    def begin(self, spawn: Callable[..., object]) -> None:
        """Start the observers; ``spawn`` starts a coroutine function as a task."""
        for each in self._observed:
            each.begin(spawn)

    async def finish(self) -> None:
        """Give the observers the grace period for the remaining events."""
        for each in self._observed:
            each.put(None)
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(GRACE_SECONDS):
                while not all(each.done for each in self._observed):  # noqa: ASYNC110 (a thread cannot set an event)
                    await anyio.sleep(_LOOK)
            for each in self._observed:
                if not each.done:
                    each.abandon()
