"""State: in order, changed as a whole, restored, kept."""

import sqlite3
from contextlib import closing
from math import nan

import anyio
import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import Struct

from palaver.core.errors import SwarmError
from palaver.swarm.log import Log, Records
from palaver.swarm.state import State, StateCell
from palaver.threads.thread import Thread

pytestmark = pytest.mark.anyio


class Cart(Struct):
    items: list[str] = []
    total: int = 0


def told(events):
    return [(event.type, event.client, event.name, event.output.get("state")) for event in events]


async def test_a_state_is_read_set_and_cleared_and_each_is_one_event(values, events):
    cell = StateCell(State("count", 3), values, "ann", events.append)
    assert await cell.get() == 3
    assert await cell.set(5) == 5
    assert await cell.set(lambda before: before + 1) == 6
    assert await cell.clear() == 3
    assert told(events) == [
        ("get-state", "ann", "count", 3),
        ("set-state", "ann", "count", 5),
        ("set-state", "ann", "count", 6),
        ("clear-state", "ann", "count", 3),
    ]
    assert {event.source for event in events} == {"state"}


async def test_a_shared_state_happens_to_the_client_shared(values, events):
    cell = StateCell(State("count", 0, shared=True), values, "ann", events.append)
    await cell.set(1)
    assert events[0].client == "shared"


@pytest.mark.row("ASK-24")
async def test_what_was_set_is_there_after_a_restart_and_what_was_cleared_is_not(place, events):
    state = State("cart", lambda client: Cart(items=[client]), type=Cart)
    cell = StateCell(state, await place.open(), "ann", events.append)
    await cell.set(Cart(items=["tea"], total=2))
    reopened = StateCell(state, await place.open(), "ann", events.append)
    assert await reopened.get() == Cart(items=["tea"], total=2)
    assert await reopened.clear() == Cart(items=["ann"])
    assert await StateCell(state, await place.open(), "ann", events.append).get() == Cart(items=["ann"])


@pytest.mark.row("ASK-24")
@pytest.mark.share(2)
async def test_a_thousand_writes_that_nobody_awaits_happen_in_the_order_of_asking(events):
    values = Records(Log(Thread("ann")))
    cell = StateCell(State("written", []), values, "ann", events.append)
    asked, gate = [], anyio.Event()

    async def first(before):
        await gate.wait()
        return before

    async def write(number):
        asked.append(number)
        await cell.set(lambda before: [*before[-1200:], number])

    async with anyio.create_task_group() as group:
        group.start_soon(cell.set, first)
        await anyio.wait_all_tasks_blocked()
        for number in range(1000):
            group.start_soon(write, number)
        await anyio.wait_all_tasks_blocked()
        gate.set()
    assert sorted(asked) == list(range(1000))
    assert await cell.get() == asked
    assert len([event for event in events if event.type == "set-state"]) == 1001


@pytest.mark.row("ASK-24")
async def test_middlewares_come_after_the_function_in_order_and_not_on_clear(values, events):
    async def second(value, client):
        return f"{value}>2({client})"

    state = State("text", "0", middlewares=[lambda value, client: f"{value}>1({client})", second])
    cell = StateCell(state, values, "ann", events.append)
    assert await cell.get() == "0"
    assert await cell.set(lambda before: before + "f") == "0f>1(ann)>2(ann)"
    assert await cell.set("v") == "v>1(ann)>2(ann)"
    assert await cell.clear() == "0"


@pytest.mark.row("ASK-24")
async def test_a_read_waits_for_a_write_in_flight(values, events):
    cell = StateCell(State("count", 0), values, "ann", events.append)
    began, gate, seen = anyio.Event(), anyio.Event(), []

    async def slowly(before):
        began.set()
        await gate.wait()
        return before + 1

    async def read():
        seen.append(await cell.get())

    async with anyio.create_task_group() as group:
        group.start_soon(cell.set, slowly)
        await began.wait()
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        assert seen == []
        gate.set()
    assert seen == [1]


