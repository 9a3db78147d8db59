"""A client's session in a swarm: messages in, answers out, one turn after the other.

Rules (docs/spec/agent-swarm-kit.md#5.1 to #5.5):

- ``complete`` sends a message of the client, ``execute`` one of the program. Turns of one client are strictly first
  in, first out, and each gets its own answer; clients do not wait for each other. A request from inside a running turn
  (a tool's own code, and the tasks that it starts) joins that turn (K2).
- Every turn ends: with an answer, an error, or by its deadline (K5), which names the tool that has not returned.
- The answer is the next output of any agent, so agents may hand a conversation over during a turn. ``emit`` answers in
  the agent's place, ``cancel`` with ``""``; a change of agent from outside answers a turn whose model is being asked
  with ``""``.
- ``run`` asks the active agent and leaves the log as it was.
- A message whose turn has a name (``run=``) is answered once: when it is repeated, the same answer is returned, and an
  interrupted turn is continued.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVarTuple
from weakref import ReferenceType

import anyio

from palaver.core.errors import ClosedError, NavigationError, StoreError, SwarmError, TurnError
from palaver.core.messages import AssistantMessage, Message, Mode
from palaver.core.parts import Text
from palaver.swarm.agent import SwarmAgent
from palaver.swarm.agent_session import AgentSession
from palaver.swarm.background import Background
from palaver.swarm.call import CALL, CURRENT, LOGGER, CallContext, watched
from palaver.swarm.events import SOURCES
from palaver.swarm.log import Records
from palaver.swarm.names import TURN, NamedTurns, checked_run, name_of_agent
from palaver.swarm.navigation_tools import Navigator
from palaver.swarm.resources import Resources, SessionResources
from palaver.swarm.session_runs import SessionRuns
from palaver.swarm.turn import Turn
from palaver.swarm.user_input import Content, UserInput, checked_text, said
from palaver.threads.agent_view import AgentView
from palaver.threads.view import PLACEHOLDER

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.swarm.call import Call
    from palaver.swarm.swarm import LiveSwarm

P = TypeVarTuple("P")

_SET_BY_OPENING: Final = frozenset({"log", "named", "navigator", "records", "resources"})


class Session(SessionRuns, SessionResources):
    """One client in one swarm. Made by ``LiveSwarm.session``; entered by ``async with``, or by ``LiveSwarm.open``.

    The parameters of the methods: ``content`` is a text, parts or a user message, ``payload`` data of the application
    beside it, ``run`` the name of a turn, which is answered once. ``agent`` is the name of an agent, by default the
    active one. ``call`` is the tool call that an answer belongs to, ``text`` the committed text, ``mode`` its author
    (``"user"`` or ``"tool"``), and ``decisions`` decide calls that wait, by the id of the call. ``live`` is the swarm,
    ``client`` the id of the client, ``turn`` one of its turns.
    """

    def __init__(self, live: LiveSwarm, client: str) -> None:
        """Set the swarm and the client; ``async with`` opens the session."""
        SessionRuns.__init__(self)
        self.live, self.swarm, self.client = live, live.swarm, client
        self.values: dict[str, Any] = {}
        """The resources that the tools of this session share."""
        self.turn: Turn | None = None
        """The current turn."""
        self._latest: ReferenceType[Turn] | None = None
        self._queue = anyio.Lock()
        self._moving = anyio.Lock()
        self._waiting = 0
        self._agent_sessions: dict[str, AgentSession] = {}
        self._views: dict[str, AgentView] = {}
        self._background = Background(live, client)
        self._over = False
        self._open = False

    # -- opening and closing -----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open. Raises ``SwarmError`` when the client has a session already, ``ClosedError``, and ``StoreError``."""
        if self._over:
            raise ClosedError(f"the session of {self.client!r} is closed; make a new one")
        self.live.enter(self)
        try:
            self.log = await self.live.log(self.client)
            self.records = Records(self.log)
            self.resources = Resources(self.live.shared, self.client, self.records)
            names = self.swarm.agents
            self.navigator = Navigator(self.swarm.name, names, self.swarm.default, self.records)
            self.named = NamedTurns(self.records, (entry.message for entry in self.log.path))
        except BaseException:
            self.live.leave(self)
            raise
        self._open = True
        try:
            self.publish_event("session", "connect")
            await watched("on_open", self.swarm.on_open, self)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Answer waiting callers with ``""``, cancel running work, and release everything. Closing twice is allowed."""
        if not self.end():
            return
        try:
            with anyio.CancelScope(shield=True):
                for agent_session in tuple(self._agent_sessions.values()):
                    await watched(
                        "on_dispose", agent_session.agent.hooks.on_dispose, self.place(agent_session.agent.name)
                    )
                await watched("on_close", self.swarm.on_close, self)
        finally:
            self._agent_sessions.clear()
            self.live.leave(self)

    def end(self) -> bool:
        """Do the immediate part of closing; return whether the session was open."""
        if self._over or not self._open:
            return False
        self._over = True
        turn = self.turn
        if turn is not None:
            turn.claim()
            turn.give("")  # also when the answer is claimed, but will not be given any more
        self._drop()
        self._background.cancel()
        return True

    @property
    def closed(self) -> bool:
        """Whether the session is over."""
        return self._over

    def _check(self) -> None:
        if self._over or not self._open:
            raise ClosedError(f"the session of {self.client!r} is {'closed' if self._over else 'not open yet'}")

    if not TYPE_CHECKING:  # to a checker every name would be an attribute

        def __getattr__(self, name: str) -> Any:
            """Raise ``ClosedError`` for what opening sets."""
            if name in _SET_BY_OPENING:
                raise ClosedError(f"the session of {self.client!r} is not open yet")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    # -- turns -------------------------------------------------------------------------------------------------------

    async def complete(self, content: Content, payload: Any = None, *, run: str | None = None) -> str:
        """Send a message of the client, and return the answer. ``content`` may be text, parts or a user message.

        ``payload`` is stored with the message, and available to hooks and tools; inside a turn it replaces the turn's.
        ``run`` names the turn. Returns ``""`` when the turn was cancelled or the session closed. Raises what the model
        raised, ``MessageError`` for invalid content, ``TurnError``, ``StoreError``, ``ClosedError``.
        """
        self._check()
        told, own = said(content), self._own()
        payload, run = told.payload(payload), checked_run(run)
        told.check_says()
        if own is not None:
            own.payload = own.payload if payload is None else payload
            return await self._join(own, told, "user")
        async with self._queued():
            if self._over:
                return ""
            self.navigator.route.clear()
            return await self._turn(told, "user", payload, run)

    async def execute(self, content: Content, *, agent: str | None = None, call: Call | str | None = None) -> str:
        """Send a message of the program, and return the answer; inside a turn, the answer of that turn.

        ``call`` (or its id) is the tool call that continues its turn, from any task. Returns ``""`` when ``agent`` is
        not the active one, and for a call whose turn is over. Raises as ``complete``; ``SwarmError`` for another id.
        """
        self._check()
        told = said(content)
        running = self.active_call(call) if isinstance(call, str) else call
        if call is not None and (running is None or running.turn.over):
            return ""
        own = self._own() if running is None else running.turn
        if own is not None:
            if agent is not None and self.active_agent_session(agent) is None:
                return ""
            return await self._join(own, told, "tool", running)
        async with self._queued():
            if self._over or (agent is not None and self.active_agent_session(agent) is None):
                return ""
            return await self._turn(told, "tool", None, None)

    async def run(self, content: Content, payload: Any = None, *, agent: str | None = None) -> str:
        """Ask the active agent without a trace in the log and without tools. Returns ``""`` if it may not be shown."""
        told = said(content, trim=False)
        agent_session = self.active_agent_session(agent)
        if agent_session is None:
            return ""
        result = await agent_session.run(told, told.payload(payload))
        self.publish_event("session", "run", input={"message": told.text}, output={"result": result})
        return result

    async def consult(self, agent: str, content: Content, payload: Any = None) -> str:
        """Ask ``agent``, active or not, as ``run`` does. Raises ``NavigationError`` for an unknown one."""
        self._check()
        self.known_agent(agent)
        told = said(content, trim=False)
        result = await AgentSession(self, self.swarm.agents[agent]).run(told, told.payload(payload))
        self.publish_event("session", "run", agent, input={"message": told.text}, output={"result": result})
        return result

    async def emit(self, text: str, *, agent: str | None = None, call: Call | str | None = None) -> bool:
        """Answer the current turn with ``text``, stored as the agent's; return whether the answer was awaited."""
        text = checked_text(text, "text")
        agent_session = self.active_agent_session(agent)
        if agent_session is None:
            return False
        running = self.active_call(call) if isinstance(call, str) else call or self._calling()
        if call is not None and running is None:
            return False
        turn = running.turn if running is not None else self.turn
        self._continued(running)
        refused = await self.refused_output(text)
        shown = text if refused is None else refused
        claimed = turn is not None and turn.claim()
        if turn is not None and claimed:
            self._drop(halt=running is None)
            tags = () if refused is None else (PLACEHOLDER,)
            message = AssistantMessage(
                content=(Text(shown),), agent=agent_session.agent.name, mode="tool", source="emit", tags=tags
            )
            answered = turn

            def kept(message: Message) -> None:
                self._pushed(message)
                answered.give(shown)  # a stored answer is given, even when the caller was cancelled meanwhile

            try:
                await self.log.append([message.replace(metadata={TURN: turn.id}) if turn.named else message], kept)
            except BaseException as error:
                turn.break_off(error if isinstance(error, Exception) else TurnError("the turn was interrupted"))
                raise
        if refused is None:
            await watched("on_emit", self.swarm.on_emit, self, shown)
            self.publish_event("session", "emit", input={"message": shown})
        return claimed

    async def cancel(self) -> bool:
        """Answer the current turn with ``""``; the model's later output is stored, but not sent."""
        self._check()
        call = self._calling()
        turn = self.turn if call is None else call.turn
        if turn is None or not turn.claim():
            return False
        turn.outcome = "cancelled"
        self._drop()
        try:
            if turn.named:
                await self.named.keep(turn.id, "")
        finally:
            for name in self.swarm.agents:
                self.publish_event("agent", "commit-cancel-output", name)
            self._told(turn, "")
            turn.give("")
        self.publish_event("swarm", "cancel-output")
        return True

    @property
    def busy(self) -> bool:
        """Whether an answer is awaited."""
        return self._waiting > 0

    @property
    def payload(self) -> Any:
        """The payload of the message of the current turn."""
        turn = self._own()
        return None if turn is None else turn.payload

    def is_past(self, turn: Turn) -> bool:
        """Return whether a turn was answered, and the next one has started."""
        return turn.over and (self._latest is None or self._latest() is not turn)

    def _own(self) -> Turn | None:
        """Return the turn of this session that the running code belongs to."""
        turn = CURRENT.get()
        return turn if turn is not None and turn is self.turn and not turn.over else None

    @asynccontextmanager
    async def _queued(self) -> AsyncGenerator[None]:
        """Wait for the place in the queue."""
        self._waiting += 1
        try:
            async with self._queue:
                yield
        finally:
            self._waiting -= 1

    async def _join(self, turn: Turn, told: UserInput, mode: Mode, call: Call | None = None) -> str:
        """Send a message inside a turn, and wait for its answer."""
        self._continued(call)
        active = self.navigator.active
        turn.executions.append((told.text, active, mode))
        self.publish_event("execution", "commit-execution-begin", active)
        token = CALL.set(None)  # the request to the agent is not part of the call, even if a tool makes it
        try:
            await self.agent_session().execute(turn, told, mode)
        finally:
            CALL.reset(token)
        return await turn.wait()

    async def _turn(self, told: UserInput, mode: Mode, payload: Any, run: str | None) -> str:
        known = self.named.known(run)
        turn = Turn(mode, payload, id=run, limit=self.swarm.nested)
        active = self.navigator.active
        async with self._under_way(turn):
            if isinstance(known, str):
                self._answered(turn, told.text, known)
                return known
            banned = await self._admitted(turn, told.text, mode)
            if banned is not None:
                turn.resolve(banned)
                answer = await turn.wait()  # it may have been emitted or cancelled while the policy was asked
                await self.named.keep(run, answer)
                return answer
            self.publish_event("swarm", "get-agent-name", output={"activeAgent": active})
            self.publish_event("swarm", "get-agent", output={"agentName": active, "result": active})
            agent_session = self.agent_session()
            if known is None:
                answer = await self._answer(turn, agent_session.resume, turn)
            else:
                answer = await self._answer(turn, agent_session.execute, turn, told, mode)
            return await self._kept(turn, run, told.text, answer)

    async def _kept(self, turn: Turn, run: str | None, text: str, answer: str) -> str:
        """Store the answer of a named turn, unless it waits, and publish it."""
        if not self._over and turn.outcome != "waiting":
            await self.named.keep(run, answer)
        self._answered(turn, text, answer)
        return answer

    @asynccontextmanager
    async def _under_way(self, turn: Turn) -> AsyncGenerator[None]:
        """Make a turn the current one during the block."""
        self.turn, self._latest = turn, ReferenceType(turn)
        self.publish_event("execution", "commit-execution-begin")
        try:
            yield
        except BaseException as error:
            if turn.outcome == "completed":
                turn.outcome = "failed" if isinstance(error, Exception) else "cancelled"
            raise
        finally:
            turn.resolve("")
            await self.end_parts(turn)
            for _, agent, _ in turn.executions[1:]:
                self.publish_event("execution", "commit-execution-end", agent)
            self.publish_event("execution", "commit-execution-end")
            self.turn = None

    async def _admitted(self, turn: Turn, text: str, mode: Mode) -> str | None:
        """Ask the policies, and call the hook. Return a policy's refusal; ``None`` when the turn may start."""
        with anyio.move_on_after(self.swarm.deadline):
            banned = await self.refused_input(text)
            if banned is None:
                turn.executions.append((text, self.navigator.active, mode))
                await watched("on_execute", self.swarm.on_execute, self, text, mode)
            return banned
        raise TurnError(f"a policy or a hook did not return within {self.swarm.deadline:g} seconds")

    def _answered(self, turn: Turn, text: str, answer: str) -> None:
        self._told(turn, answer)
        told = [] if turn.banned else turn.executions or [(text, None, turn.mode)]
        for each, _, mode in told:
            self.publish_event("session", "execute", input={"message": each, "mode": mode}, output={"result": answer})

    def _told(self, turn: Turn, answer: str) -> None:
        """Publish the answer of a turn, once."""
        if not turn.told:
            turn.told = True
            self.publish_event("swarm", "get-agent-name", output={"activeAgent": self.navigator.active})
            self.publish_event("swarm", "wait-for-output", output={"result": answer})

    async def _answer(self, turn: Turn, begin: Callable[..., Awaitable[Any]], *arguments: Any) -> str:
        """Start a turn by a function of the active agent's, and wait for the output of any agent."""
        token = CURRENT.set(turn)
        try:
            self.spawn(turn, begin, *arguments)
        finally:
            CURRENT.reset(token)
        try:
            with anyio.move_on_after(self.swarm.deadline):
                return await turn.wait()
            late = turn.overdue(self.swarm.deadline)
            turn.outcome = "timed_out"
            turn.fail(late)
            turn.abort()  # also work that claimed the answer and cannot give it: a hook that does not return
            try:
                return await turn.wait()
            except TurnError:
                raise late from None
        except BaseException as error:
            turn.resolve("")
            self._drop()
            if not isinstance(error, Exception):  # the caller was cancelled: the answer is not needed
                turn.abort()
            raise

    def _calling(self) -> Call | None:
        """Return the call of a tool of this session that the running code belongs to; its turn may be over."""
        call = CALL.get()
        return call if call is not None and call.session is self else None

    def _continued(self, call: Call | None) -> None:
        call = call or self._calling()
        if call is not None:
            call.continued = True

    # -- agents ------------------------------------------------------------------------------------------------------

    @property
    def agent(self) -> str:
        """The name of the active agent."""
        return self.navigator.active

    def known_agent(self, name: str) -> str:
        """Return ``name``, that of an agent of the swarm. Raises ``NavigationError`` for any other, ``TypeError``."""
        if name_of_agent(name) not in self.swarm.agents:
            raise NavigationError(f"the swarm {self.swarm.name!r} has no agent {name!r}")
        return name

    def agent_session(self, name: str | None = None) -> AgentSession:
        """Return the session of the agent called ``name``, by default the active one."""
        name = name or self.navigator.active
        agent_session = self._agent_sessions.get(name)
        if agent_session is None or agent_session.gone:
            new = agent_session is None
            agent_session = self._agent_sessions[name] = AgentSession(self, self.swarm.agents[name])
            if new:
                self.spawn(None, watched, "on_init", agent_session.agent.hooks.on_init, self.place(name))
        return agent_session

    def active_agent_session(self, agent: str | None) -> AgentSession | None:
        """Return the active agent's session; ``None`` when ``agent`` names another.

        Raises ``NavigationError`` for an unknown one.
        """
        self._check()
        if agent is not None:
            self.known_agent(agent)
        if agent is not None and agent != self.navigator.active:
            return None
        return self.agent_session()

    def view(self, agent: SwarmAgent) -> AgentView:
        """Return what an agent sees of the log; made once."""
        view = self._views.get(agent.name)
        if view is None:
            view = self._views[agent.name] = AgentView(agent.name, keep=agent.keep, where=agent.where)
        return view

    async def change_to(self, agent: str | SwarmAgent, *, again: bool = False) -> bool:
        """Make ``agent`` the active one; with ``again``, even if it was visited since the last message.

        Returns ``False`` for an agent that is not of this swarm. Raises ``NavigationError`` for an unknown name, and
        for an agent that was visited since the client's last message (``Swarm(recursion="refuse")`` returns ``False``
        instead).
        """
        self._check()
        name = agent.name if isinstance(agent, SwarmAgent) else name_of_agent(agent)
        if isinstance(agent, str):
            self.known_agent(name)
        elif name not in self.swarm.agents:
            LOGGER.warning("the agent %r is not in the swarm %r; nothing was changed", name, self.swarm.name)
            return False
        async with self._moving:
            try:
                self.navigator.enter(name, again=again)
            except NavigationError:
                if self.swarm.recursion == "refuse":
                    return False
                raise
            try:
                await self._move(name)
            except BaseException as error:
                if isinstance(error, StoreError) or self.navigator.active != name:
                    self.navigator.route.pop(name, None)
                raise
            return True

    async def change_to_default(self) -> bool:
        """Go to the swarm's default agent. Raises as ``change_to`` does."""
        return await self.change_to(self.swarm.default)

    async def change_to_previous(self) -> bool:
        """Go back to the previous agent; ``False`` when that is the active one."""
        self._check()
        async with self._moving:
            name, behind = self.navigator.previous()
            if name == self.navigator.active:
                return False
            await self._move(name, behind)
            return True

    @asynccontextmanager
    async def as_agent(self, agent: str) -> AsyncGenerator[None]:
        """Make another agent active during the block; afterwards agent, stack and route are restored.

        Raises ``NavigationError``, ``StoreError``.
        """
        self._check()
        before, stack, route = self.agent, tuple(self.navigator.stack), dict(self.navigator.route)
        if self.known_agent(agent) == before:
            yield
            return
        try:
            async with self._moving:
                await self._move(agent)
            self.navigator.route = {}
            yield
        finally:
            if not self.closed:
                behind = stack[:-1] if stack[-1:] == (before,) else stack
                with anyio.CancelScope(shield=True):
                    async with self._moving:
                        await (self.navigator.move if self.agent == before else self._move)(before, behind)
                self.navigator.route = route

    async def _move(self, name: str, behind: Sequence[str] | None = None) -> None:
        await self.navigator.move(name, behind)
        waiting = any(agent_session.asking for agent_session in self._agent_sessions.values())
        turn = self.turn
        outside = turn is not None and self._own() is None
        if turn is not None and outside:
            turn.overtaken = True
        left = [agent_session.agent for agent_session in self._agent_sessions.values()]
        self._drop()
        self._agent_sessions.clear()
        try:
            for each in (name, *(other for other in self.swarm.agents if other != name)):
                self.publish_event("agent", "commit-agent-change", each)
            for agent in left:
                await watched("on_dispose", agent.hooks.on_dispose, self.place(agent.name))
            self.publish_event("swarm", "set-agent-ref", input={"agentName": name})
            self.publish_event("swarm", "set-agent-name", input={"agentName": name})
            await watched("on_agent_changed", self.swarm.on_agent_changed, self, name)
        finally:
            if turn is not None and outside and waiting:
                turn.resolve("")

    def _drop(self, *, halt: bool = True) -> None:
        """Release all agents: their later output is late, and no more of their tools start."""
        for agent_session in self._agent_sessions.values():
            agent_session.gone = True
            if halt:
                agent_session.halt()

    # -- what the parts of it use ------------------------------------------------------------------------------------

    def place(self, agent: str, *, payload: Any = None, run: str | None = None) -> CallContext:
        """Return the context that a hook, a check or a tool gets."""
        return CallContext(
            client=self.client, agent=agent, swarm=self.swarm.name, session=self, run=run, payload=payload
        )

    async def keep(self, *messages: Message) -> None:
        """Add ``messages`` to the log; each is published."""
        await self.log.append(messages, self._pushed)

    def _pushed(self, message: Message) -> None:
        self.named.take(message)
        self.publish_event("history", "push", message.agent, input={"message": message})

    def publish(self, topic: str, payload: Any = None) -> None:
        """Publish an event of the application under ``topic``. Raises ``SwarmError`` for a reserved one."""
        self._check()
        if topic in SOURCES:
            raise SwarmError(f"the topic {topic!r} is reserved for the swarm")
        self.publish_event(topic, topic, self.navigator.active, input={"payload": payload})

    def spawn(self, turn: Turn | None, function: Callable[[*P], Awaitable[Any]], *arguments: *P) -> None:
        """Run ``function`` with ``arguments`` beside ``turn``, until the session closes; it ends with its turn, if any.

        What it raises is logged, and ends that turn.
        """
        if not self._over:
            self._background.spawn(turn, function, *arguments)
