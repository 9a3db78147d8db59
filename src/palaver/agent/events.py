"""What happens while a run is under way: a small union of events that a user interface can draw from.

Rules:

- Every run begins with ``RunStarted`` and ends with one ``RunFinished``; nothing follows it (CBF-24).
- Text of an answer comes as deltas, then ``MessageAdded`` gives the whole message as it joined the thread. Text stands
  before the calls of its answer (but for reads that begin early, ``agent.eager``), a call's ``ToolStarted`` before its
  ``ToolFinished``; results of calls that run at the same time come as they are ready.
- Events of a sub-agent come wrapped in ``SubagentEvent``, between its own ``RunStarted`` and ``RunFinished``.
- Watching is free of consequences: nothing that a watcher does changes the run, but that one who reads events slowly
  (``async for``) slows it down.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from msgspec import Struct

from palaver.agent.approvals import ApprovalRequest, Decision
from palaver.agent.run import Run
from palaver.context.compaction import Failure
from palaver.context.plan import Change
from palaver.core import events
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.parts import MalformedToolCall, ToolCall
from palaver.core.request import Loss

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
    """The receipt of a request: what could not be carried to the model. Each loss is told once."""

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
