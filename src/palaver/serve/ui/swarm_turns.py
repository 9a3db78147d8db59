"""Answer requests with a swarm that has been started.

Rules:

- The conversation is that of the client whose name the request's id is. A client sees what ``palaver.swarm.events``
  shows to clients, what an agent says beside its calls, and which agent speaks.
- A message is a turn of its own: a swarm first answers the turn whose calls get results or decisions, then the message.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
from msgspec import structs

from palaver.core.errors import ClosedError, DecodeError, PalaverError
from palaver.core.events import TextDelta
from palaver.core.factories import assistant
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import Reasoning, Text, ToolCall
from palaver.serve.http.turns import stored_history
from palaver.serve.ui.client_decisions import (
    asked_message,
    check_asked,
    check_says,
    is_typed,
    last_id,
    may_decide,
    recorded_at,
    requested_decisions,
)
from palaver.serve.ui.history import History, Shown, history_of, without_tools
from palaver.serve.ui.shapes import SOURCE
from palaver.serve.ui.turns import Ended, Ignored, Turn, Turns, UiRequest
from palaver.serve.workers.client_queues import IDLE
from palaver.swarm.bus import Where
from palaver.swarm.call import LOGGER
from palaver.swarm.events import delta_input, is_public
from palaver.swarm.names import checked_client
from palaver.swarm.swarm import LiveSwarm
from palaver.swarm.user_input import said
from palaver.threads.ids import uuid7
from palaver.threads.view import DISCARDED
from palaver.turn import events
from palaver.turn.approvals import ApprovalRequest, Decision, DecisionError, Recorded

if TYPE_CHECKING:
    from palaver.swarm.events import Event
    from palaver.swarm.session import Session
    from palaver.turn.events import AgentEvent


class SwarmTurns(Turns):
    """Answers with a swarm that has been started."""

    prefix = "chat:"

    def __init__(self, live: LiveSwarm, *, show_tools: bool) -> None:
        """Ask ``live``. Sessions are opened as clients come.

        With a store they are closed when they were idle for ``IDLE`` seconds; without one they stay open, since they
        have the conversations.
        """
        self._live, self._show_tools = live, show_tools
        self.owner = live

    async def check(self, request: UiRequest) -> None:
        """Refuse another answer to the same message: a swarm answers each message once."""
        if request.again:
            raise DecodeError("a swarm answers a message once: send it as a new one", path="trigger", source=SOURCE)
        check_asked(request)
        if may_decide(request):
            async with self._session(request.id) as session:
                decided, found = _decided_by(session, request)
                if not decided:
                    check_says(request, found)
                elif request.decisions or _following_in(session, request) is None:  # else see ``_decide``
                    await session.check_decisions(decided)

    def check_name(self, id: str) -> None:
        """Refuse what no client may be called (``palaver.swarm.names``)."""
        checked_client(id)

    async def answer(self, request: UiRequest) -> AsyncGenerator[Turn]:
        """Ask the client's session, and show what its agents do."""
        try:
            async with self._session(request.id) as session, aclosing(self._answer(session, request)) as turn:
                async for event in turn:
                    yield event
        except PalaverError as error:
            yield Ended(outcome="failed", error=error)

    @asynccontextmanager
    async def _session(self, client: str) -> AsyncGenerator[Session]:
        """Open the session of a client, or take the open one."""
        session = await self._live.acquire(client)
        try:
            yield session
        finally:
            if self._live.store is not None:
                with suppress(ClosedError):  # the swarm has ended, and closed its sessions
                    self._live.spawn(self._release, session)

    async def _release(self, session: Session) -> None:
        await anyio.sleep(IDLE)
        await self._live.release(session)

    async def _answer(self, session: Session, request: UiRequest) -> AsyncGenerator[Turn]:
        run = uuid7()
        waiting = session.pending()
        decided, _ = _decided_by(session, request)
        try:
            asked = _following_in(session, request) if decided else asked_message(request)
        except PalaverError as error:
            yield Ended(outcome="failed", error=error)
            return
        yield events.RunStarted(agent=session.agent, run=run, thread=request.id, length=len(session.log.path))
        unused = tuple([name for name in ("tools", "context", "state") if getattr(request, name)])
        if unused:
            yield Ignored(fields=unused)
        works: list[tuple[str | None, Callable[[], Awaitable[str]]]] = []
        if decided:
            works.append((None, partial(_decide, session, decided, request, closing=asked is not None)))
        if asked is not None:
            works.append((run, partial(session.complete, said(asked), run=run)))
        view, outcome = _SwarmView(run, self._says, decided, show_tools=self._show_tools), _Outcome()
        for number, (named, work) in enumerate(works):
            for event in view.rest(outcome.answer, ()) if number else ():
                yield event
            yield view.begin(session.agent)
            for each in waiting if not number else ():
                if each.call.id in decided:
                    yield view.given(each.call, decided[each.call.id])
            async with aclosing(self._shown(view, Where(client=request.id, run=named), work, outcome)) as shown:
                async for event in shown:
                    yield event
            if outcome.error is not None:
                yield Ended(outcome="failed", error=outcome.error)
                return
        waiting = session.pending()
        for event in view.rest(outcome.answer, waiting):
            yield event
        yield Ended(outcome="waiting" if waiting else "completed", pending=waiting)

    async def _shown(
        self, view: _SwarmView, where: Where, work: Callable[[], Awaitable[str]], outcome: _Outcome
    ) -> AsyncGenerator[AgentEvent]:
        """Yield what is published while ``work`` runs. Its answer or error is in ``outcome`` then."""

        async def run() -> None:
            try:
                outcome.answer = await work()
            except Exception as error:  # noqa: BLE001 (the client gets it as the outcome)
                outcome.error = error
            finally:
                seen.close()

        where = structs.replace(where, test=self._sees)
        async with self._live.bus.subscribe(where, since=None) as seen, anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            async for event in seen:
                for each in view.show(event):
                    yield each

    async def history(self, conversation: str, began: int | None) -> History:
        """Return what a page shows of a client's conversation."""
        messages = await self._stored(conversation)
        if began is not None:
            typed = (place for place in range(began, len(messages)) if is_typed(messages[place]))
            messages = messages[: next(typed, began - 1) + 1]
        return history_of(messages, self._seen)

    async def _stored(self, client: str) -> Sequence[Message]:
        """Return the messages of a client with their records, also of one that has no session now."""
        if self._live.store is None:
            session = self._live.get(client)
            return () if session is None else tuple([each.message for each in session.log.path])
        return await stored_history(self._live.store, self._live.swarm)(client)

    def _seen(self, shown: Iterable[Shown]) -> Iterator[Shown]:
        """Yield what a client sees, as the stream shows it."""
        said = (structs.replace(each, message=self._said(each.message)) for each in shown)
        for each in said if self._show_tools else without_tools(said):
            if each.message.content:
                yield each

    def _said(self, message: Message) -> Message:
        """Return a message without reasoning, and without a text that nobody has checked."""
        if not isinstance(message, AssistantMessage):
            return message
        left_out = Reasoning if self._says(message) else (Reasoning, Text)
        return message.replace(content=tuple([each for each in message.content if not isinstance(each, left_out)]))

    def _says(self, message: AssistantMessage) -> bool:
        """Return whether a client reads the text of a message: an answer, or what an agent says beside calls as it is.

        The text of an answer that a check of the agent may still change is known when the answer is there.
        """
        agent = self._live.swarm.agents.get(message.agent or "")
        return (
            not message.tool_calls
            or self._show_tools
            or (agent is not None and not delta_input(self._live.swarm, agent))
        )

    def _sees(self, event: Event) -> bool:
        return is_public(event) or (event.source, event.type) == ("history", "push")


