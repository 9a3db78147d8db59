"""Serve a swarm over HTTP, server-sent events and WebSocket (extra ``serve``).

``HttpApp(dispatcher)`` is an ASGI application.

Nothing in ``palaver.swarm`` imports this package.

Stability: experimental.
"""

from palaver.serve.http.access import Limits
from palaver.serve.http.app import HttpApp
from palaver.serve.http.turns import History, live_history, stored_history

__all__ = ["History", "HttpApp", "Limits", "live_history", "stored_history"]
