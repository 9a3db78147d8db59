"""Sub-agents: docs/spec/deepagents-swift.md#8.4 (DAS-25, DAS-27), docs/spec/codebuff.md#4.5 (CBF-30)."""

from __future__ import annotations

import anyio
import pytest

import palaver as p
from palaver.agent import Agent, Limits, approve, function_tool, reject
from palaver.agent.subagents import meant, subagents
from palaver.agent.todos import PlanMode, todo_tool
from palaver.core.errors import MessageError, TransportError
from palaver.core.usage import Usage
from palaver.models.scripted import ScriptedModel
from palaver.store.memory import MemoryStore
from palaver.turn.events import ReasoningDelta, RunFinished, RunStarted, SubagentEvent, ToolFinished, ToolStarted


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def task(agent, id="t1", description="dig"):
    return p.ToolCall(id=id, name="task", arguments_json=f'{{"description": "{description}", "agent": "{agent}"}}')


def call(name, id="x1"):
    return p.ToolCall(id=id, name=name, arguments_json="{}")


wrote = []


@function_tool
def write() -> str:
    """Write."""
    wrote.append(1)
    return "written"


@pytest.fixture(autouse=True)
def _clean():
    wrote.clear()


def child(script, name="digger", **how):
    return Agent(ScriptedModel(script, name=f"scripted/{name}"), name=name, **how)


def parent(script, children, *more, **how):
    how.setdefault("name", "boss")
    return Agent(ScriptedModel(script), middleware=[*more, subagents(children)], **how)


def one(*calls):
    return [p.assistant(*calls), "done"]


def results(run):
    return [m for m in run.messages if m.role == "tool"]


# -- what a child sees -------------------------------------------------------------------------------------------------


@pytest.mark.row("DAS-27")
@pytest.mark.anyio
async def test_a_child_sees_its_task_and_nothing_else():
    inner = subagents([child([])])
    digger = child(["  found it \n"], instructions="You dig.", tools=[todo_tool()], middleware=[inner])
    boss = parent(one(task("digger")), [digger], instructions="You lead.")
    run = await boss.run("a secret plan", deps={"db": 1})
    (asked,) = digger.model.asked
    assert [m.text for m in asked.messages] == ["dig"]
    assert [m.text for m in asked.system] == ["You dig."]
    assert [tool.name for tool in asked.tools] == ["write_todos"]
    (result,) = results(run)
    assert (result.text, result.is_error, run.text) == ("found it", False, "done")
    assert [tool.name for tool in boss.model.asked[0].tools] == ["task"]
    assert boss.toolbox.find("task").definition.parameters["properties"]["agent"]["enum"] == ["digger"]


@pytest.mark.anyio
async def test_a_child_shares_deps_and_has_values_of_its_own():
    seen = []

    @function_tool
    def look(context: p.agent.ToolContext) -> str:
        """Look."""
        seen.append((context.deps, dict(context.values)))
        return "ok"

    digger = child([p.assistant(call("look")), "yes"], tools=[look])
    await parent(one(task("digger")), [digger]).run("x", deps="DB", values={"todos": ()})
    assert seen == [("DB", {})]


@pytest.mark.row("DAS-27")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("script", "told"),
    [
        ([p.assistant("  ")] * 5, "The agent digger did not finish (failed): the model gave no answer"),
        (
            [TransportError("refused")],
            "The agent digger did not finish (failed): refused",
        ),
    ],
)
async def test_a_failed_child_is_an_error_result(script, told):
    run = await parent(one(task("digger")), [child(script)]).run("x")
    (result,) = results(run)
    assert (result.is_error, result.text, run.outcome) == (True, told, "completed")


@pytest.mark.row("DAS-27")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"description": "dig", "agent": "miner"}', "agent: 'miner' is not one of the agents: digger, other"),
        ('{"description": "dig"}', "agent: None is not one of the agents: digger, other"),
        ('{"description": " ", "agent": "digger"}', "description: expected the task as a string"),
    ],
)
async def test_a_wrong_call_is_an_error_result(arguments, told):
    wrong = p.ToolCall(id="1", name="task", arguments_json=arguments)
    run = await parent(one(wrong), [child([]), child([], "other")]).run("x")
    (result,) = results(run)
    assert (result.is_error, result.text) == (True, told)


@pytest.mark.anyio
async def test_an_answer_that_a_limit_asked_for_is_a_result():
    digger = child([p.assistant(call("write")), "so far"], tools=[write], limits=Limits(iterations=2))
    run = await parent(one(task("digger")), [digger]).run("x")
    assert (results(run)[0].text, results(run)[0].is_error) == ("so far", False)
    assert results(run)[0].metadata["subagent"]["outcome"] == "max_iterations"


