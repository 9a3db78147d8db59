"""Scripted agents: docs/spec/codebuff.md#4.6, CBF-30."""

from __future__ import annotations

import pytest

import palaver as p
from palaver.agent import Agent, Limits, function_tool
from palaver.agent.scripted_agent import STEP, STEP_ALL, Scripted, call_of
from palaver.models.scripted import ScriptedModel


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
