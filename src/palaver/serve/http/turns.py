"""Turns as a front asks for them: a message in, an answer with its agent out, and what happened in between.

Rules:

- Whoever goes away has cancelled nothing, unless it was asked for: then the turn is cancelled if it is under way.
- What is shown of a turn comes before its answer, as far as it came: the bus is waited for, ``GRACE`` seconds at most.
  What a slow reader has lost is told by ``lost``.
- What a client sees of events stands in ``palaver.swarm.events``.

Which agent answered: heard on the bus, for the turns that somebody waits for.

Rules:

- One listener for a front, of the events ``swarm``; it remembers nothing of turns that nobody here waits for.
- A turn's agent is the one that is active when it ends. Events may come later than the answer: they are waited for,
  ``PATIENCE`` seconds at most, and then the agent is not known.

What was said between a client and a swarm, as people may see it.

Rules:

- What a person reads is said by ``palaver.threads.people_view``; of that, what users said and what they were answered.
  Tool calls, their results and markers are left out.
- Reading begins no thread.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import anyio
from msgspec import Struct

from palaver.core.errors import ClosedError, NotFoundError
from palaver.core.messages import AssistantMessage, Message, UserMessage
from palaver.serve.http.access import Gate, Limits
from palaver.serve.http.request_body import UserInput
from palaver.store.to_thread import to_thread
from palaver.swarm.bus import Since, Where
from palaver.swarm.events import Event, for_client, is_public
from palaver.swarm.names import client_thread
from palaver.threads.people_view import is_shown

if TYPE_CHECKING:
    from palaver.serve.workers import Dispatcher
    from palaver.store.store import Store
    from palaver.swarm.bus import Bus, Listener, Subscription
    from palaver.swarm.live import LiveSwarm
    from palaver.swarm.swarm import Swarm


# --- speakers ---------------------------------------------------------------------------------------------------------


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


# --- turns ------------------------------------------------------------------------------------------------------------


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

    def __init__(self, dispatcher: Dispatcher, limits: Limits, swarm: str | None) -> None:
        """Use a desk; ``swarm`` names the one whose events are listened to, where several share a bus."""
        self.dispatcher, self.limits, self.gate = dispatcher, limits, Gate(limits)
        self._swarm = swarm
        self._speakers = Speakers(dispatcher.bus, swarm)
        self.closing = False
        """Whether connections end because the server does: then no end of one cancels a turn."""

    def check_open(self) -> None:
        """Raise ``ClosedError`` when connections end: one that began now would keep the server from stopping."""
        if self.closing:
            raise ClosedError("the server stops")

    def close(self) -> None:
        """Listen no more."""
        self._speakers.close()

    async def ask(self, client: str, said: UserInput, *, cancel: bool = False) -> Answer:
        """Hand a message in, and wait. With ``cancel``, who is cancelled here cancels the turn.

        Raises as ``Dispatcher.ask``.
        """
        async with self._speakers.of(client, said.run) as speaker, self._bound(client, speaker, cancel=cancel):
            answer = await self.dispatcher.ask(
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
                    await self.dispatcher.cancel(client)
            raise

    def events(
        self, client: str, *, run: str | None = None, since: Since | None = None, fail: bool = False
    ) -> Subscription:
        """What happens to a client, or in one of its turns. With ``fail``, a slow reader ends it."""
        return self.dispatcher.bus.subscribe(
            Where(client=client, run=run, swarm=self._swarm, test=is_public),
            since=since,
            size=self.limits.events,
            overflow="fail" if fail else "drop_oldest",
        )

    async def ask_and_show(
        self, client: str, said: UserInput, sink: Sink, *, cancel: bool = False
    ) -> Answer | Exception:
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


# --- history ----------------------------------------------------------------------------------------------------------


History: TypeAlias = "Callable[[str], Awaitable[Sequence[Message]]]"
"""Gives the messages of a client."""


def stored_history(store: Store, swarm: Swarm) -> History:
    """The messages that a store holds of the clients of a swarm. Raises ``StoreError`` when it is asked."""

    async def messages(client: str) -> Sequence[Message]:
        try:
            entries = await to_thread(store.path, client_thread(swarm.realm, client))
        except NotFoundError:
            return ()
        return tuple([entry.message for entry in entries])

    return messages


def live_history(live: LiveSwarm) -> History:
    """The messages of a swarm at work in this process: of its store, or else of the sessions that are open."""
    if live.store is not None:
        return stored_history(live.store, live.swarm)

    async def messages(client: str) -> Sequence[Message]:
        session = live.get(client)
        return () if session is None else session.messages

    return messages


def told(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Messages as people may see them."""
    return [
        {"role": each.role, "agent": each.agent, "text": each.text, "sent_at": each.sent_at}
        for each in messages
        if isinstance(each, UserMessage | AssistantMessage) and is_shown(each) and _spoken(each)
    ]


def _spoken(message: UserMessage | AssistantMessage) -> bool:
    return bool(message.text) and not (isinstance(message, AssistantMessage) and message.tool_calls)
