"""A run that is over: how it ended, what it said, what it cost, and the thread that it left behind.

Rules:

- A run never changes: it holds a window on its thread, which later runs may make longer. ``Agent.run(previous=run)``
  goes on behind it; when somebody else already has, on a branch of its own.
- However a run ended, its thread is one that every wire accepts, and can be continued.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from palaver.agent.approvals import ApprovalRequest
from palaver.agent.journal import AnyThread
from palaver.agent.limits import Outcome
from palaver.core.errors import RunError, excerpt
from palaver.core.messages import AssistantMessage, Message
from palaver.core.usage import Usage
from palaver.threads.thread import Path


class Run(Struct, frozen=True, kw_only=True, weakref=True):
    """A run that is over.

    ``output`` is the value of the answer where a form was asked for, else its text. ``path`` is the conversation, and
    ``start`` how much of it was there before this run. ``cost`` is in USD, ``None`` where a price is not known.
    ``pending`` is what must be decided before a ``waiting`` run can go on; ``values`` is what tools and middleware
    shared.
    """

    id: str
    agent: str
    thread: AnyThread
    branch: str
    path: Path
    start: int
    outcome: Outcome
    output: Any = None
    reason: str = ""
    error: Exception | None = None
    usage: Usage = Usage()
    usage_by_model: Mapping[str, Usage] = {}
    cost: float | None = None
    iterations: int = 0
    seconds: float = 0.0
    pending: tuple[ApprovalRequest, ...] = ()
    values: Mapping[str, Any] = {}
    carry: Any = None
    """What the next run goes on with, so that it pays for what is new; of no meaning to anybody else."""

    @property
    def ok(self) -> bool:
        """Whether it completed."""
        return self.outcome == "completed"

    @property
    def leaf(self) -> str | None:
        """The id of the last entry."""
        return self.path.leaf

    @property
    def messages(self) -> Sequence[Message]:
        """What joined the thread in this run, its input included."""
        return [entry.message for entry in self.path[self.start :]]

    @property
    def answer(self) -> AssistantMessage | None:
        """The last answer of this run."""
        for entry in reversed(self.path[self.start :]):
            if isinstance(entry.message, AssistantMessage):
                return entry.message
        return None

    @property
    def text(self) -> str:
        """The text of the last answer."""
        answer = self.answer
        return "" if answer is None else answer.text

    def check(self) -> Run:
        """Give the run back. Raises ``RunError``, from its cause, when it did not complete."""
        if not self.ok:
            told = f": {self.reason}" if self.reason else ""
            raise RunError(f"{self.agent}: the run ended as {self.outcome}{told}", self) from self.error
        return self

    def __repr__(self) -> str:
        """Show how it ended, and its answer, shortened."""
        return f"Run({self.agent!r}, {self.outcome!r}, {excerpt(self.text)!r})"
