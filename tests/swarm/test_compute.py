"""Compute: derived once, until a state changes or time is up."""

import sqlite3
from contextlib import closing

import anyio
import pytest

from palaver.core.errors import SwarmError
from palaver.swarm.extras.compute import TTL, Compute, LiveCompute
from palaver.swarm.log import Log, Records
from palaver.swarm.state import State, StateCell
from palaver.threads.thread import Thread

pytestmark = pytest.mark.anyio

COUNT = State("count", 0)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Derived:
    """A function that says how often it was asked."""

    def __init__(self):
        self.asked = 0

    async def __call__(self, client, *values):
        self.asked += 1
        await anyio.lowlevel.checkpoint()
        return [client, *values]


@pytest.fixture
def derived():
    return Derived()


def bound(values, events, function, **more):
    state = StateCell(State("count", 0, shared=more.get("shared", False)), values, "ann", events.append)
    compute = Compute("sum", function, depends_on=(state._state,), **more)
    return state, LiveCompute(compute, [state], "ann", events.append)


@pytest.mark.row("ASK-25")
@pytest.mark.parametrize("is_shared", [False, True])
async def test_it_is_computed_anew_when_a_state_is_set_or_cleared(values, events, derived, is_shared):
    state, cell = bound(values, events, derived, shared=is_shared)
    client = "shared" if is_shared else "ann"
    assert [await cell.get(), await cell.get()] == [[client, 0]] * 2
    assert derived.asked == 1
    await state.set(0)
    await cell.get()
    assert derived.asked == 2
    await state.set(3)
    assert [await cell.get(), await cell.get()] == [[client, 3]] * 2
    await state.clear()
    assert await cell.get() == [client, 0]
    assert derived.asked == 4
    with pytest.raises(ZeroDivisionError):
        await state.set(lambda before: 1 // before)
    await cell.get()
    assert derived.asked == 4


@pytest.mark.row("ASK-25")
@pytest.mark.parametrize("is_shared", [False, True])
async def test_it_lasts_as_long_as_it_may_shared_or_not(events, derived, is_shared):
    clock = Clock()
    cell = LiveCompute(Compute("now", derived, ttl=10, shared=is_shared), [], "ann", events.append, clock=clock)
    for clock.now, asked in ((0, 1), (9.9, 1), (10, 2), (19.9, 2), (20, 3)):
        await cell.get()
        assert derived.asked == asked
    assert Compute("now", derived).ttl == TTL == 24 * 60 * 60


async def test_update_makes_it_old(events, derived):
    cell = LiveCompute(Compute("now", derived), [], "ann", events.append)
    await cell.get()
    cell.update()
    await cell.get()
    await cell.get()
    assert derived.asked == 2


async def test_each_get_is_one_event_and_middlewares_come_in_order(events):
    async def second(value, client):
        return f"{value}>2({client})"

    compute = Compute("text", lambda client: client, middlewares=[lambda value, client: f"{value}>1({client})", second])
    cell = LiveCompute(compute, [], "ann", events.append)
    await cell.get()
    await cell.get()
    assert [(event.source, event.type, event.client, event.name, event.output) for event in events] == [
        ("compute", "emit-output", "ann", "text", {"data": "ann>1(ann)>2(ann)"})
    ] * 2


async def test_who_asks_at_once_is_given_the_same(values, events, derived):
    _, cell = bound(values, events, derived)
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(cell.get)
    assert derived.asked == 1
    assert len(events) == 20


async def test_a_function_that_fails_rejects_its_caller_and_is_asked_again(events):
    asked, refused = [], []

    async def fails_once(client):
        asked.append(client)
        await anyio.lowlevel.checkpoint()
        return 1 // (len(asked) - 1)

    cell = LiveCompute(Compute("once", fails_once), [], "ann", events.append)

    async def get():
        try:
            assert await cell.get() == 1
        except ZeroDivisionError:
            refused.append(True)

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(get)
    assert (len(asked), len(refused), len(events)) == (2, 1, 4)
    bad = LiveCompute(Compute("bad", lambda _: object()), [], "ann", events.append)
    with pytest.raises(SwarmError, match="compute 'bad': the value is not JSON"):
        await bad.get()


async def test_a_state_that_changes_meanwhile_makes_the_result_old(values, events):
    began, gate, asked = anyio.Event(), anyio.Event(), []

    async def slow(client, count):
        asked.append(count)
        began.set()
        await gate.wait()
        return count

    state, cell = bound(values, events, slow)
    async with anyio.create_task_group() as group:
        group.start_soon(cell.get)
        await began.wait()
        await state.set(1)
        gate.set()
    assert await cell.get() == 1
    assert asked == [0, 1]


async def test_reading_it_while_a_state_is_set_waits_for_nothing(values, events, derived):
    state, cell = bound(values, events, derived)

    async def reads(before):
        return len(await cell.get()) + before

    assert await state.set(reads) == 2
    assert await cell.get() == ["ann", 2]


async def test_it_may_not_ask_for_itself(events):
    async def asks(client):
        return await cell.get()

    cell = LiveCompute(Compute("loop", asks), [], "ann", events.append)
    with pytest.raises(SwarmError, match="compute 'loop'"):
        await cell.get()


async def test_another_process_that_sets_a_shared_state_makes_it_old(shared, events, derived):
    one, other = await shared.open(), await shared.open()
    state, cell = bound(one, events, derived, shared=True)
    await cell.get()
    await StateCell(state._state, other, "", events.append).set(5)
    assert await cell.get() == ["shared", 5]


async def test_a_state_that_only_memory_holds_makes_it_old(disk, events, derived):
    state, cell = bound(await disk.open(), events, derived)
    await cell.get()
    with closing(sqlite3.connect(disk.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # now nobody can write
        for number in (1, 2):
            await state.set(number)
            assert await cell.get() == ["ann", number]


async def test_it_says_what_it_computed_to_its_observer(events, derived):
    seen = []
    compute = Compute("now", derived, on_compute=lambda value, client: seen.append((value, client)))
    cell = LiveCompute(compute, [], "ann", events.append)
    await cell.get()
    await cell.get()
    assert seen == [(["ann"], "ann")]


def test_a_description_that_cannot_work_is_refused():
    with pytest.raises(SwarmError, match="needs a name"):
        Compute("", str)
    with pytest.raises(SwarmError, match="compute 'sum' is shared, but state 'count' is not"):
        Compute("sum", str, depends_on=[COUNT], shared=True)
    state = StateCell(State("other", 0), Records(Log(Thread("ann"))), "ann", lambda _: None)
    with pytest.raises(SwarmError, match="other"):
        LiveCompute(Compute("sum", str, depends_on=[COUNT]), [state], "ann", lambda _: None)
