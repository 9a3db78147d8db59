"""The values of a turn: a planned call, its result, and the events of a model call or of a batch.

``ModelCalls`` returns ``Answered``, ``ModelFailed`` or ``Blocked``; ``ToolCalls`` returns ``Planned``, ``Decided`` and
``Ran``. Each says what happened, not what follows: the caller sequences the turn. For the machine of an agent's run
these values are events.

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
    """A tool call, and what to do with it.

    ``index`` is its index among the calls of its message; ``call`` is the call to run (edited, if it was edited);
    ``tool`` is the name of the tool. ``text`` is the result of a call that does not run; ``choices`` are the allowed
    decisions. ``arguments`` are the checked arguments, which only the driver reads. ``content`` is a result that is no
    text, and ``is_error`` says that the client, which ran an answered call, failed.
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
    content: tuple[ToolPart, ...] = ()
    is_error: bool = False


def result(planned: PlannedCall, content: str | tuple[ToolPart, ...], *, is_error: bool = False) -> ToolMessage:
    """Return the result message of a call."""
    parts = (Text(content),) if isinstance(content, str) else content
    call = planned.call
    made = ToolMessage(content=parts, tool_call_id=call.id, tool_name=call.name, is_error=is_error, mode="tool")
    return made.replace(metadata=planned.metadata) if planned.metadata else made


def result_without_run(planned: PlannedCall) -> ToolMessage:
    """Return the result message of a call that does not run."""
    failed = planned.is_error or planned.verdict != "answered"
    return result(planned, planned.content or planned.text, is_error=failed)


# -- outcomes --------------------------------------------------------------------------------------------------------


class TurnEvent(Struct, frozen=True, gc=False):
    """Base of the events of a turn."""


class Answered(TurnEvent, frozen=True):
    """The model answered. ``tokens`` and ``cost`` (USD) are of this call alone; ``context`` is the tokens that it read.

    ``seconds`` is the time that the answer took, where the model reports it.
    """

    message: AssistantMessage
    at: float
    tokens: int = 0
    cost: float = 0.0
    context: int = 0
    seconds: float | None = None


class ModelFailed(TurnEvent, frozen=True):
    """The model failed. ``partial`` is the incomplete answer; ``broke`` says that the stream broke off."""

    error: Exception
    at: float
    partial: AssistantMessage | None = None
    broke: bool = False


class Blocked(TurnEvent, frozen=True):
    """A guardrail stopped the turn. ``message`` is the blocked answer.

    ``asked`` is false where the guardrail stopped the turn before the model was called.
    """

    reason: str
    message: AssistantMessage | None = None
    asked: bool = True


class Planned(TurnEvent, frozen=True):
    """The plan for each open call. ``pending`` is the record to store when some need a decision."""

    calls: tuple[PlannedCall, ...]
    pending: SystemMessage | None = None


class Decided(TurnEvent, frozen=True):
    """The decisions about the pending calls. Calls without a decision stay pending.

    ``error`` is the reason why ``decide`` returned no decisions.
    """

    calls: tuple[PlannedCall, ...]
    record: SystemMessage | None = None
    error: Exception | None = None


class Ran(TurnEvent, frozen=True):
    """A tool returned a result or failed. ``records`` are stored beside the result; models do not see them.

    ``tokens`` and ``cost`` (USD) are what tools used of models since the last event that reports spending.
    """

    index: int
    message: ToolMessage
    records: tuple[SystemMessage, ...] = ()
    tokens: int = 0
    cost: float = 0.0
