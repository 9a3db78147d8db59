"""What every bus must do: one suite, run on every bus.

Rules:

- A check is an asynchronous function that takes a ``Make`` and raises ``AssertionError`` with what is wrong. ``CHECKS``
  lists them; the first line of each docstring is the promise. A test suite runs them so::

      @pytest.mark.parametrize("check", buses.CHECKS, ids=buses.name_of)
      async def test_conformance(check, anyio_backend):
          await check(LocalBus)

- ``Make`` gives a new bus, not entered, that nobody has published to. A check calls it once.
- Nothing is measured in time; what must happen is waited for, ``PATIENCE`` seconds at most.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import anyio

from palaver.core.errors import BusyError, ClosedError, PalaverError, SwarmError
from palaver.core.factories import assistant, tool, user
from palaver.core.parts import Image, ToolCall
from palaver.swarm.bus import EVERYTHING, Bus, Since, Subscription, Where
from palaver.swarm.events import Event

Make: TypeAlias = Callable[[], Bus]
Check: TypeAlias = Callable[[Make], Awaitable[None]]

PATIENCE: Final = 20.0
ODD: Final = (
    "",
    " ",
    "*",
    ">",
    "a.b",
    "a.b.>",
    "=",
    "==",
    "=2e",
    "..",
    "a b",
    "ä€😀",
    "\x00\n\r\t",
    "x" * 5000,
    "$JS",
    "A",
    "a",
)
"""Names of clients that a wire could stumble over."""


def name_of(check: Check) -> str:
    """The name of a check, for a test report."""
    return getattr(check, "__name__", "check")


def said(number: int, client: str = "ann", **fields: Any) -> Event:
    """An event with a number."""
    values: dict[str, Any] = {"source": "agent", "type": "run", "client": client, "input": {"n": number}}
    return Event(**values | fields)


def numbers(events: list[Event]) -> list[int]:
    """The numbers of events."""
    return [event.input["n"] for event in events]


async def take(events: Subscription, count: int) -> list[Event]:
    """The next events of a subscription."""
    taken: list[Event] = []
    with anyio.fail_after(PATIENCE):
        async for event in events:
            taken.append(event)
            if len(taken) == count:
                break
    return taken


async def rest(events: Subscription) -> list[Event]:
    """The events of a subscription until it ends."""
    with anyio.fail_after(PATIENCE):
        return [event async for event in events]


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that nobody tells of."""
    with anyio.fail_after(PATIENCE):
        while not holds():  # noqa: ASYNC110 (nobody tells)
            await anyio.sleep(0.005)


@contextmanager
def raises(kind: type[Exception]) -> Generator[None]:
    """The block must raise such an error; one of Palaver's has a text."""
    caught: list[Exception] = []
    try:
        yield
    except kind as error:
        caught.append(error)
    assert caught, f"no {kind.__name__}"
    assert str(caught[0]) or not isinstance(caught[0], PalaverError), "an error without a text"


async def events_of_a_client_come_in_order(make: Make) -> None:
    """Many publish at once; every subscription sees each client's events in order, each once, at growing places."""
    clients, count = ("ann", "bob", "cid", "dan"), 150

    async def publish(bus: Bus, client: str) -> None:
        for number in range(count):
            bus.publish(said(number, client))
            if not number % 7:
                await anyio.lowlevel.checkpoint()

    size = count * len(clients)
    async with make() as bus, bus.subscribe(size=size) as all_, bus.subscribe(Where(client="bob"), size=size) as bobs:
        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(publish, bus, client)
        came = await take(all_, size)
        for client in clients:
            assert numbers([event for event in came if event.client == client]) == list(range(count)), client
        places = [event.place or 0 for event in came]
        assert places == sorted(set(places)), "places do not grow"
        assert len({event.id for event in came}) == size
        assert numbers(await take(bobs, count)) == list(range(count))
        assert (all_.dropped, bobs.dropped) == (0, 0)


