"""Checks of listeners and subscriptions: slow, failing, closed, and at the end of a bus.

Stability: experimental.
"""

from __future__ import annotations

import anyio

from palaver.core.errors import BusyError, ClosedError, SwarmError
from palaver.swarm.bus import Where
from palaver.swarm.events import Event
from palaver.testing.buses.helpers import TIMEOUT, MakeBus, event_of, numbers, raises, rest, take, until


async def a_full_queue_drops_and_counts_events(make: MakeBus) -> None:
    """``drop_oldest`` keeps the newest, ``drop_newest`` the oldest, and both count what was lost."""
    async with (
        make() as bus,
        bus.subscribe(size=4) as newest,
        bus.subscribe(size=4, overflow="drop_newest") as oldest,
        bus.subscribe(size=10) as all_,
    ):
        for number in range(10):
            bus.publish(event_of(number))
        await bus.flush()
        await until(lambda: newest.dropped == 6 and oldest.dropped == 6)
        assert numbers(await take(newest, 4)) == [6, 7, 8, 9]
        assert numbers(await take(oldest, 4)) == [0, 1, 2, 3]
        assert numbers(await take(all_, 10)) == list(range(10))
        assert all_.dropped == 0
        bus.publish(event_of(10))
        assert numbers(await take(newest, 1) + await take(oldest, 1)) == [10, 10], "it does not go on"
        with raises(SwarmError):
            bus.subscribe(size=0)


async def a_full_queue_can_end_a_subscription(make: MakeBus) -> None:
    """Under ``fail`` the waiting events are delivered, then ``BusyError`` is raised; others are not affected."""
    async with make() as bus, bus.subscribe(size=3, overflow="fail") as strict, bus.subscribe() as other:
        for number in range(6):
            bus.publish(event_of(number))
        assert numbers(await take(other, 6)) == list(range(6))
        await until(lambda: strict.dropped > 0)
        assert numbers(await take(strict, 3)) == [0, 1, 2]
        with raises(BusyError):
            await rest(strict)


async def a_listener_can_neither_break_nor_delay(make: MakeBus) -> None:
    """One handler raises, one hangs, one is slow: publishing and the others go on (ASK-23, ASK-30)."""
    raised: list[int] = []
    heard: list[int] = []
    slow: list[int] = []
    let_go = anyio.Event()

    def fails(event: Event) -> None:
        raised.append(event.input["n"])
        raise RuntimeError("a listener that fails")

    async def hangs(_event: Event) -> None:
        await let_go.wait()

    async def is_slow(event: Event) -> None:
        await anyio.sleep(0.001)
        slow.append(event.input["n"])

    async with make() as bus:
        failing = await bus.listen(fails)
        hanging = await bus.listen(hangs, size=5)
        slowly = await bus.listen(is_slow)
        good = await bus.listen(lambda event: heard.append(event.input["n"]))
        for number in range(50):
            bus.publish(event_of(number))
        with anyio.fail_after(TIMEOUT):
            await bus.flush()
            for listener in (good, failing, slowly):
                await listener.idle()
        assert heard == raised == slow == list(range(50))
        await until(lambda: hanging.dropped >= 44)
        let_go.set()
        with anyio.fail_after(TIMEOUT):
            await hanging.idle()


async def handlers_of_one_listener_never_overlap(make: MakeBus) -> None:
    """A handler is called with one event at a time, in order; two listeners do not wait for each other (ASK-23)."""
    running, heard = [0, 0], list[int]()
    met = anyio.Event()

    async def first(event: Event) -> None:
        running[0] += 1
        assert running[0] == 1, "called while it ran"
        if event.input["n"] == 0:
            await met.wait()
        await anyio.lowlevel.checkpoint()
        heard.append(event.input["n"])
        running[0] -= 1

    async def second(_event: Event) -> None:
        met.set()

    async with make() as bus:
        one = await bus.listen(first)
        await bus.listen(second)
        for number in range(30):
            bus.publish(event_of(number))
        with anyio.fail_after(TIMEOUT):
            await bus.flush()
            await one.idle()
    assert heard == list(range(30))


async def a_listener_may_publish(make: MakeBus) -> None:
    """What a handler publishes is carried like anything else, also while the bus ends."""
    answers: list[int] = []
    async with make() as bus:
        await bus.listen(lambda event: bus.publish(event_of(event.input["n"] * 10, "bob")), Where(client="ann"))
        echo = await bus.listen(lambda event: answers.append(event.input["n"]), Where(client="bob"))
        async with bus.subscribe(Where(client="bob")) as bobs:
            for number in range(5):
                bus.publish(event_of(number))
            assert numbers(await take(bobs, 5)) == [0, 10, 20, 30, 40]
        with anyio.fail_after(TIMEOUT):
            await echo.idle()
        assert answers == [0, 10, 20, 30, 40]


