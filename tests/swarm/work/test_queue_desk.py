"""The desk over a queue, on a real NATS, without anybody who answers."""

import anyio
import pytest

from palaver.core.errors import ClosedError
from palaver.swarm import LocalBus
from palaver.swarm.work.queue_desk import QueueDesk

pytestmark = [pytest.mark.anyio, pytest.mark.server]


@pytest.fixture(params=["asyncio"])
def anyio_backend(request):
    return request.param


async def test_whoever_hands_something_in_when_the_desk_closes_is_told(server):
    raised = []

    async def ask(desk, client):
        try:
            await desk.ask(client, "one")
        except ClosedError as error:
            raised.append(error)

    with anyio.fail_after(20):
        async with (
            LocalBus() as bus,
            anyio.create_task_group() as tasks,
            QueueDesk("office", nats=server.url, bus=bus) as desk,
        ):
            server.kill()
            for client in ("ann", "ann", "bob"):
                tasks.start_soon(ask, desk, client)
            await anyio.sleep(0.5)
    assert len(raised) == 3