async def every_field_filters(make: Make) -> None:
    """A filter admits what is equal in all that it names, live and from what was kept."""
    fields = ("client", "source", "type", "swarm", "agent", "run", "name")
    bare = {"client": "c", "source": "s", "type": "t"}
    given: list[dict[str, Any]] = [bare, *({**bare, field: f"other {field}"} for field in fields)]
    async with make() as bus:
        named: list[dict[str, Any]] = [{field: f"other {field}"} for field in fields]
        wheres = [Where(**each) for each in named]
        both = Where(client="c", source="s", type="other type")
        opened = [bus.subscribe(where) for where in (*wheres, both)]
        for each in opened:
            await each.__aenter__()
        for number, values in enumerate(given):
            bus.publish(said(number, **values))
        await bus.flush()
        expected = [*range(1, len(fields) + 1), fields.index("type") + 1]
        for each, number in zip(opened, expected, strict=True):
            assert numbers(await take(each, 1)) == [number]
            each.close()
            assert await rest(each) == [], "more than was asked for"
        for where, number in zip(wheres, expected, strict=False):
            assert numbers([await bus.once(where, since=Since(), timeout=PATIENCE)]) == [number]
        async with bus.subscribe(since=Since()) as kept:
            assert numbers(await take(kept, len(given))) == list(range(len(given)))


async def a_test_is_asked_last(make: Make) -> None:
    """``test`` sees only what the other fields admit; one that raises has said no, and breaks nothing."""
    seen: list[int] = []

    def odd(event: Event) -> bool:
        number: int = event.input["n"]
        seen.append(number)
        if number == 3:
            raise ValueError("a filter that fails")
        return bool(number % 2)

    async with make() as bus, bus.subscribe(Where(client="ann", test=odd)) as events:
        for number in range(8):
            bus.publish(said(number, "ann" if number < 6 else "bob"))
        bus.publish(said(9))
        assert numbers(await take(events, 3)) == [1, 5, 9]
        assert seen == [0, 1, 2, 3, 4, 5, 9]


async def one_event_can_be_waited_for(make: Make) -> None:
    """``once`` gives the first that fits, ``TimeoutError`` when none came, ``ClosedError`` when the bus ends."""
    came: list[Event] = []

    async def wait(bus: Bus, began: anyio.Event) -> None:
        began.set()
        came.append(await bus.once(Where(client="bob"), since=Since(), timeout=PATIENCE))

    async with make() as bus:
        async with anyio.create_task_group() as tasks:
            began = anyio.Event()
            tasks.start_soon(wait, bus, began)
            await began.wait()
            for number, client in enumerate(("ann", "bob", "bob")):
                bus.publish(said(number, client))
        assert numbers(came) == [1]
        with raises(TimeoutError):
            await bus.once(Where(client="nobody"), timeout=0.05)


async def a_subscription_begins_when_it_is_entered(make: Make) -> None:
    """What was kept before is not seen, everything published from then on is."""
    async with make() as bus:
        bus.publish(said(0))
        await bus.flush()
        events = bus.subscribe()
        with raises(SwarmError):
            await take(events, 1)
        async with events:
            bus.publish(said(1))
            assert numbers(await take(events, 1)) == [1]
            with raises(SwarmError):
                await events.__aenter__()


async def a_full_queue_loses_what_was_said(make: Make) -> None:
    """``drop_oldest`` keeps the newest, ``drop_newest`` the oldest, and both count what was lost."""
    async with (
        make() as bus,
        bus.subscribe(size=4) as newest,
        bus.subscribe(size=4, overflow="drop_newest") as oldest,
        bus.subscribe(size=10) as all_,
    ):
        for number in range(10):
            bus.publish(said(number))
        await bus.flush()
        await until(lambda: newest.dropped == 6 and oldest.dropped == 6)
        assert numbers(await take(newest, 4)) == [6, 7, 8, 9]
        assert numbers(await take(oldest, 4)) == [0, 1, 2, 3]
        assert numbers(await take(all_, 10)) == list(range(10))
        assert all_.dropped == 0
        bus.publish(said(10))
        assert numbers(await take(newest, 1) + await take(oldest, 1)) == [10, 10], "it does not go on"
        with raises(SwarmError):
            bus.subscribe(size=0)


