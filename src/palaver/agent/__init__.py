"""Agents: a loop of model calls and tool calls that keeps every message in a thread.

Rules:

- What an application needs is imported from here; the events of a run stand in ``palaver.turn.events``, tools from
  MCP servers in ``palaver.agent.mcp``.
- Importing this loads no optional package: ``Tracing`` asks for OpenTelemetry when it is made.

Stability: experimental.
"""

from palaver.agent.active_run import ActiveRun
from palaver.agent.agent import Agent, SyncActiveRun, SyncAgent
from palaver.agent.functions import client_tool, function_tool, merged, schema_tool
from palaver.agent.guardrails import Guardrail, ToolBreaker, Verdict, deny, modify, warn
from palaver.agent.questions import Answers, Question, answered, ask_user_tool
from palaver.agent.scripted_agent import STEP, STEP_ALL, Scripted, Stepped, call_of
from palaver.agent.subagents import Subagents, subagents
from palaver.agent.todos import PlanMode, Todo, TodoList, last_todos
from palaver.agent.usage import Used, usage_of
from palaver.core.errors import RunError, ToolError
from palaver.core.events import ReasoningDelta, TextDelta
from palaver.turn.approvals import ApprovalRequest, Decide, Decision, DecisionError, answer, approve, edit, reject
from palaver.turn.compaction import Compaction, Compactor, compact, undo
from palaver.turn.events import AgentEvent, Observer
from palaver.turn.limits import Limits, Outcome
from palaver.turn.middleware import Blocked, Middleware, PromptCache, RunContext, Step, ToolRequest
from palaver.turn.open_calls import PendingApprovals, all_pending, pending
from palaver.turn.results import Offload, whole_result
from palaver.turn.run import Run
from palaver.turn.tool import AgentTool, InvalidArgumentsError, Output, Policy, Rule, ToolContext
from palaver.turn.tool_output import error_output, output_of
from palaver.turn.tracing import Tracing

__all__ = [
    "STEP",
    "STEP_ALL",
    "ActiveRun",
    "Agent",
    "AgentEvent",
    "AgentTool",
    "Answers",
    "ApprovalRequest",
    "Blocked",
    "Compaction",
    "Compactor",
    "Decide",
    "Decision",
    "DecisionError",
    "Guardrail",
    "InvalidArgumentsError",
    "Limits",
    "Middleware",
    "Observer",
    "Offload",
    "Outcome",
    "Output",
    "PendingApprovals",
    "PlanMode",
    "Policy",
    "PromptCache",
    "Question",
    "ReasoningDelta",
    "Rule",
    "Run",
    "RunContext",
    "RunError",
    "Scripted",
    "Step",
    "Stepped",
    "Subagents",
    "SyncActiveRun",
    "SyncAgent",
    "TextDelta",
    "Todo",
    "TodoList",
    "ToolBreaker",
    "ToolContext",
    "ToolError",
    "ToolRequest",
    "Tracing",
    "Used",
    "Verdict",
    "all_pending",
    "answer",
    "answered",
    "approve",
    "ask_user_tool",
    "call_of",
    "client_tool",
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
    "warn",
    "whole_result",
]
