"""Turns as a front asks for them: a message in, an answer with its agent out, and what happened in between.

Rules:

- Whoever goes away has cancelled nothing, unless it was asked for: then the turn is cancelled if it is under way.
- What is shown of a turn comes before its answer, as far as it came: the bus is waited for, ``GRACE`` seconds at most.
  What a slow reader has lost is told by ``lost``.
- What a client sees of events stands in ``palaver.swarm.shown``.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
from msgspec import Struct

from palaver.core.errors import ClosedError
from palaver.swarm.bus import Since, Where
from palaver.swarm.events import Event
from palaver.swarm.front.asked import Said
from palaver.swarm.front.limits import Gate, Limits
from palaver.swarm.front.speakers import Speaker, Speakers
from palaver.swarm.shown import for_client, is_shown

if TYPE_CHECKING:
    from palaver.swarm.bus import Subscription
    from palaver.swarm.work import Desk

GRACE: Final = 1.0


class Answer(Struct, frozen=True):
    """What a turn came to; ``agent`` is ``None`` where it is not known."""

    run: str
    answer: str
    agent: str | None

    @property
    def told(self) -> dict[str, Any]:
        """As JSON."""
        return {"run": self.run, "answer": self.answer, "agent": self.agent}


class Sink(Protocol):
    """Where events are shown."""

    @abstractmethod
    async def event(self, event: Event) -> None:
        """Show an event."""
        ...

    @abstractmethod
    async def lost(self, count: int) -> None:
        """Say how many more could not be shown."""
        ...


class Turns:
    """Hands messages in at a desk."""

    def __init__(self, desk: Desk, limits: Limits, swarm: str | None) -> None:
        """Use a desk; ``swarm`` names the one whose events are listened to, where several share a bus."""
        self.desk, self.limits, self.gate = desk, limits, Gate(limits)
        self._swarm = swarm
        self._speakers = Speakers(desk.bus, swarm)
        self.closing = False
        """Whether connections end because the server does: then no end of one cancels a turn."""

    def check_open(self) -> None:
        """Raise ``ClosedError`` when connections end: one that began now would keep the server from stopping."""
        if self.closing:
            raise ClosedError("the server stops")

    def close(self) -> None:
        """Listen no more."""
        self._speakers.close()

    async def ask(self, client: str, said: Said, *, cancel: bool = False) -> Answer:
        """Hand a message in, and wait. With ``cancel``, who is cancelled here cancels the turn.

        Raises as ``Desk.ask``.
        """
        async with self._speakers.of(client, said.run) as speaker, self._bound(client, speaker, cancel=cancel):
            answer = await self.desk.ask(
                client, said.text, payload=said.payload, run=said.run, timeout=self.limits.timeout
            )
            return Answer(said.run, answer, await speaker.name())

    @asynccontextmanager
    async def _bound(self, client: str, speaker: Speaker, *, cancel: bool) -> AsyncGenerator[None]:
        try:
            yield
        except anyio.get_cancelled_exc_class():
            if cancel and speaker.begun and not self.closing:
                with anyio.CancelScope(shield=True):
                    await self.desk.cancel(client)
            raise

    def events(
        self, client: str, *, run: str | None = None, since: Since | None = None, fail: bool = False
    ) -> Subscription:
        """What happens to a client, or in one of its turns. With ``fail``, a slow reader ends it."""
        return self.desk.bus.subscribe(
            Where(client=client, run=run, swarm=self._swarm, test=is_shown),
            since=since,
            size=self.limits.events,
            overflow="fail" if fail else "drop_oldest",
        )

    async def ask_and_show(self, client: str, said: Said, sink: Sink, *, cancel: bool = False) -> Answer | Exception:
        """As ``ask``, while what happens in the turn is shown. Gives what ``ask`` raises."""
        outcome: Answer | Exception = ClosedError("the bus was closed")
        async with self.events(client, run=said.run) as events, anyio.create_task_group() as tasks:
            ended = anyio.Event()
            tasks.start_soon(_show, events, sink, ended)
            try:
                outcome = await self.ask(client, said, cancel=cancel)
                with anyio.move_on_after(GRACE):
                    await ended.wait()
            except Exception as error:  # noqa: BLE001 (it is what the client is told)
                outcome = error
            events.close()
        return outcome


async def show(events: Subscription, sink: Sink) -> None:
    """Show events as they come, until they end; and say how many were lost."""
    await _show(events, sink, anyio.Event())


async def _show(events: Subscription, sink: Sink, ended: anyio.Event) -> None:
    told = 0
    async for event in events:
        if events.dropped > told:
            await sink.lost(events.dropped - told)
            told = events.dropped
        await sink.event(for_client(event))
        if event.type == "commit-execution-end" and event.agent is None:
            ended.set()
