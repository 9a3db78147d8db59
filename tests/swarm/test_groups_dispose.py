"""Acceptance group dispose: what has closed leaves nothing behind (row ASK-29)."""

import gc
import threading
import weakref

import anyio
import pytest

from palaver.core.errors import ClosedError, SwarmError
from palaver.store.memory import MemoryStore
from palaver.store.store import to_thread
from palaver.swarm import Call, Swarm, navigation, tool
from palaver.swarm.agent_session import AgentSession
from palaver.swarm.extras.entry import complete, connect
from palaver.swarm.log import Log, Records
from palaver.swarm.navigation_tools import Navigator
from palaver.swarm.session import Session
from palaver.swarm.turn import Turn
from palaver.threads.agent_view import AgentView
from palaver.threads.thread import Thread
from tests.swarm.scripts import agent, branching, calling, last
from tests.swarm.slow import Callers, Slow

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("small_heap"), pytest.mark.row("ASK-29")]

clients = pytest.mark.parametrize("clients", [25, pytest.param(100, marks=pytest.mark.long)])
KINDS = (Session, AgentSession, Turn, Log, Records, Navigator, AgentView, Thread, Call)


def living():
    """How many objects there are of each kind that a session makes."""
    gc.collect()
    counts = dict.fromkeys(KINDS, 0)
    for each in gc.get_objects():
        if type(each) in counts:
            counts[type(each)] += 1
    return {kind.__name__: count for kind, count in counts.items()}


async def workers_forget():
    """Give every idle worker thread something else to do: it holds the context of what it did last."""
    together = threading.Barrier(threading.active_count())
    async with anyio.create_task_group() as group:
        for _ in range(together.parties):
            group.start_soon(to_thread, together.wait)


@tool
async def look(call: Call) -> None:
    """Commit, and go on."""
    await call.commit("seen")
    await call.execute("fin")


def shop():
    def script(prompt):
        said = last(prompt).text
        return {"look": calling("look"), "go": calling("to_b")}.get(said, f"echo:{said}")

    class Forgets(list):
        """A model remembers what it was asked; here it is not to."""

        def append(self, prompt):
            pass

    agents = [agent("A", script, tools=[look, navigation("B")]), agent("B", script)]
    for each in agents:
        each.model.asked = Forgets()
    return Swarm("shop", agents)


async def by_session(live, client):
    async with live.session(client) as session:
        for text in ("hi", "look", "go"):
            await session.complete(text)


async def by_connection(live, client):
    async with connect(live, client, lambda _: None) as connection:
        for text in ("hi", "look", "go"):
            await connection.send(text)


async def by_one_shot(live, client):
    for text in ("hi", "look", "go"):
        await complete(live, text, client)


WAYS = pytest.mark.parametrize("way", [by_session, by_connection, by_one_shot])


@WAYS
@pytest.mark.parametrize("kept", [False, True], ids=["without a store", "with a store"])
@clients
async def test_many_clients_leave_nothing(way, kept, clients):
    store = MemoryStore() if kept else None
    async with shop().start(store=store) as live:
        before = living()
        async with anyio.create_task_group() as group:
            for number in range(clients):
                group.start_soon(way, live, f"client-{number}")
        assert live.clients == ()
        await anyio.wait_all_tasks_blocked()
        await workers_forget()
        after = living()
        left = {kind: after[kind] - before[kind] for kind in after}
        assert left.pop("Thread") == (clients if kept else 0)  # the store keeps threads; that is its work
        assert set(left.values()) == {0}, left


@WAYS
@clients
async def test_the_objects_of_many_clients_do_not_add_up(way, clients):
    """The whole graph of objects, of whatever kind: as many after the second crowd as after the first."""

    def kinds():
        gc.collect()
        counts = {}
        for each in gc.get_objects():
            name = f"{type(each).__module__}.{type(each).__qualname__}"
            if name.startswith(("palaver.", "anyio.", "asyncio.", "trio.")) and "Event" not in name:
                counts[name] = counts.get(name, 0) + 1
        return counts

    async with shop().start() as live:
        counts = []
        for _ in range(2):
            for number in range(clients):
                await way(live, f"client-{number}")
            await anyio.wait_all_tasks_blocked()
            counts.append(kinds())
        # the bus keeps its last events, and the messages in them
        grown = {name: counts[1][name] - counts[0].get(name, 0) for name in counts[1]}
        kept_by_the_bus = ("palaver.core.", "palaver.swarm.events.")
        assert {name: n for name, n in grown.items() if n > 10 and not name.startswith(kept_by_the_bus)} == {}


@pytest.mark.parametrize("how", ["answered", "waiting for a model", "inside a tool", "raised", "cancelled"])
async def test_a_closed_session_is_nobody_s(how):
    """Weak references: nothing holds a session, whatever it was doing when it closed."""

    @tool
    async def waits(call: Call) -> None:
        begun.set()
        await call.cancelled.wait()

    begun, slow = anyio.Event(), Slow()
    model = {"waiting for a model": slow, "cancelled": slow, "inside a tool": branching(go=calling("waits"))}
    script = down if how == "raised" else model.get(how, branching())
    async with Swarm("shop", [agent("A", script, tools=[waits])]).start() as live:
        watched = await used(live, how, begun)
        await anyio.wait_all_tasks_blocked()
        assert live.clients == ()
        for _ in range(3):
            gc.collect()
        assert [each() for each in watched] == [None, None]


def down(_):
    raise RuntimeError("down")


async def used(live, how, begun):
    session = await live.open("ann")
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(session.complete, "go")
        if how == "inside a tool":
            await begun.wait()
        if how == "cancelled":
            await session.cancel()
        await session.close()
        got = await callers.settled()
    expected = "down" if how == "raised" else "answer:go" if how == "answered" else ""
    assert [str(each) for each in got] == [expected]
    callers.got.clear()
    return weakref.ref(session), weakref.ref(session.log)


async def test_a_closed_session_says_so():
    async with shop().start() as live:
        session = await live.open("ann")
        await session.close()
        await session.close()
        for call in (
            session.complete("hi"),
            session.execute("hi"),
            session.run("hi"),
            session.emit("hi"),
            session.cancel(),
        ):
            with pytest.raises(ClosedError, match="'ann' is closed"):
                await call
        for call in (session.commit_user("hi"), session.change_to("B"), session.change_to_previous()):
            with pytest.raises(ClosedError, match="'ann' is closed"):
                await call


async def test_the_same_client_may_come_again_and_not_twice_at_once():
    async with shop().start() as live:
        async with live.session("ann"):
            with pytest.raises(SwarmError, match="has a session"):
                await live.open("ann")
        async with live.session("ann") as session:
            assert session.messages == ()


async def test_a_session_that_could_not_be_opened_leaves_nothing():
    class Broken(MemoryStore):
        def open(self, *_, **__):
            raise OSError("no disk")

    async with shop().start(store=Broken()) as live:
        for _ in range(2):
            with pytest.raises(OSError, match="no disk"):
                await live.open("ann")
        assert live.clients == ()


async def test_a_swarm_that_ends_closes_what_is_open():
    slow = Slow()
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        async with Swarm("shop", [agent("A", slow)]).start() as live:
            for name in ("ann", "bob"):
                await callers.says((await live.open(name)).complete, "hi")
        assert await callers.settled() == ["", ""]
        with pytest.raises(ClosedError):
            await live.open("ann")
