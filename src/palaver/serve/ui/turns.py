"""One turn of a conversation, as events that every protocol of ``palaver.serve.ui`` writes.

Rules:

- ``AgentTurns`` runs an agent. With a store the conversation is its thread, and only what is new is taken from the
  request; without one the request's messages are the conversation.
- With a store, the id of the client's last message says where it belongs: a known one is answered again there, so a
  request that comes twice does not ask twice; with another text, it takes the place of the old one; an unknown one
  follows the end. What it leaves behind stays in the thread.
- Where another process has written to the conversation meanwhile, the run fails with ``ConflictError``, and the answer
  is kept on a branch ``main/late-…``.
- Without a store nobody can decide: a call that needs an approval is not run, and the model is told so
  (``NOT_RUN_UNATTENDED``), unless the agent's own ``decide`` decides it.
- A call that only the client can answer (``client_tool``, ``ask_user``) waits; the client's result comes with a later
  request and is the decision ``answer``. Tools, context and state of a request are for that run.
- A message of the user behind results and decisions is the next one: first the calls that wait get their results, then
  it is asked, in the same stream. An agent answers results and message together; a swarm answers its turn first, since
  a message is a turn of its own. Other calls that wait are closed by the message, as by any (``NOT_RUN_UNDECIDED``).
- ``SwarmTurns`` asks a swarm: the conversation is that of the client whose name the request's id is. A client sees what
  ``palaver.swarm.events`` shows to clients, what an agent says beside its calls, and which agent speaks.
- Calls and results are shown where ``show_tools`` says so. A call that the client decides is always shown, and so is
  its result.
- The events are those of ``palaver.turn.events``; the last one is ``Ended``. Nothing is raised but cancellation: an
  error is the outcome ``failed``. State and progress that are no JSON are left out, and a warning goes to the log.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import anyio
from msgspec import Struct, structs

from palaver.agent.agent import Agent, is_agent
from palaver.agent.functions import client_tool
from palaver.core import jsontext
from palaver.core.errors import ClosedError, ConflictError, DecodeError, MessageError, NotFoundError, PalaverError
from palaver.core.events import TextDelta
from palaver.core.factories import assistant
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import Reasoning, Text, ToolCall
from palaver.core.tools import Tool
from palaver.core.usage import Usage
from palaver.serve.http.turns import stored_history
from palaver.serve.ui.client_messages import with_results
from palaver.serve.ui.history import History, Shown, history_of, without_calls, without_tools
from palaver.serve.ui.shapes import SOURCE
from palaver.serve.workers.client_queues import IDLE
from palaver.store.store import Store, to_thread
from palaver.store.stored_thread import StoredThread
from palaver.swarm.bus import Where
from palaver.swarm.call import LOGGER
from palaver.swarm.events import delta_input, is_public
from palaver.swarm.names import checked_client
from palaver.swarm.swarm import LiveSwarm
from palaver.swarm.user_input import said
from palaver.threads.ids import uuid7
from palaver.threads.thread import Thread
from palaver.threads.view import DISCARDED, RECORD
from palaver.turn import events
from palaver.turn.approvals import (
    ApprovalRequest,
    Decide,
    Decision,
    DecisionError,
    Recorded,
    checked_choices,
    checked_decisions,
    checked_edits,
    open_answer,
)
from palaver.turn.middleware import Middleware
from palaver.turn.notes import NOT_RUN_UNATTENDED

if TYPE_CHECKING:
    from palaver.swarm.events import Event
    from palaver.swarm.session import Session
    from palaver.threads.thread import Entry
    from palaver.turn.events import AgentEvent
    from palaver.turn.tool import AgentTool


class UiRequest(Struct, frozen=True, kw_only=True):
    """What a request asks for.

    ``id`` names the conversation. ``messages`` are all that the client has, the newest last. ``decisions`` decide calls
    that wait, by the id of the call; ``earlier`` are those that stand in the history before a message of the user: what
    they decide may have been decided by a request before, and is left out then. ``again`` asks for another answer to
    the last user message. ``message_id`` is the client's id of the answer that goes on. ``results`` answer calls that
    the client ran, by the id of the call. ``tools`` are further ones that the client runs, ``context`` is
    a section for the system prompt, and ``state`` what the client and the tools share (``values["state"]``); ``None``
    is an empty object.
    """

    id: str
    messages: tuple[Message, ...] = ()
    decisions: Mapping[str, Decision] = {}
    earlier: Mapping[str, Decision] = {}
    again: bool = False
    message_id: str | None = None
    results: Mapping[str, Decision] = {}
    tools: tuple[Tool, ...] = ()
    context: str = ""
    state: Any = None


_MOST_TOOLS: Final = 128
"""Tools of a front end: as many as a provider takes."""


class StateChanged(Struct, frozen=True, kw_only=True):
    """A tool has changed what it shares with the client."""

    state: Any


class Ignored(Struct, frozen=True, kw_only=True):
    """Fields of the request that nobody uses."""

    fields: tuple[str, ...]


class Placed(Struct, frozen=True, kw_only=True):
    """The message of the user has its place: the answer follows the first ``length`` entries of the conversation."""

    length: int


class Ended(Struct, frozen=True, kw_only=True):
    """A turn is over. ``pending`` are the calls that wait for a decision."""

    outcome: str
    error: Exception | None = None
    pending: tuple[ApprovalRequest, ...] = ()
    usage: Usage | None = None
    model: str | None = None
    cost: float | None = None
    finish_reason: str | None = None


Turn: TypeAlias = "AgentEvent | StateChanged | Ignored | Placed | Ended"


class Turns(Protocol):
    """Answers requests.

    ``owner`` has the conversations: a store, a swarm, or nobody. ``prefix`` begins the names that clients give them.
    """

    owner: object | None
    prefix: str

    @abstractmethod
    async def check(self, request: UiRequest) -> None:
        """Raise ``DecodeError`` for a request that cannot be answered, ``DecisionError`` for decisions that do not fit.

        It is as things are now: whatever another process does then is found when the answer begins.
        """
        ...

    @abstractmethod
    def check_name(self, id: str) -> None:
        """Raise ``DecodeError`` for an ``id`` by which no client may call a conversation."""
        ...

    @abstractmethod
    def answer(self, request: UiRequest) -> AsyncGenerator[Turn]:
        """Answer a request, as events; the last one is ``Ended``. Closing the generator cancels the turn."""
        ...

    @abstractmethod
    async def history(self, conversation: str, began: int | None) -> History:
        """Return what a page shows of a conversation; nothing of one that is not kept.

        ``began`` is how many entries it had when the answer began that is under way.
        """
        ...


def turns_of(source: object, store: Store | None, *, show_tools: bool | None = None) -> Turns:
    """Return what answers for an ``Agent`` or a ``LiveSwarm``. Raises ``MessageError`` for anything else."""
    if is_agent(source):
        return AgentTurns(source, store, show_tools=show_tools is not False)
    if isinstance(source, LiveSwarm):
        if store is not None:
            raise MessageError("store: a swarm has its own; give it to swarm.start(store=…)")
        return SwarmTurns(source, show_tools=show_tools is True)
    raise MessageError(f"source: expected an Agent or a LiveSwarm, got {type(source).__name__}")


class AgentTurns(Turns):
    """Answers with an agent."""

    prefix = "chat/"

    def __init__(self, agent: Agent[Any], store: Store | None, *, show_tools: bool) -> None:
        """Keep conversations in ``store``, or nowhere."""
        self._agent, self._store, self._show_tools = agent, store, show_tools
        self.owner = store

    async def check(self, request: UiRequest) -> None:
        """Refuse decisions without a store: the client's word would be all that is known of the calls."""
        if request.decisions and self._store is None:
            raise DecodeError("decisions need a store, which knows what was asked", path="messages", source=SOURCE)
        _check_asked(request)
        if len(request.tools) > _MOST_TOOLS:
            raise DecodeError(f"more than {_MOST_TOOLS} tools", path="tools", source=SOURCE)
        for index, each in enumerate(request.tools):
            if self._agent.toolbox.find(each.name) is not None:
                raise DecodeError(f"the agent has a tool {each.name!r}", path=f"tools[{index}].name", source=SOURCE)
        try:
            agent = self._agent_for(request)
        except PalaverError as error:
            raise DecodeError(str(error), path="tools", source=SOURCE) from None
        if self._store is not None and _decides(request):
            thread = await to_thread(self._store.open, request.id)
            await to_thread(_check_decided, thread, request, agent)

    def check_name(self, id: str) -> None:
        """Take any: it follows the prefix in the name of a thread."""

    async def answer(self, request: UiRequest) -> AsyncGenerator[Turn]:
        """Run the agent."""
        values: dict[str, Any] = {"state": {} if request.state is None else request.state}
        try:
            agent = self._agent_for(request)
            thread, prompt, decisions = await self._begin(request)
            decide = None if self._store is not None else partial(_unattended, agent.decide)
            stream = agent.stream(prompt, thread=thread, decisions=decisions or None, values=values, decide=decide)
        except PalaverError as error:
            yield Ended(outcome="failed", error=error)
            return
        behind = prompt if decisions else None
        hidden = None if self._show_tools else _Hidden(decisions)
        async for event in _events(stream, values, thread):
            for shown in (event,) if hidden is None else hidden.show(event):
                yield shown
            if behind and isinstance(event, events.MessageAdded) and event.message.content == behind[0].content:
                behind = None
                yield Placed(length=_place_behind(thread, event.message))

    async def history(self, conversation: str, began: int | None) -> History:
        """Return what a page shows of a stored conversation."""
        if self._store is None:
            return History()
        try:
            path = (await to_thread(self._store.path, conversation))[:began]
        except NotFoundError:
            return History()
        change = iter if self._show_tools else without_tools
        return history_of([each.message for each in path], change, self._asks)

    def _asks(self, request: ApprovalRequest) -> bool:
        """Return whether a call waits for the user: others are of tools that the front end runs."""
        return self._agent.toolbox.find(request.tool) is not None

    def _agent_for(self, request: UiRequest) -> Agent[Any]:
        """Return the agent with what the client adds for this run. Raises ``MessageError`` for a broken schema."""
        if not request.tools and not request.context:
            return self._agent
        made = tuple([client_tool(each.name, each.description, each.parameters) for each in request.tools])
        added = _FromClient(made, request.context)
        return self._agent.replace(middleware=[*self._agent.fields["middleware"], added])

    async def _begin(
        self, request: UiRequest
    ) -> tuple[Thread | StoredThread, tuple[Message, ...] | None, Mapping[str, Decision]]:
        """Return the thread, what is new in it, and what is decided. Raises ``PalaverError``."""
        if self._store is None:
            messages = _up_to_user(request.messages) if request.again else request.messages
            return await to_thread(_thread_of, messages), None, {}
        stored = await to_thread(self._store.open, request.id)
        decisions, _ = await to_thread(_decided_in, stored, request)
        if decisions:
            return stored, await to_thread(_following, stored, request), decisions
        asked = _asked(request)
        return stored, await to_thread(_placed, stored, asked, request), {}


