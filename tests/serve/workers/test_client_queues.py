"""The queues of clients."""

import anyio
import pytest

from palaver.models.scripted import ScriptedModel
from palaver.serve.workers.client_queues import ClientQueues
from palaver.store.memory import MemoryStore
from palaver.swarm import Swarm, SwarmAgent

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("end", ["drop", "finish"])
async def test_work_that_joins_a_queue_at_its_end_is_done_behind_it(end):
    began, ended, closing, let, done = (anyio.Event() for _ in range(5))
    said = []

    async def on_close(_):
        closing.set()
        await let.wait()
        said.append("closed")

    async def first(lane):
        await lane.session()
        began.set()
        await ended.wait()

    async def second(lane):
        said.append("second")
        done.set()

    swarm = Swarm("office", [SwarmAgent("desk", ScriptedModel([], then="hi"))], on_close=on_close)
    async with (
        swarm.start(store=MemoryStore()) as live,
        ClientQueues(live) as lanes,
        anyio.create_task_group() as tasks,
    ):
        lanes.put("ann", first)
        await began.wait()
        if end == "drop":
            lanes.drop(["ann"])
        else:
            tasks.start_soon(lanes.finish, ["ann"])
        await anyio.wait_all_tasks_blocked()
        ended.set()
        await closing.wait()
        lanes.put("ann", second)
        let.set()
        with anyio.fail_after(60):
            await done.wait()
        assert said == ["closed", "second"]
