"""Swarms as A2A agents, and A2A agents in swarms, by the official SDK (extra ``a2a``): https://a2a-protocol.org.

Nothing in ``palaver.swarm`` imports this. On asyncio alone: the SDK knows no other event loop.

Stability: experimental.
"""

from palaver.swarm.a2a.app import a2a_app, card_of
from palaver.swarm.a2a.remote import a2a_agent

__all__ = ["a2a_agent", "a2a_app", "card_of"]
