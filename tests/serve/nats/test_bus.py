"""What only the bus over NATS promises: it outlives servers, and several processes share it."""

import asyncio
import gc
import logging
import subprocess
import sys
from datetime import timedelta

import anyio
import nats
import pytest

from palaver.core.errors import BusyError, SwarmError, TransportError
from palaver.serve.nats import NatsBus, feed
from palaver.serve.nats.bus import pattern, subject, token
from palaver.serve.nats.connection import Connection
from palaver.swarm.bus import Since, Where
from palaver.swarm.events import encode
from palaver.testing.buses import ODD, TIMEOUT, event_of, numbers, take, until
from tests.swarm.nats_server import URL, fresh_stream, open_bus

OWN = {"stream": "EVENTS", "prefix": "events"}


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def stream():
    with fresh_stream() as options:
        yield options


@pytest.mark.anyio
async def test_a_server_that_is_absent_is_named_without_its_password(anyio_backend):
    with pytest.raises(TransportError, match=r"nats://127\.0\.0\.1:1: ") as caught:
        async with NatsBus("nats://me:secret@127.0.0.1:1"):
            pass
    assert "secret" not in str(caught.value)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_another_event_loop_is_refused(anyio_backend):
    with pytest.raises(SwarmError, match="asyncio"):
        async with NatsBus(URL):
            pass


@pytest.mark.parametrize("options", [{"stream": "a.b"}, {"stream": ""}, {"prefix": "a.*"}, {"prefix": "a..b"}])
def test_names_that_no_server_takes_are_refused(options):
    with pytest.raises(SwarmError):
        NatsBus(URL, **options)


def test_the_client_of_nats_is_imported_by_its_own_bus_alone():
    code = "import sys, palaver.swarm, palaver.swarm.local_bus; print('nats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_any_text_is_one_token_and_no_two_share_it():
    tokens = {token(text) for text in ODD}
    assert len(tokens) == len(ODD)
    assert all(each and set(each).isdisjoint(". *>\r\n\t\x00") and each.isascii() for each in tokens)
    assert max(map(len, tokens)) <= 200
    assert subject("p", "a.b", "agent") == "p.a=2eb.agent"
    assert pattern("p", Where(client="*")) == "p.=2a.*"
    assert pattern("p", Where(source="x", agent="y")) == "p.*.x"


@pytest.mark.anyio
@pytest.mark.server
async def test_filters_are_the_servers_where_they_can_be(stream, anyio_backend):
    asked = []
    async with open_bus(stream) as bus:
        async with bus.subscribe(Where(client="a b", test=lambda event: asked.append(event.client) or True)) as events:
            for client in ("x", "a b", "y", "a b"):
                bus.publish(event_of(1, client))
            await take(events, 2)
            consumers = await (await bus._link.ready()).streams.consumers_info(stream["stream"])
        assert [each.config.filter_subject for each in consumers] == [f"{stream['prefix']}.a=20b.*"]
        await _settled(bus, stream, consumers=0)
    assert asked == ["a b", "a b"]


async def _settled(bus, stream, consumers):
    """Wait until the server has no more consumers than that; by itself it would take seconds."""
    streams = (await bus._link.ready()).streams
    with anyio.fail_after(60):
        while (await streams.stream_info(stream["stream"])).state.consumer_count > consumers:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.01)


@pytest.mark.anyio
@pytest.mark.server
@pytest.mark.row("ASK-23")
async def test_processes_share_a_stream(stream, anyio_backend):
    async with open_bus(stream) as one, open_bus(stream) as other, other.subscribe(size=500) as events:
        for number in range(200):
            one.publish(event_of(number, "ann"))
            other.publish(event_of(number, "bob"))
        came = await take(events, 400)
        for client in ("ann", "bob"):
            assert numbers([event for event in came if event.client == client]) == list(range(200))
        await one.flush()
        await other.flush()
        async with one.subscribe(since=Since(), size=1) as kept:
            assert await take(kept, 400) == came


