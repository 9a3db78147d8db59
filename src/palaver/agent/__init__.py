"""Agents: a loop of model calls and tool calls that keeps every message in a thread.

Rules:

- What an application needs is imported from here; the events of a run stand in ``palaver.agent.events``, tools from
  MCP servers in ``palaver.agent.mcp``.
- Importing this loads no optional package: ``Tracing`` asks for OpenTelemetry when it is made.

Stability: experimental.
"""

from palaver.agent.agent import Agent
from palaver.agent.approvals import ApprovalRequest, Decide, Decision, answer, approve, edit, reject
from palaver.agent.caching import Caching
from palaver.agent.compact_thread import Compaction, compact, undo
from palaver.agent.compacting import Compacting
from palaver.agent.events import AgentEvent
from palaver.agent.functions import function_tool
from palaver.agent.guardrails import Guardrail, Verdict, deny, modify, warn
from palaver.agent.limits import Limits, Outcome
from palaver.agent.merging import merged
from palaver.agent.middleware import Blocked, Middleware, RunContext, Step, ToolRequest
from palaver.agent.observing import Observer
from palaver.agent.outputs import error_output, output_of
from palaver.agent.permission import Policy, Rule
from palaver.agent.plan_mode import PlanMode
from palaver.agent.questions import Answers, Question, answered, ask_user_tool
from palaver.agent.reading import whole_result
from palaver.agent.run import Run
from palaver.agent.running import Running
from palaver.agent.schemas import schema_tool
from palaver.agent.scripted_agent import STEP, STEP_ALL, Scripted, Stepped, call_of
from palaver.agent.spilling import Spilling
from palaver.agent.subagents import Subagents, subagents
from palaver.agent.todo_list import TodoList
from palaver.agent.todos import Todo, last_todos
from palaver.agent.tool import AgentTool, InvalidArgumentsError, Output, ToolContext
from palaver.agent.tool_breaker import ToolBreaker
from palaver.agent.tracing import Tracing
from palaver.agent.usage import Used, usage_of
from palaver.agent.waiting import Waiting, pending, waiting
from palaver.core.errors import RunError, ToolError

__all__ = [
    "STEP",
    "STEP_ALL",
    "Agent",
    "AgentEvent",
    "AgentTool",
    "Answers",
    "ApprovalRequest",
    "Blocked",
    "Caching",
    "Compacting",
    "Compaction",
    "Decide",
    "Decision",
    "Guardrail",
    "InvalidArgumentsError",
    "Limits",
    "Middleware",
    "Observer",
    "Outcome",
    "Output",
    "PlanMode",
    "Policy",
    "Question",
    "Rule",
    "Run",
    "RunContext",
    "RunError",
    "Running",
    "Scripted",
    "Spilling",
    "Step",
    "Stepped",
    "Subagents",
    "Todo",
    "TodoList",
    "ToolBreaker",
    "ToolContext",
    "ToolError",
    "ToolRequest",
    "Tracing",
    "Used",
    "Verdict",
    "Waiting",
    "answer",
    "answered",
    "approve",
    "ask_user_tool",
    "call_of",
    "compact",
    "deny",
    "edit",
    "error_output",
    "function_tool",
    "last_todos",
    "merged",
    "modify",
    "output_of",
    "pending",
    "reject",
    "schema_tool",
    "subagents",
    "undo",
    "usage_of",
    "waiting",
    "warn",
    "whole_result",
]
