"""Run turns for clients: a message in, the answer with its agent out, and the events in between.

- A disconnect cancels nothing, unless the request asked for it; then it cancels a turn in progress.
- The events of a turn are sent before its answer: the bus is awaited for at most ``GRACE`` seconds. ``lost`` reports
  events that a slow reader missed. ``palaver.swarm.events`` decides which events a client sees.
- The answering agent is the active one at the end of the turn, known from the bus. One listener serves all turns that
  somebody waits for. Its events may arrive after the answer: after ``AGENT_TIMEOUT`` seconds the agent is unknown.
- A turn whose calls wait for decisions has the answer ``""``, and the answer lists the calls. Whoever may write as the
  client sees them with their arguments, and may decide them.
- The history has the messages of users and the answers that people see (``palaver.threads.view``), without tool
  calls, results and markers. Reading it creates no thread.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import anyio
from msgspec import Struct, structs

from palaver.core.errors import ArgumentsError, ClosedError, NotFoundError, SwarmError
from palaver.core.messages import AssistantMessage, Message, UserMessage
from palaver.serve.http.access import ClientLimiter, UserDecisions, UserInput
from palaver.store.store import to_thread
from palaver.swarm.bus import Since, Where
from palaver.swarm.events import Event, for_client, is_public
from palaver.swarm.names import client_thread
from palaver.threads.ids import uuid7
from palaver.threads.view import is_shown
from palaver.turn.approvals import ApprovalRequest, checked_choices, checked_decisions

if TYPE_CHECKING:
    from palaver.core.parts import ToolCall
    from palaver.serve.workers import Dispatcher
    from palaver.store.store import Store
    from palaver.swarm.bus import Bus, Listener, Subscription
    from palaver.swarm.swarm import LiveSwarm, Swarm


AGENT_TIMEOUT: Final = 1.0


class ActiveAgent:
    """The state of a turn: whether it has started, and its active agent."""

    def __init__(self) -> None:
        """Start without a known agent."""
        self.agent: str | None = None
        self.started = False
        self.waiters = 0
        self._ended = anyio.Event()

    def observe(self, event: Event) -> None:
        """Update the state from an event of the turn."""
        match event.type:
            case "get-agent-name":
                self.started = True
                self.agent = _text(event.output.get("activeAgent"))
            case "set-agent-name":
                self.agent = _text(event.input.get("agentName"))
            case "wait-for-output":
                self._ended.set()
            case _:
                pass

    async def name(self) -> str | None:
        """Return the agent that answered; ``None`` when it is unknown."""
        with anyio.move_on_after(AGENT_TIMEOUT):
            await self._ended.wait()
        return self.agent


class ActiveAgents:
    """The active agents of the turns that somebody waits for."""

    def __init__(self, bus: Bus, swarm: str | None) -> None:
        """Use a bus; the first turn starts the listener."""
        self._bus, self._swarm = bus, swarm
        self._active_agents: dict[tuple[str, str], ActiveAgent] = {}
        self._listener: Listener | None = None
        self._lock = anyio.Lock()

    @asynccontextmanager
    async def of(self, client: str, run: str) -> AsyncGenerator[ActiveAgent]:
        """Observe a turn. Raises ``ClosedError`` when the bus is closed."""
        async with self._lock:
            if self._listener is None:
                where = Where(source="swarm", swarm=self._swarm)
                self._listener = await self._bus.listen(self._on_event, where)
        active = self._active_agents.setdefault((client, run), ActiveAgent())
        active.waiters += 1
        try:
            yield active
        finally:
            active.waiters -= 1
            if not active.waiters:
                del self._active_agents[client, run]

    def close(self) -> None:
        """Stop the listener."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _on_event(self, event: Event) -> None:
        active = self._active_agents.get((event.client, event.run or ""))
        if active is not None:
            active.observe(event)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


GRACE: Final = 1.0


class Answer(Struct, frozen=True):
    """The answer of a turn; ``agent`` is ``None`` when it is unknown. ``pending`` are its calls that wait."""

    run: str
    answer: str
    agent: str | None
    pending: tuple[ApprovalRequest, ...] = ()

    @property
    def body(self) -> dict[str, Any]:
        """The answer as JSON; ``pending`` is there when calls wait."""
        body: dict[str, Any] = {"run": self.run, "answer": self.answer, "agent": self.agent}
        return {**body, "pending": public_requests(self.pending)} if self.pending else body


def public_requests(requests: Iterable[ApprovalRequest]) -> list[dict[str, Any]]:
    """Return ``requests`` for decisions as JSON. Arguments that are no JSON object are text."""
    return [
        {
            "call": each.call.id,
            "tool": each.tool,
            "arguments": _arguments_of(each.call),
            "reason": each.reason,
            "choices": list(each.choices),
        }
        for each in requests
    ]


def _arguments_of(call: ToolCall) -> Mapping[str, Any] | str:
    try:
        return call.arguments
    except ArgumentsError:
        return call.arguments_json


class Sink(Protocol):
    """Receives the events of a turn."""

    @abstractmethod
    async def event(self, event: Event) -> None:
        """Take an event."""
        ...

    @abstractmethod
    async def lost(self, count: int) -> None:
        """Take the number of events that were lost."""
        ...


