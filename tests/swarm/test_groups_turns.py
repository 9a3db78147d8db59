"""Acceptance groups about turns: completion, queue, ignore, commit, doublesend, lifecycle, multiclient."""

import anyio
import pytest
from msgspec import UNSET

from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore
from palaver.swarm import Call, Swarm, tool
from palaver.swarm.extras.entry import connect
from tests.swarm.scripts import agent, asked, at_work, branching, calling, echo, last
from tests.swarm.slow import Callers, Slow

pytestmark = pytest.mark.anyio


def gated(name="slow", said="fin"):
    """A tool that waits for ``go``, and goes on with the turn."""

    @tool(name=name)
    async def run(call: Call) -> None:
        began.set()
        await go.wait()
        await call.commit("ok")
        await call.execute(said)

    began, go = anyio.Event(), anyio.Event()
    return run, began, go


# -- completion ------------------------------------------------------------------------------------------------------


async def test_completion_gives_the_text_of_the_model():
    async with at_work(agent()) as it:
        assert await it.session.complete("hi") == "echo:hi"


async def test_completion_is_of_the_new_agent_after_a_change():
    async with at_work(agent("A", lambda _: "from A"), agent("B", lambda _: "from B")) as it:
        assert await it.session.complete("hi") == "from A"
        await it.session.change_to("B")
        assert await it.session.complete("hi") == "from B"


# -- queue -----------------------------------------------------------------------------------------------------------


@pytest.mark.row("ASK-21")
@pytest.mark.finding("F-50")
@pytest.mark.parametrize("way", ["complete", "execute", "run"])
async def test_queue_clients_do_not_wait_for_each_other(way):
    slow, quick = Slow(), agent("B")
    async with Swarm("shop", [agent("A", slow), quick]).start() as live, anyio.create_task_group() as group:
        callers = Callers(group)
        ann, bob = await live.open("ann"), await live.open("bob")
        await callers.says(getattr(ann, way), "ann")
        await bob.change_to("B")
        with anyio.fail_after(60):  # would wait for ann's model, which answers when this is over
            assert await getattr(bob, way)("bob") == "echo:bob"
        assert callers.got == []
        slow.go.set()
        assert await callers.settled() == ["answer:ann"]


@pytest.mark.row("ASK-21")
@pytest.mark.finding("F-50")
async def test_queue_connections_do_not_wait_for_each_other():
    slow, heard = Slow(), []
    async with (
        Swarm("shop", [agent("A", slow), agent("B")]).start() as live,
        connect(live, "ann", heard.append) as ann,
        connect(live, "bob", heard.append) as bob,
        anyio.create_task_group() as group,
    ):
        callers = Callers(group)
        await callers.says(ann.send, "a")
        await bob.session.change_to("B")
        with anyio.fail_after(60):  # would wait for ann's model, which answers when this is over
            assert await bob.send("b") == "echo:b"
        assert [(each.client, each.data) for each in heard] == [("bob", "echo:b")]
        slow.go.set()
        await callers.settled()
    assert [(each.client, each.data) for each in heard] == [("bob", "echo:b"), ("ann", "answer:a")]


async def test_queue_a_committed_user_message_is_kept_and_asks_nobody():
    a = agent()
    async with at_work(a) as it:
        assert await it.session.commit_user("  noted ")
        assert it.log == ['user/user"noted"']
        assert not a.model.asked
        assert not await it.heard("agent", "emit-output")
        assert await it.session.complete("hi") == "echo:hi"
    assert asked(a) == [['system"PA"', 'user/user"noted"', 'user/user"hi"']]


# -- ignore, commit: for an agent that is not active -----------------------------------------------------------------


async def _request(session):
    (made,) = await session.commit_tool_request([("f", {})])
    return made


