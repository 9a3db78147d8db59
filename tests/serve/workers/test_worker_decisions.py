"""Calls that wait, decided through workers as processes: once, whoever dies and however often it is sent."""

import asyncio

import anyio
import pytest

import palaver as p
from palaver.core.errors import SwarmError
from palaver.serve.workers import PendingTurn
from palaver.serve.workers.queue import TurnRequest
from palaver.serve.workers.worker import _complete
from palaver.store.memory import MemoryStore
from palaver.turn.approvals import DecisionError, approve, reject
from palaver.turn.notes import MAY_HAVE_RUN
from tests.serve.workers.serving import answer_to, swarm
from tests.serve.workers.stage import fresh_stage

pytestmark = [pytest.mark.anyio, pytest.mark.server]


@pytest.fixture(params=["asyncio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
def stage():
    with fresh_stage() as stage:
        yield stage


def results(stage):
    return [each.text for each in stage.messages("ann") if isinstance(each, p.ToolMessage)]


async def test_a_call_waits_and_is_decided(stage):
    stage.worker()
    async with stage.desk() as desk:
        assert await desk.pending("ann") == PendingTurn()
        assert await desk.ask("ann", "pay", run="r1", timeout=60) == ""
        waiting = await desk.pending("ann")
        assert (waiting.run, [each.call.id for each in waiting.requests]) == ("r1", ["c1"])
        with pytest.raises(DecisionError, match="nothing is pending for call 'c2'"):
            await desk.decide("ann", {"c2": approve()}, run="r1", timeout=60)
        with pytest.raises(DecisionError, match="belong to the turn 'r1', not 'r0'"):
            await desk.decide("ann", {"c1": approve()}, run="r0", timeout=60)
        assert results(stage) == []
        assert await desk.decide("ann", {"c1": approve()}, run="r1", timeout=60) == answer_to("pay")
        assert await desk.decide("ann", {"c1": approve()}, run="r1", timeout=60) == answer_to("pay")
        assert await desk.pending("ann") == PendingTurn()
        assert results(stage) == ["paid"]
        await desk.ask("ann", "pay", timeout=60)
        assert await desk.decide("ann", {"c1": reject("No.")}, timeout=60) == answer_to("pay")


async def test_another_worker_decides_what_the_first_left(stage):
    first = stage.worker()
    async with stage.desk() as desk:
        assert await desk.ask("ann", "pay", run="r1", timeout=60) == ""
        stage.kill(first)
        stage.worker()
        assert await desk.decide("ann", {"c1": approve()}, run="r1", timeout=60) == answer_to("pay")
    assert results(stage) == ["paid"]


async def test_a_decision_whose_worker_was_killed_runs_nothing_twice(stage):
    first = stage.worker(tool_delay=60)
    async with stage.desk() as desk, asyncio.TaskGroup() as tasks:
        assert await desk.ask("ann", "pay", run="r1", timeout=60) == ""
        deciding = tasks.create_task(desk.decide("ann", {"c1": approve()}, run="r1", timeout=60))
        while (await desk.pending("ann")).requests:  # noqa: ASYNC110 (another process takes the decision)
            await asyncio.sleep(0.05)
        stage.kill(first)
        stage.worker()
        assert await deciding == answer_to("pay")
    (told,) = results(stage)
    assert MAY_HAVE_RUN in told


async def test_a_decision_that_is_delivered_again_decides_no_later_call_of_the_same_id(stage):
    stage.worker()
    async with stage.desk() as desk:
        assert await desk.ask("ann", "pay twice", run="r1", timeout=60) == ""
        request = TurnRequest(run="d1", client="ann", decisions={"c1": approve()}, turn="r1")
        assert await desk._answer(request, 60) == ""
        assert [each.call.id for each in (await desk.pending("ann")).requests] == ["c1"]
        assert await desk._answer(request, 60) == ""
        assert results(stage) == ["paid"]
        assert await desk.decide("ann", {"c1": approve()}, run="r1", timeout=60) == answer_to("pay twice")
        assert results(stage) == ["paid", "paid"]


async def test_a_decision_that_was_begun_and_not_taken_asks_again():
    """The worker died between its record and the decision: nothing is approved that nobody can tell from it."""
    async with swarm().start(store=MemoryStore()) as live, live.session("ann") as session:
        assert await session.complete("pay", run="r1") == ""
        await session.records.put("decided", "d1", "r1")
        request = TurnRequest(run="d1", client="ann", decisions={"c1": approve()}, turn="r1")
        assert await _complete(session, request) == {"result": ""}
        assert [each.call.id for each in session.pending()] == ["c1"]
        again = TurnRequest(run="d2", client="ann", decisions={"c1": approve()}, turn="r1")
        assert await _complete(session, again) == {"result": answer_to("pay")}


async def test_a_decision_that_is_sent_again_is_taken_once(stage):
    stage.worker(tool_delay=1.0)
    async with stage.desk(retry_after=0.1) as desk:
        assert await desk.ask("ann", "pay", run="r1", timeout=60) == ""
        assert await desk.decide("ann", {"c1": approve()}, run="r1", timeout=60) == answer_to("pay")
        assert await desk.ask("ann", "plain", timeout=60) == answer_to("plain")
    assert results(stage) == ["paid"]


async def test_without_a_store_a_dispatcher_decides_and_cannot_say_what_waits(stage):
    stage.worker()
    async with stage.desk(store=None) as desk:
        assert await desk.ask("ann", "pay", timeout=60) == ""
        with pytest.raises(SwarmError, match="QueueDispatcher"):
            await desk.pending("ann")
        with anyio.fail_after(60):
            assert await desk.decide("ann", {"c1": approve()}) == answer_to("pay")
