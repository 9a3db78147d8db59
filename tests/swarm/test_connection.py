"""Many clients at once, and many messages of one: pairs hold, order holds, and nothing is left behind."""

import gc
import random
import weakref

import anyio
import pytest

from palaver.core.errors import SwarmError
from palaver.swarm import SwarmAgent, tool
from palaver.swarm.call import Call
from palaver.swarm.extras.entry import complete, connect
from tests.swarm.scripts import agent, at_work, branching, calling, echo
from tests.swarm.test_entry import shop

pytestmark = pytest.mark.anyio


def late(seed):
    """A hook that yields to others some times, and never twice as often."""
    chance = random.Random(seed)

    async def dynamic(_):
        for _ in range(chance.randrange(6)):
            await anyio.lowlevel.checkpoint()
        return ()

    return dynamic


async def in_order(group, count, say):
    """Begin `count` calls one behind the other, without awaiting any."""
    for number in range(count):
        begun = anyio.Event()

        async def one(number=number, begun=begun):
            begun.set()
            await say(number)

        group.start_soon(one)
        await begun.wait()


@pytest.mark.row("ASK-21")
@pytest.mark.parametrize("way", ["session", "connection", "execute"])
async def test_messages_that_nobody_awaits_are_answered_in_their_order(way):
    got = {}
    async with shop(agent("A", echo, dynamic=late(way))).start() as live:

        async def client(name):
            answers = got[name] = []
            async with connect(live, name, lambda _: None) as it, anyio.create_task_group() as group:
                ways = {"session": it.session.complete, "connection": it.send, "execute": it.session.execute}

                async def say(number):
                    answers.append((number, await ways[way](f"{name}{number}")))

                await in_order(group, 5, say)

        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(client, f"c{number}-")
    assert got == {f"c{number}-": [(each, f"echo:c{number}-{each}") for each in range(5)] for number in range(10)}


@pytest.mark.row("ASK-21")
async def test_a_hundred_sends_and_a_hundred_pushes_of_the_program():
    told, answers = [], []
    async with (
        shop(agent("A", echo, dynamic=late(7))).start() as live,
        connect(live, "ann", lambda answer: told.append(answer.data)) as it,
        anyio.create_task_group() as group,
    ):

        async def send(number):
            answers.append((f"s{number}", await it.send(f"s{number}")))

        async def push(number):
            answers.append((f"p{number}", await it.session.execute(f"p{number}")))

        for number in range(100):
            group.start_soon(send, number)
            group.start_soon(push, number)
    assert len(answers) == 200
    assert all(answer == f"echo:{said}" for said, answer in answers)
    assert sorted(told) == sorted(f"echo:s{number}" for number in range(100))


@pytest.mark.row("ASK-21")
async def test_a_hundred_clients_navigate_at_once_and_each_ends_where_it_wanted():
    names = [f"agent{number}" for number in range(10)]
    async with shop(*[agent(name, lambda _, name=name: name) for name in names]).start() as live:
        got = {}

        async def client(number):
            async with live.session(f"c{number}") as session:
                await session.change_to(names[number % 10])
                got[number] = (session.agent, await session.complete("who?"))

        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(client, number)
    assert got == {number: (names[number % 10],) * 2 for number in range(100)}


@pytest.mark.row("ASK-23")
async def test_an_event_of_the_application_reaches_listeners_and_never_the_log():
    async with at_work(agent()) as it:
        it.session.publish("orders", {"id": 7})
        (event,) = await it.heard("orders", "orders")
        assert event.input == {"payload": {"id": 7}}
        assert (event.client, event.agent) == ("ann", "A")
        with pytest.raises(SwarmError, match="the topic 'swarm' is reserved"):
            it.session.publish("swarm")
        assert not it.session.messages


@pytest.mark.row("ASK-28")
async def test_what_a_session_says_of_itself():
    asked = {}

    async def look(call: Call) -> None:
        """Look around."""
        asked["busy"] = call.session.busy
        asked["payload"] = call.session.payload
        asked["name"] = call.name
        await call.commit("seen")
        await call.execute("go on")

    async with at_work(agent("A", branching(look=calling("look")), tools=[tool(look)]), agent("B")) as it:
        assert not it.session.busy
        assert await it.session.complete("look", {"user": 1}) == "answer:go on"
        assert asked == {"busy": True, "payload": {"user": 1}, "name": "look"}
        assert (it.session.busy, it.session.payload) == (False, None)
        await it.session.change_to("B")
        assert list(it.session.navigator.route) == ["B"]


@pytest.mark.row("ASK-28")
async def test_a_stateless_run_leaves_the_log_as_it_was():
    async with at_work(agent()) as it:
        await it.session.complete("hi")
        before = it.session.messages
        assert await it.session.run("and you?") == "echo:and you?"
        assert it.session.messages == before
        assert [each.text for each in it.session.swarm.agents["A"].model.asked[-1].messages][1:] == [
            "hi",
            "echo:hi",
            "and you?",
        ]


@pytest.mark.row("ASK-29")
@pytest.mark.parametrize("way", ["session", "connection", "one shot"])
async def test_a_hundred_clients_leave_nothing(way):
    left = []

    async def client(live, name):
        if way == "one shot":
            return await complete(live, "hi", name)
        if way == "connection":
            async with connect(live, name, lambda _: None) as it:
                left.append(weakref.ref(it.session))
                return await it.send("hi")
        async with live.session(name) as session:
            left.append(weakref.ref(session))
            return await session.complete("hi")

    async with shop(SwarmAgent("A", agent("A").model)).start() as live:
        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(client, live, f"c{number}")
        assert not live.clients
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        assert not [each for each in left if each() is not None]
