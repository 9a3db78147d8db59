"""Hand in messages of clients, and answer them in this process or in many.

``Dispatcher`` is what a server needs of a swarm. ``LocalDispatcher`` answers within this process; ``QueueDispatcher``
hands turns to workers over NATS JetStream (``palaver.serve.workers.queue_dispatcher``). Importing this package loads no
optional package.

Stability: experimental.
"""

from palaver.serve.workers.decisions import PendingTurn
from palaver.serve.workers.dispatcher import Dispatcher, LocalDispatcher

__all__ = ["Dispatcher", "LocalDispatcher", "PendingTurn"]