@pytest.mark.anyio
@pytest.mark.server
async def test_a_stream_that_is_there_is_left_as_it_is_and_must_be_for_these_subjects(stream, anyio_backend):
    async with open_bus(stream, max_age=timedelta(hours=1)) as bus:
        async with open_bus(stream) as second:
            second.publish(event_of(1))
        info = await (await bus._link.ready()).streams.stream_info(stream["stream"])
        assert (info.config.max_age, info.state.messages) == (3600, 1)
        with pytest.raises(SwarmError, match="not for elsewhere"):
            async with open_bus(stream | {"prefix": "elsewhere"}):
                pass


@pytest.mark.anyio
@pytest.mark.server
async def test_an_outbox_that_is_full_gives_events_up_and_says_so_once(stream, anyio_backend, caplog):
    async with open_bus(stream, outbox=10) as bus, bus.subscribe() as events:
        for number in range(25):
            bus.publish(event_of(number))
        with pytest.raises(BusyError, match="15 events"):
            await bus.flush()
        bus.publish(event_of(99))
        await bus.flush()
        assert numbers(await take(events, 11)) == [*range(10), 99]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.anyio
@pytest.mark.server
async def test_an_event_that_is_too_large_is_refused_at_once(stream, anyio_backend):
    async with open_bus(stream) as bus, bus.subscribe() as events:
        with pytest.raises(SwarmError, match="more than the server accepts"):
            bus.publish(event_of(0, output={"text": "x" * 2**20}))
        bus.publish(event_of(1, output={"text": "x" * (2**20 - 2000)}))
        assert numbers(await take(events, 1)) == [1]


@pytest.mark.anyio
@pytest.mark.server
async def test_what_is_no_event_is_passed_over(stream, anyio_backend, caplog):
    async with open_bus(stream) as bus, bus.subscribe() as events:
        streams = (await bus._link.ready()).streams
        for data in (b"", b"{}", b"\xff", b'{"source":1}'):
            await streams.publish(f"{stream['prefix']}.ann.agent", data)
        bus.publish(event_of(1))
        assert numbers(await take(events, 1)) == [1]
    assert len(caplog.records) == 4