async def a_full_queue_can_end_a_subscription(make: Make) -> None:
    """Under ``fail`` what waited is given, then ``BusyError``; nobody else notices."""
    async with make() as bus, bus.subscribe(size=3, overflow="fail") as strict, bus.subscribe() as other:
        for number in range(6):
            bus.publish(said(number))
        assert numbers(await take(other, 6)) == list(range(6))
        await until(lambda: strict.dropped > 0)
        assert numbers(await take(strict, 3)) == [0, 1, 2]
        with raises(BusyError):
            await rest(strict)


async def a_listener_can_neither_break_nor_delay(make: Make) -> None:
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
            bus.publish(said(number))
        with anyio.fail_after(PATIENCE):
            await bus.flush()
            for listener in (good, failing, slowly):
                await listener.idle()
        assert heard == raised == slow == list(range(50))
        await until(lambda: hanging.dropped >= 44)
        let_go.set()
        with anyio.fail_after(PATIENCE):
            await hanging.idle()


async def handlers_of_one_listener_never_overlap(make: Make) -> None:
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
            bus.publish(said(number))
        with anyio.fail_after(PATIENCE):
            await bus.flush()
            await one.idle()
    assert heard == list(range(30))


async def a_listener_may_publish(make: Make) -> None:
    """What a handler publishes is carried like anything else, also while the bus ends."""
    answers: list[int] = []
    async with make() as bus:
        await bus.listen(lambda event: bus.publish(said(event.input["n"] * 10, "bob")), Where(client="ann"))
        echo = await bus.listen(lambda event: answers.append(event.input["n"]), Where(client="bob"))
        async with bus.subscribe(Where(client="bob")) as bobs:
            for number in range(5):
                bus.publish(said(number))
            assert numbers(await take(bobs, 5)) == [0, 10, 20, 30, 40]
        with anyio.fail_after(PATIENCE):
            await echo.idle()
        assert answers == [0, 10, 20, 30, 40]


async def a_listener_can_hear_one_event(make: Make) -> None:
    """With ``once`` the function is called with the first event that fits, and never again."""
    heard: list[int] = []
    async with make() as bus:
        listener = await bus.listen(lambda event: heard.append(event.input["n"]), Where(client="bob"), once=True)
        everything = await bus.listen(lambda _: None)
        for number, client in enumerate(("ann", "bob", "bob", "bob")):
            bus.publish(said(number, client))
        with anyio.fail_after(PATIENCE):
            await bus.flush()
            await everything.idle()
            await until(lambda: bool(heard))
            await listener.idle()
        bus.publish(said(9, "bob"))
    assert heard == [1]


async def what_was_kept_can_be_replayed(make: Make) -> None:
    """``since`` begins behind a place, at a time, or with the oldest, and goes on with what comes."""
    async with make() as bus:
        for number in range(6):
            bus.publish(said(number, sent_at=1_700_000_000_000 + number if number < 3 else 4_000_000_000_000))
        await bus.flush()
        async with bus.subscribe(since=Since()) as events:
            kept = await take(events, 6)
            assert numbers(kept) == list(range(6))
        third = kept[2].place
        assert third is not None
        async with bus.subscribe(since=Since(place=third), size=1) as behind:
            assert numbers(await take(behind, 3)) == [3, 4, 5]
            bus.publish(said(6))
            assert numbers(await take(behind, 1)) == [6], "it does not go on"
            assert behind.dropped == 0
        heard: list[int] = []
        listener = await bus.listen(lambda event: heard.append(event.input["n"]), since=Since(place=third), size=1)
        with anyio.fail_after(PATIENCE):
            await listener.idle()
        assert heard == [3, 4, 5, 6], "a replay was too fast for its listener"
        async with bus.subscribe(since=Since(place=10**9)) as future:
            bus.publish(said(7))
            await bus.flush()
            future.close()
        async with bus.subscribe(Where(client="nobody"), since=Since()) as none:
            none.close()
            assert await rest(none) == []


