"""Checks of delivery: to whom, in which order, how often, and from when on.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any

import anyio

from palaver.core.errors import SwarmError
from palaver.core.factories import assistant, tool, user
from palaver.core.parts import Image, ToolCall
from palaver.swarm.bus import EVERYTHING, Bus, Since, Where
from palaver.swarm.events import Event
from palaver.testing.buses.helpers import ODD, TIMEOUT, MakeBus, event_of, numbers, raises, rest, take


async def events_of_a_client_come_in_order(make: MakeBus) -> None:
    """Many publish at once; every subscription sees each client's events in order, each once, at growing places."""
    clients, count = ("ann", "bob", "cid", "dan"), 150

    async def publish(bus: Bus, client: str) -> None:
        for number in range(count):
            bus.publish(event_of(number, client))
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


async def every_field_filters(make: MakeBus) -> None:
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
            bus.publish(event_of(number, **values))
        await bus.flush()
        expected = [*range(1, len(fields) + 1), fields.index("type") + 1]
        for each, number in zip(opened, expected, strict=True):
            assert numbers(await take(each, 1)) == [number]
            each.close()
            assert await rest(each) == [], "more than was asked for"
        for where, number in zip(wheres, expected, strict=False):
            assert numbers([await bus.once(where, since=Since(), timeout=TIMEOUT)]) == [number]
        async with bus.subscribe(since=Since()) as kept:
            assert numbers(await take(kept, len(given))) == list(range(len(given)))


async def a_test_runs_last(make: MakeBus) -> None:
    """``test`` sees only what the other fields admit; a filter that raises rejects the event; nothing else fails."""
    seen: list[int] = []

    def odd(event: Event) -> bool:
        number: int = event.input["n"]
        seen.append(number)
        if number == 3:
            raise ValueError("a filter that fails")
        return bool(number % 2)

    async with make() as bus, bus.subscribe(Where(client="ann", test=odd)) as events:
        for number in range(8):
            bus.publish(event_of(number, "ann" if number < 6 else "bob"))
        bus.publish(event_of(9))
        assert numbers(await take(events, 3)) == [1, 5, 9]
        assert seen == [0, 1, 2, 3, 4, 5, 9]


async def one_event_can_be_waited_for(make: MakeBus) -> None:
    """``once`` gives the first that fits, ``TimeoutError`` when none came, ``ClosedError`` when the bus ends."""
    came: list[Event] = []

    async def wait(bus: Bus, began: anyio.Event) -> None:
        began.set()
        came.append(await bus.once(Where(client="bob"), since=Since(), timeout=TIMEOUT))

    async with make() as bus:
        async with anyio.create_task_group() as tasks:
            began = anyio.Event()
            tasks.start_soon(wait, bus, began)
            await began.wait()
            for number, client in enumerate(("ann", "bob", "bob")):
                bus.publish(event_of(number, client))
        assert numbers(came) == [1]
        with raises(TimeoutError):
            await bus.once(Where(client="nobody"), timeout=0.05)


async def a_subscription_begins_when_it_is_entered(make: MakeBus) -> None:
    """What was kept before is not seen, everything published from then on is."""
    async with make() as bus:
        bus.publish(event_of(0))
        await bus.flush()
        events = bus.subscribe()
        with raises(SwarmError):
            await take(events, 1)
        async with events:
            bus.publish(event_of(1))
            assert numbers(await take(events, 1)) == [1]
            with raises(SwarmError):
                await events.__aenter__()


