"""Serve a swarm over HTTP, server-sent events and WebSocket (extra ``serve``).

``HttpApp(dispatcher)`` is an ASGI application.

Nothing in ``palaver.swarm`` imports this package.

Stability: experimental.
"""

from palaver.core.errors import MissingPackageError

try:
    from palaver.serve.http.access import ClientLimiter, Limits
    from palaver.serve.http.app import HttpApp
    from palaver.serve.http.turns import History, live_history, stored_history
except ImportError as error:
    raise MissingPackageError.of("serving over HTTP needs starlette and uvicorn", "serve", error) from error

__all__ = ["ClientLimiter", "History", "HttpApp", "Limits", "live_history", "stored_history"]