COMMITS = {
    "system": (lambda session, **to: session.commit_system("told", **to), 'system"told"'),
    "assistant": (lambda session, **to: session.commit_assistant("told", **to), 'assistant"told"'),
    "developer": (lambda session, **to: session.commit_developer("told", **to), 'developer"told"'),
    "user": (lambda session, **to: session.commit_user("told", **to), 'user/user"told"'),
    "request": (lambda session, **to: session.commit_tool_request([("f", {})], **to), "assistant[f]"),
    "flush": (lambda session, **to: session.commit_flush(**to), "flush"),
}


@pytest.mark.parametrize("kind", COMMITS)
async def test_commits_for_an_agent_that_is_not_active_do_nothing_until_it_is(kind):
    commit, line = COMMITS[kind]
    async with at_work(agent("A"), agent("B")) as it:
        session = it.session
        assert not await commit(session, agent="B")
        assert it.log == []
        await it.events()
        assert not [event for event in it.seen if event.type.startswith("commit-")]
        await session.change_to("B")
        assert await commit(session, agent="B")
        assert it.log == [line]


@pytest.mark.parametrize("kind", COMMITS)
async def test_commits_for_nobody_in_particular_are_for_whoever_is_active(kind):
    commit, line = COMMITS[kind]
    async with at_work(agent("A"), agent("B")) as it:
        await it.session.change_to("B")
        assert await commit(it.session)
        assert it.log == [line]
        assert it.session.messages[-1].agent == "B"


async def test_ignore_results_for_an_agent_that_is_not_active():
    async with at_work(agent("A"), agent("B")) as it:
        session = it.session
        made = await _request(session)
        await session.change_to("B")
        assert not await session.commit_tool_output(made, "late", agent="A")
        assert it.log == ["assistant[f]"]
        await session.change_to("A")
        assert await session.commit_tool_output(made, "in time", agent="A")
        assert it.log == ["assistant[f]", 'tool(re:f)"in time"']


async def test_ignore_an_execution_for_an_agent_that_is_not_active():
    a, b = agent("A"), agent("B")
    async with at_work(a, b) as it:
        assert await it.session.execute("wake", agent="B") == ""
        assert (it.log, b.model.asked) == ([], [])
        await it.session.change_to("B")
        assert await it.session.execute("wake", agent="B") == "echo:wake"
    assert not a.model.asked


async def test_commit_a_payload_is_kept_with_the_user_s_message_alone():
    async with at_work(agent()) as it:
        await it.session.commit_user("a", payload={"n": 1})
        await it.session.commit_user("b")
        await it.session.commit_user("c", mode="tool", payload={"n": 2})
        payloads = [message.payload for message in it.session.messages]
    assert payloads == [{"n": 1}, None, UNSET]


async def test_commit_after_a_flush_the_next_context_holds_one_message():
    a = agent()
    async with at_work(a) as it:
        for number in range(3):
            await it.session.complete(f"{number}")
        await it.session.commit_flush()
        await it.session.complete("last")
    assert asked(a)[-1] == ['system"PA"', 'user/user"last"']


async def test_commit_a_cancel_gives_nothing_and_tells_no_connector():
    slow, heard = Slow(), []
    async with (
        Swarm("shop", [agent(script=slow)]).start() as live,
        connect(live, "ann", heard.append) as ann,
        anyio.create_task_group() as group,
    ):
        callers = Callers(group)
        await callers.says(ann.send, "hi")
        assert await ann.session.cancel()
        assert await callers.settled() == [""]
        slow.go.set()
        await callers.settled()
    assert heard == []


async def test_commit_an_emitted_text_goes_to_the_connector_too():
    slow, heard = Slow(), []
    async with (
        Swarm("shop", [agent(script=slow)]).start() as live,
        connect(live, "ann", heard.append) as ann,
        anyio.create_task_group() as group,
    ):
        callers = Callers(group)
        await callers.says(ann.send, "hi")
        assert await ann.session.emit("instead")
        assert await callers.settled() == ["instead"]
        slow.go.set()
        await callers.settled()
    assert [each.data for each in heard] == ["instead"]


