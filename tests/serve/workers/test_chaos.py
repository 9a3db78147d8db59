"""Nothing is lost, doubled or out of order, whatever is killed."""

import asyncio
import random

import pytest

from tests.serve.workers import chaos
from tests.serve.workers.stage import fresh_stage

pytestmark = [pytest.mark.anyio, pytest.mark.server, pytest.mark.law(7), pytest.mark.row("ASK-29")]


@pytest.fixture(params=["asyncio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
def stage(server, request):
    with fresh_stage(server.url, clean=False, partitions=request.param) as stage:
        yield stage


async def turmoil(stage, server, *, clients, rounds, pause):
    """Let clients talk while the ``rounds`` are gone through, each a name of what is killed."""
    options = {"delay": 0.02, "tool_delay": 0.05}
    for _ in range(3):
        stage.worker(**options)
    async with chaos.crowd(stage, clients) as talking:
        owners, replaced = set(await stage.owned(3)), False
        for each in rounds:
            await asyncio.sleep(pause)
            # A worker that begins without its servers ends. The one that is dead owns until its leases end, so what is
            # waited for is an owner that was not there before.
            while each != "worker" and replaced:
                replaced = set(await stage.owned(3)) <= owners
            if each == "worker":
                owners, replaced = owners | set(await stage.owned(3)), True
                stage.kill(random.choice(stage.workers))
                stage.worker(**options)
            elif each == "nats":
                server.kill()
                await asyncio.sleep(0.5)
                server.start()
            else:
                chaos.cut_connections(stage.database)
        await asyncio.sleep(pause)
    await stage.owned(3)
    await chaos.check(stage, talking)
    for process in list(stage.workers):
        stage.stop(process)
    assert {each.owner for each in await stage.leases()} == {None}
    return talking


@pytest.mark.parametrize("stage", [16], indirect=True)
async def test_clients_while_workers_and_nats_are_killed(stage, server):
    talking = await turmoil(stage, server, clients=8, rounds=("worker", "nats", "worker"), pause=1.5)
    assert all(talking.said.values())


@pytest.mark.long
@pytest.mark.parametrize("stage", [64], indirect=True)
async def test_two_hundred_clients_for_two_minutes(stage, server):
    killed = (
        "worker",
        "nats",
        "worker",
        "postgres",
        "worker",
        "worker",
        "nats",
        "worker",
        "postgres",
        "worker",
        "nats",
    )
    talking = await turmoil(stage, server, clients=200, rounds=killed, pause=10)
    assert all(talking.said.values())
