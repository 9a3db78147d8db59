"""Plan mode: as long as it is on, tools that write are not run.

Rules (docs/spec/kairo.md#2.12, KAI-18):

- It is on while ``values["plan_mode"]`` is true; tools, middleware and the application may switch it at any time.
- A call of a tool that writes has an error result; what reads runs. Sub-agents run, and are held to the same.
- A call is judged when it is planned, before anybody is asked to approve it, and again when its turn has come.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palaver.agent.middleware import CallTool, Middleware, RunContext, ToolRequest
from palaver.agent.permission import Rule
from palaver.agent.tool import AgentTool, Output
from palaver.core.argument_types import check_arguments
from palaver.core.parts import Text, ToolCall

PLAN_MODE: Final = "plan_mode"
"""The key in the values of a run, and the ``error_code`` of a call that was not run."""


class PlanMode(Middleware):
    """Keeps tools from writing. ``allow`` names tools that may be called all the same: one that leaves plan mode."""

    def __init__(self, *, allow: Sequence[str] = ()) -> None:
        """Take the names of tools that are allowed in any mode."""
        check_arguments("PlanMode", PlanMode.__init__, locals())
        self._allow = frozenset(allow)

    async def rule(self, call: ToolCall, tool: AgentTool, context: RunContext) -> Rule | None:  # noqa: ARG002 (a hook)
        """Deny a call that writes."""
        return Rule(judgement="deny", text=_told(tool)) if self._blocks(tool, context) else None

    async def wrap_tool_call(self, request: ToolRequest, context: RunContext, call: CallTool) -> Output:
        """Keep a call from running that was planned before the mode was switched on."""
        if self._blocks(request.tool, context):
            return Output(content=(Text(_told(request.tool)),), is_error=True, metadata={"error_code": PLAN_MODE})
        return await call(request)

    def _blocks(self, tool: AgentTool, context: RunContext) -> bool:
        return bool(context.values.get(PLAN_MODE)) and tool.effect != "read" and tool.name not in self._allow


def _told(tool: AgentTool) -> str:
    return (
        f"Tool '{tool.name}' ({tool.effect}) is blocked in plan mode: nothing may be changed now. "
        "Read what you need, and say what you would do."
    )
