"""The names of an agent's tools: each tool can be called."""

import pytest

from palaver.core.errors import MessageError
from palaver.models.scripted import ScriptedModel
from palaver.swarm import SwarmAgent, navigation, result_tool
from tests.swarm.scripts import at_work, calling

pytestmark = [pytest.mark.anyio, pytest.mark.finding("S-09")]


def f() -> str:
    """Say f."""
    return "f"


def g() -> str:
    """Say g."""
    return "g"


g.__name__ = "f"


def agent(name="a", script=(), **options):
    return SwarmAgent(name, ScriptedModel(script), **options)


@pytest.mark.parametrize("tools", [[f, g], [navigation("b"), navigation("b")], [f, navigation("b", name="f")]])
def test_two_tools_of_one_name_are_refused(tools):
    with pytest.raises(MessageError, match="the agent 'a': two tools have the name"):
        agent(tools=tools)
    with pytest.raises(MessageError, match="the agent 'a': two tools have the name"):
        agent().replace(tools=tools)


def test_one_tool_that_is_listed_twice_is_one():
    assert len(agent(tools=[f, f]).tools) == 1


def test_a_tool_that_stands_in_where_another_is_not_available_is_kept():
    assert len(agent(tools=[result_tool(f, available=lambda _: False), g]).tools) == 2


@pytest.mark.parametrize("names", [("b/c", "b_c"), ("b_c", "b/c"), ("b_c", "B C")])
async def test_agents_whose_names_differ_in_signs_are_all_reached(names):
    tools = [navigation(each) for each in names]
    caller = SwarmAgent("a", ScriptedModel([calling("to_b_c_2")]), tools=tools)
    assert [tool.name for tool in caller.tools] == ["to_b_c", "to_b_c_2"]
    assert [tool.name for tool in caller.replace(keep=3).tools] == ["to_b_c", "to_b_c_2"]
    others = [agent(each, [f"I am {each}"]) for each in names]
    async with at_work(caller, *others) as it:
        assert await it.session.complete("go") == f"I am {names[1]}"


def test_a_number_is_not_given_twice():
    tools = [navigation("b_c"), navigation("b/c"), navigation("b.c"), navigation("b_c_2")]
    names = [tool.name for tool in agent(tools=tools).tools]
    assert sorted(names) == sorted(set(names))
    assert names[3] == "to_b_c_2"
