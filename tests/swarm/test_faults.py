"""Faults of the original that are proved nowhere else, each by a test that fails on its behaviour."""

import pytest

import palaver as p
from palaver.core.errors import SwarmError
from palaver.store.sqlite import SQLiteStore
from palaver.swarm import SOURCES, Compute, State
from palaver.swarm.extras.compute import LiveCompute
from palaver.swarm.log import Records
from tests.swarm.scripts import agent, asked, at_work, branching, calling, echo

pytestmark = pytest.mark.anyio

CART = State("cart", ["nothing"], type=list[str])
TILL = State("till", 0, type=int, shared=True)


@pytest.mark.row("ASK-06")
async def test_k1_an_answer_without_calls_stays_in_every_later_context():
    """The original drops answers whose list of calls is empty, as every answer's is where no call may run."""
    a = agent("A", branching(one=calling("f", said="thinking aloud")), max_tool_calls=0)
    async with at_work(a) as it:
        assert await it.session.complete("one") == "thinking aloud"
        await it.session.complete("two")
    assert asked(a)[1] == ['system"PA"', 'user/user"one"', 'assistant"thinking aloud"', 'user/user"two"']


@pytest.mark.row("ASK-24")
async def test_k6_clear_gives_the_default_back_and_keeps_that(tmp_path):
    """The original's clear does nothing where states are kept."""
    with SQLiteStore(tmp_path / "shop.db") as store:
        async with at_work(agent(), states=[CART], store=store) as it:
            await it.session.state(CART).set(["pear"])
            await it.session.state(CART).clear()
            assert await it.session.state(CART).get() == ["nothing"]
        async with at_work(agent(), states=[CART], store=store) as it:
            assert await it.session.state(CART).get() == ["nothing"]


@pytest.mark.row("ASK-23")
async def test_k7_a_shared_state_is_one_event_and_a_failed_turn_ends():
    """The original tells nobody of shared states, tells `emit` twice, and ends no turn that failed."""
    a = agent("A", [RuntimeError("down")])
    async with at_work(a, states=[TILL]) as it:
        await it.session.state(TILL).set(1)
        assert [event.client for event in await it.heard("state", "set-state")] == ["shared"]
        with pytest.raises(RuntimeError):
            await it.session.complete("x")
        assert await it.events("execution") == [
            "execution commit-execution-begin",
            "execution commit-execution-end",
        ]
        before = len(it.seen)
        await it.session.emit("nobody waits")
        assert await it.events("session", since=before) == ["session emit"]
        assert len({event.id for event in it.seen}) == len(it.seen)


@pytest.mark.row("ASK-23")
@pytest.mark.parametrize("source", SOURCES)
async def test_k7_all_sources_are_reserved(source):
    """The original lets an application speak as `compute-bus`."""
    async with at_work(agent()) as it:
        with pytest.raises(SwarmError, match="reserved"):
            it.session.publish(source, 1)
        it.session.publish("own", {"n": 1})
        (event,) = await it.heard("own", "own")
        assert event.input == {"payload": {"n": 1}}


@pytest.mark.row("ASK-25")
async def test_k9_a_shared_value_is_kept_as_long_as_it_says():
    """The original's shared values forget after a quarter of a second."""
    now, made = [0.0], []

    def derive(_):
        made.append(now[0])
        return len(made)

    cell = LiveCompute(Compute("n", derive, ttl=60, shared=True), [], "shared", lambda _: None, clock=lambda: now[0])
    for moment in (0.0, 0.25, 59.9, 60.1, 119.0):
        now[0] = moment
        await cell.get()
    assert made == [0.0, 60.1]


@pytest.mark.row("ASK-02")
async def test_k15_swarms_of_the_same_names_know_nothing_of_each_other():
    """The original's scopes share instances by name."""
    one, two = agent("A", lambda _: "one"), agent("A", lambda _: "two")
    async with at_work(one) as first, at_work(two) as second:
        assert await first.session.complete("hi") == "one"
        assert await second.session.complete("hi") == "two"
        assert len(first.session.messages) == len(second.session.messages) == 2


@pytest.mark.row("ASK-06")
async def test_k18_an_answer_whose_calls_nobody_answered_keeps_its_text():
    a = agent("A", echo)
    async with at_work(a) as it:
        await it.session.keep(
            p.assistant("let me see", tool_calls=[p.tool_call("f", {}, id="1")], agent="A", mode="tool")
        )
        await it.session.complete("and?")
    (context,) = asked(a)
    assert context == ['system"PA"', 'assistant"let me see"', 'user/user"and?"']


@pytest.mark.row("ASK-02")
async def test_k17_sharing_is_asked_for(tmp_path):
    """In the original, one client in two swarms shares everything by accident."""
    with SQLiteStore(tmp_path / "shop.db") as store:
        async with at_work(agent(), store=store, name="sales") as it:
            await it.session.complete("hi")
            assert Records(it.session.log).get("navigation", "sales") is None
        async with at_work(agent(), store=store, name="support") as it:
            assert it.log == []
        async with at_work(agent(), store=store, name="returns", realm="sales") as it:
            assert it.log == ['user/user"hi"', 'assistant"echo:hi"']
    for name in ("shared", ""):
        with pytest.raises(SwarmError, match="a client cannot have the name"):
            async with at_work(agent(), client=name):
                pass