def _thread_of(messages: Sequence[Message]) -> Thread:
    """Return the history of a client as a thread."""
    thread = Thread()
    thread.append(*with_results(messages))
    return thread


async def _unattended(own: Decide | None, requests: tuple[ApprovalRequest, ...]) -> Mapping[str, Decision]:
    """Decide as an agent's ``own`` function does, and refuse the rest: without a store no later request can decide.

    Calls that the client runs itself wait for it: their results come with its history.
    """
    given: Any = {} if own is None else own(requests)
    found: Mapping[str, Decision] = await given if isawaitable(given) else given
    refused = Decision(kind="answer", text=NOT_RUN_UNATTENDED, is_error=True)
    return {**{each.call.id: refused for each in requests if each.choices != ("answer",)}, **found}


class _FromClient(Middleware):
    """Offers tools that the client runs, and tells the model what the client says of itself."""

    def __init__(self, tools: tuple[AgentTool, ...], context: str) -> None:
        self._tools, self._context = tools, context

    @property
    def tools(self) -> tuple[AgentTool, ...]:
        return self._tools

    @property
    def instructions(self) -> str:
        return self._context


def _decides(request: UiRequest) -> bool:
    """Return whether a request may decide something."""
    return bool(request.decisions or request.results or request.earlier)


def _decided(request: UiRequest, found: Recorded, *, known: bool) -> dict[str, Decision]:
    """Return what a request decides of the calls whose records were ``found``.

    ``known``: the conversation has the message of the user at the end of the request. What waits is behind it then,
    and the history before it is of earlier calls, whose ids may be the same: some providers count anew in each answer.
    Results of the client are for calls that wait for nothing else: it cannot stand in for another tool. A decision in
    the history that its call does not allow was refused before, and must not keep from the message behind it. One that
    was taken while other calls wait comes again with theirs.
    """
    waiting = found.pending.values()
    allowed = {(each.call.id, choice) for each in waiting for choice in each.choices}
    client_calls = {each.call.id for each in waiting if each.choices == ("answer",)}
    new = {call: each for call, each in request.decisions.items() if not _is_taken(each, found.decided.get(call))}
    if known:
        return new
    return {
        **{call: each for call, each in request.results.items() if call in client_calls},
        **{call: each for call, each in request.earlier.items() if (call, each.kind) in allowed},
        **new,
    }


