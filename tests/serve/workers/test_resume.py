"""A named turn whose process died, wherever it was: said again, it is answered once, and its message is there once.

What a dead process leaves is a beginning of what it would have written: each of them is tried.
"""

import uuid
from functools import partial

import anyio
import pytest

import palaver as p
from palaver.core.errors import TransportError
from palaver.models.scripted import ScriptedModel
from palaver.store.memory import MemoryStore
from palaver.swarm import Call, Swarm, SwarmAgent, result_tool, tool
from palaver.threads.view import DISCARDED, RECORD
from tests.agent.wholeness import refused

pytestmark = [pytest.mark.anyio, pytest.mark.law(7), pytest.mark.row("ASK-29")]

RUN = "r1"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def calling(name):
    return p.assistant(tool_calls=[p.tool_call(name, {}, id=f"call-{uuid.uuid4().hex}")])


def speaking(called):
    """A model that calls a tool when it hears a user, and else answers the user."""

    def speak(prompt):
        said = prompt.messages[-1]
        if called and isinstance(said, p.UserMessage) and said.mode == "user":
            return calling(called)
        return "the answer"

    return ScriptedModel([], then=speak)


async def look() -> str:
    """Look."""
    return "seen"


@tool
async def hand_over(call: Call) -> None:
    """Hand the conversation over."""
    await call.commit("handed over")
    if call.session.agent != "other":
        await call.session.change_to("other")
    await call.execute("go on")


@tool
async def say(call: Call) -> None:
    """Answer in the agent's place."""
    await call.commit("said")
    await call.emit("the answer")


def swarm(called, **more):
    tools = [result_tool(look), hand_over, say]
    return Swarm(
        "office",
        [
            SwarmAgent("desk", speaking(called), tools=tools, placeholders=["the answer"], **more),
            SwarmAgent("other", speaking(None), tools=tools, placeholders=["the answer"]),
        ],
    )


async def answered(store, described):
    async with described.start(store=store) as live, live.session("ann") as session:
        with anyio.fail_after(60):
            return await session.complete("hello", {"page": 3}, run=RUN)


def shown(store):
    entries = store.path("office/ann")
    return [each.message for each in entries if not {RECORD, DISCARDED} & set(each.message.tags)]


@pytest.mark.parametrize("called", [None, "look", "hand_over", "say", "nothing"])
async def test_whatever_was_written_the_turn_comes_to_one_answer(called):
    described = swarm(called)
    whole = MemoryStore()
    assert await answered(whole, described) == "the answer"
    entries = whole.path("office/ann")
    for count in range(len(entries) + 1):
        store = MemoryStore()
        store.open("office/ann")
        store.append("office/ann", [each.message for each in entries[:count]])
        for _ in range(2):
            assert await answered(store, described) == "the answer", count
        messages = shown(store)
        said = [each for each in messages if isinstance(each, p.UserMessage) and each.mode == "user"]
        assert [(each.text, each.payload) for each in said] == [("hello", {"page": 3})], count
        answers = [each for each in messages if isinstance(each, p.AssistantMessage) and not each.tool_calls]
        assert [each.text for each in answers] == ["the answer"], count
        assert refused(messages) == {}, count


async def test_a_cancelled_turn_stays_cancelled():
    request = anyio.Event()

    async def waiting(place, text):
        request.set()
        await anyio.sleep_forever()

    store = MemoryStore()
    described = Swarm("office", [SwarmAgent("desk", operator=waiting, operator_timeout=60)])
    async with described.start(store=store) as live, live.session("ann") as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(session.complete, "hello", run=RUN))
            await request.wait()
            assert await session.cancel()
        assert await session.complete("hello", run=RUN) == ""
    assert await answered(store, described) == ""


async def test_a_person_is_asked_again():
    async def person(place, text):
        return f"you said {text}"

    described = Swarm("office", [SwarmAgent("desk", operator=person, operator_timeout=60)])
    whole, store = MemoryStore(), MemoryStore()
    await answered(whole, described)
    store.open("office/ann")
    store.append("office/ann", [each.message for each in whole.path("office/ann")[:1]])
    assert await answered(store, described) == "you said hello"
    assert [each.text for each in shown(store)] == ["hello", "you said hello"]


async def test_a_turn_that_failed_is_gone_on_with_and_not_said_twice():
    model = ScriptedModel([TransportError("gone"), "the answer"])
    described = Swarm("office", [SwarmAgent("desk", model)])
    store = MemoryStore()
    async with described.start(store=store) as live, live.session("ann") as session:
        with pytest.raises(TransportError):
            await session.complete("hello", run=RUN)
        assert await session.complete("hello", run=RUN) == "the answer"
    assert [each.text for each in shown(store)] == ["hello", "the answer"]


async def test_a_turn_whose_caller_went_away_has_no_answer_yet():
    store, described = MemoryStore(), swarm(None)
    described.agents["desk"].model.delay = 60
    async with described.start(store=store) as live, live.session("ann") as session:
        with anyio.move_on_after(0.1):
            await session.complete("hello", run=RUN)
        described.agents["desk"].model.delay = 0
        assert await session.complete("hello", run=RUN) == "the answer"
