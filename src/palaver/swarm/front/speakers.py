"""Which agent answered: heard on the bus, for the turns that somebody waits for.

Rules:

- One listener for a front, of the events ``swarm``; it remembers nothing of turns that nobody here waits for.
- A turn's agent is the one that is active when it ends. Events may come later than the answer: they are waited for,
  ``PATIENCE`` seconds at most, and then the agent is not known.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from palaver.swarm.bus import Where
from palaver.swarm.events import Event

if TYPE_CHECKING:
    from palaver.swarm.bus import Bus, Listener

PATIENCE: Final = 1.0


class Speaker:
    """What is known of a turn: whether it has begun, and who speaks."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.agent: str | None = None
        self.begun = False
        self.waiting = 0
        self._over = anyio.Event()

    def hear(self, event: Event) -> None:
        """Learn from an event of the turn."""
        match event.type:
            case "get-agent-name":
                self.begun = True
                self.agent = _text(event.output.get("activeAgent"))
            case "set-agent-name":
                self.agent = _text(event.input.get("agentName"))
            case "wait-for-output":
                self._over.set()
            case _:
                pass

    async def name(self) -> str | None:
        """The agent that answered; ``None`` where that is not known."""
        with anyio.move_on_after(PATIENCE):
            await self._over.wait()
        return self.agent


class Speakers:
    """Who speaks, in the turns that are waited for."""

    def __init__(self, bus: Bus, swarm: str | None) -> None:
        """Listen when the first turn is waited for."""
        self._bus, self._swarm = bus, swarm
        self._speakers: dict[tuple[str, str], Speaker] = {}
        self._listener: Listener | None = None
        self._lock = anyio.Lock()

    @asynccontextmanager
    async def of(self, client: str, run: str) -> AsyncGenerator[Speaker]:
        """Hear of a turn. Raises ``ClosedError`` when the bus is closed."""
        async with self._lock:
            if self._listener is None:
                where = Where(source="swarm", swarm=self._swarm)
                self._listener = await self._bus.listen(self._hear, where)
        speaker = self._speakers.setdefault((client, run), Speaker())
        speaker.waiting += 1
        try:
            yield speaker
        finally:
            speaker.waiting -= 1
            if not speaker.waiting:
                del self._speakers[client, run]

    def close(self) -> None:
        """Hear no more."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _hear(self, event: Event) -> None:
        speaker = self._speakers.get((event.client, event.run or ""))
        if speaker is not None:
            speaker.hear(event)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
