"""Ends that nobody wants: equal ids, answers blocked late, hooks after a cancel, prices and outputs that fail."""

from __future__ import annotations

import anyio
import pytest
from msgspec import structs

import palaver as p
from palaver.agent.agent import Agent
from palaver.agent.functions import function_tool
from palaver.models.scripted import ScriptedModel
from palaver.threads.thread import Thread
from palaver.turn import events, middleware
from palaver.turn.approvals import approve, edit
from palaver.turn.middleware import Blocked, Middleware
from palaver.turn.tool import Output
from tests.agent.wholeness import refused_path

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def send(ran, name="send"):
    def tool(to: str) -> str:
        """Send."""
        ran.append(to)
        return "sent"

    return function_tool(tool, name=name)


def twice(name="send"):
    return p.assistant(p.ToolCall("same", name, '{"to": "a"}'), p.ToolCall("same", name, '{"to": "b"}'))


@pytest.mark.row("DAS-25")
@pytest.mark.parametrize(("decision", "sent"), [(approve(), ["a"]), (edit({"to": "c"}), ["c"])])
async def test_a_decision_is_of_one_call_also_where_two_have_its_id(decision, sent):
    ran = []
    agent = Agent(ScriptedModel([twice(), "done"]), tools=[send(ran)], policy={"send": "ask"})
    waiting = await agent.run("go")
    assert [each.call.arguments_json for each in waiting.pending] == ['{"to": "a"}']
    run = await agent.run(previous=waiting, decisions={"same": decision})
    assert (run.outcome, ran) == ("completed", sent)
    results = [each for each in run.path.messages if isinstance(each, p.ToolMessage)]
    assert [each.is_error for each in results] == [False, True]


async def test_calls_with_one_id_run_both_where_nothing_is_asked():
    ran = []
    run = await Agent(ScriptedModel([twice(), "done"]), tools=[send(ran)]).run("go")
    assert (run.outcome, ran) == ("completed", ["a", "b"])


class Late(Middleware):
    async def after_model(self, context):
        if "secret" in context.message.text:
            raise Blocked("leak", message=context.message)


@pytest.mark.row("KAI-20")
@pytest.mark.law(7)
@pytest.mark.parametrize("with_call", [False, True])
async def test_an_answer_that_is_blocked_late_stands_once_and_is_never_sent_again(with_call):
    ran = []
    parts = ("secret", *([p.ToolCall("c1", "send", '{"to": "a"}')] if with_call else []))
    model = ScriptedModel([p.assistant(*parts), "fine"])
    agent = Agent(model, tools=[send(ran)], middleware=[Late()])
    run = await agent.run("x")
    assert (run.outcome, run.reason, ran) == ("blocked", "leak", [])
    assert [each.text for each in run.path.messages if isinstance(each, p.AssistantMessage)] == ["secret"]
    after = await agent.run("again", previous=run)
    assert after.text == "fine"
    assert "secret" not in repr(list(model.asked[-1].messages))
    assert refused_path(after.path) == {}


@pytest.mark.row("KAI-21")
async def test_hooks_after_a_cancel_have_little_time_together(monkeypatch):
    monkeypatch.setattr(middleware, "GRACE", 0.05)
    told = []

    class Slow(Middleware):
        async def after_agent(self, context):
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                told.append(context.ended.outcome)
                raise

    async def wait() -> str:
        """Wait."""
        await anyio.sleep_forever()
        return ""

    model = ScriptedModel([p.assistant(p.ToolCall("c1", "wait", "{}"))])
    agent = Agent(model, tools=[function_tool(wait)], middleware=[Slow(), Slow(), Slow()])
    async with agent.stream("go") as running:
        async for event in running:
            if isinstance(event, events.ToolStarted):
                running.cancel()
    assert (running.result.outcome, told) == ("cancelled", ["cancelled"] * 3)


async def test_what_may_have_run_is_asked_also_when_it_was_denied_at_first():
    ran = []
    tools = [send(ran), send(ran, "other")]
    calls = p.assistant(p.ToolCall("c1", "send", '{"to": "a"}'), p.ToolCall("c2", "other", '{"to": "b"}'))
    thread = Thread()
    thread.append(p.user("go"), calls)
    first = Agent(ScriptedModel([]), tools=tools, policy={"send": "allow", "other": "deny"})
    waiting = await first.run(thread=thread)
    assert [each.call.id for each in waiting.pending] == ["c1"]
    later = Agent(ScriptedModel(["done"]), tools=tools)
    again = await later.run(thread=thread, decisions={"c1": approve()})
    assert (again.outcome, ran) == ("waiting", [])
    assert [each.call.id for each in again.pending] == ["c2"]
    run = await later.run(thread=thread, decisions={"c2": approve()})
    assert (run.outcome, ran) == ("completed", ["a", "b"])


async def test_a_price_that_fails_makes_the_cost_unknown_and_no_more():
    def prices(model, usage):
        raise KeyError(model)

    answer = p.assistant("hi").replace(usage=p.Usage(input=1, output=1))
    async with Agent(ScriptedModel([answer]), prices=prices).stream("x") as running:
        told = [each for each in [event async for event in running] if isinstance(each, events.Warned)]
    run = running.result
    assert (run.outcome, run.text, run.cost) == ("completed", "hi", None)
    assert [isinstance(each.error, KeyError) for each in told] == [True]


async def test_an_output_that_cannot_be_kept_is_an_error_of_its_call():
    async def bad(_arguments, _context):
        return Output(content=(p.Text("x"),), metadata={"when": object()})

    known = function_tool(lambda: "x", name="bad", description="Bad.")
    tool = structs.replace(known, run=bad)
    run = await Agent(ScriptedModel([p.assistant(p.ToolCall("c1", "bad", "{}")), "done"]), tools=[tool]).run("x")
    (result,) = [each for each in run.path.messages if isinstance(each, p.ToolMessage)]
    assert (run.outcome, result.is_error) == ("completed", True)
