"""Swarms: many agents in one conversation.

Rules:

- Applications import everything they need from here; network buses, workers and servers are packages of their own.
- Importing this package loads no optional package.

Stability: experimental.
"""

from palaver.core.errors import BusyError, ClosedError, NavigationError, SwarmError, TurnError
from palaver.swarm import call
from palaver.swarm.agent import Hooks, SwarmAgent
from palaver.swarm.bus import Bus, Since, Where
from palaver.swarm.call import Call, CallContext
from palaver.swarm.events import SHARED, SOURCES, Event
from palaver.swarm.extras.advisor import Advisor, ask
from palaver.swarm.extras.chats import AutoClose, Chats, auto_close
from palaver.swarm.extras.compute import Compute
from palaver.swarm.extras.entry import Connection, RateLimited, Scheduled, complete, connect, fork
from palaver.swarm.extras.memory import describe
from palaver.swarm.extras.operator import Operator, Question
from palaver.swarm.extras.outline import Outline, Result
from palaver.swarm.extras.pipeline import Pipeline
from palaver.swarm.extras.round_robin import RoundRobin
from palaver.swarm.extras.storage import Storage
from palaver.swarm.local_bus import LocalBus
from palaver.swarm.mcp import McpSource
from palaver.swarm.navigation_tools import commit_action, fetch_info, navigation, triage
from palaver.swarm.policy import Policy
from palaver.swarm.rescue import Custom, Flush, Recomplete, no_tool_syntax, not_empty, plain_text
from palaver.swarm.session import Session
from palaver.swarm.state import State
from palaver.swarm.swarm import LiveSwarm, Swarm, SyncLiveSwarm, SyncSwarm
from palaver.swarm.sync import SyncSession
from palaver.swarm.tool import SwarmTool, result_tool, tool

__all__ = [
    "SHARED",
    "SOURCES",
    "Advisor",
    "AutoClose",
    "Bus",
    "BusyError",
    "Call",
    "CallContext",
    "Chats",
    "ClosedError",
    "Compute",
    "Connection",
    "Custom",
    "Event",
    "Flush",
    "Hooks",
    "LiveSwarm",
    "LocalBus",
    "McpSource",
    "NavigationError",
    "Operator",
    "Outline",
    "Pipeline",
    "Policy",
    "Question",
    "RateLimited",
    "Recomplete",
    "Result",
    "RoundRobin",
    "Scheduled",
    "Session",
    "Since",
    "State",
    "Storage",
    "Swarm",
    "SwarmAgent",
    "SwarmError",
    "SwarmTool",
    "SyncLiveSwarm",
    "SyncSession",
    "SyncSwarm",
    "TurnError",
    "Where",
    "ask",
    "auto_close",
    "commit_action",
    "complete",
    "connect",
    "describe",
    "fetch_info",
    "fork",
    "navigation",
    "no_tool_syntax",
    "not_empty",
    "plain_text",
    "result_tool",
    "tool",
    "triage",
]

# The module of ``CallContext`` cannot import the type of its field, which ``help`` and ``inspect.signature`` look for.
setattr(call, "Session", Session)  # noqa: B010 (the checker knows no such name there)