async def what_was_sent_since_a_time_can_be_replayed(make: Make) -> None:
    """With a time, what was sent before it is left out, and what is published from now on is not."""
    async with make() as bus:
        bus.publish(said(0))
        await bus.flush()
        async with bus.subscribe(since=Since()) as events:
            at = (await take(events, 1))[0].sent_at
        for number in (1, 2, 3):
            bus.publish(said(number, sent_at=at + 10 * number))
        await bus.flush()
        async with bus.subscribe(since=Since(time=at + 20)) as events:
            bus.publish(said(4, sent_at=at))
            assert numbers(await take(events, 3)) == [2, 3, 4]
        async with bus.subscribe(since=Since(time=0)) as events:
            assert numbers(await take(events, 5)) == [0, 1, 2, 3, 4]


async def an_event_is_seen_once(make: Make) -> None:
    """A second delivery of an event, known by its id, is left out, live and when replayed (ASK-23)."""
    async with make() as bus, bus.subscribe() as events:
        first, second, odd = said(1), said(2), said(3, id="an id\r\nwith: a line end ä")
        for event in (first, second, first, second, odd, odd, said(4)):
            bus.publish(event)
        assert numbers(await take(events, 4)) == [1, 2, 3, 4]
        async with bus.subscribe(since=Since()) as kept:
            assert numbers(await take(kept, 4)) == [1, 2, 3, 4]


async def a_subscription_can_be_closed(make: Make) -> None:
    """What waits can still be read, nothing joins, and closing twice is allowed."""
    async with make() as bus:
        events = bus.subscribe(size=3, overflow="drop_newest")
        async with events, bus.subscribe() as other:
            for number in range(4):
                bus.publish(said(number))
            await until(lambda: events.dropped == 1)  # now the others wait
            events.close()
            events.close()
            bus.publish(said(4))
            assert numbers(await take(other, 5)) == list(range(5))
            assert numbers(await rest(events)) == [0, 1, 2]
        assert await rest(events) == []


async def a_listener_can_be_closed(make: Make) -> None:
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
            bus.publish(said(number))
        with anyio.fail_after(PATIENCE):
            await bus.flush()
            await other.idle()
            await until(lambda: len(heard) == 3)
            await listener.idle()
    assert heard == [0, 1, 2]


async def the_end_of_a_bus_is_told(make: Make) -> None:
    """Listeners hear the rest, iterations end, ``once`` raises, and nothing can be published or asked any more."""
    bus = make()
    with raises(ClosedError):
        bus.publish(said(0))
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
            bus.publish(said(number))
        await bus.flush()
        await until(lambda: len(seen) == 20)
        await anyio.lowlevel.checkpoint()
    assert heard == list(range(20))
    assert sorted(ended) == ["iteration", "once"]
    for ask in (lambda: bus.listen(slowly), lambda: bus.once(timeout=1)):
        with raises(ClosedError):
            await ask()
    with raises(ClosedError):
        bus.publish(said(1))
    with raises(SwarmError):
        await bus.__aenter__()


async def listeners_hear_the_rest_at_the_end(make: Make) -> None:
    """What was published just before a bus ended is heard by those who listen."""
    heard: list[int] = []
    async with make() as bus:
        await bus.listen(lambda event: heard.append(event.input["n"]))
        for number in range(200):
            bus.publish(said(number))
    assert heard == list(range(200))


async def an_error_or_a_cancellation_goes_through(make: Make) -> None:
    """The block's own error comes out as it is, and a cancelled block does not wait for its listeners."""
    bus = make()
    hangs = anyio.Event()

    async def hang(_event: Event) -> None:
        hangs.set()
        await anyio.sleep_forever()

    with anyio.fail_after(PATIENCE), anyio.CancelScope() as scope:
        async with bus:
            await bus.listen(hang)
            bus.publish(said(1))
            await hangs.wait()
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught, "a cancellation was swallowed"


