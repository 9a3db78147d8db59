"""The desk within one process."""

from functools import partial

import anyio
import pytest

from palaver.core.errors import BusyError, ClosedError, TransportError
from palaver.models.language_model import Prompt
from palaver.models.scripted import ScriptedModel
from palaver.serve.workers import LocalDispatcher
from palaver.store.memory import MemoryStore
from palaver.swarm import LocalBus, Swarm, SwarmAgent, Where

pytestmark = pytest.mark.anyio


def echo(prompt: Prompt):
    return f"you said {prompt.messages[-1].text}"


def swarm(agent=None, **more):
    return Swarm("office", [agent or SwarmAgent("desk", model=ScriptedModel([], then=echo))], **more)


class BlockingOperator:
    """An operator who answers when told to."""

    def __init__(self):
        self.request, self.let = anyio.Event(), anyio.Event()

    async def __call__(self, place, text):
        self.request.set()
        await self.let.wait()
        return f"you said {text}"

    def agent(self):
        return SwarmAgent("desk", operator=self, operator_timeout=60)


async def test_messages_are_answered_in_the_order_of_asking_whoever_the_client_is():
    held, answers = BlockingOperator(), []

    async def ask(desk, client, text):
        answers.append((client, await desk.ask(client, text)))

    async with swarm(held.agent()).start(store=MemoryStore()) as live, LocalDispatcher(live) as desk:
        async with anyio.create_task_group() as tasks:
            for n in range(10):
                for client in ("ann", "bob"):
                    tasks.start_soon(ask, desk, client, str(n))
                    await anyio.wait_all_tasks_blocked()
            held.let.set()
        for client in ("ann", "bob"):
            assert [text for who, text in answers if who == client] == [f"you said {n}" for n in range(10)]
            said = [each.text for each in live.get(client).messages]
            assert said == [text for n in range(10) for text in (str(n), f"you said {n}")]


async def test_a_turn_goes_on_when_nobody_waits_and_is_found_by_its_name():
    held = BlockingOperator()
    async with swarm(held.agent()).start(store=MemoryStore()) as live, LocalDispatcher(live) as desk:
        with pytest.raises(TimeoutError):
            await desk.ask("ann", "hi", run="r1", timeout=0.01)
        await held.request.wait()
        held.let.set()
        assert await desk.ask("ann", "hi", run="r1") == "you said hi"
        assert await desk.ask("ann", "hi", run="r1") == "you said hi"
        assert [each.text for each in live.get("ann").messages] == ["hi", "you said hi"]


async def test_too_many_waiting_messages_are_refused():
    held = BlockingOperator()
    async with (
        swarm(held.agent()).start() as live,
        LocalDispatcher(live, limit=2) as desk,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(partial(desk.ask, "ann", "one"))
        await held.request.wait()
        with pytest.raises(TimeoutError):
            await desk.ask("ann", "two", timeout=0.01)
        with pytest.raises(BusyError, match=r"full \(limit: 2\)"):
            await desk.ask("ann", "three")
        held.let.set()
        assert await desk.ask("bob", "one") == "you said one"


async def test_cancel_answers_the_turn_under_way():
    held = BlockingOperator()
    answers = []
    async with swarm(held.agent()).start() as live, LocalDispatcher(live) as desk:

        async def ask():
            answers.append(await desk.ask("ann", "one"))

        assert not await desk.cancel("ann")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await held.request.wait()
            assert await desk.cancel("ann")
    assert answers == [""]


async def test_an_error_is_raised_and_the_next_message_is_answered():
    model = ScriptedModel([TransportError("gone")], then=echo)
    async with swarm(SwarmAgent("desk", model=model)).start() as live, LocalDispatcher(live) as desk:
        with pytest.raises(TransportError, match="gone"):
            await desk.ask("ann", "one")
        assert await desk.ask("ann", "two") == "you said two"


async def test_the_session_of_an_idle_client_is_closed_and_opened_again():
    store = MemoryStore()
    async with LocalBus() as bus, swarm().start(store=store, bus=bus) as live, LocalDispatcher(live, idle=0.01) as desk:
        closed = anyio.Event()
        live.swarm.on_close = lambda _: closed.set()
        assert await desk.ask("ann", "one") == "you said one"
        await closed.wait()
        assert await desk.ask("ann", "two") == "you said two"
        assert [each.text for each in (await live.log("ann")).messages] == [
            "one", "you said one", "two", "you said two",
        ]  # fmt: skip


async def test_pending_asks_fail_when_the_dispatcher_closes():
    held = BlockingOperator()
    raised = []
    async with swarm(held.agent()).start() as live, anyio.create_task_group() as tasks:

        async def ask(desk):
            try:
                await desk.ask("ann", "one")
            except ClosedError as error:
                raised.append(error)

        async with LocalDispatcher(live) as desk:
            tasks.start_soon(ask, desk)
            await held.request.wait()
    assert len(raised) == 1


async def test_events_are_on_the_bus_of_the_desk():
    async with (
        swarm().start() as live,
        LocalDispatcher(live) as desk,
        desk.bus.subscribe(Where(client="ann", type="emit-output")) as events,
    ):
        await desk.ask("ann", "hi", run="r1")
        async for event in events:
            assert (event.run, event.output["result"]) == ("r1", "you said hi")
            break
