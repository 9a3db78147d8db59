"""The queue of turns, on a real NATS."""

import asyncio

import anyio
import nats
import pytest

from palaver.core.errors import BusyError, SwarmError, TransportError
from palaver.serve.workers.queue import PartitionConsumer, TurnQueue, TurnRequest, partition_of

pytestmark = [pytest.mark.anyio, pytest.mark.server]


@pytest.fixture(params=["asyncio"])
def anyio_backend(request):
    return request.param


def request(n, client="ann", **more):
    return TurnRequest(run=f"r{n}", client=client, text=str(n), **more)


class Owner:
    """Takes the turns of one partition, and remembers them."""

    def __init__(self, queue, fence, partition=0):
        self.heard, self.cancelled = [], []
        self._came = anyio.Event()
        self.intake = PartitionConsumer(queue, partition, fence, self._hear, self._cancel)

    def _hear(self, delivery):
        self.heard.append(delivery)
        self._came.set()

    async def _cancel(self, client):
        self.cancelled.append(client)
        return client == "ann"

    async def texts(self, count):
        """Wait for so many turns; give their texts."""
        with anyio.fail_after(60):
            while len(self.heard) < count:
                self._came = anyio.Event()
                await self._came.wait()
        return [each.request.text for each in self.heard]


async def stopped(task):
    """End a task. What waits in `asyncio.wait_for` forgets, on Python 3.11, a cancel that comes with its answer."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.1)


def test_a_client_belongs_to_one_partition_and_clients_to_all_of_them():
    found = [partition_of(f"client {n}", 8) for n in range(800)]
    assert partition_of("ann", 64) == 37
    assert min(found.count(n) for n in range(8)) > 60


async def test_turns_come_in_order_and_are_gone_when_they_are_acknowledged(server):
    async with TurnQueue(server.url, "office", partitions=1) as queue, asyncio.TaskGroup() as tasks:
        for n in range(5):
            await queue.send(request(n, payload={"n": n}))
        owner = Owner(queue, 1)
        running = tasks.create_task(owner.intake.run())
        assert await owner.texts(5) == ["0", "1", "2", "3", "4"]
        assert owner.heard[3].request.payload == {"n": 3}
        for delivery in owner.heard[:3]:
            await owner.intake.acknowledge(delivery.place)
        await stopped(running)
        other = Owner(queue, 2)
        running = tasks.create_task(other.intake.run())
        assert await other.texts(2) == ["3", "4"]
        await stopped(running)


@pytest.mark.row("ASK-29")
async def test_a_new_owner_is_given_all_that_is_not_acknowledged_and_the_old_one_nothing_more(server):
    async with TurnQueue(server.url, "office", partitions=1) as queue, asyncio.TaskGroup() as tasks:
        old, new = Owner(queue, 1), Owner(queue, 2)
        was = tasks.create_task(old.intake.run())
        await queue.send(request(0))
        await queue.send(request(1))
        assert await old.texts(2) == ["0", "1"]
        running = tasks.create_task(new.intake.run())
        assert await new.texts(2) == ["0", "1"]
        await queue.send(request(2))
        assert await new.texts(3) == ["0", "1", "2"]
        assert len(old.heard) == 2
        late = Owner(queue, 1)
        await asyncio.wait_for(late.intake.run(), 60)
        assert late.heard == []
        with anyio.fail_after(60):
            await was
        await stopped(running)


@pytest.mark.row("ASK-29")
async def test_a_restart_of_the_server_neither_loses_nor_doubles_turns(server):
    async with TurnQueue(server.url, "office", partitions=1) as queue, asyncio.TaskGroup() as tasks:
        owner = Owner(queue, 1)
        running = tasks.create_task(owner.intake.run())
        for n in range(3):
            await queue.send(request(n))
        await owner.texts(3)
        server.kill()
        sending = [tasks.create_task(queue.send(request(3))), tasks.create_task(owner.intake.acknowledge(1))]
        server.start()
        await asyncio.gather(*sending)
        assert await owner.texts(4) == ["0", "1", "2", "3"]
        for delivery in owner.heard[1:]:
            await owner.intake.acknowledge(delivery.place)
        await stopped(running)
        client = await nats.connect(server.url)
        info = await client.jetstream().stream_info(queue.stream)
        await client.close()
        assert info.state.messages == 0


async def test_the_owner_is_asked_to_cancel(server):
    async with TurnQueue(server.url, "office", partitions=1) as queue, asyncio.TaskGroup() as tasks:
        assert not await queue.cancel("ann", 1)
        owner = Owner(queue, 1)
        running = tasks.create_task(owner.intake.run())
        await queue.send(request(0))
        await owner.texts(1)
        assert await queue.cancel("ann", 5)
        assert not await queue.cancel("bob", 5)
        assert owner.cancelled == ["ann", "bob"]
        await stopped(running)


async def test_what_the_queue_cannot_take_is_refused(server):
    with pytest.raises(SwarmError, match="partition"):
        TurnQueue(server.url, "office", partitions=0)
    async with TurnQueue(server.url, "office", partitions=2, max_bytes=2000) as queue:
        with pytest.raises(SwarmError, match="partitions"):
            await TurnQueue(server.url, "office", partitions=3).__aenter__()
        with pytest.raises(SwarmError, match="JSON"):
            await queue.send(request(0, payload=object()))
        with pytest.raises(SwarmError, match="bytes"):
            await queue.send(TurnRequest(run="r", client="ann", text="x" * 2_000_000))

        async def fill():
            for n in range(100):
                await queue.send(request(n))

        with pytest.raises(BusyError, match="full"):
            await fill()


async def test_a_server_that_is_not_there_is_named():
    with pytest.raises(TransportError, match=r"127\.0\.0\.1:1"):
        await TurnQueue("nats://127.0.0.1:1", "office").__aenter__()


async def test_who_asks_for_a_cancel_waits_no_longer_than_told_when_the_server_is_away(server):
    async with TurnQueue(server.url, "office", partitions=1) as queue:
        server.kill()
        with anyio.fail_after(60):
            assert not await queue.cancel("ann", 0.5)
            assert not await queue.cancel("ann", 0.5)
