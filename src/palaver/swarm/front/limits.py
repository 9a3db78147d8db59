"""What one client may ask of a front, and what a reader that is slow may cost.

Rules:

- Everything is for one client: how many of its messages wait at a time, how many streams it reads, and how many
  requests it makes, by a bucket of tokens that holds ``burst`` and is filled with ``rate`` a second.
- What is too much is refused at once (429) and says when to come again.
- The buckets of ``clients`` clients are remembered, those that asked last; nothing else grows.

Stability: experimental.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Generator
from contextlib import contextmanager

import anyio
from msgspec import Struct

from palaver.core.errors import SwarmError
from palaver.swarm.front.refusing import Refused


class Limits(Struct, frozen=True, kw_only=True):
    """How much is enough. Raises ``SwarmError`` for what nobody could live with."""

    waiting: int = 8
    """Messages of a client that wait for their answers at a time."""
    streams: int = 8
    """Streams and WebSockets of a client that are open at a time."""
    rate: float = 10.0
    """Requests of a client a second, in the long run."""
    burst: int = 20
    """Requests of a client at once."""
    body: int = 256 * 1024
    """Bytes of a message, with everything that comes with it."""
    events: int = 256
    """Events that wait for a reader. When there are more, server-sent events lose the oldest and say so, and a
    WebSocket is closed."""
    patience: float = 15.0
    """Seconds that a reader may take for one event, and a writer for its message."""
    timeout: float | None = 600.0
    """Seconds that a request waits for its answer; the turn goes on, and is found again by its name."""
    clients: int = 10_000

    def __post_init__(self) -> None:
        """Check."""
        for name in ("waiting", "streams", "rate", "burst", "body", "events", "patience", "clients"):
            if not getattr(self, name) > 0:
                raise SwarmError(f"limits: {name} is more than 0, not {getattr(self, name)}")
        if self.timeout is not None and not self.timeout > 0:
            raise SwarmError(f"limits: timeout is more than 0, not {self.timeout}")


class Gate:
    """Lets clients in, as far as the limits go."""

    def __init__(self, limits: Limits) -> None:
        """Know nobody yet."""
        self._limits = limits
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._waiting: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()

    def admit(self, client: str) -> None:
        """Count a request. Raises ``Refused``."""
        limits, now = self._limits, anyio.current_time()
        left, since = self._buckets.pop(client, (float(limits.burst), now))
        left = min(float(limits.burst), left + (now - since) * limits.rate)
        admitted = left >= 1
        self._buckets[client] = (left - admitted, now)
        if len(self._buckets) > limits.clients:
            self._buckets.popitem(last=False)
        if not admitted:
            after = math.ceil((1 - left) / limits.rate)
            raise Refused(429, "rate_limit", f"more than {limits.rate:g} requests a second", retry_after=after)

    @contextmanager
    def waiting(self, client: str) -> Generator[None]:
        """Count a message while it waits for its answer. Raises ``Refused``."""
        most = self._limits.waiting
        with _counted(self._waiting, client, most, f"{most} messages of the client {client!r} wait already"):
            yield

    @contextmanager
    def stream(self, client: str) -> Generator[None]:
        """Count a stream while it is open. Raises ``Refused``."""
        most = self._limits.streams
        with _counted(self._streams, client, most, f"the client {client!r} reads {most} streams already"):
            yield


@contextmanager
def _counted(counter: Counter[str], client: str, most: int, refusal: str) -> Generator[None]:
    if counter[client] >= most:
        raise Refused(429, "busy", refusal, retry_after=1)
    counter[client] += 1
    try:
        yield
    finally:
        counter[client] -= 1
        if not counter[client]:
            del counter[client]
