"""Acceptance groups about going from agent to agent: navigation, navprev, loop, integration, and routes."""

from itertools import pairwise

import anyio
import pytest

from palaver.agent import function_tool
from palaver.core.errors import NavigationError
from palaver.store.sqlite import SQLiteStore
from palaver.swarm import Call, Recomplete, Swarm, SwarmAgent, navigation, tool
from palaver.swarm.navigation_tools import STACK
from tests.swarm.scripts import PLACEHOLDER, agent, answers, at_work, branching, calling, echo, last
from tests.swarm.slow import Callers, Slow

pytestmark = pytest.mark.anyio


def named(name):
    """An agent that says its name."""
    return agent(name, lambda _: f"from {name}")


def moving(to, name=None, *, commit=True, execute=True):
    """A tool made by hand that changes the agent."""

    @tool(name=name or f"go_{to.lower()}")
    async def run(call: Call) -> None:
        if commit:
            await call.commit("moved")
        await call.session.change_to(to)
        if execute:
            await call.execute("go on")

    return run


# -- navigation ------------------------------------------------------------------------------------------------------


@pytest.mark.row("ASK-18")
async def test_navigation_back_to_the_default():
    async with at_work(named("A"), named("B")) as it:
        assert await it.session.change_to("B")
        assert await it.session.complete("hi") == "from B"
        assert await it.session.change_to_default()
        assert await it.session.complete("hi") == "from A"


@pytest.mark.row("ASK-18", "ASK-19")
async def test_navigation_back_to_the_one_before():
    async with at_work(named("triage"), named("sales"), named("refund")) as it:
        await it.session.change_to("sales")
        await it.session.change_to("refund")
        assert await it.session.change_to_previous()
        assert await it.session.complete("hi") == "from sales"


@pytest.mark.row("ASK-18")
@pytest.mark.parametrize("to", ["sales", "refund"])
async def test_navigation_by_a_tool_gives_the_answer_of_the_new_agent(to):
    script = branching(**{name: calling(f"to_{name}") for name in ("sales", "refund")})
    desk = agent("desk", script, tools=[navigation("sales"), navigation("refund")])
    async with at_work(desk, named("sales"), named("refund")) as it:
        assert await it.session.complete(to) == f"from {to}"
        assert it.session.agent == to


@pytest.mark.row("ASK-18")
@pytest.mark.parametrize("to", ["A", "B"])
async def test_navigation_without_a_result_does_not_hang(to):
    a = agent("A", branching(go=calling("move")), tools=[moving(to, "move", commit=False)])
    b = agent("B", branching(go=calling("move")), tools=[moving("B", "move", commit=False)])
    with anyio.fail_after(60):
        async with at_work(a, b) as it:
            for _ in range(2):
                assert await it.session.complete("go") == "answer:go on"
                assert it.session.agent == to


async def test_navigation_a_second_message_from_inside_a_tool_does_not_hang():
    second = []

    @tool
    async def asks(call: Call) -> None:
        await call.commit("ok")
        async with anyio.create_task_group() as group:
            group.start_soon(ask, call.session)

    async def ask(session):
        second.append(await session.complete("second"))

    with anyio.fail_after(60):
        async with at_work(agent("A", branching(go=calling("asks")), tools=[asks])) as it:
            assert await it.session.complete("go") == "answer:second"
            assert await it.session.complete("third") == "answer:third"
            assert second == ["answer:second"]
            assert [line for line in it.log if line.startswith('assistant"')] == [
                'assistant"answer:second"',
                'assistant"answer:third"',
            ]


@pytest.mark.row("ASK-18")
async def test_navigation_outside_the_swarm():
    async with at_work(named("A"), named("B")) as it:
        with pytest.raises(NavigationError, match="no agent 'X'"):
            await it.session.change_to("X")
        assert not await it.session.change_to(named("X"))
        assert it.session.agent == "A"
        assert not it.session.navigator.route


