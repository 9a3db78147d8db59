"""One turn of a conversation, as events that every protocol of ``palaver.serve.ui`` writes.

Rules:

- ``AgentTurns`` runs an agent. With a store the conversation is its thread, and only what is new is taken from the
  request; without one the request's messages are the conversation.
- ``SwarmTurns`` asks a swarm: the conversation is that of the client whose name the request's id is.
- The events are those of ``palaver.turn.events``; the last one is ``Ended``. Nothing is raised but cancellation: an
  error is the outcome ``failed``.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import anyio
from msgspec import Struct

from palaver.agent.agent import Agent, is_agent
from palaver.core.errors import DecodeError, MessageError, PalaverError
from palaver.core.events import TextDelta
from palaver.core.factories import assistant
from palaver.core.messages import Message, UserMessage
from palaver.core.usage import Usage
from palaver.store.store import Store, to_thread
from palaver.swarm.bus import Where
from palaver.swarm.events import is_public
from palaver.swarm.swarm import LiveSwarm
from palaver.swarm.user_input import said
from palaver.threads.ids import uuid7
from palaver.threads.thread import Thread
from palaver.threads.view import RECORD
from palaver.turn import events
from palaver.turn.approvals import ApprovalRequest, Decision

if TYPE_CHECKING:
    from palaver.store.stored_thread import StoredThread
    from palaver.swarm.session import Session
    from palaver.turn.events import AgentEvent


class UiRequest(Struct, frozen=True, kw_only=True):
    """What a request asks for.

    ``id`` names the conversation. ``messages`` are all that the client has, the newest last. ``decisions`` decide calls
    that wait, by the id of the call. ``again`` asks for another answer to the last user message. ``message_id`` is the
    client's id of the answer that goes on.
    """

    id: str
    messages: tuple[Message, ...] = ()
    decisions: Mapping[str, Decision] = {}
    again: bool = False
    message_id: str | None = None


class Ended(Struct, frozen=True, kw_only=True):
    """A turn is over. ``pending`` are the calls that wait for a decision."""

    outcome: str
    error: Exception | None = None
    pending: tuple[ApprovalRequest, ...] = ()
    usage: Usage | None = None
    model: str | None = None
    cost: float | None = None
    finish_reason: str | None = None


Turn: TypeAlias = "AgentEvent | Ended"
SOURCE: Final = "request"
"""What errors of a request name as their source."""


class Turns(Protocol):
    """Answers requests."""

    @abstractmethod
    def check(self, request: UiRequest) -> None:
        """Raise ``DecodeError`` for a request that cannot be answered."""
        ...

    @abstractmethod
    def answer(self, request: UiRequest) -> AsyncGenerator[Turn]:
        """Answer a request, as events; the last one is ``Ended``. Closing the generator cancels the turn."""
        ...


def turns_of(source: object, store: Store | None) -> Turns:
    """Return what answers for an ``Agent`` or a ``LiveSwarm``. Raises ``MessageError`` for anything else."""
    if is_agent(source):
        return AgentTurns(source, store)
    if isinstance(source, LiveSwarm):
        if store is not None:
            raise MessageError("store: a swarm has its own; give it to swarm.start(store=…)")
        return SwarmTurns(source)
    raise MessageError(f"source: expected an Agent or a LiveSwarm, got {type(source).__name__}")


class AgentTurns(Turns):
    """Answers with an agent."""

    def __init__(self, agent: Agent[Any], store: Store | None) -> None:
        """Keep conversations in ``store``, or nowhere."""
        self._agent, self._store = agent, store

    def check(self, request: UiRequest) -> None:
        """Refuse decisions without a store: the client's word would be all that is known of the calls."""
        if request.decisions and self._store is None:
            raise DecodeError("decisions need a store, which knows what was asked", path="messages", source=SOURCE)
        if request.again:
            _answered_user(request)
        elif not request.decisions:
            _newest(request)

    async def answer(self, request: UiRequest) -> AsyncGenerator[Turn]:
        """Run the agent."""
        try:
            thread, prompt = await self._begin(request)
            stream = self._agent.stream(prompt, thread=thread, decisions=request.decisions or None)
        except PalaverError as error:
            yield Ended(outcome="failed", error=error)
            return
        async for event in _events(stream):
            yield event

    async def _begin(self, request: UiRequest) -> tuple[Thread | StoredThread, tuple[Message, ...] | None]:
        """Return the thread, and what is new in it. Raises ``PalaverError``."""
        if self._store is None:
            given = Thread()
            given.append(*_answered_user(request) if request.again else request.messages)
            return given, None
        stored = await to_thread(self._store.open, request.id)
        if request.again:
            await to_thread(_rewind, stored)
        return stored, None if request.again or request.decisions else (_newest(request),)