async def test_commit_an_emit_that_nobody_waits_for_reaches_nobody():
    async with at_work(agent()) as it:
        assert not await it.session.emit("to nobody")
        assert it.log == []
        assert await it.session.complete("hi") == "echo:hi"


# -- doublesend ------------------------------------------------------------------------------------------------------


@pytest.mark.row("ASK-07", "ASK-13")
async def test_doublesend_a_second_message_waits_for_a_slow_tool():
    slow, began, go = gated()
    a = agent("A", branching(go=calling("slow")), tools=[slow])
    async with at_work(a) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "go")
        assert began.is_set()
        await callers.says(it.session.complete, "second")
        assert callers.got == []
        assert 'user/user"second"' not in it.log
        go.set()
        assert await callers.settled() == ["answer:fin", "answer:second"]


@pytest.mark.row("ASK-21")
async def test_doublesend_three_that_nobody_awaits_are_answered_in_their_order():
    async with at_work(agent()) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        for text in "abc":
            group.start_soon(callers._say, it.session.complete, (text,), {})
        await callers.settled()
        said = [message.text for message in it.session.user_history]
        # trio begins tasks in an order of its own: what holds is that answers come in the order of what was said
        assert callers.got == [f"echo:{text}" for text in said]
        assert sorted(said) == ["a", "b", "c"]


@pytest.mark.row("ASK-21")
async def test_doublesend_a_connector_hears_answers_in_the_order_of_messages():
    slow, heard = Slow(), []
    async with (
        Swarm("shop", [agent(script=slow)]).start() as live,
        connect(live, "ann", heard.append) as ann,
        anyio.create_task_group() as group,
    ):
        callers = Callers(group)
        for text in "abcde":
            await callers.says(ann.send, text)
        slow.go.set()
        await callers.settled()
    assert [each.data for each in heard] == [f"answer:{text}" for text in "abcde"]


@pytest.mark.row("ASK-07", "ASK-13")
@pytest.mark.parametrize(
    ("overtake", "first"),
    [(lambda session: session.cancel(), ""), (lambda session: session.emit("instead"), "instead")],
    ids=["cancel", "emit"],
)
@pytest.mark.parametrize("held", ["model", "tool"])
async def test_doublesend_what_is_overtaken_leaves_the_next_its_own_answer(overtake, first, held):
    slow, _, go = gated()
    model = Slow() if held == "model" else branching(go=calling("slow"))
    async with at_work(agent("A", model, tools=[slow])) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "go")
        await callers.says(it.session.complete, "next")
        assert await overtake(it.session)
        await callers.settled()
        (model.go if held == "model" else go).set()
        assert await callers.settled() == [first, "answer:next"]


@pytest.mark.row("ASK-13")
async def test_an_outside_push_does_not_join_a_turn_whose_tool_began_a_task():
    """A task that a tool begins belongs to its turn; one that stands beside it does not."""
    begun, go = anyio.Event(), anyio.Event()
    inside = []

    @tool
    async def busy(call: Call) -> None:
        async def child():
            inside.append(await call.session.execute("from the child"))

        async with anyio.create_task_group() as own:
            begun.set()
            await go.wait()
            own.start_soon(child)
        await call.commit("ok")

    a = agent("A", branching(go=calling("busy")), tools=[busy])
    async with at_work(a) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "go")
        await begun.wait()
        await callers.says(it.session.execute, "from outside")
        go.set()
        assert await callers.settled() == ["answer:from the child", "answer:from outside"]
    assert inside == ["answer:from the child"]


# -- lifecycle -------------------------------------------------------------------------------------------------------


