"""A swarm: agents that share a conversation with each client, and their shared values.

Rules:

- A swarm is a description and holds no conversation; ``start`` runs it. Every reference in it is checked when it is
  made (K16).
- ``realm`` names the threads, states and storages that are used: by default the swarm's own. Two swarms of one realm
  share a client's thread, each with an active agent of its own (K17: sharing is explicit).
- ``deadline`` is the most seconds of a turn; ``nested`` its most model calls. ``recursion`` says what happens when an
  agent hands the conversation back in a cycle: ``raise`` or ``refuse``.
- ``instructions`` are sent to every agent, behind its prompt.

A running swarm: its sessions, its bus, its store, and its tasks:

- One session for each client at a time, which several may share; a closed session leaves nothing behind. ``shared``
  and the empty name are not allowed for clients.
- Everything that runs beside a turn runs in the swarm's own task group, and ends with it.
- Without a store a conversation lives as long as its session. With one it is reopened at its end, with active agent,
  stack, states, storages and bans.
- A given bus must be entered already and stays open; without one the swarm has a bus of its own.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypedDict, Unpack

import anyio
from anyio.abc import TaskGroup

from palaver.core.errors import ClosedError, SwarmError
from palaver.core.type_checks import check_arguments, read_arguments
from palaver.models.sync import SyncContext, SyncFacade, on_loop, run
from palaver.store.store import Store
from palaver.swarm.agent import SwarmAgent
from palaver.swarm.bus import Bus
from palaver.swarm.call import LOGGER
from palaver.swarm.events import SHARED, Event
from palaver.swarm.extras.compute import Compute
from palaver.swarm.extras.storage import Storage
from palaver.swarm.local_bus import LocalBus
from palaver.swarm.log import Log, open_log
from palaver.swarm.names import checked_client_id, client_thread
from palaver.swarm.policy import Policy
from palaver.swarm.resources import Shared, open_shared
from palaver.swarm.session import Session
from palaver.swarm.state import State
from palaver.swarm.sync import SyncSession
from palaver.swarm.turn import NESTED
from palaver.threads.thread import Thread

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.store.store import Store
    from palaver.swarm.bus import Bus


# -- live ------------------------------------------------------------------------------------------


class LiveSwarm:
    """A swarm that has been started: what ``Swarm.start`` returns.

    ``store`` stores its conversations; without one, each lasts as long as its session. ``bus`` carries its events;
    without one, it has a bus of its own. ``client`` is the id of a client.
    """

    def __init__(self, swarm: Swarm, *, store: Store | None = None, bus: Bus | None = None) -> None:
        """Set ``swarm`` and its resources; ``async with`` starts it."""
        check_arguments(f"the swarm {getattr(swarm, 'name', '')!r}", LiveSwarm.__init__, locals(), SwarmError)
        self.swarm, self.store = swarm, store
        self._own_bus = bus is None
        self.bus: Bus = LocalBus() if bus is None else bus
        self._sessions: dict[str, Session] = {}
        self._alone: dict[str, tuple[anyio.Lock, int]] = {}
        self._users: dict[Session, int] = {}
        """How many use each session that ``acquire`` opened."""
        self._group: TaskGroup | None = None
        self._shared: Shared | None = None

    async def __aenter__(self) -> Self:
        """Start. Raises ``StoreError``."""
        if self._own_bus:
            await self.bus.__aenter__()
        try:
            self._shared = await open_shared(self.swarm, self.store, self.publish)
        except BaseException as error:
            if self._own_bus:
                await self.bus.__aexit__(type(error), error, error.__traceback__)
            raise
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every session, and end."""
        group, self._group = self._group, None
        try:
            with anyio.CancelScope(shield=True):
                for session in tuple(self._sessions.values()):
                    await session.close()
        finally:  # asyncio's own cancellation passes a shield
            for session in tuple(self._sessions.values()):
                session.end()
            try:
                if group is not None:
                    group.cancel_scope.cancel()
                    await group.__aexit__(None, None, None)
            finally:
                if self._own_bus:
                    await self.bus.__aexit__(None, None, None)

    # -- sessions ----------------------------------------------------------------------------------------------------

    def session(self, client: str) -> Session:
        """Return the session of a client: ``async with live.session("ann") as session``."""
        return Session(self, checked_client_id(client))

    async def open(self, client: str) -> Session:
        """Open the session of a client; ``close`` ends it. Raises as ``Session`` does."""
        session = self.session(client)
        await session.__aenter__()
        return session

    async def acquire(self, client: str) -> Session:
        """Return the session of a client for use beside others; ``release`` ends the use. Raises as ``open`` does.

        The first one opens the session, and the last one closes it. One that was opened otherwise stays open.
        """
        async with self.alone(client):
            session = self.get(client)
            if session is None or session.closed:
                session = await self.open(client)
                self._users[session] = 0
            if session in self._users:
                self._users[session] += 1
            return session

    async def release(self, session: Session) -> None:
        """End a use of ``session``, which ``acquire`` returned."""
        async with self.alone(session.client):
            if session in self._users:
                self._users[session] -= 1
                if not self._users[session]:
                    await session.close()

    @asynccontextmanager
    async def alone(self, client: str) -> AsyncGenerator[None]:
        """Wait until no other task here uses this client: one at a time, in the order of the calls.

        Raises ``TypeError`` for anything but a string.
        """
        lock, waiting = self._alone.get(checked_client_id(client), (anyio.Lock(), 0))
        self._alone[client] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._alone[client]
            if waiting == 1:
                del self._alone[client]
            else:
                self._alone[client] = (lock, waiting - 1)

    def get(self, client: str) -> Session | None:
        """Return the open session of a client, if any. Raises ``TypeError`` for anything but a string."""
        return self._sessions.get(checked_client_id(client))

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients with a session."""
        return tuple(self._sessions)

    def enter(self, session: Session) -> None:
        """Add ``session``. Raises ``SwarmError`` when its client has one already, or has a reserved name.

        Raises ``ClosedError`` before the start and after the end.
        """
        if self._group is None:
            raise ClosedError(f"the swarm {self.swarm.name!r} is not started")
        client = session.client
        if not client or client == SHARED:
            raise SwarmError(f"a client cannot have the name {client!r}")
        if client in self._sessions:
            raise SwarmError(f"the client {client!r} already has a session of the swarm {self.swarm.name!r}")
        self._sessions[client] = session

    def leave(self, session: Session) -> None:
        """Remove ``session``."""
        self._users.pop(session, None)
        if self._sessions.get(session.client) is session:
            del self._sessions[session.client]

    async def log(self, client: str) -> Log:
        """Open the log of a client. Raises ``StoreError``."""
        thread = client_thread(self.swarm.realm, client)
        if self.store is None:
            return Log(Thread(thread))
        return await open_log(self.store, thread)

    @property
    def shared(self) -> Shared:
        """The values shared by all clients; ``policies`` ban and unban. Raises ``ClosedError`` before the start."""
        if self._shared is None:
            raise ClosedError(f"the swarm {self.swarm.name!r} is not started")
        return self._shared

    # -- what sessions use -------------------------------------------------------------------------------------------

    def publish(self, event: Event) -> None:
        """Publish ``event``. Exceptions of the bus are logged."""
        try:
            self.bus.publish(event)
        except Exception:  # noqa: BLE001 (whatever a bus raises is told, and a turn goes on)
            LOGGER.exception("the event %s was not published", event)

    def spawn(self, function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> None:
        """Run ``function`` with ``arguments`` in the swarm's task group. Raises ``ClosedError`` after the end."""
        if self._group is None:
            raise ClosedError(f"the swarm {self.swarm.name!r} is not running")
        self._group.start_soon(function, *arguments)


