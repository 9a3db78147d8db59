"""A file with one agent is served as a swarm of one, and chatted with."""

import pytest

from palaver.cli import swarm_file

AGENT = """
from palaver.agent import Agent
from palaver.models import ScriptedModel

def weather(city: str) -> str:
    "Return the weather."
    return "rain"

desk = Agent(ScriptedModel(["Moin."]), name="desk", instructions="Be kind.", tools=[weather], policy={"weather": "ask"})
"""


def test_an_agent_is_a_swarm_of_one_whose_answers_are_streamed(saved):
    swarm = swarm_file.swarm(str(saved(AGENT, "one.py")))
    (agent,) = swarm.agents.values()
    assert (swarm.name, agent.name, agent.instructions, agent.stream) == ("desk", "desk", "Be kind.", True)
    assert [tool.name for tool in agent.tools] == ["weather"]
    assert agent.policy == {"weather": "ask"}


def test_an_agent_is_named_where_there_are_several(saved, run):
    saved(AGENT + 'other = Agent(ScriptedModel(["b"]), name="other")\n', "two.py")
    done = run("swarm", "two.py", "--draw", "markdown")
    assert (done.code, "there are several agents in it; name one: two.py:desk, two.py:other" in done.err) == (1, True)
    assert run("swarm", "two.py:other", "--draw", "markdown").code == 0


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("x = 1", "there is neither a Swarm nor an Agent in it"),
        (AGENT + "desk = desk.replace(instructions=lambda _: 'x')", "instructions"),
    ],
)
def test_what_cannot_be_served_is_said(saved, run, code, cause):
    saved(code, "bad.py")
    done = run("swarm", "bad.py", "--draw", "markdown")
    assert (done.code, cause in done.err) == (1, True), done.err