def _is_taken(decision: Decision, taken: Decision | None) -> bool:
    return taken is not None and (decision.kind == "reject") == (taken.kind == "reject")


def _recorded_at(path: Sequence[Entry]) -> Recorded:
    """Return what is recorded of the calls at the end of a path."""
    opened = open_answer(path)
    return Recorded() if opened is None else opened.recorded


def _check_says(request: UiRequest, found: Recorded) -> None:
    """Refuse a request that decides nothing, unless the user says something. Raises ``DecisionError``."""
    if request.again or (request.messages and isinstance(request.messages[-1], UserMessage)):
        return
    checked_decisions(request.decisions, found.pending.values())
    raise DecisionError("no call waits for the results")


def _check_decided(thread: StoredThread, request: UiRequest, agent: Agent[Any]) -> None:
    """Refuse decisions that do not fit the calls that wait in a thread. Raises ``DecisionError``."""
    decided, found = _decided_in(thread, request)
    if not decided:
        _check_says(request, found)
        return
    _following(thread, request)
    waiting = found.pending.values()
    checked_decisions(decided, waiting)
    checked_choices(decided, waiting)
    checked_edits(decided, waiting, agent.toolbox.find)


class _Hidden:
    """Hides what tools are given and give, but not the calls that were put to the client: ``asked`` are their ids."""

    def __init__(self, asked: Iterable[str]) -> None:
        self._asked = set(asked)

    def show(self, event: Turn) -> Iterator[Turn]:
        """Return what the client sees of an event."""
        match event:
            case events.MessageAdded(message=AssistantMessage() as message):
                yield structs.replace(event, message=without_calls(message))
            case events.MessageAdded(message=ToolMessage() as message):
                if message.tool_call_id in self._asked:
                    self._asked.remove(message.tool_call_id)  # a later call may have the same id
                    yield event
            case events.ToolProgress():
                pass
            case Ended(pending=waiting) if waiting:
                asked = assistant(tool_calls=[each.call for each in waiting])
                yield events.MessageAdded(agent="", run="", message=asked)
                yield event
            case _:
                yield event