# -- swarm -----------------------------------------------------------------------------------------


DEADLINE: Final = 300.0
"""The default limit of a turn, in seconds."""


class SwarmChanges(TypedDict, total=False):
    """What ``Swarm.replace`` changes: the arguments of ``Swarm``."""

    name: str
    agents: Iterable[SwarmAgent]
    default: str | None
    instructions: Iterable[str]
    policies: Iterable[Policy]
    states: Iterable[State[Any]]
    storages: Iterable[Storage[Any]]
    computes: Iterable[Compute[Any]]
    realm: str | None
    deadline: float
    nested: int
    recursion: Literal["raise", "refuse"]
    on_open: Callable[..., Any] | None
    on_close: Callable[..., Any] | None
    on_execute: Callable[..., Any] | None
    on_emit: Callable[..., Any] | None
    on_agent_changed: Callable[..., Any] | None


_READ_ONCE: Final = ("agents", "instructions", "policies", "states", "storages", "computes")
"""Arguments that may be iterators."""


class Swarm:
    """A swarm. ``swarm.replace(default="sales")`` returns an edited copy."""

    def __init__(
        self,
        name: str,
        agents: Iterable[SwarmAgent],
        *,
        default: str | None = None,
        instructions: Iterable[str] = (),
        policies: Iterable[Policy] = (),
        states: Iterable[State[Any]] = (),
        storages: Iterable[Storage[Any]] = (),
        computes: Iterable[Compute[Any]] = (),
        realm: str | None = None,
        deadline: float = DEADLINE,
        nested: int = NESTED,
        recursion: Literal["raise", "refuse"] = "raise",
        on_open: Callable[..., Any] | None = None,
        on_close: Callable[..., Any] | None = None,
        on_execute: Callable[..., Any] | None = None,
        on_emit: Callable[..., Any] | None = None,
        on_agent_changed: Callable[..., Any] | None = None,
    ) -> None:
        """Set up a swarm; the first agent is the default one unless ``default`` names another.

        ``name`` is that of the swarm, ``agents`` are its agents. ``instructions`` are sent to every agent. ``policies``
        check its input and output; ``states``, ``storages`` and ``computes`` are what tools may use. ``realm`` begins
        the names of its threads. A turn takes at most ``deadline`` seconds; ``nested`` bounds the model calls of one
        turn, and ``recursion`` says whether coming back to an agent of the same turn raises or is refused. ``on_open``,
        ``on_close``, ``on_execute``, ``on_emit`` and ``on_agent_changed`` are hooks. They get the session first, and
        only observe. Raises ``SwarmError`` that names an unknown reference, a duplicate, a negative number, or an
        argument of the wrong type.
        """
        given = {key: value for key, value in locals().items() if key != "self"}
        whose = f"the swarm {name!r}"
        self._given = read_arguments(whose, Swarm.__init__, given, _READ_ONCE, SwarmError)
        listed: tuple[SwarmAgent, ...] = self._given["agents"]
        self.name, self.realm = name, realm or name
        self.agents: Mapping[str, SwarmAgent] = _by_name(whose, "agents", listed)
        if not listed:
            raise SwarmError(f"the swarm {name!r} has no agents")
        self.default = default or listed[0].name
        self.instructions: tuple[str, ...] = self._given["instructions"]
        self.policies: tuple[Policy, ...] = self._given["policies"]
        self.states: Mapping[str, State[Any]] = _by_name(whose, "states", self._given["states"])
        self.storages: Mapping[str, Storage[Any]] = _by_name(whose, "storages", self._given["storages"])
        self.computes: Mapping[str, Compute[Any]] = _by_name(whose, "computes", self._given["computes"])
        self.deadline, self.nested, self.recursion = deadline, nested, recursion
        self.on_open, self.on_close, self.on_execute = on_open, on_close, on_execute
        self.on_emit, self.on_agent_changed = on_emit, on_agent_changed
        problems = self._problems()
        if problems:
            raise SwarmError(f"the swarm {name!r}: " + "; ".join(problems))

    def _problems(self) -> Sequence[str]:
        """Return unknown references, and limits that cannot be met."""
        found: list[str] = []
        if not self.name:
            found.append("it needs a name")
        if not self.deadline > 0:
            found.append(f"deadline: {self.deadline} is not a positive number of seconds")
        if self.nested < 1:
            found.append(f"nested: {self.nested} must be at least 1")
        if self.default not in self.agents:
            found.append(f"its default agent {self.default!r} is not one of its agents")
        for agent in self.agents.values():
            kinds = (
                ("agent", agent.depends_on, self.agents),
                ("state", agent.states, self.states),
                ("storage", agent.storages, self.storages),
            )
            for kind, names, known in kinds:
                found += [
                    f"the agent {agent.name!r} refers to the {kind} {each!r}, which it does not have"
                    for each in sorted(names)
                    if each not in known
                ]
            found += [
                f"the tool {tool.name!r} of the agent {agent.name!r} hands over to {tool.target!r}, "
                "which it does not have"
                for tool in agent.tools
                if tool.target is not None and tool.target not in self.agents
            ]
        for compute in self.computes.values():
            found += [
                f"the compute {compute.name!r} depends on the state {each.name!r}, which it does not have"
                for each in compute.depends_on
                if each.name not in self.states
            ]
        return found

    def replace(self, **changes: Unpack[SwarmChanges]) -> Swarm:
        """Return a copy edited by ``changes``. Raises as the constructor does."""
        given: dict[str, Any] = {**self._given, **changes}
        return Swarm(**given)

    def start(self, *, store: Store | None = None, bus: Bus | None = None) -> LiveSwarm:
        """Start the swarm: ``async with swarm.start() as live``.

        ``store`` stores the conversations; without it, they last as long as their sessions. ``bus`` carries the events,
        and must be entered already; without it, the swarm has a bus of its own in this process.
        """
        return LiveSwarm(self, store=store, bus=bus)

    @property
    def sync(self) -> SyncSwarm:
        """The same swarm without ``await``: ``with swarm.sync.start() as live``."""
        return SyncSwarm(self)

    def __repr__(self) -> str:
        """Show the name and the agents."""
        return f"Swarm({self.name!r}, {list(self.agents)})"


class SyncLiveSwarm(SyncContext[LiveSwarm]):
    """A swarm that has been started. Made by ``SyncSwarm.start``; entered by ``with``."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients whose sessions are open."""
        return self.wrapped.clients

    def session(self, client: str) -> SyncSession:
        """Return the session of ``client``, to be entered by ``with``. Raises as ``LiveSwarm.session`` does."""
        return SyncSession(on_loop(partial(self.wrapped.session, client)))


class SyncSwarm(SyncFacade[Swarm]):
    """A swarm whose methods are called without ``await``, also where an event loop runs. Made by ``swarm.sync``."""

    def start(self, *, store: Store | None = None, bus: Bus | None = None) -> SyncLiveSwarm:
        """Start the swarm: ``with swarm.sync.start() as live``; the parameters are those of ``Swarm.start``."""

        async def make() -> Any:
            return self.wrapped.start(store=store, bus=bus)

        return SyncLiveSwarm(run(make))


def _by_name(whose: str, kind: str, given: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in given:
        if each.name in found:
            raise SwarmError(f"{whose}: two of its {kind} have the name {each.name!r}")
        found[each.name] = each
    return found
