"""What only the bus of a process promises."""

import logging

import anyio
import pytest

from palaver.core.errors import SwarmError
from palaver.swarm.bus import Since, Where
from palaver.swarm.local_bus import LocalBus
from palaver.testing.buses import event_of, numbers, take

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


async def test_no_more_is_kept_than_was_asked_for():
    async with LocalBus(history=3) as bus:
        for number in range(10):
            bus.publish(event_of(number))
        async with bus.subscribe(since=Since()) as events:
            kept = await take(events, 3)
        assert (numbers(kept), [event.place for event in kept]) == ([7, 8, 9], [8, 9, 10])
        async with bus.subscribe(since=Since(place=9)) as events:
            assert numbers(await take(events, 1)) == [9]
    with pytest.raises(SwarmError):
        LocalBus(history=-1)


async def test_nothing_need_be_kept():
    async with LocalBus(history=0) as bus, bus.subscribe(since=Since()) as events:
        for number in range(3):
            bus.publish(event_of(number))
        assert [(event.input["n"], event.place) for event in await take(events, 3)] == [(0, 1), (1, 2), (2, 3)]


async def test_nobody_is_asked_about_clients_that_others_listen_to():
    asked = []
    async with LocalBus() as bus:
        for number in range(50):
            await bus.listen(
                lambda _: None, Where(client=f"c{number}", test=lambda event: asked.append(event.client) or True)
            )
        bus.publish(event_of(1, "c7"))
        bus.publish(event_of(2, "nobody"))
    assert asked == ["c7"]


async def test_an_error_of_a_handler_is_logged_and_not_raised(caplog):
    async with LocalBus() as bus:

        async def fails(_event):
            raise RuntimeError("oh")

        listener = await bus.listen(fails)
        bus.publish(event_of(1))
        await listener.idle()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("palaver.swarm", logging.ERROR)
    assert "agent run client=ann" in record.getMessage()


async def test_a_handler_that_hangs_holds_the_end_up_for_the_grace_alone(caplog):
    with anyio.fail_after(60):
        async with LocalBus(grace=0.05) as bus:
            await bus.listen(lambda _: anyio.sleep_forever())
            bus.publish(event_of(1))
    assert "closed before all events were" in caplog.text


async def test_a_listener_that_must_lose_nothing_is_closed_with_a_word(caplog):
    async with LocalBus() as bus:
        heard = []
        await bus.listen(lambda event: heard.append(event.input["n"]), size=2, overflow="fail")
        for number in range(5):
            bus.publish(event_of(number))
    assert heard == [0, 1]
    assert "a listener was too slow" in caplog.text


async def test_the_error_of_the_block_comes_out_as_it_is():
    async def fail():
        async with LocalBus() as bus:
            await bus.listen(print)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fail()


async def test_a_listener_may_listen():
    heard = []
    async with LocalBus() as bus:

        async def hear(event):
            await bus.listen(lambda each: heard.append(each.input["n"]), Where(client="bob"), since=Since())

        await bus.listen(hear, Where(client="ann"))
        bus.publish(event_of(1, "bob"))
        bus.publish(event_of(2, "ann"))
    assert heard == [1]