async def messages_survive(make: Make) -> None:
    """Messages under ``message`` and JSON values come as they were given."""
    messages = (
        user("hällo \u2028", Image.from_bytes(bytes(range(256))), payload={"n": 5e-06}),
        assistant("a", ToolCall("c1", "f", ' {"b": 1.0}'), agent="sales", metadata={}),
        tool("t", tool_call_id="c1", is_error=True),
    )
    values: dict[str, Any] = {
        "text": "ä\x00",
        "none": None,
        "list": [1, {"x": []}],
        "big": 2**53,
        "part": 0.5,
        "yes": True,
    }
    async with make() as bus, bus.subscribe() as events:
        for message in messages:
            bus.publish(Event(source="history", type="push", client="ann", input={"message": message, "mode": "user"}))
        full = Event(
            source="my own",
            type="t",
            client="ann",
            swarm="s",
            agent="a",
            name="n",
            thread="th",
            run="r",
            input=values,
            output={"message": messages[0]},
        )
        bus.publish(full)
        came = await take(events, 4)
        assert [event.input.get("message") for event in came[:3]] == list(messages)
        assert came[3].place is not None
        assert came[3] == full.at(came[3].place)


async def clients_may_have_odd_names(make: Make) -> None:
    """Any text can name a client and a source, and a filter for it finds its events alone."""
    async with make() as bus, bus.subscribe() as events:
        for number, name in enumerate(ODD):
            bus.publish(said(number, name, source=name or "s"))
        came = await take(events, len(ODD))
        assert [event.client for event in came] == list(ODD)
        await bus.flush()
        for number, name in enumerate(ODD):
            wheres = (Where(client=name), Where(source=name or "s"))
            for where in wheres:
                async with bus.subscribe(where, since=Since()) as found:
                    assert numbers(await take(found, 1)) == [number], repr(name)
                    found.close()
                    assert await rest(found) == [], repr(name)


async def what_cannot_be_written_is_refused(make: Make) -> None:
    """Values that are not JSON, and text that is not Unicode, raise ``SwarmError``; nothing was published."""
    looped: list[Any] = []
    looped.append(looped)
    async with make() as bus, bus.subscribe(EVERYTHING) as events:
        for bad in (object(), {"deep": [object()]}, "\ud800", looped, {"\ud800": 1}):
            for event in (said(0, input={"x": bad}), said(0, output={"x": bad})):
                with raises(SwarmError):
                    bus.publish(event)
        for field in ("client", "source", "type", "agent"):
            with raises(SwarmError):
                bus.publish(said(0, **{field: "\ud800"}))
        bus.publish(said(1))
        assert numbers(await take(events, 1)) == [1]


CHECKS: Final[tuple[Check, ...]] = (
    a_subscription_begins_when_it_is_entered,
    events_of_a_client_come_in_order,
    every_field_filters,
    a_test_is_asked_last,
    one_event_can_be_waited_for,
    a_full_queue_loses_what_was_said,
    a_full_queue_can_end_a_subscription,
    a_listener_can_neither_break_nor_delay,
    handlers_of_one_listener_never_overlap,
    a_listener_may_publish,
    a_listener_can_hear_one_event,
    what_was_kept_can_be_replayed,
    what_was_sent_since_a_time_can_be_replayed,
    an_event_is_seen_once,
    a_subscription_can_be_closed,
    a_listener_can_be_closed,
    the_end_of_a_bus_is_told,
    listeners_hear_the_rest_at_the_end,
    an_error_or_a_cancellation_goes_through,
    messages_survive,
    clients_may_have_odd_names,
    what_cannot_be_written_is_refused,
)
"""Every check, in the order in which a new bus is best made to pass them."""