@pytest.mark.row("ASK-24")
async def test_a_function_that_sets_may_read_and_may_not_set(values, events):
    cell = StateCell(State("count", 1), values, "ann", events.append)

    async def reads(before):
        return before + await cell.get()

    async def sets(before):
        return await cell.set(before)

    assert await cell.set(reads) == 2
    with pytest.raises(SwarmError, match="state 'count'"):
        await cell.set(sets)
    assert await cell.set(7) == 7


async def test_a_task_that_outlives_the_function_that_began_it_waits_like_everybody(values, events):
    cell = StateCell(State("count", 0), values, "ann", events.append)
    over, gate, seen = anyio.Event(), anyio.Event(), []

    async def later():
        await over.wait()
        seen.append(await cell.get())

    async def slowly(before):
        await gate.wait()
        return before + 1

    async with anyio.create_task_group() as group:

        def begins(before):
            group.start_soon(later)
            return before + 1

        await cell.set(begins)
        group.start_soon(cell.set, slowly)
        await anyio.wait_all_tasks_blocked()
        over.set()
        await anyio.wait_all_tasks_blocked()
        assert seen == []
        gate.set()
    assert seen == [2]


@pytest.mark.row("ASK-24")
async def test_a_write_that_fails_rejects_its_caller_alone_and_changes_nothing(values, events):
    cell = StateCell(
        State("list", [1], middlewares=[lambda value, _: [*value, len(value) // len(value)]]),
        values,
        "ann",
        events.append,
    )
    outcomes = {}

    def fails(before):
        before.append("changed in place")
        raise RuntimeError("no")

    async def write(name, value):
        try:
            outcomes[name] = await cell.set(value)
        except (RuntimeError, ZeroDivisionError, SwarmError) as error:
            outcomes[name] = type(error)

    async with anyio.create_task_group() as group:
        for name, value in {"function": fails, "middleware": [], "good": [2], "json": [object()], "nan": [nan]}.items():
            group.start_soon(write, name, value)
    assert outcomes == {
        "function": RuntimeError,
        "middleware": ZeroDivisionError,
        "good": [2, 1],
        "json": SwarmError,
        "nan": SwarmError,
    }
    assert await cell.get() == [2, 1]
    assert len(events) == 2


async def test_a_cancelled_write_changes_nothing_and_lets_the_next_one_in(values, events):
    cell = StateCell(State("count", 0), values, "ann", events.append)
    with anyio.move_on_after(0):
        await cell.set(lambda _: anyio.sleep_forever())
    assert await cell.set(lambda before: before + 1) == 1


@pytest.mark.row("ASK-24")
async def test_a_store_that_fails_is_reported_and_memory_is_kept(disk, events):
    state = State("count", 0)
    values = await disk.open()
    cell = StateCell(state, values, "ann", events.append)
    await cell.set(1)
    with closing(sqlite3.connect(disk.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # now nobody can write
        assert await cell.set(2) == 2
        assert not cell.kept
        assert await cell.get() == 2
        assert await cell.set(lambda before: before + 1) == 3
    assert [("error" in event.output) for event in events] == [False, True, False, True]
    assert await StateCell(state, await disk.open(), "ann", events.append).get() == 1
    assert await cell.set(lambda before: before + 1) == 4
    assert cell.kept
    assert await StateCell(state, await disk.open(), "ann", events.append).get() == 4


@pytest.mark.row("ASK-24")
async def test_a_clear_that_is_not_kept_restores_the_default_in_memory(disk, events):
    cell = StateCell(State("count", 0), await disk.open(), "ann", events.append)
    await cell.set(1)
    with closing(sqlite3.connect(disk.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await cell.clear() == 0
        assert await cell.get() == 0
    assert not cell.kept


async def test_nobody_can_change_a_state_by_what_he_was_given(values, events):
    default, new = {"a": [1]}, {"a": [2]}
    cell = StateCell(State("json", default), values, "ann", events.append)
    (await cell.get())["a"].append(0)
    default["a"].append(0)
    assert await cell.get() == {"a": [1]}
    (await cell.set(new))["a"].append(0)
    new["a"].append(0)
    events[-1].output["state"]["a"].append(0)
    assert await cell.get() == {"a": [2]}


async def test_a_default_is_asked_once_until_the_state_is_cleared_and_again_when_it_failed(values, events):
    asked = []

    async def default(client):
        asked.append(client)
        if len(asked) == 1:
            raise RuntimeError("not yet")
        return len(asked)

    cell = StateCell(State("count", default), values, "ann", events.append)
    with pytest.raises(RuntimeError, match="not yet"):
        await cell.get()
    assert [await cell.get(), await cell.get(), await cell.clear(), await cell.get()] == [2, 2, 3, 3]
    assert asked == ["ann"] * 3


async def test_a_value_that_is_not_of_the_type_is_refused_by_name(values, events):
    cell = StateCell(State("cart", Cart(), type=Cart), values, "ann", events.append)
    with pytest.raises(SwarmError, match=r"state 'cart'.*total"):
        await cell.set({"total": "many"})
    assert await cell.get() == Cart()
    assert len(events) == 1
    with pytest.raises(SwarmError, match="needs a name"):
        State("", 0)


async def test_observers_are_called_and_their_errors_change_nothing(values, events):
    seen = []

    async def wrote(value, client):
        seen.append(("write", value, client))
        raise RuntimeError("an observer")

    state = State("count", 0, on_read=lambda value, client: seen.append(("read", value, client)), on_write=wrote)
    cell = StateCell(state, values, "ann", events.append)
    await cell.set(1)
    await cell.get()
    await cell.clear()
    assert seen == [("write", 1, "ann"), ("read", 1, "ann"), ("write", 0, "ann")]


async def test_two_processes_see_what_the_other_set(shared, events):
    state = State("count", 0, shared=True)
    one, other = [StateCell(state, await shared.open(), "", events.append) for _ in "12"]
    assert [await one.set(1), await other.get(), await other.set(lambda before: before + 1)] == [1, 1, 2]
    stamp = await one.stamp()
    assert await one.get() == 2
    assert await one.stamp() == stamp
    await other.clear()
    assert await one.stamp() != stamp
    assert await one.get() == 0


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    max_leaves=8,
)


@given(json_values)
def test_a_value_is_the_same_before_and_after_a_restart(value):
    async def check():
        thread = Thread("ann")
        state = State("json", 0)
        before = await StateCell(state, Records(Log(thread)), "ann", lambda _: None).set(value)
        cell = StateCell(state, Records(Log(thread)), "ann", lambda _: None)
        assert repr(await cell.get()) == repr(before)

    anyio.run(check)


class Machine(RuleBasedStateMachine):
    """A state is a variable: whatever is set, cleared, fails or restarts."""

    def __init__(self):
        super().__init__()
        self.thread, self.model = Thread("ann"), 0
        self.restarts()

    @rule()
    def restarts(self):
        self.cell = StateCell(State("count", 0), Records(Log(self.thread)), "ann", lambda _: None)

    @rule(number=st.integers(0, 9))
    def sets(self, number):
        self.model = anyio.run(self.cell.set, number)

    @rule(number=st.integers(0, 9))
    def adds(self, number):
        anyio.run(self.cell.set, lambda before: before + number)
        self.model += number

    @rule()
    def fails(self):
        with pytest.raises(ZeroDivisionError):
            anyio.run(self.cell.set, lambda before: before // 0)

    @rule()
    def clears(self):
        self.model = 0
        anyio.run(self.cell.clear)

    @invariant()
    def holds(self):
        assert anyio.run(self.cell.get) == self.model


TestMachine = Machine.TestCase
