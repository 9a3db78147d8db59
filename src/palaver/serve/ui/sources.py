"""What answers the requests of web pages: an agent or a swarm.

Stability: experimental.
"""

from __future__ import annotations

from palaver.agent.agent import is_agent
from palaver.core.errors import MessageError
from palaver.serve.ui.agent_turns import AgentTurns
from palaver.serve.ui.swarm_turns import SwarmTurns
from palaver.serve.ui.turns import Turns
from palaver.store.store import Store
from palaver.swarm.swarm import LiveSwarm


def turns_of(source: object, store: Store | None, *, show_tools: bool | None = None) -> Turns:
    """Return what answers for an ``Agent`` or a ``LiveSwarm``. Raises ``MessageError`` for anything else."""
    if is_agent(source):
        return AgentTurns(source, store, show_tools=show_tools is not False)
    if isinstance(source, LiveSwarm):
        if store is not None:
            raise MessageError("store: a swarm has its own; give it to swarm.start(store=…)")
        return SwarmTurns(source, show_tools=show_tools is True)
    raise MessageError(f"source: expected an Agent or a LiveSwarm, got {type(source).__name__}")
