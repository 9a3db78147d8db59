"""Tools that read what was cut are offered once something was cut."""

from __future__ import annotations

import pytest

import palaver as p
from palaver.agent import Agent, Compactor, function_tool
from palaver.agent.agent import RESULT_LIMIT
from palaver.models import Capabilities, ScriptedModel
from palaver.store.memory import MemoryStore

pytestmark = [pytest.mark.finding("F-64"), pytest.mark.anyio]
READING = ["read_result", "search_history"]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@function_tool(effect="read")
def look(letters: int) -> str:
    """Look."""
    return "x" * letters


def looking(letters, id="c"):
    return p.assistant(tool_calls=[p.tool_call("look", {"letters": letters}, id=id)])


def offered(model):
    return [[tool.name for tool in prompt.tools] for prompt in model.asked]


async def test_an_agent_without_tools_offers_none():
    model = ScriptedModel(["hi"])
    await Agent(model, middleware=[Compactor()]).run("hello")
    assert offered(model) == [[]]


async def test_the_tools_are_offered_from_the_first_cut_result_on():
    model = ScriptedModel([looking(9, "a"), looking(RESULT_LIMIT + 1, "b"), looking(9, "c"), "done", "again", "anew"])
    agent = Agent(model, tools=[look], middleware=[Compactor()])
    store = MemoryStore()
    thread = store.open(store.create().id)
    run = await agent.run("go", thread=thread)
    assert offered(model) == [["look"], ["look"], ["look", *READING], ["look", *READING]]
    await agent.run("on", previous=run)
    await agent.run("on", thread=store.open(thread.id))
    assert offered(model)[4:] == [["look", *READING]] * 2


async def test_the_tools_are_offered_in_the_call_before_which_the_conversation_was_compacted():
    said = [p.user("text " * 4_000), p.assistant("Yes.")] * 6
    model = ScriptedModel([], then="Summary.", capabilities=Capabilities(window=16_000))
    run = await Agent(model, tools=[look], middleware=[Compactor()]).run([*said, p.user("And?")])
    assert run.ok, run.reason
    assert offered(model)[-1] == ["look", *READING]
