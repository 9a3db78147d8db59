"""Agents: a loop of model calls and tool calls that keeps every message in a thread.

Stability: experimental.
"""

from palaver.agent.agent import Agent
from palaver.agent.approvals import ApprovalRequest, Decision, answer, approve, edit, reject
from palaver.agent.functions import function_tool
from palaver.agent.limits import Limits, Outcome
from palaver.agent.middleware import Blocked, Middleware, RunContext, Step, ToolRequest
from palaver.agent.permission import Policy, Rule
from palaver.agent.run import Run
from palaver.agent.running import Running
from palaver.agent.schemas import schema_tool
from palaver.agent.tool import AgentTool, InvalidArgumentsError, Output, ToolContext

__all__ = [
    "Agent",
    "AgentTool",
    "ApprovalRequest",
    "Blocked",
    "Decision",
    "InvalidArgumentsError",
    "Limits",
    "Middleware",
    "Outcome",
    "Output",
    "Policy",
    "Rule",
    "Run",
    "RunContext",
    "Running",
    "Step",
    "ToolContext",
    "ToolRequest",
    "answer",
    "approve",
    "edit",
    "function_tool",
    "reject",
    "schema_tool",
]
