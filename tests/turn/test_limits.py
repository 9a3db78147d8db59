"""How far a run may go: KAI-13, and what one call has left of the limits."""

from __future__ import annotations

import anyio
import pytest

import palaver as p
from palaver.agent.agent import Agent
from palaver.core.errors import MessageError
from palaver.models.scripted import ScriptedModel
from palaver.turn.limits import Limits, Spent
from tests.agent.scripts import assert_valid, call, calls, noting


def turn(number, *, read, written=1):
    usage = p.Usage(input=read, output=written)
    return calls(call(id=f"c{number}", to=str(number))).replace(usage=usage)


@pytest.mark.anyio
@pytest.mark.row("KAI-13")
@pytest.mark.parametrize(
    ("limits", "outcome", "iterations"),
    [
        (Limits(tokens=250), "budget", 3),
        (Limits(cost=0.2), "budget", 2),
        (Limits(context_tokens=100), "context_full", 1),
        (Limits(context_tokens=101, tokens=10_000, cost=10.0, seconds=600.0), "max_iterations", 25),
        (Limits(iterations=4), "max_iterations", 4),
    ],
)
async def test_size_spend_and_rounds_are_limits_of_their_own(anyio_backend, limits, outcome, iterations):
    script = [turn(number, read=100) for number in range(iterations)]
    agent = Agent(ScriptedModel(script), tools=[noting([])], limits=limits, prices=lambda _, usage: usage.total / 1000)
    run = await agent.run("go")
    assert (run.outcome, run.iterations) == (outcome, iterations)
    assert_valid(run.path.messages)


@pytest.mark.anyio
@pytest.mark.row("KAI-13")
@pytest.mark.parametrize("where", ["model", "tool"])
async def test_time_is_a_limit_wherever_it_is_spent(anyio_backend, where):
    async def slow(to: str) -> str:
        """Wait."""
        await anyio.sleep(60)
        return to

    model = ScriptedModel([calls(call("slow", to="x")), "done"], delay=60.0 if where == "model" else 0.0)
    run = await Agent(model, tools=[slow], limits=Limits(seconds=0.05)).run("go")
    assert run.outcome == "timed_out"
    assert run.seconds < 10
    assert_valid(run.path.messages)


@pytest.mark.row("KAI-13")
@pytest.mark.parametrize(
    ("spent", "seconds", "outcome"),
    [
        (Spent(9, 0.9, 9), 9.9, None),
        (Spent(10, 0.0, 0), 0.0, "budget"),
        (Spent(0, 1.0, 0), 0.0, "budget"),
        (Spent(0, 0.0, 10), 0.0, "context_full"),
        (Spent(0, 0.0, 0), 10.0, "timed_out"),
        (Spent(10, 1.0, 10), 10.0, "timed_out"),
    ],
)
def test_which_limit_is_reached(spent, seconds, outcome):
    assert Limits(tokens=10, cost=1.0, seconds=10.0, context_tokens=10).over(spent, seconds) == outcome
    assert Limits().over(spent, seconds) is None


def test_a_limit_that_lets_nothing_happen_is_refused():
    with pytest.raises(MessageError, match="a run makes at least one model call"):
        Limits(iterations=0)
