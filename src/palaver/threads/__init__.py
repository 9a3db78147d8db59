"""Threads: append-only trees of messages, views of them, and repair of broken tool pairs. No I/O, no provider.

Stability: experimental.
"""

from palaver.threads.accounting import usage_once
from palaver.threads.agent_view import AgentView, for_agent
from palaver.threads.expiry import expire
from palaver.threads.model_view import ModelView, for_model
from palaver.threads.people_view import PeopleView, for_people
from palaver.threads.repair import Repaired, repair
from palaver.threads.thread import MAIN, Entry, Path, Thread
from palaver.threads.view import DISCARDED, PLACEHOLDER, RECORD

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