# -- events ------------------------------------------------------------------------------------------------------------


@pytest.mark.row("DAS-27")
@pytest.mark.row("CBF-24")
@pytest.mark.anyio
async def test_events_of_a_child_stand_between_its_start_and_its_finish():
    digger = child([p.assistant(p.Reasoning("hm"), "found")])
    async with parent(one(task("digger")), [digger]).stream("x") as running:
        told = [event async for event in running]
    inner = [event for event in told if isinstance(event, SubagentEvent)]
    assert isinstance(inner[0].event, RunStarted)
    assert isinstance(inner[-1].event, RunFinished)
    assert {event.call.id for event in inner} == {"t1"}
    assert [e.event.text for e in inner if isinstance(e.event, ReasoningDelta)] == ["hm"]
    kinds = [type(event) for event in told]
    assert kinds.index(ToolStarted) < told.index(inner[0]) < told.index(inner[-1]) < kinds.index(ToolFinished)
    assert type(told[-1]) is RunFinished


# -- the gate ----------------------------------------------------------------------------------------------------------


@pytest.mark.row("DAS-25")
@pytest.mark.anyio
@pytest.mark.parametrize("own", ["allow", "ask", "deny"])
@pytest.mark.parametrize("policy", ["allow", "ask", "deny"])
@pytest.mark.parametrize("decides", ["approve", "reject", None])
async def test_the_gate_of_the_parent_covers_its_children(own, policy, decides):
    asked = []

    def decide(requests):
        asked.append([each.tool for each in requests])
        return {each.call.id: approve() if decides == "approve" else reject() for each in requests}

    digger = child([p.assistant(call("write")), "finished"], tools=[write], policy=own)
    boss = parent(one(task("digger")), [digger], policy={"write": policy}, decide=decide if decides else None)
    run = await boss.run("x")
    strictest = max(own, policy, key=["allow", "ask", "deny"].index)
    (result,) = results(run)
    assert bool(wrote) is (strictest == "allow" or (strictest == "ask" and decides == "approve"))
    assert asked == ([["write"]] if strictest == "ask" and decides else [])
    if strictest == "ask" and not decides:
        assert result.is_error
        assert result.text == "The agent digger needs approval, but nobody can decide: write({})"
    else:
        assert result.text == "finished"


@pytest.mark.row("DAS-25")
@pytest.mark.anyio
async def test_plan_mode_of_the_parent_covers_its_children():
    digger = child([p.assistant(call("write")), "planned"], tools=[write])
    run = await parent(one(task("digger")), [digger], PlanMode()).run("x", values={"plan_mode": True})
    assert (results(run)[0].text, wrote) == ("planned", [])
    assert "blocked in plan mode" in digger.model.asked[1].messages[-1].text


# -- what it costs -----------------------------------------------------------------------------------------------------


def paid(message, tokens):
    return (p.assistant(message) if isinstance(message, str) else message).replace(usage=Usage(input=tokens))


def prices(model, usage):
    return usage.total / 100


@pytest.mark.row("CBF-30")
@pytest.mark.anyio
async def test_what_children_used_counts_also_when_they_failed():
    good = child([paid("ok", 10)], "good", prices=prices)
    bad = child([paid(p.assistant(call("nothing")), 20), TransportError("reset")], "bad", prices=prices)
    boss = parent([paid(p.assistant(task("good", "1"), task("bad", "2")), 1), paid("done", 2)], [good, bad])
    boss = boss.replace(prices=prices)
    run = await boss.run("x")
    assert [r.is_error for r in results(run)] == [False, True]
    assert run.usage.total == 33
    assert {name: used.total for name, used in run.usage_by_model.items()} == {
        "scripted/model": 3,
        "scripted/good": 10,
        "scripted/bad": 20,
    }
    assert run.cost == pytest.approx(0.33)


@pytest.mark.row("CBF-30")
@pytest.mark.anyio
async def test_limits_of_the_parent_see_what_children_used():
    digger = child([paid("ok", 1000)])
    boss = parent(one(task("digger")), [digger], limits=Limits(tokens=500))
    run = await boss.run("x")
    assert run.outcome == "budget"
    assert len(boss.model.asked) == 1
    assert results(run)[0].text == "ok"


# -- time --------------------------------------------------------------------------------------------------------------


class Meeting:
    """A tool that ends when as many have come as there shall be."""

    def __init__(self, people):
        self.left, self.all = people, anyio.Event()

    async def __call__(self) -> str:
        """Meet."""
        self.left -= 1
        if not self.left:
            self.all.set()
        await self.all.wait()
        return "met"