class Turns:
    """Hands messages to a dispatcher."""

    def __init__(self, dispatcher: Dispatcher, limiter: ClientLimiter, swarm: str | None) -> None:
        """Use a dispatcher. ``swarm`` names the swarm, when several share a bus."""
        self.dispatcher, self.limits, self.limiter = dispatcher, limiter.limits, limiter
        self._swarm = swarm
        self._active_agents = ActiveAgents(dispatcher.bus, swarm)
        self.closing = False
        """Whether the server is stopping: then a disconnect cancels no turn."""

    def check_open(self) -> None:
        """Raise ``ClosedError`` when the server is stopping: a new connection would delay that."""
        if self.closing:
            raise ClosedError("the server is stopping")

    def close(self) -> None:
        """Stop listening."""
        self._active_agents.close()

    async def ask(self, client: str, message: UserInput | UserDecisions, *, cancel: bool = False) -> Answer:
        """Hand a message or decisions in and wait for the answer.

        With ``cancel``, cancelling this call cancels the turn. Raises as ``Dispatcher.ask`` and ``Dispatcher.decide``.
        """
        run = message.run or uuid7()  # a turn that a program began without a name has none
        async with (
            self._active_agents.of(client, run) as active,
            self._cancel_on_exit(client, active, cancel=cancel),
        ):
            answer = await self._dispatched(client, message)
            return Answer(run, answer, await active.name(), () if answer else await self._pending(client, run))

    async def _dispatched(self, client: str, message: UserInput | UserDecisions) -> str:
        seconds = self.limits.timeout
        if isinstance(message, UserDecisions):
            return await self.dispatcher.decide(client, message.decisions, run=message.run, timeout=seconds)
        return await self.dispatcher.ask(
            client, message.text, payload=message.payload, run=message.run, timeout=seconds
        )

    async def _pending(self, client: str, run: str) -> tuple[ApprovalRequest, ...]:
        """Return the calls of a turn that wait; none where the dispatcher cannot say."""
        try:
            waiting = await self.dispatcher.pending(client)
        except SwarmError:
            return ()
        return waiting.requests if waiting.run in {run, None} else ()

    async def checked(self, client: str, decisions: UserDecisions) -> UserDecisions:
        """Return ``decisions`` of ``client`` with the name of their turn.

        Raises ``DecisionError`` when they do not fit the calls that wait, and as ``Dispatcher.pending``. Decisions
        that have the name already are checked when they are taken: they may be sent again.
        """
        if decisions.run is not None:
            return decisions
        waiting = await self.dispatcher.pending(client)
        checked_decisions(decisions.decisions, waiting.requests)
        checked_choices(decisions.decisions, waiting.requests)
        return structs.replace(decisions, run=waiting.run)

    @asynccontextmanager
    async def _cancel_on_exit(self, client: str, active: ActiveAgent, *, cancel: bool) -> AsyncGenerator[None]:
        try:
            yield
        except anyio.get_cancelled_exc_class():
            if cancel and active.started and not self.closing:
                with anyio.CancelScope(shield=True):
                    await self.dispatcher.cancel(client)
            raise

    def events(
        self, client: str, *, run: str | None = None, since: Since | None = None, fail: bool = False
    ) -> Subscription:
        """Subscribe to the events of a client or of one turn. With ``fail``, a slow reader ends the subscription."""
        return self.dispatcher.bus.subscribe(
            Where(client=client, run=run, swarm=self._swarm, test=is_public),
            since=since,
            size=self.limits.events,
            overflow="fail" if fail else "drop_oldest",
        )

    async def ask_and_show(
        self, client: str, message: UserInput | UserDecisions, sink: Sink, *, cancel: bool = False
    ) -> Answer | Exception:
        """Do as ``ask``, and send the events of the turn to ``sink``. An error of ``ask`` is returned, not raised."""
        outcome: Answer | Exception = ClosedError("the bus was closed")
        async with self.events(client, run=message.run) as events, anyio.create_task_group() as tasks:
            ended = anyio.Event()
            tasks.start_soon(_show, events, sink, ended)
            try:
                outcome = await self.ask(client, message, cancel=cancel)
                with anyio.move_on_after(GRACE):
                    await ended.wait()
            except Exception as error:  # noqa: BLE001 (the client gets it as a response)
                outcome = error
            events.close()
        return outcome


async def show(events: Subscription, sink: Sink) -> None:
    """Send events to ``sink`` until they end, and the number of lost ones."""
    await _show(events, sink, anyio.Event())


async def _show(events: Subscription, sink: Sink, ended: anyio.Event) -> None:
    reported = 0
    async for event in events:
        if events.dropped > reported:
            await sink.lost(events.dropped - reported)
            reported = events.dropped
        await sink.event(for_client(event))
        if event.type == "commit-execution-end" and event.agent is None:
            ended.set()


History: TypeAlias = "Callable[[str], Awaitable[Sequence[Message]]]"
"""Returns the messages of a client."""


def stored_history(store: Store, swarm: Swarm) -> History:
    """Return a history that reads the clients' threads from a store. Calling it may raise ``StoreError``."""

    async def messages(client: str) -> Sequence[Message]:
        try:
            entries = await to_thread(store.path, client_thread(swarm.realm, client))
        except NotFoundError:
            return ()
        return tuple([entry.message for entry in entries])

    return messages


def live_history(live: LiveSwarm) -> History:
    """Return the history of a swarm in this process: from its store, else from its open sessions."""
    if live.store is not None:
        return stored_history(live.store, live.swarm)

    async def messages(client: str) -> Sequence[Message]:
        session = live.get(client)
        return () if session is None else session.messages

    return messages


def public_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the messages that people see, as JSON."""
    return [
        {"role": each.role, "agent": each.agent, "text": each.text, "sent_at": each.sent_at}
        for each in messages
        if isinstance(each, UserMessage | AssistantMessage) and is_shown(each) and _has_visible_text(each)
    ]


def _has_visible_text(message: UserMessage | AssistantMessage) -> bool:
    return bool(message.text) and not (isinstance(message, AssistantMessage) and message.tool_calls)