@pytest.mark.anyio
@pytest.mark.server
@pytest.mark.row("ASK-23")
@pytest.mark.parametrize("kills", [1, 3])
async def test_a_server_that_is_killed_loses_nothing(server, anyio_backend, kills, monkeypatch):
    """Killed in mid-publication and begun again on the same files: all events, in order, each once."""
    monkeypatch.setattr(feed, "REMEMBERED", 0)  # each goes on exactly where it was
    clients, count = ("ann", "bob", "cid"), 3000
    heard = []

    async def publish():
        for number in range(count):
            for client in clients:
                bus.publish(event_of(number, client))
            if not number % 20:
                await asyncio.sleep(0.002)

    async def disturb():
        for turn in range(1, kills + 1):
            await until(lambda mark=turn: len(heard) > mark * count // 2)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)

    size = count * len(clients)
    async with (
        open_bus(OWN, server.url) as bus,
        open_bus(OWN, server.url) as other,
        other.subscribe(size=size) as events,
    ):
        listener = await bus.listen(heard.append, size=size)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(disturb)
            tasks.start_soon(publish)
        with anyio.fail_after(TIMEOUT):
            await bus.flush()
            await listener.idle()
        came = await take(events, size)
        async with bus.subscribe(since=Since()) as kept:
            stored = await take(kept, size)
        info = await (await bus._link.ready()).streams.stream_info("EVENTS")
    for seen in (heard, came, stored):
        assert len({event.id for event in seen}) == len(seen) == size
        for client in clients:
            assert numbers([event for event in seen if event.client == client]) == list(range(count))
    assert info.state.messages == size


@pytest.mark.anyio
@pytest.mark.server
@pytest.mark.row("ASK-23")
async def test_a_connection_that_breaks_again_and_again_neither_loses_nor_doubles(stream, anyio_backend, monkeypatch):
    """What was written and not yet acknowledged is sent again; the server knows it by its id."""
    monkeypatch.setattr(feed, "REMEMBERED", 0)
    async with open_bus(stream) as bus, bus.subscribe(size=5000) as events:
        for number in range(5000):
            bus.publish(event_of(number))
        for _ in range(8):
            connection = await bus._link.ready()
            left = len(bus._outbox)
            await until(lambda mark=left: len(bus._outbox) < mark or not mark)
            bus._link.mark_broken(connection, OSError("cut by a test"))
        with anyio.fail_after(TIMEOUT):
            await bus.flush()
        assert numbers(await take(events, 5000)) == list(range(5000))
        info = await (await bus._link.ready()).streams.stream_info(stream["stream"])
        assert info.state.messages == 5000


@pytest.mark.anyio
@pytest.mark.server
@pytest.mark.row("ASK-23")
async def test_an_event_that_the_server_holds_twice_is_seen_once(stream, anyio_backend):
    event = event_of(1)
    async with open_bus(stream) as bus, bus.subscribe() as events:
        streams = (await bus._link.ready()).streams
        for _ in range(2):  # without an id for the server, as if it had forgotten it
            await streams.publish(subject(stream["prefix"], "ann", "agent"), encode(event))
        bus.publish(event_of(2))
        assert numbers(await take(events, 2)) == [1, 2]
        for _ in range(2):
            bus.publish(event_of(3, id="three"))
        await bus.flush()
        assert (await streams.stream_info(stream["stream"])).state.messages == 4


@pytest.mark.anyio
@pytest.mark.server
async def test_what_is_published_while_the_server_is_away_is_written_when_it_is_back(server, anyio_backend):
    async with open_bus(OWN, server.url) as bus, bus.subscribe() as events:
        bus.publish(event_of(0))
        await bus.flush()
        await asyncio.to_thread(server.kill)
        for number in range(1, 50):
            bus.publish(event_of(number))
        waits = asyncio.create_task(bus.flush())
        await asyncio.to_thread(server.start)
        await asyncio.wait_for(waits, TIMEOUT)
        assert numbers(await take(events, 50)) == list(range(50))


@pytest.mark.anyio
@pytest.mark.server
async def test_a_bus_ends_also_when_the_server_is_away(server, anyio_backend, caplog):
    with anyio.fail_after(TIMEOUT):
        async with open_bus(OWN, server.url, grace=0.2) as bus:
            await bus.listen(lambda _: None)
            await asyncio.to_thread(server.kill)
            bus.publish(event_of(1))
    assert "before all events were written" in caplog.text


@pytest.mark.anyio
@pytest.mark.server
async def test_a_stream_that_was_deleted_is_made_anew(stream, anyio_backend):
    async with open_bus(stream) as bus, bus.subscribe() as events:
        for number in range(3):
            bus.publish(event_of(number))
        assert len(await take(events, 3)) == 3
        client = await nats.connect(URL)
        await client.jetstream().delete_stream(stream["stream"])
        await client.close()
        bus.publish(event_of(3))
        with anyio.fail_after(TIMEOUT):
            await bus.flush()
        assert numbers(await take(events, 1)) == [3]


@pytest.mark.anyio
@pytest.mark.server
async def test_every_flush_raises_for_events_that_were_dropped(stream, anyio_backend):
    told = []

    async def say(number):
        bus.publish(event_of(number))
        try:
            await bus.flush()
        except BusyError:
            told.append(number)

    async with open_bus(stream, outbox=1) as bus:
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(say, number)
        assert set(told) >= {1, 2, 3}
        await bus.flush()


@pytest.mark.anyio
@pytest.mark.server
async def test_a_connection_that_breaks_while_it_closes_leaves_nothing(server, anyio_backend, monkeypatch):
    async def broken():
        raise ConnectionResetError

    async def heard(_):
        pass

    unobserved = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unobserved.append(context))
    before = asyncio.all_tasks()
    connection = Connection()
    await connection.open(server.url)
    await connection.subscribe("anything", heard)
    monkeypatch.setattr(connection.client._transport, "drain", broken)
    connection.client._flusher_task.cancel()
    await asyncio.sleep(0)
    await connection.client.publish("anything", b"not sent any more")
    await asyncio.to_thread(server.kill)
    with anyio.fail_after(60):
        await asyncio.wait([connection.client._reading_task])
    await connection.close()
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() <= before
    del connection
    gc.collect()
    assert unobserved == []
