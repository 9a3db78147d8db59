"""Swarms: many agents in one conversation.

Rules:

- What an application needs is imported from here; buses over a network, workers and servers are packages of their own.
- Importing this loads no optional package.

Stability: experimental.
"""

from palaver.core.errors import BusyError, ClosedError, NavigationError, SwarmError, TurnError
from palaver.swarm.agent import Hooks, SwarmAgent
from palaver.swarm.bus import Bus, Since, Where
from palaver.swarm.call import Call
from palaver.swarm.events import SHARED, SOURCES, Event
from palaver.swarm.handover import commit_action, fetch_info, navigation, triage
from palaver.swarm.live import LiveSwarm
from palaver.swarm.local_bus import LocalBus
from palaver.swarm.output import no_tool_syntax, not_empty, plain_text
from palaver.swarm.place import Place
from palaver.swarm.rescue import Custom, Flush, Recomplete
from palaver.swarm.session import Session
from palaver.swarm.swarm import Swarm
from palaver.swarm.tool import SwarmTool, returning, tool

__all__ = [
    "SHARED",
    "SOURCES",
    "Bus",
    "BusyError",
    "Call",
    "ClosedError",
    "Custom",
    "Event",
    "Flush",
    "Hooks",
    "LiveSwarm",
    "LocalBus",
    "NavigationError",
    "Place",
    "Recomplete",
    "Session",
    "Since",
    "Swarm",
    "SwarmAgent",
    "SwarmError",
    "SwarmTool",
    "TurnError",
    "Where",
    "commit_action",
    "fetch_info",
    "navigation",
    "no_tool_syntax",
    "not_empty",
    "plain_text",
    "returning",
    "tool",
    "triage",
]
