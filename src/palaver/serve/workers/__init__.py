"""Where messages of clients are handed in, and the workers that answer them: one process, or many.

Rules:

- ``Dispatcher`` is what a front needs of a swarm. ``LocalDesk`` is one within this process; ``QueueDispatcher`` hands
  turns to workers, over NATS JetStream (``palaver.serve.workers.queue_dispatcher``).
- Importing this loads no optional package.

Stability: experimental.
"""

from palaver.serve.workers.dispatcher import Dispatcher, LocalDesk

__all__ = ["Dispatcher", "LocalDesk"]
