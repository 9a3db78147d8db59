"""Swarms as A2A agents, and A2A agents in swarms, with the official SDK (extra ``a2a``): https://a2a-protocol.org.

Nothing in ``palaver.swarm`` imports this package. Runs on asyncio only: the SDK knows no other event loop.

Stability: experimental.
"""

from palaver.serve.a2a.client import a2a_agent
from palaver.serve.a2a.server import a2a_app, card_of

__all__ = ["a2a_agent", "a2a_app", "card_of"]
