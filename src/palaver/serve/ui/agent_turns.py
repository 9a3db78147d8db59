"""Answer requests with an agent.

Rules:

- With a store the conversation is its thread, and only what is new is taken from the request; without one the
  request's messages are the conversation.
- With a store, the id of the client's last message says where it belongs: a known one is answered again there, so a
  request that comes twice does not ask twice; with another text, it takes the place of the old one; an unknown one
  follows the end. What it leaves behind stays in the thread.
- Where another process has written to the conversation meanwhile, the run fails with ``ConflictError``, and the answer
  is kept on a branch ``main/late-…``.
- Without a store nobody can decide: a call that needs an approval is not run, and the model is told so
  (``NOT_RUN_UNATTENDED``), unless the agent's own ``decide`` decides it.
- Results and a message of the user behind them are answered together. Tools, context and state of a request are for
  that run.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from palaver.agent.agent import Agent
from palaver.agent.functions import client_tool
from palaver.core import jsontext
from palaver.core.errors import ConflictError, DecodeError, NotFoundError, PalaverError
from palaver.core.factories import assistant
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.serve.ui.client_decisions import (
    asked_message,
    check_asked,
    check_says,
    is_typed,
    last_id,
    may_decide,
    recorded_at,
    requested_decisions,
    up_to_user,
)
from palaver.serve.ui.client_messages import with_results
from palaver.serve.ui.history import History, history_of, without_calls, without_tools
from palaver.serve.ui.shapes import SOURCE
from palaver.serve.ui.turns import Ended, Placed, StateChanged, Turn, Turns, UiRequest, shown_json
from palaver.store.store import Store, to_thread
from palaver.store.stored_thread import StoredThread
from palaver.swarm.call import LOGGER
from palaver.threads.ids import uuid7
from palaver.threads.thread import Thread
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
)
from palaver.turn.middleware import Middleware
from palaver.turn.notes import NOT_RUN_UNATTENDED

if TYPE_CHECKING:
    from palaver.threads.thread import Entry
    from palaver.turn.tool import AgentTool


_MOST_TOOLS: Final = 128
"""Tools of a front end: as many as a provider takes."""


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
        check_asked(request)
        if len(request.tools) > _MOST_TOOLS:
            raise DecodeError(f"more than {_MOST_TOOLS} tools", path="tools", source=SOURCE)
        for index, each in enumerate(request.tools):
            if self._agent.toolbox.find(each.name) is not None:
                raise DecodeError(f"the agent has a tool {each.name!r}", path=f"tools[{index}].name", source=SOURCE)
        try:
            agent = self._agent_for(request)
        except PalaverError as error:
            raise DecodeError(str(error), path="tools", source=SOURCE) from None
        if self._store is not None and may_decide(request):
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
            messages = up_to_user(request.messages) if request.again else request.messages
            return await to_thread(_thread_of, messages), None, {}
        stored = await to_thread(self._store.open, request.id)
        decisions, _ = await to_thread(_decided_in, stored, request)
        if decisions:
            return stored, await to_thread(_following, stored, request), decisions
        asked = asked_message(request)
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


def _check_decided(thread: StoredThread, request: UiRequest, agent: Agent[Any]) -> None:
    """Refuse decisions that do not fit the calls that wait in a thread. Raises ``DecisionError``."""
    decided, found = _decided_in(thread, request)
    if not decided:
        check_says(request, found)
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
    last = last_id(request)
    known = last is not None and _known(thread, last, again=False) is not None
    found = recorded_at(thread.path())
    return requested_decisions(request, found, known=known), found


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
