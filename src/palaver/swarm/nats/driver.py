"""The NATS client, or word of what to install. Nothing else in Palaver imports it.

Stability: experimental.
"""

from __future__ import annotations

from palaver.core.errors import SwarmError

try:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.errors import Error as NatsError
    from nats.js import JetStreamContext
    from nats.js.api import (
        AckPolicy,
        ConsumerConfig,
        DeliverPolicy,
        DiscardPolicy,
        RetentionPolicy,
        StorageType,
        StreamConfig,
    )
    from nats.js.errors import APIError, NotFoundError
except ImportError as error:
    raise SwarmError(
        f"NATS is spoken by nats-py, which is not installed: pip install 'palaver[nats]' ({error})"
    ) from None

FAILURES = (NatsError, OSError, TimeoutError)
"""Everything that the client raises when a server is away, or says no."""

__all__ = [
    "FAILURES",
    "APIError",
    "AckPolicy",
    "Client",
    "ConsumerConfig",
    "DeliverPolicy",
    "DiscardPolicy",
    "JetStreamContext",
    "Msg",
    "NatsError",
    "NotFoundError",
    "RetentionPolicy",
    "StorageType",
    "StreamConfig",
    "Subscription",
]
