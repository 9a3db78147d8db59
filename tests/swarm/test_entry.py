"""Ways into a swarm: one shot, connections, forks, messages that coalesce or are held back, and chats."""

import anyio
import pytest
from trio.testing import MockClock

from palaver.core.errors import ClosedError, SwarmError
from palaver.swarm import Swarm
from palaver.swarm.extras.chats import Chats, auto_close
from palaver.swarm.extras.entry import RateLimited, Scheduled, complete, connect, fork
from tests.swarm.scripts import agent, at_work, echo, last

pytestmark = pytest.mark.anyio


def shop(*agents, **more):
    return Swarm("shop", agents or [agent()], **more)


@pytest.mark.row("ASK-21")
async def test_one_shots_of_one_client_follow_each_other_with_an_empty_history():
    a = agent()
    got = {}
    async with shop(a).start() as live:

        async def ask(number):
            got[number] = await complete(live, f"{number}", "ann")

        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(ask, number)
        assert not live.clients
    assert got == {number: f"echo:{number}" for number in range(50)}
    assert all(len(prompt.messages) == 2 for prompt in a.model.asked)


@pytest.mark.row("ASK-21")
async def test_a_one_shot_can_follow_at_once_while_others_wait():
    """K4: the call that was made when the one before had ended was refused, as that one was still closing."""
    async with shop().start() as live:
        got = []

        async def twice(name):
            got.append(await complete(live, f"{name}1", "ann"))
            got.append(await complete(live, f"{name}2", "ann"))

        async with anyio.create_task_group() as group:
            for name in "abc":
                group.start_soon(twice, name)
    assert sorted(got) == sorted(f"echo:{name}{n}" for name in "abc" for n in (1, 2))


@pytest.mark.row("ASK-21")
async def test_each_swarm_answers_its_own_calls():
    """K4: the queue kept the swarm of the first caller."""
    async with shop(agent("A", lambda _: "from A")).start() as one, shop(agent("B", lambda _: "from B")).start() as two:
        assert await complete(one, "hi", "ann") == "from A"
        assert await complete(two, "hi", "ann") == "from B"


@pytest.mark.row("ASK-22")
async def test_s7_k14_messages_that_come_meanwhile_coalesce():
    a = agent("A", lambda prompt: f"r:{last(prompt).text}")
    async with at_work(a) as it:
        scheduled = Scheduled(it.session)
        got = {}

        async def ask(text):
            got[text] = await scheduled.complete(text)

        async with anyio.create_task_group() as group:
            for text in ("foo", "bar", "baz", "bad"):
                group.start_soon(ask, text)
                await anyio.lowlevel.checkpoint() if text == "foo" else None
        texts = [each.text for each in it.session.messages]
    by_arrival = [text for text in texts if text in got]
    assert got[by_arrival[0]] == f"r:{by_arrival[0]}"
    assert {got[text] for text in by_arrival[1:]} == {f"r:{by_arrival[-1]}"}
    assert len(a.model.asked) == 2
    assert texts == [by_arrival[0], f"r:{by_arrival[0]}", *by_arrival[1:], f"r:{by_arrival[-1]}"]
    assert sorted(by_arrival) == ["bad", "bar", "baz", "foo"]


@pytest.mark.row("ASK-22")
async def test_what_waits_when_a_session_closes_gets_nothing():
    go = anyio.Event()

    async def never(_):
        await go.wait()

    async with at_work(agent("A", echo, dynamic=never)) as it:
        scheduled = Scheduled(it.session)
        got = []

        async def ask(text):
            got.append(await scheduled.complete(text))

        async with anyio.create_task_group() as group:
            for text in ("one", "two", "three"):
                group.start_soon(ask, text)
            await anyio.wait_all_tasks_blocked()
            await it.session.close()
        assert got == ["", "", ""]
        with pytest.raises(ClosedError):
            await scheduled.complete("four")


@pytest.mark.row("ASK-22")
async def test_a_message_too_soon_after_the_start_of_the_last_gives_nothing():
    now = [100.0]
    async with at_work(agent()) as it:
        rated = RateLimited(it.session, delay=10, clock=lambda: now[0])
        assert await rated.complete("one") == "echo:one"
        now[0] = 109.9
        assert await rated.complete("two") == ""
        now[0] = 110.0
        assert await rated.complete("three") == "echo:three"
        assert [each.text for each in it.session.user_history] == ["one", "three"]


