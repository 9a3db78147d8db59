"""A breaker: a tool that failed several times in a row is left alone for a while.

Rules (docs/spec/kairo.md#2.4, #D12, KAI-18):

- An error result, an exception and a timeout count; a success begins the count anew. What the user cancelled does not
  count, nor what a guardrail denied: the tool did nothing wrong.
- After ``failures`` of them the tool is not run for ``seconds``; a call of it has an error result that says so. Then it
  is run again: when it fails once more, it is left alone again.
- It counts for one run. A call is judged when it is planned, before anybody is asked to approve it, and again when its
  turn has come, since its own batch may have opened the breaker.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio

from palaver.agent.guardrails import DENIED, WITHHELD
from palaver.agent.middleware import CallTool, Middleware, RunContext, ToolRequest
from palaver.agent.permission import Rule
from palaver.agent.tool import AgentTool, Output
from palaver.context.breaker import Breaker
from palaver.core.argument_types import check_arguments
from palaver.core.parts import Text, ToolCall

FAILURES: Final = 3
SECONDS: Final = 60.0
OPEN: Final = "tool_breaker_open"
"""The ``error_code`` of a call that was not run, in the metadata of its result."""


class ToolBreaker(Middleware):
    """Leaves tools alone that fail. ``polling`` names tools whose failures do not matter."""

    def __init__(self, failures: int = FAILURES, seconds: float = SECONDS, *, polling: Sequence[str] = ()) -> None:
        """Set the number of failures in a row, and how long a tool is left alone."""
        check_arguments("ToolBreaker", ToolBreaker.__init__, locals())
        self._closed, self._polling = Breaker(most=failures, seconds=seconds), frozenset(polling)

    async def rule(self, call: ToolCall, tool: AgentTool, context: RunContext) -> Rule | None:  # noqa: ARG002 (a hook)
        """Deny a call of a tool that is left alone."""
        return Rule(judgement="deny", text=_told(tool)) if self._open(tool, context) else None

    async def wrap_tool_call(self, request: ToolRequest, context: RunContext, call: CallTool) -> Output:
        """Count how calls end."""
        tool = request.tool
        if tool.name in self._polling:
            return await call(request)
        if self._open(tool, context):
            return Output(content=(Text(_told(tool)),), is_error=True, metadata={"error_code": OPEN})
        try:
            output = await call(request)
        except Exception:
            self._failed(tool, context)
            raise
        except BaseException:  # cancelled: by the tool's own time limit, or by somebody
            if anyio.current_time() >= request.deadline:
                self._failed(tool, context)
            raise
        if not output.is_error:
            self._known(context)[tool.name] = self._closed
        elif output.metadata.get("error_code") not in (DENIED, WITHHELD):
            self._failed(tool, context)
        return output

    def _known(self, context: RunContext) -> dict[str, Breaker]:
        known: dict[str, Breaker] = context.own.setdefault(self, {})
        return known

    def _open(self, tool: AgentTool, context: RunContext) -> bool:
        return not self._known(context).get(tool.name, self._closed).allows(anyio.current_time())

    def _failed(self, tool: AgentTool, context: RunContext) -> None:
        known = self._known(context)
        known[tool.name] = known.get(tool.name, self._closed).failed(anyio.current_time())


def _told(tool: AgentTool) -> str:
    return f"The {tool.name} tool failed several times in a row and is not run for now. Go on without it."
