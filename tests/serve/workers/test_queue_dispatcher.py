"""The desk over a queue, on a real NATS, without anybody who answers."""

import asyncio
import gc
from contextlib import suppress

import anyio
import pytest

from palaver.core.errors import ClosedError
from palaver.serve.workers.dispatcher import Reply
from palaver.serve.workers.queue_dispatcher import QueueDispatcher
from palaver.swarm import LocalBus

pytestmark = [pytest.mark.anyio, pytest.mark.server]


@pytest.fixture(params=["asyncio"])
def anyio_backend(request):
    return request.param


async def test_pending_asks_fail_when_the_dispatcher_closes(server):
    raised = []

    async def ask(desk, client):
        try:
            await desk.ask(client, "one")
        except ClosedError as error:
            raised.append(error)

    with anyio.fail_after(60):
        async with (
            LocalBus() as bus,
            anyio.create_task_group() as tasks,
            QueueDispatcher("office", nats=server.url, bus=bus) as desk,
        ):
            server.kill()
            for client in ("ann", "ann", "bob"):
                tasks.start_soon(ask, desk, client)
            await anyio.sleep(0.5)
    assert len(raised) == 3


def replies():
    """How many replies this process holds."""
    gc.collect()
    return sum(isinstance(each, Reply) for each in gc.get_objects())


async def test_a_turn_that_nobody_waits_for_any_more_is_forgotten(server):
    before = replies()
    async with (
        LocalBus() as bus,
        QueueDispatcher("office", nats=server.url, bus=bus) as desk,
        asyncio.TaskGroup() as tasks,
    ):
        asking = tasks.create_task(desk.ask("ann", "one"))
        for _ in range(5):
            with suppress(TimeoutError):
                await desk.ask("ann", "two", timeout=0.1)
        assert replies() <= before + 2  # the last one may still be held by its error
        asking.cancel()
