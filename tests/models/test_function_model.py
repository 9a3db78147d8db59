"""A function as a model, and scripts whose turns are asynchronous."""

from __future__ import annotations

import anyio.lowlevel
import pytest

import palaver as p
from palaver.agent import Agent, function_tool
from palaver.core.errors import MessageError
from palaver.core.events import TextDelta
from palaver.models import FunctionModel, Prompt, ScriptedModel, complete
from palaver.swarm import Swarm, SwarmAgent

pytestmark = [pytest.mark.finding("F-47"), pytest.mark.anyio]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_function_answers_with_text_and_with_calls(kind):
    asked: list[Prompt] = []

    def turn(prompt: Prompt):
        asked.append(prompt)
        last = prompt.messages[-1]
        return p.assistant(tool_calls=[p.tool_call("look", {}, id="c")]) if last.role == "user" else f"saw {last.text}"

    async def later(prompt: Prompt):
        await anyio.lowlevel.checkpoint()
        return turn(prompt)

    @function_tool
    def look() -> str:
        """Look."""
        return "a boat"

    agent = Agent(FunctionModel(later if kind == "async" else turn), name="mate", tools=[look])
    run = await agent.run("Look out.")
    assert (run.outcome, run.text) == ("completed", "saw a boat")
    assert [(each.agent, each.client) for each in asked] == [("mate", None)] * 2
    assert [each.name for each in asked[0].tools] == ["look"]


async def test_a_function_of_a_swarm_gets_client_and_agent():
    async def turn(prompt: Prompt) -> str:
        return f"{prompt.client} speaks to {prompt.agent}"

    desk = SwarmAgent("desk", model=FunctionModel(turn))
    async with Swarm("s", [desk]).start() as live, live.session("ann") as session:
        assert await session.complete("Hello.") == "ann speaks to desk"


async def test_an_answer_is_streamed_and_asked_without_an_agent():
    model = FunctionModel(lambda prompt: prompt.messages[-1].text.upper(), name="my/shout")
    async with Agent(model).stream("go") as run:
        texts = [event.text async for event in run if isinstance(event, TextDelta)]
    assert texts == ["GO"]
    reply = await complete(model, p.Request((p.user("go"),)))
    assert (reply.response.message.text, reply.model) == ("GO", "my/shout")


async def test_what_a_function_raises_ends_the_run_as_failed():
    async def turn(prompt: Prompt) -> str:
        raise KeyError("no")

    run = await Agent(FunctionModel(turn)).run("go")
    assert (run.outcome, type(run.error)) == ("failed", KeyError)


@pytest.mark.parametrize("given", [None, 3, ["a"]])
async def test_what_is_no_answer_is_refused_by_its_kind(given):
    run = await Agent(FunctionModel(lambda _: given)).run("go")
    assert (run.outcome, type(run.error)) == ("failed", MessageError)
    assert "function/model:" in run.reason
    run = await Agent(ScriptedModel([], then=lambda _: given)).run("go")
    assert (run.outcome, type(run.error)) == ("failed", MessageError)


async def test_what_is_no_function_is_refused():
    with pytest.raises(MessageError, match="function: expected a function, got str 'x'"):
        FunctionModel("x")


async def test_turns_of_a_script_may_be_asynchronous():
    async def then(prompt: Prompt) -> str:
        await anyio.lowlevel.checkpoint()
        return f"after {len(prompt.messages)}"

    model = ScriptedModel([then, "second"], then=then)
    agent = Agent(model)
    assert [(await agent.run("go")).text for _ in range(3)] == ["after 1", "second", "after 1"]