def _newest(request: UiRequest) -> UserMessage:
    """Return the user message that is to be answered. Raises ``DecodeError`` when there is none."""
    last = request.messages[-1] if request.messages else None
    if not isinstance(last, UserMessage):
        raise DecodeError("the last one is not of the user, and no call is decided", path="messages", source=SOURCE)
    return last


def _answered_user(request: UiRequest) -> tuple[Message, ...]:
    """Return the messages up to the last one of the user."""
    places = [place for place, each in enumerate(request.messages) if isinstance(each, UserMessage)]
    if not places:
        raise DecodeError("there is no message of the user to answer again", path="messages", source=SOURCE)
    return request.messages[: places[-1] + 1]


def _rewind(thread: StoredThread) -> None:
    """Move the head of a thread back to its last user message. The answers stay in the thread."""
    users = [
        entry for entry in thread.path() if isinstance(entry.message, UserMessage) and RECORD not in entry.message.tags
    ]
    if not users:
        raise DecodeError("the thread has no message of the user to answer again", path="messages", source=SOURCE)
    thread.rewind(users[-1].id)


async def _events(stream: Any) -> AsyncIterator[Turn]:
    """Yield the events of a run, and how it ended."""
    try:
        async with stream as run:
            async for event in run:
                yield event
    except PalaverError as error:
        yield Ended(outcome="failed", error=error)
        return
    result = run.result
    last = result.answer
    yield Ended(
        outcome=result.outcome,
        error=result.error,
        pending=result.pending,
        usage=result.usage,
        model=None if last is None else last.model,
        cost=result.cost,
        finish_reason=None if last is None else last.finish_reason,
    )


class SwarmTurns(Turns):
    """Answers with a swarm that has been started."""

    def __init__(self, live: LiveSwarm) -> None:
        """Ask ``live``; sessions are opened as clients come, and stay open."""
        self._live = live

    def check(self, request: UiRequest) -> None:
        """Refuse another answer to the same message: a swarm answers each message once."""
        if request.again:
            raise DecodeError("a swarm answers a message once: send it as a new one", path="trigger", source=SOURCE)
        if not request.decisions:
            _newest(request)

    async def answer(self, request: UiRequest) -> AsyncGenerator[Turn]:
        """Ask the client's session, and show the deltas of its agents."""
        run = uuid7()
        try:
            session = self._live.get(request.id) or await self._live.open(request.id)
        except PalaverError as error:
            yield Ended(outcome="failed", error=error)
            return
        yield events.RunStarted(agent=session.agent, run=run, thread=request.id, length=len(request.messages))
        yield events.IterationStarted(agent=session.agent, run=run, number=1)
        shown = ""
        outcome: list[str | Exception] = []
        where = Where(client=request.id, run=run if not request.decisions else None, test=is_public)
        async with self._live.bus.subscribe(where, since=None) as seen, anyio.create_task_group() as tasks:
            tasks.start_soon(self._ask, session, request, run, outcome, seen)
            async for event in seen:
                if event.source == "agent" and event.type == "delta":
                    text = event.output["text"]
                    shown += text
                    yield TextDelta(0, text, event.agent or "", run)
        (answer,) = outcome
        if isinstance(answer, Exception):
            yield Ended(outcome="failed", error=answer)
            return
        rest = answer.removeprefix(shown)
        if rest:
            yield TextDelta(0, rest, session.agent, run)
        if answer:
            yield events.MessageAdded(agent=session.agent, run=run, message=assistant(answer))
        pending = session.pending()
        if pending:
            calls = assistant(tool_calls=[each.call for each in pending])
            yield events.MessageAdded(agent=session.agent, run=run, message=calls)
        yield Ended(outcome="waiting" if pending else "completed", pending=pending)

    async def _ask(
        self, session: Session, request: UiRequest, run: str, outcome: list[str | Exception], seen: Any
    ) -> None:
        try:
            if request.decisions:
                outcome.append(await session.decide(request.decisions))
            else:
                outcome.append(await session.complete(said(_newest(request)), run=run))
        except Exception as error:  # noqa: BLE001 (the client gets it as the outcome)
            outcome.append(error)
        finally:
            seen.close()
