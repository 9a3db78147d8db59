"""Nothing that is not the run's own can hang it, and what it cannot hold to is told."""

import anyio
import pytest

import palaver as p
from palaver.agent import Agent, Limits, Middleware
from palaver.models import ScriptedModel
from palaver.turn import events, middleware
from tests.agent.scripts import call, calls, noting


class Hangs(Middleware):
    def __init__(self, where):
        self.where = where

    async def wrap_model_call(self, prompt, context, go):
        if self.where == "before":
            await anyio.sleep_forever()
        reply = await go(prompt)
        if self.where == "behind":
            await anyio.sleep_forever()
        return reply

    async def rule(self, call, tool, context):
        if self.where == "rule":
            await anyio.sleep_forever()


async def forever(*_):
    await anyio.sleep_forever()


@pytest.mark.anyio
@pytest.mark.row("ASK-30")
@pytest.mark.parametrize("where", ["before", "behind", "rule", "policy", "instructions"])
async def test_no_hook_hangs_a_run(where, monkeypatch):
    monkeypatch.setattr(middleware, "HOOK_SECONDS", 0.05)
    how = {where: forever} if where in {"policy", "instructions"} else {}
    agent = Agent(ScriptedModel([calls(call(to="B")), "k"]), tools=[noting([])], middleware=[Hangs(where)], **how)
    with anyio.fail_after(60):
        run = await agent.run("Go.")
    assert run.outcome == "failed"
    assert "took longer than" in run.reason


@pytest.mark.anyio
async def test_the_time_of_the_model_is_not_the_wrappers(monkeypatch):
    monkeypatch.setattr(middleware, "HOOK_SECONDS", 0.05)
    agent = Agent(ScriptedModel(["k"], delay=0.2), middleware=[Hangs("nowhere")])
    run = await agent.run("Go.")
    assert run.ok


def warned(agent, **how):
    seen = []
    run = agent.sync.run("Go.", on_event=seen.append, **how)
    return run, [each.text for each in seen if isinstance(each, events.Warned)]


def test_a_cost_limit_that_cannot_be_counted_is_reported_once():
    def turn(prompt):
        said = calls(call(id=f"c{len(prompt.messages)}", to=str(len(prompt.messages))))
        return said.replace(usage=p.Usage(input=10, output=1))

    agent = Agent(ScriptedModel([], then=turn), tools=[noting([])], limits=Limits(cost=0.01, iterations=4))
    _, told = warned(agent)
    assert told == ["the cost limit has no effect: the price of scripted/model is not known"]


@pytest.mark.row("KAI-13")
def test_a_budget_says_which():
    model = ScriptedModel([], then=lambda _: calls(call(to="B")).replace(usage=p.Usage(input=10, output=1)))
    run = Agent(model, tools=[noting([])], limits=Limits(tokens=1)).sync.run("Go.")
    assert (run.outcome, run.reason) == ("budget", "11 of 1 tokens")
