"""The front of a swarm: HTTP, server-sent events and WebSocket (extra ``serve``).

Nothing in ``palaver.swarm`` imports this.

Stability: experimental.
"""

from palaver.serve.http.access import Limits
from palaver.serve.http.app import Front
from palaver.serve.http.turns import History, live_history, stored_history

__all__ = ["Front", "History", "Limits", "live_history", "stored_history"]
