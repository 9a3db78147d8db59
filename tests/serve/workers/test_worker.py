"""Workers as processes: a turn is answered once, whoever dies."""

import asyncio
import gc
import signal
from contextlib import asynccontextmanager

import anyio
import psycopg
import pytest

from palaver.core.errors import SwarmError, TurnError
from palaver.models.scripted import ScriptedModel
from palaver.serve.workers.queue import partition_of
from palaver.serve.workers.worker import Worker, run_worker
from palaver.swarm import Swarm, SwarmAgent, Where
from palaver.swarm.log import record
from palaver.testing.buses import until
from tests.serve.workers.serving import NAME, answer_to, swarm
from tests.serve.workers.stage import fresh_stage

pytestmark = [pytest.mark.anyio, pytest.mark.server]


@pytest.fixture(params=["asyncio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
def stage():
    with fresh_stage() as stage:
        yield stage


async def test_messages_of_many_clients_are_answered_in_order(stage):
    stage.worker()
    clients = [f"client {n}" for n in range(10)]
    texts = [str(n) for n in range(5)]
    answers = {client: [] for client in clients}

    async def ask(desk, client, text):
        answers[client].append(await desk.ask(client, text, timeout=60))

    async with stage.desk() as desk, anyio.create_task_group() as tasks:
        for text in texts:
            for client in clients:
                tasks.start_soon(ask, desk, client, text)
    for client in clients:
        assert answers[client] == [answer_to(text) for text in texts]
        stage.check(client, texts)
    stage.stop(stage.workers[0])
    assert {each.owner for each in await stage.leases()} == {None}


async def test_an_error_is_an_answer_and_stays_one(stage):
    stage.worker()
    async with stage.desk() as desk:
        for _ in range(2):
            with pytest.raises(TurnError, match="no idea"):
                await desk.ask("ann", "fail", run="r1", timeout=60)
        assert await desk.ask("ann", "plain", timeout=60) == answer_to("plain")
    assert [each.text for each in stage.messages("ann")] == ["fail", "plain", answer_to("plain")]


async def test_a_damaged_thread_fails_only_its_own_client(stage):
    stage.store.create(f"{NAME}/ann")
    stage.store.append(f"{NAME}/ann", [record("lease", NAME, "no number")])
    stage.worker()
    async with stage.desk(retry_after=60.0) as desk:
        with pytest.raises(TurnError, match="TypeError"):
            await desk.ask("ann", "one", timeout=60)
        assert await desk.ask("bob", "one", timeout=60) == answer_to("one")
    stage.check("bob", ["one"])


async def test_a_turn_that_is_asked_again_is_answered_from_the_thread(stage):
    stage.worker()
    async with stage.desk() as desk:
        first = await desk.ask("ann", "one", run="r1", timeout=60)
        assert await desk.ask("ann", "one", run="r1", timeout=60) == first
    stage.check("ann", ["one"])


async def test_a_turn_under_way_can_be_cancelled(stage):
    stage.worker(tool_delay=60)
    async with stage.desk() as desk, anyio.create_task_group() as tasks:
        answers = []

        async def ask():
            answers.append(await desk.ask("ann", "one", timeout=60))

        async with desk.bus.subscribe(Where(client="ann", source="history")) as events:
            tasks.start_soon(ask)
            async for event in events:
                if event.input["message"].role == "assistant":
                    break
        assert await desk.cancel("ann")
        assert not await desk.cancel("bob")
    assert answers == [""]


@pytest.mark.row("ASK-29")
async def test_a_turn_of_a_worker_that_was_killed_goes_on_with_another(stage):
    first = stage.worker(tool_delay=60)
    async with stage.desk() as desk, asyncio.TaskGroup() as tasks:
        async with desk.bus.subscribe(Where(client="ann", source="history")) as events:
            asking = [tasks.create_task(desk.ask("ann", text, timeout=60)) for text in ("one", "two")]
            async for event in events:
                if event.input["message"].role == "assistant":
                    break
        stage.kill(first)
        stage.worker()
        assert [await each for each in asking] == [answer_to("one"), answer_to("two")]
    stage.check("ann", ["one", "two"])


@pytest.mark.row("ASK-29")
async def test_a_new_worker_gets_its_share_and_turns_under_way_come_to_their_end(stage):
    stage.worker(tool_delay=0.3)
    clients = [f"client {n}" for n in range(24)]
    texts = [str(n) for n in range(4)]

    async def talk(desk, client):
        for text in texts:
            assert await desk.ask(client, text, timeout=60) == answer_to(text)

    async with stage.desk() as desk:
        await stage.owned(1)
        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(talk, desk, client)
            stage.worker(tool_delay=0.3)
            await stage.owned(2)
        stage.stop(stage.workers[0])
        await stage.owned(1)
        assert await desk.ask("client 0", "plain", timeout=60) == answer_to("plain")
    stage.check("client 0", [*texts, "plain"])
    for client in clients[1:]:
        stage.check(client, texts)


@pytest.mark.row("ASK-29")
async def test_a_worker_that_wakes_up_behind_its_lease_writes_nothing(stage):
    sleeper = stage.worker(tool_delay=1.0)
    async with stage.desk() as desk, asyncio.TaskGroup() as tasks:
        async with desk.bus.subscribe(Where(client="ann", source="history")) as events:
            asking = tasks.create_task(desk.ask("ann", "one", timeout=60))
            async for event in events:
                if event.input["message"].role == "assistant":
                    break
        sleeper.send_signal(signal.SIGSTOP)
        other = stage.worker()
        assert await asking == answer_to("one")
        assert await desk.ask("ann", "two", timeout=60) == answer_to("two")
        sleeper.send_signal(signal.SIGCONT)
        await stage.owned(2)
        assert await desk.ask("ann", "three", timeout=60) == answer_to("three")
        stage.stop(other)
        await stage.owned(1)
        assert await desk.ask("ann", "four", timeout=60) == answer_to("four")
    stage.check("ann", ["one", "two", "three", "four"])
    said = [each for each in stage.messages("ann") if each.text == "one"]
    assert len(said) == 1


async def test_workers_share_a_store_in_postgresql():
    with pytest.raises(SwarmError, match="PostgreSQL"):
        await run_worker(swarm(), store="sqlite:talks.db", bus="nats://127.0.0.1")


@asynccontextmanager
async def at_work(stage, made, own=8, **options):
    """A worker within this process, as soon as it owns so many partitions."""
    given = {"partitions": stage.options["partitions"], "prefix": stage.prefix, "ttl": stage.options["ttl"]} | options
    async with (
        stage.bus() as bus,
        Worker(made, store=stage.store, bus=bus, nats=stage.url, postgres=stage.database, **given) as worker,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(worker.run)
        while len(worker.partitions) < own:
            await worker.changed()
        yield worker
        tasks.cancel_scope.cancel()


def one_of(partition, partitions=8):
    """A client of a partition."""
    return next(name for name in map("client {}".format, range(1000)) if partition_of(name, partitions) == partition)


async def test_partitions_that_are_lost_are_let_go_of_at_once_and_the_others_kept(stage):
    began, cancelled, let = [], [], anyio.Event()

    async def operate(place, text):
        began.append(place.client)
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append(place.client)

    async def on_close(session):
        if session.client == clients[0]:
            await let.wait()

    clients = []
    made = Swarm(NAME, [SwarmAgent("desk", operator=operate, operator_timeout=60)], on_close=on_close)
    async with at_work(stage, made) as worker, stage.desk() as desk, anyio.create_task_group() as tasks:
        order = list(worker.partitions)
        clients += [one_of(partition) for partition in order[:4]]
        for client in clients:
            tasks.start_soon(desk.ask, client, "one")
        await until(lambda: len(began) == 4)
        lost = [f"{NAME}/{partition}" for partition in order[:3]]
        with psycopg.connect(stage.database, autocommit=True) as connection:
            connection.execute(
                "update palaver.palaver_leases set owner = 'other', fence = nextval('palaver.palaver_fences'),"
                " expires = now() + interval '1 hour' where name = any(%s)",
                [lost],
            )
        try:
            await until(lambda: len(cancelled) == 3)
            await anyio.sleep(1.5 * stage.options["ttl"])
            assert set(cancelled) == set(clients[:3])
            assert set(worker.partitions) == set(order[3:])
        finally:
            let.set()
        tasks.cancel_scope.cancel()


async def test_a_worker_remembers_no_client_that_is_gone(stage):
    made = Swarm(NAME, [SwarmAgent("desk", ScriptedModel([], then="hi"))])
    clients = [f"client {n} of {stage.prefix}" for n in range(8)]
    async with at_work(stage, made, idle=0.01) as worker, stage.desk() as desk:
        for client in clients:
            assert await desk.ask(client, "one", timeout=60) == "hi"
        await until(lambda: not worker.client_queues.clients)
        held = [each for each in gc.get_objects() if type(each) is set and clients[0] in each]
        assert held == []


async def test_leases_are_renewed_while_turns_end_one_after_the_other(stage):
    request = []

    async def operate(place, text):
        request.append(place.client)
        await anyio.sleep(float(text))
        return "done"

    made = Swarm(NAME, [SwarmAgent("desk", operator=operate, operator_timeout=60)])
    clients = [one_of(partition, 16) for partition in range(16)]
    async with (
        stage.desk(partitions=16, retry_after=60.0) as desk,
        asyncio.TaskGroup() as turns,
        at_work(stage, made, own=16, partitions=16, ttl=3.0) as worker,
    ):
        asking = [turns.create_task(desk.ask(client, f"{1 + 0.3 * n}", timeout=60)) for n, client in enumerate(clients)]
        await until(lambda: len(request) == 16)
        worker.stop()
        assert await asyncio.gather(*asking) == ["done"] * 16
    assert sorted(request) == sorted(clients)


async def test_partitions_of_a_worker_that_stops_go_to_others_before_its_last_turn_ends(stage):
    request, let = anyio.Event(), anyio.Event()

    async def operate(place, text):
        request.set()
        await let.wait()
        return "done"

    made = Swarm(NAME, [SwarmAgent("desk", operator=operate, operator_timeout=60)])
    async with (
        stage.desk(retry_after=60.0) as desk,
        asyncio.TaskGroup() as turns,
        at_work(stage, made) as first,
        at_work(stage, made, own=4) as second,
    ):
        asking = turns.create_task(desk.ask(one_of(next(iter(first.partitions))), "one", timeout=60))
        await request.wait()
        first.stop()
        with anyio.move_on_after(60):
            while len(second.partitions) < 7:
                await second.changed()
        owned = len(first.partitions), len(second.partitions)
        let.set()
        assert await asking == "done"
        assert owned == (1, 7)


async def test_an_answer_too_large_for_an_event_is_an_error(stage):
    made = Swarm(
        NAME, [SwarmAgent("desk", ScriptedModel([], then=lambda prompt: 2_000_000 * prompt.messages[-1].text))]
    )
    async with at_work(stage, made), stage.desk() as desk:
        for _ in range(2):
            with pytest.raises(TurnError, match="bytes"):
                await desk.ask("ann", "x", run="r1", timeout=60)
    assert len(stage.messages("ann")) == 2


async def test_a_client_name_that_no_thread_can_have_is_an_error(stage):
    made = Swarm(NAME, [SwarmAgent("desk", ScriptedModel([], then="hi"))])
    async with at_work(stage, made), stage.desk() as desk:
        for client in ("x" * 300, "a\0b"):
            with pytest.raises(TurnError, match="the id of the thread"):
                await desk.ask(client, "one", timeout=60)
        assert await desk.ask("a .*>", "one", timeout=60) == "hi"