async def a_listener_can_take_one_event(make: MakeBus) -> None:
    """With ``once`` the function is called with the first event that fits, and never again."""
    heard: list[int] = []
    async with make() as bus:
        listener = await bus.listen(lambda event: heard.append(event.input["n"]), Where(client="bob"), once=True)
        everything = await bus.listen(lambda _: None)
        for number, client in enumerate(("ann", "bob", "bob", "bob")):
            bus.publish(event_of(number, client))
        with anyio.fail_after(TIMEOUT):
            await bus.flush()
            await everything.idle()
            await until(lambda: bool(heard))
            await listener.idle()
        bus.publish(event_of(9, "bob"))
    assert heard == [1]


async def a_subscription_can_be_closed(make: MakeBus) -> None:
    """What waits can still be read, nothing joins, and closing twice is allowed."""
    async with make() as bus:
        events = bus.subscribe(size=3, overflow="drop_newest")
        async with events, bus.subscribe() as other:
            for number in range(4):
                bus.publish(event_of(number))
            await until(lambda: events.dropped == 1)  # now the others wait
            events.close()
            events.close()
            bus.publish(event_of(4))
            assert numbers(await take(other, 5)) == list(range(5))
            assert numbers(await rest(events)) == [0, 1, 2]
        assert await rest(events) == []


async def a_listener_can_be_closed(make: MakeBus) -> None:
    """A closed listener is not called again; closing twice is allowed, also from within."""
    heard: list[int] = []
    async with make() as bus:

        def hear(event: Event) -> None:
            heard.append(event.input["n"])
            if event.input["n"] == 2:
                listener.close()
                listener.close()

        listener = await bus.listen(hear)
        other = await bus.listen(lambda _: None)
        for number in range(6):
            bus.publish(event_of(number))
        with anyio.fail_after(TIMEOUT):
            await bus.flush()
            await other.idle()
            await until(lambda: len(heard) == 3)
            await listener.idle()
    assert heard == [0, 1, 2]


async def the_end_of_a_bus_reaches_everybody(make: MakeBus) -> None:
    """Listeners get the remaining events, iterations end, ``once`` raises, and publishing is refused."""
    bus = make()
    with raises(ClosedError):
        bus.publish(event_of(0))
    heard: list[int] = []
    seen: list[Event] = []
    ended: list[str] = []

    async def slowly(event: Event) -> None:
        await anyio.lowlevel.checkpoint()
        heard.append(event.input["n"])

    async def read(began: anyio.Event) -> None:
        async with bus.subscribe() as events:
            began.set()
            async for event in events:
                seen.append(event)  # noqa: PERF401 (somebody looks meanwhile)
            ended.append("iteration")

    async def wait(began: anyio.Event) -> None:
        began.set()
        with raises(ClosedError):
            await bus.once(Where(client="nobody"))
        ended.append("once")

    async with anyio.create_task_group() as tasks, bus:
        await bus.listen(slowly)
        for work in (read, wait):
            began = anyio.Event()
            tasks.start_soon(work, began)
            await began.wait()
        for number in range(20):
            bus.publish(event_of(number))
        await bus.flush()
        await until(lambda: len(seen) == 20)
        await anyio.lowlevel.checkpoint()
    assert heard == list(range(20))
    assert sorted(ended) == ["iteration", "once"]
    for ask in (lambda: bus.listen(slowly), lambda: bus.once(timeout=1)):
        with raises(ClosedError):
            await ask()
    with raises(ClosedError):
        bus.publish(event_of(1))
    with raises(SwarmError):
        await bus.__aenter__()


async def listeners_get_the_remaining_events_at_the_end(make: MakeBus) -> None:
    """Listeners get the events that were published just before a bus ended."""
    heard: list[int] = []
    async with make() as bus:
        await bus.listen(lambda event: heard.append(event.input["n"]))
        for number in range(200):
            bus.publish(event_of(number))
    assert heard == list(range(200))


async def an_error_or_a_cancellation_goes_through(make: MakeBus) -> None:
    """The block's own error comes out as it is, and a cancelled block does not wait for its listeners."""
    bus = make()
    hangs = anyio.Event()

    async def hang(_event: Event) -> None:
        hangs.set()
        await anyio.sleep_forever()

    with anyio.fail_after(TIMEOUT), anyio.CancelScope() as scope:
        async with bus:
            await bus.listen(hang)
            bus.publish(event_of(1))
            await hangs.wait()
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught, "a cancellation was swallowed"
