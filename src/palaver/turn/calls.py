"""The values of a turn: a planned call, its result, and what came of a model call or of a batch.

Rules:

- ``ModelCalls`` gives ``Answered``, ``ModelFailed`` or ``Blocked``; ``ToolCalls`` gives ``Planned``, ``Decided`` and
  ``Ran``. Each says what happened and nothing about what follows: that is for whoever sequences the turn.
- For the machine of an agent's run these values are events.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from palaver.core.messages import AssistantMessage, SystemMessage, ToolMessage
from palaver.core.parts import Text, ToolCall, ToolPart
from palaver.turn.tool import Effect

Verdict: TypeAlias = Literal["run", "ask", "deny", "invalid", "answered"]


class PlannedCall(Struct, frozen=True):
    """A call, and what is to become of it.

    ``index`` is its place among the calls of its message; ``call`` is what will run (edited, where it was);
    ``tool`` the name of the tool it means. ``text`` is what the model is told when it is not run; ``choices`` are the
    decisions that an approver has. ``arguments`` are the checked ones, which only the driver reads.
    """

    index: int
    call: ToolCall
    tool: str | None = None
    effect: Effect = "write"
    verdict: Verdict = "run"
    text: str = ""
    choices: tuple[str, ...] = ()
    arguments: Any = None
    metadata: Mapping[str, Any] = {}


def result(planned: PlannedCall, content: str | tuple[ToolPart, ...], *, is_error: bool = False) -> ToolMessage:
    """Return the result message of a call."""
    parts = (Text(content),) if isinstance(content, str) else content
    call = planned.call
    made = ToolMessage(content=parts, tool_call_id=call.id, tool_name=call.name, is_error=is_error, mode="tool")
    return made.replace(metadata=planned.metadata) if planned.metadata else made


# -- outcomes --------------------------------------------------------------------------------------------------------


class TurnEvent(Struct, frozen=True, gc=False):
    """Base of what came of a step of a turn."""


class Answered(TurnEvent, frozen=True):
    """The model answered. ``tokens`` and ``cost`` (USD) are of this call alone; ``context`` is what it read.

    ``seconds`` is how long the answer took, where the model says so.
    """

    message: AssistantMessage
    at: float
    tokens: int = 0
    cost: float = 0.0
    context: int = 0
    seconds: float | None = None


class ModelFailed(TurnEvent, frozen=True):
    """The model did not answer, or not to the end. ``partial`` is what came; ``broke`` that the stream broke off."""

    error: Exception
    at: float
    partial: AssistantMessage | None = None
    broke: bool = False


class Blocked(TurnEvent, frozen=True):
    """A guardrail stopped the turn. ``message`` is the answer that nobody may see.

    ``asked`` is false where the model was about to be asked, and was not.
    """

    reason: str
    message: AssistantMessage | None = None
    asked: bool = True


class Planned(TurnEvent, frozen=True):
    """What is to become of each open call. ``pending`` is the record to keep when some must be asked."""

    calls: tuple[PlannedCall, ...]
    pending: SystemMessage | None = None


class Decided(TurnEvent, frozen=True):
    """What was decided of the calls that were asked; those that nobody decided still ask.

    ``error`` is why ``decide`` gave no decision.
    """

    calls: tuple[PlannedCall, ...]
    record: SystemMessage | None = None
    error: Exception | None = None


class Ran(TurnEvent, frozen=True):
    """A tool gave a result, good or bad. ``records`` are kept beside it, for no model.

    ``tokens`` and ``cost`` (USD) are what tools asked of models since the last outcome that says what was spent.
    """

    index: int
    message: ToolMessage
    records: tuple[SystemMessage, ...] = ()
    tokens: int = 0
    cost: float = 0.0