@pytest.mark.row("CBF-30")
@pytest.mark.anyio
async def test_children_run_at_the_same_time_and_one_failure_is_its_own():
    meet = function_tool(Meeting(3).__call__, name="meet")
    scripts = {name: [p.assistant(call("meet")), f"{name} met"] for name in ("a", "b")}
    scripts["c"] = [p.assistant(call("meet")), TransportError("reset")]
    children = [child(script, name, tools=[meet]) for name, script in scripts.items()]
    with anyio.fail_after(60):
        run = await parent(one(*[task(name, name) for name in "abc"]), children).run("x")
    assert [r.text for r in results(run)] == [
        "a met",
        "b met",
        "The agent c did not finish (failed): reset",
    ]


@pytest.mark.anyio
async def test_children_that_write_may_be_run_one_after_the_other():
    running = []

    @function_tool
    async def work() -> str:
        """Work."""
        running.append(1)
        await anyio.sleep(0.01)
        seen = len(running)
        running.pop()
        return str(seen)

    children = [child([p.assistant(call("work")), "ok"], name, tools=[work]) for name in "ab"]
    middleware = subagents(children, effect="write")
    model = ScriptedModel(one(task("a", "1"), task("b", "2")))
    await Agent(model, middleware=[middleware]).run("x")
    assert [c.model.asked[1].messages[-1].text for c in children] == ["1", "1"]


@pytest.mark.anyio
async def test_cancelling_reaches_children_and_what_they_used_counts():
    waiting, cancelled = anyio.Event(), []

    @function_tool
    async def wait() -> str:
        """Wait."""
        waiting.set()
        try:
            await anyio.sleep(60)
        except anyio.get_cancelled_exc_class():
            cancelled.append(1)
            raise
        return ""

    digger = child([paid(p.assistant(call("wait")), 7)], tools=[wait])
    inner = []
    async with parent(one(task("digger")), [digger]).stream("x") as running:
        async for event in running:
            if isinstance(event, SubagentEvent):
                inner.append(event.event)
                if isinstance(event.event, ToolStarted):
                    await waiting.wait()
                    running.cancel()
    run = running.result
    assert (run.outcome, cancelled, run.usage.total) == ("cancelled", [1], 7)
    assert isinstance(inner[-1], RunFinished)
    assert inner[-1].result.outcome == "cancelled"


# -- threads -----------------------------------------------------------------------------------------------------------


@pytest.mark.row("CBF-30")
@pytest.mark.anyio
async def test_the_thread_of_a_child_is_kept_beside_its_parents():
    with MemoryStore() as store:
        thread = store.open("talk")
        run = await parent(one(task("digger")), [child(["found"])]).run("x", thread=thread)
        (result,) = results(run)
        kept = store.info(result.metadata["subagent"]["thread"])
        assert kept.metadata["parent"] == {"thread": "talk", "run": run.id, "call": "t1", "agent": "digger"}
        assert [e.message.text for e in store.read(kept.id)] == ["dig", "found"]
        assert [e.message.text for e in store.read("talk") if e.message.role == "user"] == ["x"]


def test_a_child_is_not_run_again_without_being_asked():
    (tool,) = subagents([child([])]).tools
    assert (tool.effect, tool.is_repeatable) == ("read", False)


@pytest.mark.parametrize(
    "wrong", [[], [child([]), child([])], [child([], tools=[function_tool(write.run, name="task")])]]
)
def test_agents_that_cannot_be_are_refused(wrong):
    with pytest.raises(MessageError):
        subagents(wrong)


# -- ids ---------------------------------------------------------------------------------------------------------------

IDS = [
    ("acme/coder@1.2", ["acme/coder@1.2"], True),
    ("acme/coder", ["acme/coder@1.2"], True),
    ("coder@1.2", ["acme/coder@1.2"], True),
    ("coder", ["acme/coder@1.2"], True),
    ("acme/coder@1.3", ["acme/coder@1.2"], False),
    ("other/coder", ["acme/coder@1.2"], False),
    ("coder@2", ["acme/coder@1.2"], False),
    ("writer", ["acme/coder@1.2"], False),
    ("acme/coder", ["coder"], False),
    ("coder@1.2", ["coder"], False),
    ("coder", ["coder"], True),
    ("coder", [], False),
]


@pytest.mark.row("CBF-30")
@pytest.mark.parametrize(("reference", "permitted", "is_meant"), IDS)
def test_which_agents_a_reference_means(reference, permitted, is_meant):
    assert (meant(reference, permitted) is not None) is is_meant


@pytest.mark.row("CBF-30")
@pytest.mark.anyio
async def test_a_reference_in_a_call_is_read_like_that():
    run = await parent(one(task("coder")), [child(["coded"], "acme/coder@1.2"), child([], "b")]).run("x")
    assert results(run)[0].text == "coded"
