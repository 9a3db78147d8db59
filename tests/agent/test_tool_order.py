"""The breaker, plan mode, and the order in which a call is judged: docs/spec/kairo.md#2.4, #2.12, KAI-18, D12, D18,
D19."""

from __future__ import annotations

import json

import anyio
import pytest

import palaver as p
from palaver import wires
from palaver.agent import Agent, AgentTool, Output, approve, function_tool
from palaver.agent.guardrails import Guardrail, ToolBreaker, deny
from palaver.agent.todos import PlanMode
from palaver.core.errors import MessageError
from palaver.core.parts import Text
from palaver.core.tools import Tool
from palaver.models.scripted import ScriptedModel
from palaver.turn.middleware import Middleware
from tests.clocks import JUMPING


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def call(name, id, arguments="{}"):
    return p.ToolCall(id=id, name=name, arguments_json=arguments)


def calls(*names):
    """One answer for each name, each with a call of its own."""
    return [p.assistant(call(name, f"c{index}", json.dumps({"n": index}))) for index, name in enumerate(names)]


def results(run):
    return [m.text for m in run.messages if m.role == "tool"]


OPEN = "The flaky tool failed several times in a row and is not run for now. Go on without it."


class Flaky:
    """A tool that does what its plan says: ok, error, raise, hang."""

    def __init__(self, *plan, timeout=0.02):
        self.plan, self.runs, self.hangs = list(plan), 0, lambda: None
        self.tool = AgentTool(
            definition=Tool.of("flaky", "", {"type": "object"}),
            run=self.run,
            check=lambda _call: None,
            timeout=timeout,
        )

    async def run(self, _arguments, _context):
        self.runs += 1
        what = self.plan.pop(0)
        if what == "raise":
            raise RuntimeError("no")
        if what == "hang":
            self.hangs()
            await anyio.sleep_forever()
        return Output(content=(Text(what),), is_error=what == "error")


async def broken(flaky, names, **how):
    middleware = [ToolBreaker(**how)]
    model = ScriptedModel([*calls(*names), "done"])
    return await Agent(model, tools=[flaky.tool], middleware=middleware).run("x")


@pytest.mark.row("KAI-18")
@pytest.mark.anyio
@pytest.mark.parametrize("fault", ["hang", "raise", "error"])
async def test_three_failures_open_the_breaker(fault):
    flaky = Flaky(fault, fault, fault, "ok")
    run = await broken(flaky, ["flaky"] * 5)
    assert flaky.runs == 3
    assert results(run)[3:] == [OPEN, OPEN]
    assert run.ok


@pytest.mark.anyio
async def test_a_success_begins_the_count_anew_and_time_closes_the_breaker():
    flaky = Flaky("error", "error", "ok", "error", "error", "error", "ok")
    run = await broken(flaky, ["flaky"] * 7, seconds=0)
    assert results(run) == ["error", "error", "ok", "error", "error", "error", "ok"]


@JUMPING
@pytest.mark.anyio
async def test_after_its_time_one_more_failure_is_enough():
    flaky = Flaky("error", "error", "error", "error")
    breaker = ToolBreaker(seconds=30)

    class Wait(Middleware):
        async def before_model(self, context):
            if context.iteration == 3:
                await anyio.sleep(31)

    model = ScriptedModel([*calls(*["flaky"] * 5), "done"])
    run = await Agent(model, tools=[flaky.tool], middleware=[breaker, Wait()]).run("x")
    assert flaky.runs == 4
    assert results(run)[4] == OPEN


@pytest.mark.anyio
async def test_one_batch_may_open_it_and_another_run_begins_anew():
    flaky = Flaky(*["error"] * 7)
    batch = p.assistant(*[call("flaky", f"c{n}") for n in range(5)])
    made = Agent(ScriptedModel([batch, "done"] * 2), tools=[flaky.tool], middleware=[ToolBreaker()])
    assert results(await made.run("x")) == ["error"] * 3 + [OPEN] * 2
    await made.run("y")
    assert flaky.runs == 6


@pytest.mark.row("KAI-18")
@pytest.mark.anyio
async def test_what_a_user_cancels_does_not_count():
    flaky = Flaky("error", "error", "hang", "ok", timeout=None)
    breaker = ToolBreaker()
    seen = []

    class Look(Middleware):
        async def after_agent(self, context):
            seen.append(context.own[breaker]["flaky"].failures)

    model = ScriptedModel(calls("flaky", "flaky", "flaky"))
    made = Agent(model, tools=[flaky.tool], middleware=[breaker, Look()])
    with anyio.CancelScope() as scope:
        flaky.hangs = scope.cancel
        await made.run("x")
    assert (flaky.runs, seen) == (3, [2])


@pytest.mark.anyio
async def test_what_a_guardrail_denies_does_not_count():
    flaky = Flaky("ok")
    verdicts = [deny("a"), deny("b"), deny("c"), None]
    guard = Guardrail(before_tool=[lambda _r, _c: verdicts.pop(0)])
    model = ScriptedModel([*calls(*["flaky"] * 4), "done"])
    run = await Agent(model, tools=[flaky.tool], middleware=[ToolBreaker(), guard]).run("x")
    assert results(run)[3] == "ok"