@pytest.mark.row("ASK-18")
async def test_navigation_a_circle_may_be_refused_quietly():
    async with at_work(named("A"), named("B"), recursion="refuse") as it:
        assert await it.session.change_to("B")
        assert not await it.session.change_to("B")
        assert it.session.agent == "B"


# -- navprev ---------------------------------------------------------------------------------------------------------


@pytest.mark.row("ASK-19")
async def test_navprev_walks_back_to_the_default_and_stays():
    async with at_work(named("A"), named("B"), named("C")) as it:
        session = it.session
        for to in "BC":
            await session.change_to(to)
        walked = [(await session.change_to_previous(), session.agent) for _ in range(3)]
        assert walked == [(True, "B"), (True, "A"), (False, "A")]


@pytest.mark.row("ASK-18")
async def test_navprev_the_same_agent_again_with_each_message():
    async with at_work(named("A"), named("B")) as it:
        for _ in range(3):
            for to in "BA":
                assert await it.session.change_to(to)
            await it.session.complete("hi")
        assert it.session.agent == "A"


@pytest.mark.row("ASK-18")
async def test_navprev_changes_at_once_happen_one_after_the_other():
    changed = []

    async def on_agent_changed(session, name):
        changed.append(("begin", name, session.agent))
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        changed.append(("end", name, session.agent))

    async with at_work(*[named(name) for name in "ABCDE"], on_agent_changed=on_agent_changed) as it:
        async with anyio.create_task_group() as group:
            for to in "BCDE":
                group.start_soon(it.session.change_to, to)
        order = [name for when, name, _ in changed if when == "begin"]
        assert changed == [(when, name, name) for name in order for when in ("begin", "end")]
        assert sorted(order) == list("BCDE")
        assert it.session.navigator.stack == order
        assert it.session.agent == order[-1]


@pytest.mark.row("ASK-07")
async def test_navprev_a_change_in_flight_answers_with_nothing_and_the_next_by_the_new_agent():
    slow = Slow()
    async with at_work(agent("A", slow), named("B")) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "one")
        assert await it.session.change_to("B")
        assert await callers.settled() == [""]
        slow.go.set()
        assert await it.session.complete("two") == "from B"


@pytest.mark.row("ASK-07")
@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_change_while_a_tool_runs_answers_with_nothing_unless_the_tool_goes_on(goes_on):
    begun = anyio.Event()

    @tool
    async def waits(call: Call) -> None:
        begun.set()
        await call.cancelled.wait()
        if goes_on:
            await call.execute("go on")

    a = agent("A", branching(go=calling("waits")), tools=[waits])
    async with at_work(a, named("B")) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "go")
        await begun.wait()
        assert await it.session.change_to("B")
        assert await callers.settled() == ["from B" if goes_on else ""]
        assert await it.session.complete("next") == "from B"


@pytest.mark.row("ASK-19")
async def test_navprev_back_after_a_return_to_the_default():
    async with at_work(named("A"), named("B")) as it:
        await it.session.change_to("B")
        await it.session.change_to_default()
        assert await it.session.change_to_previous()
        assert it.session.agent == "B"


async def test_navprev_what_an_agent_depends_on_is_not_enforced():
    async with at_work(agent("A", echo, depends_on=["B"]), named("B"), named("C")) as it:
        assert await it.session.change_to("C")


@pytest.mark.row("ASK-19", "ASK-29")
async def test_navprev_agent_and_stack_survive_a_restart(tmp_path):
    swarm = Swarm("shop", [named(name) for name in "ABC"])
    with SQLiteStore(tmp_path / "threads.sqlite") as store:
        async with swarm.start(store=store) as live, live.session("ann") as session:
            for to in "BC":
                await session.change_to(to)
    with SQLiteStore(tmp_path / "threads.sqlite") as store:
        async with swarm.start(store=store) as live, live.session("ann") as session:
            assert await session.complete("hi") == "from C"
            walked = [(await session.change_to_previous(), session.agent) for _ in range(3)]
    assert walked == [(True, "B"), (True, "A"), (False, "A")]


