"""The front of a swarm: HTTP, server-sent events and WebSocket (extra ``serve``).

Nothing in ``palaver.swarm`` imports this.

Stability: experimental.
"""

from palaver.swarm.front.app import Front
from palaver.swarm.front.history import History, live_history, stored_history
from palaver.swarm.front.limits import Limits

__all__ = ["Front", "History", "Limits", "live_history", "stored_history"]
