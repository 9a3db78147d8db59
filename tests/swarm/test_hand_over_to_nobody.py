"""Navigation to an agent that is not there, and the way back after a pipeline."""

import pytest

import palaver as p
from palaver.core.errors import NavigationError, SwarmError
from palaver.swarm import Pipeline, Swarm, navigation
from tests.swarm.scripts import agent, at_work, branching, calling

pytestmark = [pytest.mark.anyio, pytest.mark.finding("F-45")]


async def test_a_swarm_with_a_tool_that_hands_over_to_nobody_is_refused():
    with pytest.raises(SwarmError, match="the tool 'to_nobody' of the agent 'A' hands over to 'nobody'"):
        Swarm("shop", [agent("A", tools=[navigation("nobody")])])


async def test_a_tool_of_a_source_never_says_that_it_handed_over_to_nobody():
    a = agent("A", branching(go=calling("to_nobody")), sources=[lambda _: [navigation("nobody")]])
    async with at_work(a, agent("B")) as it:
        await it.session.complete("go")
        (error,) = await it.heard("agent", "tool-error")
        assert "has no agent 'nobody'" in error.output["error"]
        assert not any(isinstance(message, p.ToolMessage) for message in it.session.messages)
        assert it.session.agent == "A"


@pytest.mark.parametrize("visited", [[], ["B"], ["B", "C"]])
@pytest.mark.parametrize("moves", [[], ["C"], ["A"]])
async def test_a_pipeline_leaves_the_way_back_as_it_was(visited, moves):
    async def work(session, _):
        for name in moves:
            await session.change_to(name)
        return session.agent

    async with at_work(agent("A"), agent("B"), agent("C"), agent("D")) as it:
        for name in visited:
            await it.session.change_to(name)
        route = dict(it.session.navigator.route)
        assert await Pipeline("p", work, agent="D").run(it.session) == [*moves, "D"][0]
        assert it.session.navigator.route == route
        back = []
        for _ in range(len(visited) + 1):
            back.append(it.session.agent)
            await it.session.change_to_previous()
    assert back == [*reversed(visited), "A"]


async def test_what_is_no_name_of_an_agent_is_a_type_error():
    async with at_work(agent("A")) as it:
        for wrong in (None, 5, b"A", ["A"]):
            with pytest.raises(TypeError, match="agent"):
                await it.session.change_to(wrong)
            with pytest.raises(TypeError, match="agent"):
                await it.session.consult(wrong, "hi")
        with pytest.raises(NavigationError, match="no agent 'Z'"):
            await it.session.consult("Z", "hi")
