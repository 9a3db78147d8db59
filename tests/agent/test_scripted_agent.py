"""Scripted agents: docs/spec/codebuff.md#4.6, CBF-30."""

from __future__ import annotations

import pytest

import palaver as p
from palaver.agent import Agent, Limits, function_tool
from palaver.agent.guardrails import Guardrail, deny
from palaver.agent.scripted_agent import STEP, STEP_ALL, Scripted, call_of
from palaver.core.errors import RunError
from palaver.models.scripted import ScriptedModel
from palaver.turn.middleware import Middleware, Step
from tests.agent.scripts import assert_valid


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


ran = []


@pytest.fixture(autouse=True)
def _clean():
    ran.clear()


@function_tool
def add(a: int, b: int) -> str:
    """Add."""
    ran.append((a, b))
    return str(a + b)


def led(script, *turns, **how):
    return Agent(ScriptedModel(turns), middleware=[Scripted(script, [add])], **how)


def model_call(id="m1"):
    return p.assistant(p.ToolCall(id, "add", '{"a": 5, "b": 5}'))


def shape(run):
    return [f"{m.role}:{m.text or [c.name for c in m.tool_calls]}" for m in run.messages]


@pytest.mark.row("CBF-30")
@pytest.mark.anyio
async def test_a_script_calls_tools_and_asks_the_model():
    seen = []

    def script(context):
        first = yield call_of("add", {"a": 1, "b": 2})
        seen.append((first.result.text, first.complete))
        second = yield STEP
        seen.append((second.result, second.complete))
        third = yield STEP
        seen.append(third.complete)

    made = led(script, model_call(), "ten")
    run = await made.run("x")
    assert seen == [("3", False), (None, False), True]
    assert shape(run) == ["user:x", "assistant:['add']", "tool:3", "assistant:['add']", "tool:10", "assistant:ten"]
    assert (run.outcome, run.text, len(made.model.asked)) == ("completed", "ten", 2)


@pytest.mark.row("CBF-30")
@pytest.mark.anyio
async def test_step_all_lets_the_model_go_on_until_it_is_through():
    seen = []

    def script(context):
        done = yield STEP_ALL
        seen.append(done.complete)
        yield STEP

    run = await led(
        script, model_call("m1"), p.assistant(p.ToolCall("m2", "add", '{"a": 1, "b": 1}')), "ok", "more"
    ).run("x")
    assert seen == [True]
    assert run.text == "more"
    assert ran == [(5, 5), (1, 1)]


@pytest.mark.row("CBF-30")
@pytest.mark.anyio
@pytest.mark.parametrize("policy", ["allow", "ask", "deny"])
async def test_a_hidden_call_leaves_no_trace_and_is_judged(policy):
    seen = []

    def script(context):
        told = yield call_of("add", {"a": 1, "b": 2}, hidden=True)
        seen.append(told.result.is_error)
        told = yield call_of("add", {"a": "x"}, hidden=True)
        seen.append(told.result.is_error)
        yield STEP

    run = await led(script, "hi", policy=policy).run("x")
    assert shape(run) == ["user:x", "assistant:hi"]
    assert seen == [policy != "allow", True]
    assert ran == ([(1, 2)] if policy == "allow" else [])


@pytest.mark.row("CBF-30")
@pytest.mark.finding("F-13")
@pytest.mark.anyio
@pytest.mark.parametrize("fault", ["raise", "unknown"])
async def test_an_exception_ends_the_turn_with_an_error_output_and_a_whole_thread(fault):
    def script(context):
        yield call_of("add", {"a": 1, "b": 2})
        if fault == "raise":
            raise ValueError("boom")
        yield call_of("nothing")

    made = led(script, "afterwards")
    run = await made.run("x")
    told = {"raise": "boom", "unknown": "Unknown tool 'nothing'. Available tools: add."}[fault]
    assert run.text == f"Error executing the script of agent agent: {told}"
    assert run.values["error"] == run.text
    assert (run.outcome, run.ok, type(run.error).__name__) == (
        "failed",
        False,
        {"raise": "ValueError", "unknown": "MessageError"}[fault],
    )
    assert_valid(run.path.messages)
    with pytest.raises(RunError, match="the run ended as failed"):
        run.check()
    assert made.model.asked == []
    plain = await Agent(ScriptedModel(["on"]), tools=[add]).run("y", previous=run)
    assert plain.text == "on"


@pytest.mark.anyio
async def test_a_script_that_never_ends_does():
    def script(context):
        while True:
            yield call_of("add", {"a": 1, "b": len(ran)})

    run = await led(script, limits=Limits(iterations=4)).run("x")
    assert run.outcome in ("max_iterations", "no_progress")
    assert len(ran) <= 4


@pytest.mark.finding("F-13")
@pytest.mark.anyio
@pytest.mark.parametrize("hidden", [False, True])
async def test_a_script_calls_the_tools_of_its_agent(hidden):
    def script(context):
        yield call_of("add", {"a": 1, "b": 2}, hidden=hidden)

    run = await Agent(ScriptedModel([]), tools=[add], middleware=[Scripted(script)]).run("x")
    assert (run.outcome, ran) == ("completed", [(1, 2)])


@pytest.mark.finding("F-13")
@pytest.mark.anyio
async def test_a_hidden_call_goes_through_the_guardrails():
    seen = []

    def script(context):
        seen.append((yield call_of("add", {"a": 1, "b": 2}, hidden=True)).result.content[0].text)

    guard = Guardrail(before_tool=[lambda *_: deny("no")])
    run = await Agent(ScriptedModel([]), tools=[add], middleware=[Scripted(script), guard]).run("x")
    assert (run.outcome, ran, seen) == ("completed", [], ["The add call was not allowed: no"])


@pytest.mark.finding("F-13")
@pytest.mark.anyio
@pytest.mark.parametrize("script", [lambda _: None, lambda _: iter([STEP]), lambda _: (each for each in ["add"])])
async def test_what_is_no_script_is_a_failed_run(script):
    run = await Agent(ScriptedModel(["x"]), tools=[add], middleware=[Scripted(script)]).run("x")
    assert (run.outcome, type(run.error).__name__) == ("failed", "MessageError")


class Failing(Middleware):
    """Says something, and lets the run fail, in a hook."""

    def __init__(self, place):
        async def hook(context):
            return Step(inject=(p.user("It broke."),), error=ValueError("boom"))

        setattr(self, place, hook)

    async def before_agent(self, context):
        pass

    async def before_model(self, context):
        pass

    async def after_model(self, context):
        pass


@pytest.mark.finding("F-13")
@pytest.mark.anyio
@pytest.mark.parametrize("place", ["before_agent", "before_model", "after_model"])
async def test_a_hook_may_say_why_the_run_fails(place):
    run = await Agent(ScriptedModel([model_call(), "never"]), tools=[add], middleware=[Failing(place)]).run("x")
    assert (run.outcome, run.reason, ran) == ("failed", "boom", [])
    assert run.messages[-1].text == "It broke."
    assert_valid(run.path.messages)
