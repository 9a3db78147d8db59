"""What Kairo's bus and its teams promise, of ours (docs/spec/kairo.md#7, row KAI-28)."""

import anyio
import pytest

from palaver.core.errors import TurnError
from palaver.swarm import Call, Event, tool
from palaver.swarm.bus import Since, Where
from palaver.swarm.local_bus import LocalBus
from palaver.swarm.policy import Policy
from palaver.testing.buses import event_of, numbers, take
from tests.clocks import JUMPING
from tests.swarm.scripts import PLACEHOLDER, agent, at_work, branching, calling
from tests.swarm.slow import Slow

pytestmark = [pytest.mark.anyio, pytest.mark.row("KAI-28")]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


# -- the bus


async def test_each_consumer_gets_each_message_once_and_in_order_however_it_takes_them():
    """The fault D40: a consumer that polled and streamed got every message twice."""
    sent = [event_of(number) for number in range(100)]
    called, waited = [], []
    async with LocalBus() as bus, bus.subscribe() as early:
        listener = await bus.listen(called.append)
        for event in sent[:50]:
            bus.publish(event)
        waited += await take(early, 20)
        async with bus.subscribe(since=Since()) as late:
            for event in sent[40:]:  # ten of them again
                bus.publish(event)
            replayed = await take(late, 100)
        waited += await take(early, 80)
        await listener.idle()
    assert numbers(called) == numbers(waited) == numbers(replayed) == list(range(100))


@pytest.mark.parametrize("sent", [10, 1024, 1025, 3000])
async def test_replay_is_bounded(sent):
    async with LocalBus(history=1024) as bus:
        for number in range(sent):
            bus.publish(event_of(number))
        kept = min(sent, 1024)
        async with bus.subscribe(since=Since(), size=2048) as events:
            bus.publish(event_of(sent))
            assert numbers(await take(events, kept + 1)) == list(range(sent - kept, sent + 1))
            assert events.dropped == 0


async def test_an_inbox_is_bounded_and_tells_what_it_lost():
    async with LocalBus() as bus, bus.subscribe(size=8) as events:
        for number in range(20):
            bus.publish(event_of(number))
        assert numbers(await take(events, 8)) == list(range(12, 20))
        assert events.dropped == 12


async def test_a_broadcast_reaches_everybody_except_the_sender():
    names, heard = ["ann", "ben", "cyd"], {}

    def by(name):
        return Event(source="team", type="note", client="all", agent=name, input={"from": name})

    async with LocalBus() as bus:
        listeners = []
        for name in names:
            heard[name] = []
            others = Where(source="team", test=lambda event, me=name: event.agent != me)
            listeners.append(await bus.listen(lambda event, to=heard[name]: to.append(event.agent), others))
        for name in names:
            bus.publish(by(name))
        for each in listeners:
            await each.idle()
    assert heard == {name: [other for other in names if other != name] for name in names}


async def test_who_is_closed_gets_what_waits_and_then_the_end():
    async with LocalBus() as bus, bus.subscribe() as events, bus.subscribe() as other:
        bus.publish(event_of(1))
        events.close()
        bus.publish(event_of(2))
        with anyio.fail_after(60):
            assert numbers([event async for event in events]) == [1]
        assert numbers(await take(other, 2)) == [1, 2]


# -- runs of a team


def down(_prompt):
    raise RuntimeError("down")


@tool
async def ask_b(call: Call) -> None:
    """Hand over, and go on: another execution inside of the same turn."""
    await call.commit("asked")
    await call.session.change_to("B")
    await call.execute("and you?")


@tool
async def hangs(_call: Call) -> None:
    """Never return."""
    await anyio.sleep_forever()


@tool
async def forgets(call: Call) -> None:
    """Commit, and stop."""
    await call.commit("seen")


def team(**more):
    script = branching(
        hand=calling("ask_b"),
        hang=calling("hangs"),
        forget=calling("forgets"),
        unknown=calling("nobody"),
        empty="",
        broken=down,
    )
    tools = [ask_b, hangs, forgets]
    no = Policy("no", validate_input=lambda text, *_: "bad" not in text, ban_message="No.")
    return at_work(agent("A", script, tools=tools), agent("B"), deadline=30, policies=[no], **more)


OUTCOMES = {
    "answered": ("hello", "answer:hello"),
    "handed over": ("hand", "echo:and you?"),
    "degraded": ("empty", PLACEHOLDER),
    "degraded by an unknown tool": ("unknown", PLACEHOLDER),
    "refused": ("bad", "No."),
    "failed": ("broken", RuntimeError),
    "failed by a tool": ("forget", TurnError),
    "timed out": ("hang", TurnError),
}


def ends(events):
    """Which of a run's events are its terminal one: the end that belongs to no agent."""
    return [at for at, each in enumerate(events) if (each.type, each.agent) == ("commit-execution-end", None)]


async def run_of(it, text):
    """The events of the one run that a text was."""
    await it.live.bus.flush()
    await it.listener.idle()
    runs = list(dict.fromkeys(event.run for event in it.seen if event.run))
    found = [[event for event in it.seen if event.run == run] for run in runs]
    (events,) = [each for each in found if any(text in str(event.input) for event in each)] or found[-1:]
    return events


@JUMPING
@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_a_run_has_its_beginning_first_and_one_terminal_event_last(outcome):
    text, expected = OUTCOMES[outcome]
    async with team() as it:
        if isinstance(expected, str):
            assert await it.session.complete(text) == expected
        else:
            with pytest.raises(expected):
                await it.session.complete(text)
        events = await run_of(it, text)
        assert await it.session.complete("hello") in ("answer:hello", "echo:hello")
    assert (events[0].source, events[0].type, events[0].agent) == ("execution", "commit-execution-begin", None)
    assert ends(events) == [len(events) - 1]


@pytest.mark.parametrize("how", ["cancelled", "closed", "abandoned"])
async def test_a_run_that_is_ended_from_outside_has_one_terminal_event_too(how):
    slow = Slow()
    async with at_work(agent("A", slow)) as it, anyio.create_task_group() as group:
        group.start_soon(it.session.complete, "hello")
        await slow.began.wait()
        if how == "cancelled":
            await it.session.cancel()
        elif how == "closed":
            await it.session.close()
        else:
            group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.wait_all_tasks_blocked()
            events = await run_of(it, "hello")
    assert (events[0].type, ends(events)) == ("commit-execution-begin", [len(events) - 1])