@pytest.mark.row("ASK-22")
async def test_s7_of_a_connection_whose_connector_is_told_each_answer_once():
    told = []
    a = agent("A", lambda prompt: f"r:{last(prompt).text}")
    async with shop(a).start() as live, connect(live, "ann", lambda answer: told.append(answer.data)) as it:
        scheduled, got = Scheduled(it), {}

        async def ask(text):
            got[text] = await scheduled.complete(text)

        async with anyio.create_task_group() as group:
            group.start_soon(ask, "foo")
            await anyio.lowlevel.checkpoint()
            for text in ("bar", "baz"):
                group.start_soon(ask, text)
        users = [each.text for each in it.session.user_history]
        assert await RateLimited(it, delay=10, clock=lambda: 0.0).complete("more") == "r:more"
    assert told == [f"r:{users[0]}", f"r:{users[2]}", "r:more"]
    assert {got[text] for text in users[1:]} == {f"r:{users[2]}"}
    assert sorted(users) == ["bar", "baz", "foo"]


MOCKED = pytest.mark.parametrize("anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})], ids=["trio"])


@pytest.mark.row("ASK-28")
@MOCKED
async def test_a_session_that_nobody_uses_is_closed():
    closed = []

    def on_close(client):
        closed.append((client, anyio.current_time() - began))
        raise RuntimeError("disturbs nothing")

    async with at_work(agent("A", echo)) as it:
        began = anyio.current_time()
        idle = auto_close(it.session, 10, on_close=on_close)
        await anyio.sleep(8.5)
        assert await it.session.complete("hi") == "echo:hi"
        await anyio.sleep(8.5)
        idle.tick()
        await anyio.sleep(9.5)
        assert not it.session.closed
        await anyio.sleep(2)
        assert it.session.closed
        assert not it.live.clients
        assert [client for client, _ in closed] == ["ann"]
        assert 27 <= closed[0][1] <= 28


@pytest.mark.row("ASK-28")
@MOCKED
async def test_a_session_with_a_turn_under_way_is_not_idle():
    async def slow(_):
        await anyio.sleep(60)
        return ()

    async with at_work(agent("A", echo, dynamic=slow)) as it:
        idle = auto_close(it.session, 10)
        assert await it.session.complete("hi") == "echo:hi"
        idle.cancel()
        await anyio.sleep(60)
        assert not it.session.closed


@pytest.mark.row("ASK-28")
async def test_a_connector_gets_answers_and_notices():
    told = []
    async with shop(agent()).start() as live:
        async with connect(live, "ann", lambda answer: told.append((answer.data, answer.agent, answer.client))) as it:
            assert await it.send("hi") == "echo:hi"
            await it.notify("by the way")
            assert len(it.session.messages) == 2
        with pytest.raises(ClosedError):
            await it.send("too late")
    assert told == [("echo:hi", "A", "ann"), ("by the way", "A", "ann")]


@pytest.mark.row("ASK-28", "ASK-30")
async def test_a_connector_that_raises_makes_send_raise_and_notify_goes_on(caplog):
    def broken(_):
        raise OSError("line cut")

    async with shop(agent()).start() as live, connect(live, "ann", broken) as it:
        with pytest.raises(OSError, match="line cut"):
            await it.send("hi")
        await it.notify("there")
    assert "the connector of 'ann' raised" in caplog.text


@pytest.mark.row("ASK-28")
async def test_a_fork_lends_a_session_and_closes_it():
    errors = []

    async def work(session):
        return await session.complete("hi")

    async def broken(_):
        raise ValueError("no")

    async with shop(agent()).start() as live:
        assert await fork(live, "ann", work) == "echo:hi"
        assert await fork(live, "ann", broken, on_error=errors.append) is None
        assert [str(each) for each in errors] == ["no"]
        async with live.session("ann"):
            with pytest.raises(SwarmError, match="already"):
                await fork(live, "ann", work)
        assert not live.clients


@pytest.mark.row("ASK-28")
@pytest.mark.parametrize("anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})], ids=["trio"])
async def test_an_idle_chat_is_closed():
    closed = []

    def on_close(client):
        closed.append((client, anyio.current_time() // 60))
        raise RuntimeError("disturbs nothing")

    async with shop(agent()).start() as live, Chats(live, on_close=on_close) as chats:
        began = anyio.current_time() // 60
        assert await chats.complete("ann", "hi") == "echo:hi"
        await anyio.sleep(600)
        assert await chats.complete("bob", "hi") == "echo:hi"
        await anyio.sleep(320)
        assert chats.clients == ("bob",)
        assert closed == [("ann", began + 15)]
        assert await chats.complete("ann", "again") == "echo:again"
        assert await chats.close("ann")
        assert not await chats.close("ann")
    assert not chats.clients