class _Outcome:
    """What came of a turn of a swarm."""

    def __init__(self) -> None:
        self.answer = ""
        self.error: Exception | None = None


def _decided_by(session: Session, request: UiRequest) -> tuple[dict[str, Decision], Recorded]:
    """Return what a request decides in a session, and what is recorded there of the calls at its end."""
    last = last_id(request)
    known = last is not None and any(each.id == last for each in session.user_history)
    found = recorded_at(session.log.path)
    return requested_decisions(request, found, known=known), found


def _following_in(session: Session, request: UiRequest) -> UserMessage | None:
    """Return the message of the user that follows the decisions of a request; ``None`` where none does.

    One that the log has was sent along as history.
    """
    last = request.messages[-1] if request.messages else None
    if not isinstance(last, UserMessage):
        return None
    asked = session.user_history if request.decisions else ()
    same = asked[-1:] if last.id is None else [each for each in asked if each.id == last.id]
    return None if any(each.content == last.content for each in same) else last


async def _decide(session: Session, decisions: Mapping[str, Decision], request: UiRequest, *, closing: bool) -> str:
    """Decide calls that wait, and close the others where a message follows (``closing``).

    Results and decisions in the history of such a message that cannot be taken do not keep it from being asked.
    """
    try:
        return await session.decide(decisions, close=closing)
    except DecisionError as error:
        if request.decisions or not closing:
            raise
        LOGGER.warning("client %s: its results were not taken: %s", session.client, error)
        return ""


