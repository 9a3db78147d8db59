"""The bus over NATS JetStream (extra ``nats``). Nothing in ``palaver.swarm`` imports it.

Stability: experimental.
"""

from palaver.serve.nats.bus import PREFIX, STREAM, NatsBus

__all__ = ["PREFIX", "STREAM", "NatsBus"]