def _decided_in(thread: StoredThread, request: UiRequest) -> tuple[dict[str, Decision], Recorded]:
    """Return what a request decides in a thread, and what is recorded there of the calls at its end."""
    last = _last_id(request)
    known = last is not None and _known(thread, last, again=False) is not None
    found = _recorded_at(thread.path())
    return _decided(request, found, known=known), found


def _last_id(request: UiRequest) -> str | None:
    """Return the id of the message of the user at the end of a request, if there is one."""
    last = request.messages[-1] if request.messages else None
    return last.id if isinstance(last, UserMessage) else None


def _check_asked(request: UiRequest) -> None:
    """Refuse a request without a message of the user, unless something else is to be done; and an empty one."""
    last = request.messages[-1] if request.messages else None
    if request.again or isinstance(last, UserMessage) or not (request.decisions or request.results):
        _asked(request)


def _following(thread: StoredThread, request: UiRequest) -> tuple[Message, ...] | None:
    """Return the message of the user that follows the decisions of a request; ``None`` where none does.

    One that the thread has was sent along as history. Raises ``DecisionError`` for one that takes the place of another.
    """
    last = request.messages[-1] if request.messages else None
    if not isinstance(last, UserMessage):
        return None
    found = _known(thread, last.id, again=True) if request.decisions else None
    if found is None:
        return (last,)
    if found.message.content == last.content:
        return None
    if last.id is None:
        return (last,)
    raise DecisionError("the calls that are decided are behind the message that is edited: send one of the two")


def _place_behind(thread: Thread | StoredThread, message: Message) -> int:
    """Return how many entries a thread has up to a message."""
    path = thread.path()
    return next((place for place in range(len(path), 0, -1) if path[place - 1].message.id == message.id), len(path))


def _asked(request: UiRequest) -> UserMessage:
    """Return the user message that is to be answered. Raises ``DecodeError`` when there is none, or nothing in it."""
    messages = _up_to_user(request.messages) if request.again else request.messages
    last = messages[-1] if messages else None
    if not isinstance(last, UserMessage):
        why = "there is no message of the user" if request.again else "the last one is not of the user"
        raise DecodeError(f"{why}, and no call is decided", path="messages", source=SOURCE)
    if not last.content:
        raise DecodeError("the last one has no text and no file", path="messages", source=SOURCE)
    return last