@pytest.mark.row("ASK-07")
@pytest.mark.parametrize("through", ["session", "connection"])
async def test_lifecycle_closing_answers_who_waits_with_nothing(through):
    slow, heard = Slow(), []
    async with Swarm("shop", [agent(script=slow)]).start() as live, anyio.create_task_group() as group:
        callers = Callers(group)
        if through == "session":
            session = await live.open("ann")
            await callers.says(session.complete, "one")
            await callers.says(session.complete, "two")
        else:
            connection = await connect(live, "ann", heard.append).__aenter__()
            session = connection.session
            await callers.says(connection.send, "one")
            await callers.says(connection.send, "two")
        await session.close()
        assert await callers.settled() == ["", ""]
        assert not live.clients
        slow.go.set()
        fresh = await live.open("ann")
        assert fresh.messages == ()
        assert await fresh.complete("again") == "answer:again"
    assert heard == []


async def test_lifecycle_a_tool_may_close_its_own_session():
    @tool
    async def leave(call: Call) -> None:
        await call.session.close()

    async with at_work(agent("A", branching(go=calling("leave")), tools=[leave])) as it:
        assert await it.session.complete("go") == ""
        assert it.session.closed
        assert not it.live.clients


@pytest.mark.row("ASK-05")
async def test_lifecycle_system_messages_survive_the_window_and_not_a_flush():
    a = agent(keep=2)
    async with at_work(a) as it:
        await it.session.commit_system("for ever")
        for number in range(6):
            await it.session.complete(f"{number}")
        assert asked(a)[-1] == ['system"PA"', 'system"for ever"', 'assistant"echo:4"', 'user/user"5"']
        await it.session.commit_flush()
        await it.session.complete("on")
    assert asked(a)[-1] == ['system"PA"', 'user/user"on"']


# -- multiclient -----------------------------------------------------------------------------------------------------


@pytest.mark.row("ASK-02", "ASK-21")
@pytest.mark.finding("F-50")
@pytest.mark.parametrize("named", ["client-{:02}", "eu/client-{:02}", "client-{:02}/shared"])
async def test_multiclient_twenty_clients_keep_their_answers_and_their_logs_apart(named):
    a, b = agent("A"), agent("B")
    async with Swarm("shop", [a, b]).start(store=MemoryStore()) as live:
        got = {}

        async def talk(name):
            async with live.session(name) as session:
                await session.commit_assistant(f"{name}: welcome")
                for number in range(5):
                    got[name, number] = await session.complete(f"{name} {number}")
                    if number == 2:
                        await session.change_to("B")
                assert all(message.text.startswith((name, f"echo:{name}")) for message in session.messages)
                assert len(session.messages) == 11

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(talk, named.format(number))
    assert got == {key: f"echo:{key[0]} {key[1]}" for key in got}
    assert len(got) == 100
    for prompt in (*a.model.asked, *b.model.asked):
        name = last(prompt).text.split()[0]
        assert all(name in message.text for message in prompt.messages[1:])


@pytest.mark.row("ASK-02")
async def test_what_one_agent_commits_is_read_by_another_and_by_a_second_session(tmp_path):
    first, second = Swarm("one", [agent("A"), agent("B")], realm="shop"), Swarm("two", [agent("C")], realm="shop")
    with SQLiteStore(tmp_path / "threads.sqlite") as store:
        async with first.start(store=store) as one, second.start(store=store) as two:
            ann, also = await one.open("ann"), await two.open("ann")
            bob = await one.open("bob")
            await ann.commit_system("for A")
            await ann.commit_developer("for all")
            await ann.change_to("B")
            assert await ann.complete("hi") == "echo:hi"
            assert await also.complete("me too") == "echo:me too"
            texts = ["for A", "for all", "hi", "echo:hi", "me too", "echo:me too"]
            assert [message.text for message in ann.messages] == texts
            assert [message.text for message in also.messages] == texts
            assert bob.messages == ()
            context = asked(second.agents["C"])[-1]
    assert context == ['system"PC"', 'developer"for all"', 'user/user"hi"', 'assistant"echo:hi"', 'user/user"me too"']