@pytest.mark.row("ASK-19")
async def test_the_stack_is_bounded():
    async with at_work(named("A"), named("B")) as it:
        for number in range(3 * STACK):
            await it.session.change_to("BA"[number % 2])
            await it.session.commit_flush()
            it.session.navigator.route.clear()
        assert len(it.session.navigator.stack) == STACK
        kept = it.session.records.get("navigation", "shop")
        assert kept == {"active": "A", "stack": ["B", "A"] * (STACK // 2)}


# -- loop ------------------------------------------------------------------------------------------------------------


def total(*agents):
    return sum(len(each.model.asked) for each in agents)


@pytest.mark.row("ASK-08")
async def test_loop_a_tool_that_always_executes_ends_at_twenty():
    @tool
    async def again(call: Call) -> None:
        await call.commit("ok")
        await call.execute("again")

    a = agent("A", branching(go=calling("again"), again=calling("again")), tools=[again])
    async with at_work(a) as it:
        assert await it.session.complete("go") == PLACEHOLDER
        assert total(a) == 20
        assert await it.session.complete("next") == "answer:next"


@pytest.mark.row("ASK-18")
async def test_loop_ping_pong_ends():
    a = agent("A", lambda _: calling("to_b"), tools=[navigation("B")])
    b = agent("B", lambda _: calling("to_a"), tools=[navigation("A")])
    async with at_work(a, b) as it:
        assert await it.session.complete("go") == "Sorry, I missed that. Could you repeat please"
        assert total(a, b) <= 10


@pytest.mark.row("ASK-18")
async def test_loop_a_triangle_ends():
    a = agent("A", lambda _: calling("to_b"), tools=[navigation("B")])
    b = agent("B", lambda _: calling("to_c"), tools=[navigation("C")])
    c = agent("C", lambda _: calling("to_a"), tools=[navigation("A")])
    async with at_work(a, b, c) as it:
        assert await it.session.complete("go") == "Sorry, I missed that. Could you repeat please"
        assert total(a, b, c) <= 12


@pytest.mark.row("ASK-18")
@pytest.mark.parametrize("made", [navigation("A"), moving("A", "to_a")], ids=["factory", "by hand"])
async def test_loop_to_oneself_ends_where_it_began(made):
    a = agent("A", branching(**{"go": calling("to_a"), "go on": calling("to_a"), "": calling("to_a")}), tools=[made])
    async with at_work(a, named("B")) as it:
        assert await it.session.complete("go")
        assert total(a) <= 6
        assert it.session.agent == "A"
        assert await it.session.complete("next") == "answer:next"


@pytest.mark.row("ASK-18", "ASK-08")
async def test_loop_tools_of_two_agents_that_call_each_other_end():
    a = agent("A", lambda _: calling("to_b"), tools=[moving("B", "to_b")])
    b = agent("B", lambda _: calling("to_a"), tools=[moving("A", "to_a")])
    async with at_work(a, b, nested=5, recursion="refuse") as it:
        assert await it.session.complete("go") == PLACEHOLDER
        assert total(a, b) <= 15


@pytest.mark.row("ASK-14")
async def test_loop_a_model_that_is_always_empty_ends():
    a = agent("A", lambda _: "", rescue=Recomplete())
    async with at_work(a) as it:
        assert await it.session.complete("go") == PLACEHOLDER
        assert total(a) <= 8


async def test_loop_a_tool_that_fails_each_time_leaves_the_session_usable():
    @tool
    async def broken(call: Call) -> None:
        raise OSError("never works")

    async with at_work(agent("A", branching(go=calling("broken")), tools=[broken])) as it:
        for number in range(5):
            assert await it.session.complete("go") == PLACEHOLDER
            assert await it.session.complete(f"{number}") == f"answer:{number}"


# -- integration -----------------------------------------------------------------------------------------------------


def price(item: str = "boots") -> str:
    """Say what an item costs."""
    return f"{item}: 119.00"


def diagnose() -> str:
    """Look at the device."""
    return "the fuse is blown"


def tells(name, tool):
    """A specialist who looks something up when he is told to go on, and tells what he found."""

    def script(prompt):
        message = last(prompt)
        return f"{name} says {message.text}" if message.role == "tool" else calling(tool)

    return script


def office(**more):
    """A router, a sales clerk with a plain tool, an engineer whose tools come from a source, and a person."""
    router = branching(buy=calling("to_sales"), broken=calling("to_tech"), talk=calling("to_human"))

    async def person(place, text):
        return f"a person answers {place.client}: {text}"

    return Swarm(
        "office",
        [
            agent(
                "router",
                router,
                tools=[navigation(name) for name in ("sales", "tech")]
                + [navigation("human", execute=lambda call: call.session.last_user)],
            ),
            agent("sales", tells("sales", "price"), tools=[price, navigation("router")]),
            agent("tech", tells("tech", "diagnose"), sources=[lambda _: [function_tool(diagnose)]]),
            SwarmAgent("human", operator=person),
        ],
        **more,
    )


@pytest.mark.row("ASK-18")
@pytest.mark.parametrize(
    ("said", "answer", "at"),
    [
        ("buy", "sales says boots: 119.00", "sales"),
        ("broken", "tech says the fuse is blown", "tech"),
        ("talk", "a person answers ann: talk", "human"),
        ("hello", "answer:hello", "router"),
    ],
)
async def test_integration_a_router_finds_who_can_help(said, answer, at):
    async with office().start() as live, live.session("ann") as session:
        assert await session.complete(said) == answer
        assert session.agent == at


@pytest.mark.row("ASK-28")
async def test_integration_what_a_person_answers_is_kept():
    async with office().start() as live, live.session("ann") as session:
        await session.complete("talk")
        assert [(message.role, message.text, message.source) for message in session.messages[-2:]] == [
            ("user", "talk", None),
            ("assistant", "a person answers ann: talk", "operator"),
        ]


async def test_integration_several_hops_in_one_session():
    async with office().start() as live, live.session("ann") as session:
        assert await session.complete("buy") == "sales says boots: 119.00"
        await session.change_to_default()
        assert await session.complete("broken") == "tech says the fuse is blown"
        await session.change_to_default()
        assert await session.complete("talk") == "a person answers ann: talk"
        assert session.navigator.stack == ["sales", "router", "tech", "router", "human"]


async def test_integration_two_clients_at_once():
    async with office().start() as live, live.session("ann") as ann, live.session("bob") as bob:
        async with anyio.create_task_group() as group:
            callers = Callers(group)
            await callers.says(ann.complete, "buy")
            await callers.says(bob.complete, "broken")
        assert sorted(callers.got) == ["sales says boots: 119.00", "tech says the fuse is blown"]
        assert (ann.agent, bob.agent) == ("sales", "tech")


async def test_an_agent_that_is_gone_is_the_default_one(tmp_path):
    with SQLiteStore(tmp_path / "threads.sqlite") as store:
        before, now = Swarm("shop", [named("A"), named("ghost")]), Swarm("shop", [named("A"), named("B")])
        async with before.start(store=store) as live, live.session("ann") as session:
            await session.change_to("ghost")
        async with now.start(store=store) as live, live.session("ann") as session:
            assert await session.complete("hi") == "from A"
            assert session.navigator.stack == []


@pytest.mark.row("ASK-18")
async def test_several_hops_in_one_turn():
    """Agents hand on in mid-turn, as far as there are agents not yet visited."""
    names = [f"S{number}" for number in range(8)]
    line = [
        agent(name, lambda _, to=to: calling(f"to_{to.lower()}"), tools=[navigation(to, name=f"to_{to.lower()}")])
        for name, to in pairwise(names)
    ]
    async with at_work(*line, agent(names[-1], answers)) as it:
        assert await it.session.complete("go") == "answer:go"
        assert it.session.agent == names[-1]
        assert list(it.session.navigator.route) == names[1:]