class _SwarmView:
    """Makes the events of a turn of what a swarm publishes: deltas, calls, results, and a step for each agent."""

    def __init__(
        self, run: str, says: Callable[[AssistantMessage], bool], asked: Iterable[str], *, show_tools: bool
    ) -> None:
        """Show a turn.

        ``says`` tells whether the text of a message with calls is shown; ``asked`` are calls that were decided.
        """
        self._agent, self._run = "", run
        self._says, self._show_tools = says, show_tools
        self._steps = 0
        self._text = ""
        """What was shown of the answer that the model writes now."""
        self._calls: set[str] = set()
        self._asked = set(asked)

    def begin(self, agent: str) -> AgentEvent:
        """Begin a turn with ``agent``."""
        self._text = ""
        return self._step(agent)

    def _step(self, agent: str) -> AgentEvent:
        self._steps += 1
        self._agent = agent
        return events.IterationStarted(agent=agent, run=self._run, number=self._steps)

    def given(self, call: ToolCall, decision: Decision) -> AgentEvent:
        """Return the event that a call was decided."""
        return events.ApprovalGiven(agent=self._agent, run=self._run, call=call, decision=decision)

    def show(self, event: Event) -> Iterator[AgentEvent]:
        """Return the events for one that was published."""
        match (event.source, event.type):
            case ("agent", "delta"):
                text = event.output["text"]
                self._text += text
                yield TextDelta(0, text, event.agent or self._agent, self._run)
            case ("swarm", "set-agent-name"):
                yield self._step(event.input["agentName"])
            case ("history", "push"):
                yield from self._message(event.input["message"])
            case _:
                pass

    def _message(self, message: Message) -> Iterator[AgentEvent]:
        """Return the calls with the text beside them, or a result. A text alone may be changed: the answer has it."""
        if isinstance(message, AssistantMessage) and message.tool_calls and DISCARDED not in message.tags:
            rest = message.text.removeprefix(self._text) if self._says(message) else ""
            yield from self._said(rest)
            self._text = ""
            yield from self._called(message.tool_calls if self._show_tools else ())
        elif isinstance(message, ToolMessage) and (self._show_tools or message.tool_call_id in self._asked):
            self._asked.discard(message.tool_call_id or "")  # a later call may have the same id
            yield events.MessageAdded(agent=self._agent, run=self._run, message=message)

    def _said(self, rest: str) -> Iterator[AgentEvent]:
        """Return the end of a text, as far as it was not shown; and what ends the text, if there was any."""
        if rest:
            yield TextDelta(0, rest, self._agent, self._run)
        if rest or self._text:
            yield events.MessageAdded(agent=self._agent, run=self._run, message=assistant(self._text + rest))

    def _called(self, calls: Iterable[ToolCall]) -> Iterator[AgentEvent]:
        new = [each for each in calls if each.id not in self._calls]
        self._calls.update(each.id for each in new)
        if new:
            yield events.MessageAdded(agent=self._agent, run=self._run, message=assistant(tool_calls=new))

    def rest(self, answer: str, waiting: Sequence[ApprovalRequest]) -> Iterator[AgentEvent]:
        """Return what of the answer and of the waiting calls was not shown."""
        rest = answer.removeprefix(self._text)
        if rest:
            yield TextDelta(0, rest, self._agent, self._run)
        if answer:
            yield events.MessageAdded(agent=self._agent, run=self._run, message=assistant(answer))
        yield from self._called([each.call for each in waiting])