async def test_multiclient_each_navigates_for_himself():
    async with Swarm("shop", [agent("A"), agent("B"), agent("C")]).start() as live:
        where = {}

        async def go(name, to):
            async with live.session(name) as session:
                await session.change_to(to)
                await session.complete("hi")
                where[name] = session.agent

        wanted = {f"client-{number}": "ABC"[number % 3] for number in range(100)}
        async with anyio.create_task_group() as group:
            for name, to in wanted.items():
                group.start_soon(go, name, to)
    assert where == wanted


async def test_multiclient_ten_flows_with_a_tool_at_once():
    @tool
    async def look(call: Call) -> None:
        await call.commit(f"for {call.client}")
        await call.execute(f"tell {call.client}")

    a = agent("A", branching(go=calling("look")), tools=[look])
    async with Swarm("shop", [a]).start() as live:
        got = {}

        async def ask(name):
            async with live.session(name) as session:
                got[name] = await session.complete("go")

        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(ask, f"client-{number}")
    assert got == {name: f"answer:tell {name}" for name in got}
    assert len(got) == 10


async def test_multiclient_closing_one_leaves_the_turn_of_another_alone():
    slow = Slow()
    async with Swarm("shop", [agent(script=slow)]).start() as live, anyio.create_task_group() as group:
        callers = Callers(group)
        ann, bob = await live.open("ann"), await live.open("bob")
        await callers.says(ann.complete, "a")
        await callers.says(bob.complete, "b")
        await ann.close()
        assert await callers.settled() == [""]
        slow.go.set()
        assert await callers.settled() == ["", "answer:b"]


async def test_ten_increments_at_once_make_ten():
    @tool
    async def add(call: Call) -> None:
        values = call.session.values
        values["sum"] = values.get("sum", 0) + 1
        await call.commit(f"{values['sum']}")
        await call.execute("fin")

    async with at_work(agent("A", branching(go=calling("add")), tools=[add])) as it:
        async with anyio.create_task_group() as group:
            callers = Callers(group)
            for _ in range(10):
                await callers.says(it.session.complete, "go")
        assert callers.got == ["answer:fin"] * 10
        assert it.session.values["sum"] == 10


@pytest.mark.row("ASK-21")
@pytest.mark.parametrize("seed", range(3))
async def test_pairs_hold_whatever_the_latencies(seed):
    """Questions of ten clients whose models take a different time each: every answer meets its question."""
    import random

    chance = random.Random(seed)
    steps = {f"{client} {number}": chance.randrange(6) for client in range(10) for number in range(5)}

    class Stumbling(Slow):
        def session(self):
            inner = self._inner.session()

            class Session:
                def ask(self, prompt, **how):
                    return Asked(inner.ask(prompt, **how), steps[last(prompt).text])

            return Session()

    class Asked:
        def __init__(self, inner, steps):
            self.inner, self.steps = inner, steps

        async def __aenter__(self):
            for _ in range(self.steps):
                await anyio.lowlevel.checkpoint()
            return await self.inner.__aenter__()

        async def __aexit__(self, *error):
            return await self.inner.__aexit__(*error)

    got = {}
    async with Swarm("shop", [agent(script=Stumbling(echo))]).start() as live, anyio.create_task_group() as group:

        async def ask(session, text):
            got[text] = await session.complete(text)

        sessions = {client: await live.open(f"client {client}") for client in range(10)}
        for text in chance.sample(list(steps), len(steps)):
            group.start_soon(ask, sessions[int(text.split()[0])], text)
        with anyio.fail_after(60):
            while len(got) < len(steps):
                await anyio.lowlevel.checkpoint()
        for session in sessions.values():
            texts = [message.text for message in session.messages]
            assert [f"echo:{text}" for text in texts[::2]] == texts[1::2]
    assert got == {text: f"echo:{text}" for text in steps}