def test_a_breaker_that_is_always_open_is_refused():
    with pytest.raises(MessageError):
        ToolBreaker(failures=0)


# -- plan mode ---------------------------------------------------------------------------------------------------------


@function_tool(effect="read")
def look(n: int = 0) -> str:
    """Look."""
    return "seen"


@function_tool
def change(n: int = 0) -> str:
    """Change."""
    return "changed"


BLOCKED = (
    "Tool 'change' (write) is blocked in plan mode: nothing may be changed now. "
    "Read what you need, and say what you would do."
)


@pytest.mark.row("KAI-18")
@pytest.mark.anyio
async def test_plan_mode_blocks_what_writes():
    made = Agent(ScriptedModel([*calls("look", "change"), "ok"] * 2), tools=[look, change], middleware=[PlanMode()])
    run = await made.run("x", values={"plan_mode": True})
    assert results(run) == ["seen", BLOCKED]
    assert run.messages[4].is_error
    assert results(await made.run("x")) == ["seen", "changed"]


@pytest.mark.anyio
async def test_nobody_is_asked_about_what_plan_mode_blocks():
    asked = []
    made = Agent(
        ScriptedModel([*calls("change"), "ok"]),
        tools=[change],
        policy="ask",
        decide=lambda requests: asked.append(requests) or {},
        middleware=[PlanMode()],
    )
    assert results(await made.run("x", values={"plan_mode": True})) == [BLOCKED]
    assert asked == []


@pytest.mark.anyio
async def test_a_tool_may_switch_plan_mode_in_the_middle_of_a_batch():
    @function_tool
    def plan(context: p.agent.ToolContext) -> str:
        """Begin to plan."""
        context.values["plan_mode"] = True
        return "planning"

    batch = p.assistant(call("plan", "1"), call("change", "2"))
    run = await Agent(ScriptedModel([batch, "ok"]), tools=[plan, change], middleware=[PlanMode()]).run("x")
    assert results(run) == ["planning", BLOCKED]


# -- the whole order ---------------------------------------------------------------------------------------------------


class Traced(Middleware):
    """Writes down when it is asked."""

    def __init__(self, inner, trace, name):
        self.inner, self.trace, self.name_ = inner, trace, name

    async def rule(self, call, tool, context):
        self.trace.append(f"{self.name_}?")
        return await self.inner.rule(call, tool, context)

    async def wrap_tool_call(self, request, context, call):
        self.trace.append(f"{self.name_}(")
        output = await self.inner.wrap_tool_call(request, context, call)
        self.trace.append(f"){self.name_}")
        return output


@pytest.mark.row("KAI-18")
@pytest.mark.anyio
async def test_the_order_in_which_a_call_is_judged():
    trace = []

    def note(what, said=None):
        return lambda *_seen: trace.append(what) or said

    @function_tool(limit=5)
    def work(n: int = 0) -> str:
        """Work."""
        trace.append("run")
        return "a long result"

    def decide(requests):
        trace.append("approval")
        return {each.call.id: approve() for each in requests}

    made = Agent(
        ScriptedModel([*calls("work"), "ok"]),
        tools=[work],
        policy=note("policy", "ask"),
        decide=decide,
        middleware=[
            Traced(ToolBreaker(), trace, "breaker"),
            Traced(PlanMode(), trace, "plan"),
            Guardrail(before_tool=[note("before")], after_tool=[note("after")]),
        ],
    )
    run = await made.run("x")
    assert trace == [
        "breaker?",
        "plan?",
        "policy",
        "approval",
        "breaker(",
        "plan(",
        "before",
        "run",
        "after",
        ")plan",
        ")breaker",
    ]
    assert results(run) == ["a lon\n[Result truncated: showing the first 5 of 13 characters.]"], "cut comes last"


NESTED = (
    b'{"type":"object","properties":{"where":{"type":"object","description":"Place","properties":{"x":{"type":"number",'
    b'"minimum":0,"exclusiveMaximum":10.0},"tags":{"type":"array","items":{"type":"string","enum":["a","b"]},'
    b'"minItems":1}},"required":["x"],"additionalProperties":false}},"required":["where"]}'
)


@pytest.mark.row("KAI-18")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "wire", ["openai_chat", "openai_responses", "anthropic_messages", "cohere_chat", "ollama_chat"]
)
async def test_every_tool_is_offered_with_its_schema_byte_for_byte(wire):
    from msgspec import Raw

    names = [f"custom_{n}" for n in range(40)]

    async def never(*_: object) -> None:
        raise AssertionError

    tools = [
        AgentTool(definition=Tool(name=name, description="d", parameters_json=Raw(NESTED)), run=never, check=never)
        for name in names
    ]
    made = Agent(ScriptedModel(["ok"]), tools=tools)
    await made.run("x")
    body = b"".join([wires.get(wire).encode_request(made.model.asked[0].request("m")).body])
    assert body.count(NESTED) == 40
    assert all(f'"{name}"'.encode() in body for name in names)
