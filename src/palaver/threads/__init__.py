"""Threads: append-only trees of messages, views of them, and repair of broken tool pairs. No I/O, no provider.

Stability: experimental.
"""

from palaver.threads.agent_view import AgentView, for_agent
from palaver.threads.repair import Repaired, repair
from palaver.threads.thread import MAIN, Entry, Path, Thread, usage_once
from palaver.threads.view import DISCARDED, PLACEHOLDER, RECORD, ModelView, PeopleView, expire, for_model, for_people

__all__ = [
    "DISCARDED",
    "MAIN",
    "PLACEHOLDER",
    "RECORD",
    "AgentView",
    "Entry",
    "ModelView",
    "Path",
    "PeopleView",
    "Repaired",
    "Thread",
    "expire",
    "for_agent",
    "for_model",
    "for_people",
    "repair",
    "usage_once",
]