def _up_to_user(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages up to the last one of the user."""
    places = [place for place, each in enumerate(messages) if isinstance(each, UserMessage)]
    return messages[: places[-1] + 1] if places else ()


def _placed(thread: StoredThread, asked: Message, request: UiRequest) -> tuple[Message, ...] | None:
    """Move the head of a thread to where the client's last message belongs; return the message where it is new.

    A message whose id is known is answered again: with the same content behind it, with another one in its place.
    Either way, what followed stays in the thread, on a branch of its own.
    """
    found = _known(thread, asked.id, again=request.again)
    if found is None:
        return (asked,)
    same = found.message.content == asked.content or asked.id is None
    target = found.id if same else found.parent
    if target != thread.head:
        thread.rewind(target)
    return None if same else (asked,)


def _known(thread: StoredThread, id: str | None, *, again: bool) -> Entry | None:
    """Return the user's message with an id, on this branch or else the newest on another one.

    Without an id, the last one of this branch where it is to be answered ``again``.
    """
    if id is None:
        return _last_of(thread.path(), None) if again else None
    return _last_of(thread.path(), id) or _last_of(thread.tree.entries, id)


def is_typed(message: Message) -> bool:
    """Return whether the user has typed a message."""
    return isinstance(message, UserMessage) and message.mode != "tool" and RECORD not in message.tags


def _last_of(entries: Sequence[Entry], id: str | None) -> Entry | None:
    for entry in reversed(entries):
        message = entry.message
        if is_typed(message) and (id is None or id in {message.id, entry.id}):
            return entry
    return None


async def _events(stream: Any, values: Mapping[str, Any], thread: Thread | StoredThread) -> AsyncIterator[Turn]:
    """Yield the events of a run, changes of the state that it shares, and how it ended."""
    shared = _Shared(values)
    told: list[str] = []
    try:
        async with stream as run:
            async for event in run:
                if not isinstance(event, events.ToolProgress) or shown_json(event.value, "progress") is not None:
                    yield event
                if isinstance(event, events.TextDelta):
                    told.append(event.text)
                if isinstance(event, events.MessageAdded):
                    told.clear()
                if isinstance(event, events.MessageAdded) and isinstance(event.message, ToolMessage):
                    for change in shared.changes():
                        yield change
    except PalaverError as error:
        yield Ended(outcome="failed", error=error)
        return
    result = run.result
    last = result.answer
    if isinstance(result.error, ConflictError) and isinstance(thread, StoredThread) and told:
        await to_thread(_keep, thread, "".join(told))
    yield Ended(
        outcome=result.outcome,
        error=result.error,
        pending=result.pending,
        usage=result.usage,
        model=None if last is None else last.model,
        cost=result.cost,
        finish_reason=None if last is None else last.finish_reason,
    )


def _keep(thread: StoredThread, text: str) -> None:
    """Keep an answer that came too late: another process has gone on with the branch."""
    branch = f"{thread.branch}/late-{uuid7()}"
    try:
        thread.fork(branch, at=thread.head).append(assistant(text))
        LOGGER.warning("thread %s: another process has gone on; the answer is on branch %s", thread.id, branch)
    except PalaverError:
        LOGGER.exception("thread %s: another process has gone on; the answer is lost", thread.id)


class _Shared:
    """The state that tools share with the client, and how it was shown last."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._shown = jsontext.encode(values.get("state"))  # it is what the client sent

    def changes(self) -> Iterator[StateChanged]:
        """Return the state where a tool has changed it."""
        state = self._values.get("state")
        try:
            if jsontext.encode(state) == self._shown:
                return
        except (PalaverError, RuntimeError):
            pass  # what it is lies in the log
        now = shown_json(state, "state")
        if now is not None:
            self._shown = now
            yield StateChanged(state=jsontext.value(now))


def shown_json(value: object, name: str) -> bytes | None:
    """Return what a tool shows to the client as JSON; ``None``, and a warning in the log, for what is none."""
    try:
        return bytes(jsontext.checked(value, name))
    except (PalaverError, RuntimeError) as error:  # RuntimeError: a worker thread changes it just now
        LOGGER.warning("not sent to the client: %s", error)
        return None


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
        _check_asked(request)
        if _decides(request):
            async with self._session(request.id) as session:
                decided, found = _decided_by(session, request)
                if not decided:
                    _check_says(request, found)
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
            asked = _following_in(session, request) if decided else _asked(request)
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
    last = _last_id(request)
    known = last is not None and any(each.id == last for each in session.user_history)
    found = _recorded_at(session.log.path)
    return _decided(request, found, known=known), found


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
