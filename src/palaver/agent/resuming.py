"""What an earlier run left open at the end of a conversation.

Rules:

- Open are the calls of the last answer that have no result behind it. Records may stand between, and results of other
  calls; anything else closes them.
- While a call is pending in a record, its batch has not begun since that record. In any other case a call may have
  been run, and nobody knows whether it took effect (issue: no tool runs twice without being asked).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from palaver.agent.approvals import Recorded, recorded
from palaver.agent.calls import client_calls
from palaver.agent.holding import held
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.parts import ToolCall
from palaver.threads.thread import Entry
from palaver.threads.view import DISCARDED, RECORD


class LeftOpen(Struct, frozen=True):
    """The answer whose calls are open, the results that there are, by place, and what the records say."""

    message: AssistantMessage
    calls: tuple[ToolCall, ...]
    results: tuple[ToolMessage | None, ...]
    recorded: Recorded = Recorded()
    held: tuple[Message, ...] = ()
    """What was said meanwhile, for the place behind the results."""

    @property
    def begun(self) -> bool:
        """Whether calls may have been run."""
        return not self.recorded.pending

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls that have no result."""
        return tuple([call for call, each in zip(self.calls, self.results, strict=True) if each is None])


def left_open(path: Sequence[Entry]) -> LeftOpen | None:
    """What is open at the end of a path; ``None`` when nothing is. Costs the length of the last step."""
    behind: list[Message] = []
    for entry in reversed(path):
        message = entry.message
        if isinstance(message, AssistantMessage) and DISCARDED not in message.tags:
            return _open(message, behind[::-1])
        if not isinstance(message, ToolMessage) and RECORD not in message.tags:
            return None
        behind.append(message)
    return None


def last_answer(path: Sequence[Entry]) -> AssistantMessage | None:
    """The answer that a path ends in; ``None`` when it ends in anything else."""
    for entry in reversed(path):
        if RECORD in entry.message.tags:
            continue
        message = entry.message
        return message if isinstance(message, AssistantMessage) and DISCARDED not in message.tags else None
    return None


def _open(message: AssistantMessage, behind: Sequence[Message]) -> LeftOpen | None:
    calls = client_calls(message)
    results: list[ToolMessage | None] = [None] * len(calls)
    for each in behind:
        if isinstance(each, ToolMessage):
            for place, call in enumerate(calls):
                if results[place] is None and call.id == each.tool_call_id:
                    results[place] = each
                    break
    if all(each is not None for each in results):
        return None
    return LeftOpen(message, calls, tuple(results), recorded(behind, calls), held(behind))
