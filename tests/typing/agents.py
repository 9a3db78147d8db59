"""The types of agents, for type checkers. Never run: pyright and mypy read it in strict mode."""

from typing import Any, assert_type

from palaver.agent.active_run import ActiveRun
from palaver.agent.agent import Agent
from palaver.models.language_model import LanguageModel
from palaver.turn.run import Run


class City:
    name: str


def typed(model: LanguageModel) -> Agent[City]:
    agent = Agent(model, output=City)
    assert_type(agent, Agent[City])
    assert_type(agent.sync.run("Where?"), Run[City])
    assert_type(agent.sync.run("Where?").output, City)
    assert_type(agent.sync.run("Where?").check().output, City)
    assert_type(agent.stream("Where?"), ActiveRun[City])
    return agent


async def awaited(agent: Agent[City]) -> City:
    async with agent.stream("Where?") as running:
        assert_type(await running.wait(), Run[City])
    return (await agent.run("Where?")).output


def untyped(model: LanguageModel) -> None:
    assert_type(Agent(model).sync.run("Hi"), Run[Any])
    assert_type(Agent(model, output={"type": "object"}).sync.run("Hi"), Run[Any])
    assert_type(Agent(model, output=list[int]).sync.run("Hi").output, list[int])
    assert_type(Run.load(b""), Run[Any])


def everyone(agent: Agent, run: Run) -> None:
    assert_type(agent, Agent[Any])
    assert_type(run.output, Any)