async def stored_events_can_be_replayed(make: MakeBus) -> None:
    """``since`` begins behind a place, at a time, or with the oldest, and goes on with what comes."""
    async with make() as bus:
        for number in range(6):
            bus.publish(event_of(number, sent_at=1_700_000_000_000 + number if number < 3 else 4_000_000_000_000))
        await bus.flush()
        async with bus.subscribe(since=Since()) as events:
            kept = await take(events, 6)
            assert numbers(kept) == list(range(6))
        third = kept[2].place
        assert third is not None
        async with bus.subscribe(since=Since(place=third), size=1) as behind:
            assert numbers(await take(behind, 3)) == [3, 4, 5]
            bus.publish(event_of(6))
            assert numbers(await take(behind, 1)) == [6], "it does not go on"
            assert behind.dropped == 0
        heard: list[int] = []
        listener = await bus.listen(lambda event: heard.append(event.input["n"]), since=Since(place=third), size=1)
        with anyio.fail_after(TIMEOUT):
            await listener.idle()
        assert heard == [3, 4, 5, 6], "a replay was too fast for its listener"
        async with bus.subscribe(since=Since(place=10**9)) as future:
            bus.publish(event_of(7))
            await bus.flush()
            future.close()
        async with bus.subscribe(Where(client="nobody"), since=Since()) as none:
            none.close()
            assert await rest(none) == []


async def events_since_a_time_can_be_replayed(make: MakeBus) -> None:
    """With a time, what was sent before it is left out, and what is published from now on is not."""
    async with make() as bus:
        bus.publish(event_of(0))
        await bus.flush()
        async with bus.subscribe(since=Since()) as events:
            at = (await take(events, 1))[0].sent_at
        for number in (1, 2, 3):
            bus.publish(event_of(number, sent_at=at + 10 * number))
        await bus.flush()
        async with bus.subscribe(since=Since(time=at + 20)) as events:
            bus.publish(event_of(4, sent_at=at))
            assert numbers(await take(events, 3)) == [2, 3, 4]
        async with bus.subscribe(since=Since(time=0)) as events:
            assert numbers(await take(events, 5)) == [0, 1, 2, 3, 4]


async def an_event_is_seen_once(make: MakeBus) -> None:
    """A second delivery of an event, known by its id, is left out, live and when replayed (ASK-23)."""
    async with make() as bus, bus.subscribe() as events:
        first, second, odd = event_of(1), event_of(2), event_of(3, id="an id\r\nwith: a line end ä")
        for event in (first, second, first, second, odd, odd, event_of(4)):
            bus.publish(event)
        assert numbers(await take(events, 4)) == [1, 2, 3, 4]
        async with bus.subscribe(since=Since()) as kept:
            assert numbers(await take(kept, 4)) == [1, 2, 3, 4]


async def messages_survive(make: MakeBus) -> None:
    """Messages under ``message`` and JSON values come as they were given."""
    messages = (
        user("hällo \u2028", Image.from_bytes(bytes(range(256))), payload={"n": 5e-06}),
        assistant("a", ToolCall("c1", "f", ' {"b": 1.0}'), agent="sales", metadata={}),
        tool("t", tool_call_id="c1", is_error=True),
    )
    values: dict[str, Any] = {
        "text": "ä\x00",
        "half": "\ud83d",
        "\udc00": ["\ud800 \\ud800 \U0001f600"],
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


async def clients_may_have_odd_names(make: MakeBus) -> None:
    """Any text can name a client and a source, and a filter for it finds its events alone."""
    async with make() as bus, bus.subscribe() as events:
        for number, name in enumerate(ODD):
            bus.publish(event_of(number, name, source=name or "s"))
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


async def unencodable_events_are_refused(make: MakeBus) -> None:
    """Values that are not JSON, and names that are not Unicode, raise ``SwarmError``; nothing was published."""
    looped: list[Any] = []
    looped.append(looped)
    async with make() as bus, bus.subscribe(EVERYTHING) as events:
        for bad in (object(), {"deep": [object()]}, looped, {"half": "\ud800", "deep": object()}):
            for event in (event_of(0, input={"x": bad}), event_of(0, output={"x": bad})):
                with raises(SwarmError):
                    bus.publish(event)
        for field in ("client", "source", "type", "agent"):
            with raises(SwarmError):
                bus.publish(event_of(0, **{field: "\ud800"}))
        bus.publish(event_of(1))
        assert numbers(await take(events, 1)) == [1]
