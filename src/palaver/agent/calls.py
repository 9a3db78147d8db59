"""The calls of an answer: which the application must answer, what is to become of each, and its result.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from palaver.agent.tool import Effect
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.parts import Text, ToolCall, ToolPart

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


def client_calls(message: AssistantMessage) -> tuple[ToolCall, ...]:
    """The calls of an answer that the application must answer, in order."""
    return tuple([part for part in message.content if isinstance(part, ToolCall) and not part.provider_executed])


def result(planned: PlannedCall, content: str | tuple[ToolPart, ...], *, is_error: bool = False) -> ToolMessage:
    """The result of a call."""
    parts = (Text(content),) if isinstance(content, str) else content
    call = planned.call
    made = ToolMessage(content=parts, tool_call_id=call.id, tool_name=call.name, is_error=is_error, mode="tool")
    return made.replace(metadata=planned.metadata) if planned.metadata else made
