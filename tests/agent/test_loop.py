"""The loop, row by row: order, limits, batches, repeats, bad calls, approvals, steering, logs, stores."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import anyio
import pytest

import palaver as p
from palaver.agent.agent import Agent
from palaver.agent.functions import function_tool
from palaver.agent.guardrails import Guardrail, deny
from palaver.core.errors import ConflictError, DecodeError, MessageError, RunError, StoreError, UnavailableError
from palaver.core.request import Settings, ToolChoice
from palaver.core.usage import Usage
from palaver.models.scripted import Broken, ScriptedModel
from palaver.store.memory import MemoryStore
from palaver.threads.thread import Thread
from palaver.turn import approvals, events, middleware, notes
from palaver.turn.approvals import approve, edit, reject
from palaver.turn.journal import ReplayView
from palaver.turn.limits import Limits
from palaver.turn.middleware import Blocked, Middleware, Step
from palaver.turn.run import Run
from palaver.turn.tool import ToolContext
from tests.agent.wholeness import broken_pairs, refused_path, refused_request, said

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def call(id: str, name: str = "look", arguments: str = '{"x": 1}') -> p.ToolCall:
    return p.ToolCall(id, name, arguments)


def calls(*ids: str, name: str = "look") -> p.AssistantMessage:
    """An answer that calls a tool with an argument of its own for each id."""
    return p.assistant(*[call(each, name, f'{{"x": {number}}}') for number, each in enumerate(ids)])


def look(x: int) -> str:
    """Look."""
    return f"saw {x}"


LOOK = function_tool(look, effect="read")


async def carried(agent: Agent, *args: Any, whole: bool = True, **how: Any) -> Any:
    """Run; every request that was made, and what remains, must be valid on every wire."""
    run = await agent.run(*args, **how)
    for prompt in getattr(agent.model, "asked", ()):
        assert refused_request(prompt.request("m")) == {}
    assert refused_path(run.path) == {}
    assert not whole or broken_pairs(run.path.messages) == []
    return run


def results(run: Any) -> list[str]:
    return [each.text for each in run.path.messages if isinstance(each, p.ToolMessage)]


def roles(run: Any) -> str:
    return " ".join(each.role[0] for each in said(run.path.messages))


def tagged(run: Any, tag: str) -> list[p.Message]:
    return [each for each in run.path.messages if tag in each.tags]


# -- order -------------------------------------------------------------------------------------------------------------


class Told(Middleware):
    """Writes down what it stands around."""

    def __init__(self, name: str, trace: list[str], **does: Any) -> None:
        self._name, self.trace, self.does = name, trace, does

    async def _hook(self, hook: str) -> Any:
        self.trace.append(f"{self._name} {hook}")
        does = self.does.get(hook)
        if isinstance(does, Exception):
            raise does
        return does

    async def before_agent(self, context: Any) -> Any:
        return await self._hook("before_agent")

    async def before_model(self, context: Any) -> Any:
        return await self._hook("before_model")

    async def after_model(self, context: Any) -> Any:
        return await self._hook("after_model")

    async def after_agent(self, context: Any) -> Any:
        return await self._hook("after_agent")

    async def wrap_model_call(self, prompt: Any, context: Any, call: Any) -> Any:
        await self._hook("model(")
        reply = await call(prompt)
        await self._hook(")model")
        return reply

    async def wrap_tool_call(self, request: Any, context: Any, call: Any) -> Any:
        await self._hook("tool(")
        output = await call(request)
        await self._hook(")tool")
        return output


ROUND = "A before_model, B before_model, A model(, B model(, B )model, A )model, B after_model, A after_model"
TOOL = "A tool(, B tool(, look, B )tool, A )tool"
TRACE = f"A before_agent, B before_agent, {ROUND}, {TOOL}, {ROUND}, B after_agent, A after_agent"


@pytest.mark.row("DAS-22")
@pytest.mark.row("KAI-11")
async def test_one_iteration_has_one_order():
    trace: list[str] = []

    async def look(x: int) -> str:
        """Look."""
        trace.append("look")
        return str(x)

    agent = Agent(ScriptedModel([calls("a"), "done"]), tools=[look], middleware=[Told("A", trace), Told("B", trace)])
    run = await carried(agent, "go")
    assert ", ".join(trace) == TRACE
    assert roles(run) == "u a t a"


FAULTS = {
    "before_agent": ("failed", "u"),
    "before_model": ("failed", "u"),
    "model(": ("failed", "u"),
    ")model": ("failed", "u a t"),
    "after_model": ("failed", "u a t"),
    "tool(": ("completed", "u a t a"),
    ")tool": ("completed", "u a t a"),
    "after_agent": ("completed", "u a t a"),
}


@pytest.mark.row("DAS-22")
@pytest.mark.row("ASK-30")
@pytest.mark.parametrize("hook", FAULTS)
async def test_a_hook_that_raises_fails_the_run_and_the_thread_is_whole(hook):
    trace: list[str] = []
    agent = Agent(
        ScriptedModel([calls("a"), "done"]), tools=[LOOK], middleware=[Told("A", trace, **{hook: ValueError("mine")})]
    )
    run = await carried(agent, "go")
    assert (run.outcome, roles(run)) == FAULTS[hook]
    assert trace[-1] == "A after_agent"
    if run.outcome == "failed":
        assert str(run.error) == run.reason == "mine"
    again = await carried(agent.replace(model=ScriptedModel(["well"]), middleware=[]), "again", previous=run)
    assert again.text == "well"


@pytest.mark.row("ASK-30")
@pytest.mark.parametrize("hook", ["before_agent", "before_model", "after_model", "after_agent"])
async def test_a_hook_that_hangs_ends_the_run(hook, monkeypatch):
    monkeypatch.setattr(middleware, "HOOK_SECONDS", 0.02)

    async def hang(*_: Any) -> None:
        await anyio.sleep(30)

    made = type("Hangs", (Middleware,), {hook: hang})
    run = await carried(Agent(ScriptedModel([calls("a"), "done"]), tools=[LOOK], middleware=[made()]), "go")
    assert run.outcome == ("completed" if hook == "after_agent" else "failed")


JUMPS = {
    ("before_agent", "end"): ("completed", "u"),
    ("before_model", "end"): ("completed", "u"),
    ("after_model", "end"): ("completed", "u a t"),
    ("after_model", "tools"): ("max_iterations", "u a t a"),
    ("after_model", "model"): ("max_iterations", "u a t a"),
}


@pytest.mark.row("DAS-22")
@pytest.mark.parametrize(("hook", "to"), JUMPS)
async def test_where_a_hook_may_go(hook, to):
    model = ScriptedModel([calls("a"), "done"])
    agent = Agent(model, tools=[LOOK], middleware=[Told("A", [], **{hook: Step(jump=to)})], limits=Limits(iterations=2))
    run = await carried(agent, "go")
    assert (run.outcome, roles(run)) == JUMPS[hook, to]
    assert results(run) in ([], ["saw 0" if to == "tools" else notes.NOT_RUN_SKIPPED])


@pytest.mark.row("KAI-19")
async def test_what_is_injected_joins_once_and_in_order_behind_the_results():
    does = {hook: Step(inject=(p.user(f"A {hook}"),)) for hook in ("before_agent", "before_model", "after_model")}
    other = {hook: Step(inject=(p.user(f"B {hook}"),)) for hook in ("before_agent", "before_model", "after_model")}
    agent = Agent(
        ScriptedModel([calls("a"), "done"]),
        tools=[LOOK],
        middleware=[Told("A", [], **does), Told("B", [], **other)],
        limits=Limits(iterations=2),
    )
    run = await carried(agent, "go")
    texts = [each.text or each.role for each in run.path.messages]
    once = ["A before_model", "B before_model"]
    after = ["B after_model", "A after_model"]
    first = ["go", "A before_agent", "B before_agent", *once, "assistant", "saw 0", *after]
    assert texts == [*first, *once, "done", *after]


async def test_what_is_injected_before_a_resumed_run_stands_behind_the_open_calls():
    thread = Thread()
    thread.append(p.user("go"), calls("a"))
    agent = Agent(
        ScriptedModel(["done"]), tools=[LOOK], middleware=[Told("A", [], before_agent=Step(inject=(p.user("note"),)))]
    )
    run = await carried(agent, thread=thread)
    assert [each.text or each.role for each in run.path.messages] == ["go", "assistant", "saw 0", "note", "done"]


async def test_a_blocked_answer_is_seen_by_nobody():
    class Guard(Middleware):
        async def wrap_model_call(self, prompt: Any, context: Any, call: Any) -> Any:
            reply = await call(prompt)
            raise Blocked("not this", message=reply.response.message)

    run = await carried(Agent(ScriptedModel(["secret"]), middleware=[Guard()]), "go")
    assert (run.outcome, run.reason) == ("blocked", "not this")
    assert roles(run) == "u"


# -- limits ------------------------------------------------------------------------------------------------------------


def endless(usage: Usage | None = None) -> Any:
    """A model that calls a tool for ever, each time with another argument."""
    numbers = itertools.count()

    def turn(prompt: Any) -> Any:
        if not prompt.tools:
            return p.assistant("That is all.").replace(usage=usage)
        number = next(numbers)
        return p.assistant(call(f"c{number}", arguments=f'{{"x": {number}}}')).replace(usage=usage)

    return ScriptedModel([], then=turn)


@pytest.mark.row("KAI-12")
@pytest.mark.row("DAS-23")
@pytest.mark.row("CBF-25")
@pytest.mark.parametrize("limit", [1, 2, 5, 25])
@pytest.mark.share(2)
async def test_n_calls_of_the_model_are_n_minus_one_rounds_and_an_answer_without_tools(limit):
    model = endless()
    agent = Agent(model, tools=[LOOK], limits=Limits(iterations=limit))
    run = await carried(agent, "go")
    assert (run.outcome, run.text, run.iterations) == ("max_iterations", "That is all.", limit)
    assert len(results(run)) == limit - 1
    assert [bool(each.tools) for each in model.asked] == [True] * (limit - 1) + [False]
    assert notes.final_answer_instruction in [each.text for each in model.asked[-1].system]
    again = await carried(agent, "again", previous=run)
    assert again.iterations == limit, "the budget begins anew"


@pytest.mark.row("DAS-23")
@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("required", ("look",)), ToolChoice("auto")])
async def test_the_last_answer_is_asked_for_validly_whatever_calls_were_demanded(choice):
    agent = Agent(ScriptedModel([calls("a"), "fine"]), tools=[LOOK], limits=Limits(iterations=2))
    run = await carried(agent.replace(settings=Settings(tool_choice=choice)), "go")
    assert (run.outcome, run.text) == ("max_iterations", "fine")


@pytest.mark.row("KAI-12")
async def test_calls_in_the_last_answer_are_answered_and_not_run():
    run = await carried(Agent(ScriptedModel([], then=calls("a")), tools=[LOOK], limits=Limits(iterations=1)), "go")
    assert (run.outcome, results(run)) == ("max_iterations", [notes.NOT_RUN_LIMIT])


BUDGETS = {
    "tokens": (Limits(tokens=250), "budget", 3),
    "cost": (Limits(cost=0.02), "budget", 2),
    "context": (Limits(context_tokens=90), "context_full", 1),
    "iterations": (Limits(iterations=4), "max_iterations", 4),
}


@pytest.mark.row("KAI-13")
@pytest.mark.parametrize("limit", BUDGETS)
async def test_each_budget_has_its_own_outcome(limit):
    limits, outcome, asked = BUDGETS[limit]
    usage = Usage(input=90, output=10)
    agent = Agent(endless(usage), tools=[LOOK], limits=limits, prices=lambda model, usage: 0.01)  # noqa: ARG005
    run = await carried(agent, "go")
    assert (run.outcome, run.iterations) == (outcome, asked)
    assert run.usage.total == 100 * asked
    assert run.cost == pytest.approx(0.01 * asked)
    again = await carried(agent, "again", previous=run)
    assert again.outcome == outcome
    assert again.iterations == asked, "every limit is of one run"


@pytest.mark.row("KAI-13")
@pytest.mark.parametrize("where", ["model", "tool"])
async def test_the_time_of_a_run_ends_it_with_its_own_outcome(where):
    async def look(x: int) -> None:
        """Look for long."""
        await anyio.sleep(30 * x)

    model = ScriptedModel([p.assistant(call("a"))], delay=30.0 if where == "model" else 0.0)
    run = await carried(Agent(model, tools=[look], limits=Limits(seconds=0.05)), "go")
    assert run.outcome == "timed_out"
    assert run.path.messages[-1].tags == (notes.INTERRUPTED,)


async def test_an_unknown_price_is_no_price():
    usage = Usage(input=1, output=1)
    agent = Agent(ScriptedModel([p.assistant("hi").replace(usage=usage)]), prices=lambda model, usage: None)  # noqa: ARG005
    assert (await carried(agent, "go")).cost is None


# -- batches -----------------------------------------------------------------------------------------------------------


@pytest.mark.row("KAI-15")
@pytest.mark.row("DAS-24")
@pytest.mark.row("KAI-25")
@pytest.mark.parametrize("fails", ["", "r1", "w1"])
async def test_reads_overlap_then_writes_run_one_by_one(fails):
    both, ended, trace, ran = anyio.Event(), anyio.Event(), [], Counter[str]()

    async def read(id: str) -> str:
        """Read; goes on when both reads run."""
        ran[id] += 1
        trace.append(f"{id} begins")
        if len(trace) == 2:
            both.set()
        with anyio.fail_after(60):
            await both.wait()
        if id == "r1":
            await ended.wait()  # it ends last, and its result stands first
        ended.set()
        if id == fails:
            raise ValueError("no")
        trace.append(f"{id} ends")
        return id

    async def write(id: str) -> str:
        """Write."""
        ran[id] += 1
        trace.append(f"{id} begins")
        await anyio.sleep(0.002)
        if id == fails:
            raise ValueError("no")
        trace.append(f"{id} ends")
        return id

    order = ["w1", "r1", "r2", "w2"]
    names = {"w": "write", "r": "read"}
    message = p.assistant(*[call(each, names[each[0]], f'{{"id": "{each}"}}') for each in order])
    agent = Agent(ScriptedModel([message, "done"]), tools=[function_tool(read, effect="read"), write])
    run = await carried(agent, "go")
    expected = ["r1 begins", "r2 begins", "r2 ends", "r1 ends", "w1 begins", "w1 ends", "w2 begins", "w2 ends"]
    assert sorted(trace[:2]) == expected[:2], "in any order"
    assert trace[2:] == [each for each in expected[2:] if each != f"{fails} ends"]
    assert [each if "no" not in each else "error" for each in results(run)] == [
        "error" if each == fails else each for each in order
    ]
    assert ran == Counter(order)
    assert run.text == "done"


@pytest.mark.row("DAS-24")
async def test_what_a_tool_shares_is_seen_by_later_calls():
    def put(x: int, context: ToolContext) -> str:
        """Put."""
        context.values["x"] = x
        return "put"

    def get(context: ToolContext) -> str:
        """Get."""
        return f"got {context.values['x']}"

    message = p.assistant(call("a", "put", '{"x": 7}'), call("b", "get", "{}"))
    run = await carried(Agent(ScriptedModel([message, "done"]), tools=[put, get]), "go")
    assert results(run) == ["put", "got 7"]
    assert run.values == {"x": 7}


async def test_a_tool_that_takes_too_long_has_a_result_that_says_so():
    async def slow() -> None:
        """Sleep."""
        await anyio.sleep(30)

    message = p.assistant(call("a", "slow", "{}"), call("b"))
    run = await carried(Agent(ScriptedModel([message, "done"]), tools=[function_tool(slow, timeout=0.01), LOOK]), "go")
    assert results(run) == [
        "slow took longer than 0.01 seconds and was not waited for. It may have taken effect.",
        "saw 1",
    ]


# -- repeats -----------------------------------------------------------------------------------------------------------


@pytest.mark.row("DAS-23")
@pytest.mark.row("KAI-14")
@pytest.mark.parametrize(("fails", "wording"), [(False, "its result is in"), (True, "and it failed")])
async def test_a_repeated_round_is_answered_and_the_second_asks_for_the_last_answer(fails, wording):
    ran = []

    def look(x: int) -> str:
        """Look."""
        ran.append(x)
        if fails:
            raise ValueError("no")
        return "saw"

    model = ScriptedModel([], then=lambda prompt: calls("a") if prompt.tools else "fine")
    run = await carried(Agent(model, tools=[look]), "go")
    assert (run.outcome, run.text, ran) == ("no_progress", "fine", [0])
    assert len(model.asked) == 4
    assert [wording in each for each in results(run)] == [False, True, True]


@pytest.mark.row("KAI-14")
@pytest.mark.parametrize("policy", ["answer", "note"])
@pytest.mark.parametrize("kind", ["malformed", "unknown", "invalid"])
async def test_calls_that_cannot_be_run_and_come_again_end_the_run(kind, policy):
    bad = {
        "malformed": p.MalformedToolCall('{"x"', "cut off", "look", "a"),
        "unknown": call("a", "nobody"),
        "invalid": call("a", "look", "{}"),
    }[kind]
    model = ScriptedModel([], then=lambda prompt: p.assistant(bad) if prompt.tools else "fine")
    run = await carried(Agent(model, tools=[LOOK], invalid_calls=policy), "go")
    assert run.outcome == "no_progress"
    assert len(model.asked) <= 6


@pytest.mark.row("KAI-14")
@pytest.mark.parametrize("count", [12, 30])
async def test_distinct_reads_all_run(count):
    rounds = [p.assistant(call(f"c{number}", arguments=f'{{"x": {number}}}')) for number in range(count)]
    run = await carried(Agent(ScriptedModel([*rounds, "done"]), tools=[LOOK], limits=Limits(iterations=40)), "go")
    assert results(run) == [f"saw {number}" for number in range(count)]


@pytest.mark.row("KAI-14")
@pytest.mark.parametrize("between", ["approved", "other", "polled"])
async def test_a_round_that_something_else_stood_between_is_no_repeat(between):
    seen = []

    def look(x: int) -> str:
        """Look."""
        seen.append(x)
        return str(len(seen))

    def edit_it(x: int) -> str:
        """Edit."""
        return f"edited {x}"

    agent = Agent(
        ScriptedModel([calls("a"), calls("b", name="edit_it"), calls("c"), "done"]),
        tools=[look, edit_it],
        policy={"edit_it": "ask"} if between == "approved" else "allow",
        decide=lambda requests: {each.call.id: approve() for each in requests},
        polling=["edit_it"] if between == "polled" else (),
    )
    run = await carried(agent, "go")
    assert results(run) == ["1", "edited 0", "2"]


async def test_tools_that_are_polled_and_runs_that_say_so_repeat():
    turns = [calls("a"), calls("b"), calls("c"), calls("d"), "done"]
    for how in ({"polling": ["look"]}, {"limits": Limits(repeats="run")}):
        run = await carried(Agent(ScriptedModel(turns), tools=[LOOK], **how), "go")
        assert results(run) == ["saw 0"] * 4


# -- calls that cannot be run ------------------------------------------------------------------------------------------

BAD = p.MalformedToolCall('{"x": ' + "y" * 300, "cut off in the middle", "look", "m")


@pytest.mark.row("DAS-19")
@pytest.mark.parametrize("mixed", [True, False])
async def test_a_malformed_call_is_kept_fed_back_and_never_sent_as_a_call(mixed):
    message = p.assistant("I look.", BAD, call("a")) if mixed else p.assistant("I look.", BAD)
    model = ScriptedModel([message, "done"])
    run = await carried(Agent(model, tools=[LOOK]), "go")
    (note,) = tagged(run, notes.TOOL_CALL_ERROR)
    assert "cut off in the middle: {" in note.text
    assert "y" * 200 not in note.text
    assert run.path.messages[1].malformed_tool_calls == (BAD,)
    assert roles(run) == ("u a t u a" if mixed else "u a u a")
    assert run.text == "done"
    assert len(model.asked) == 2


@pytest.mark.row("CBF-18")
@pytest.mark.row("DAS-24")
@pytest.mark.finding("F-35")
@pytest.mark.parametrize("bad", [call("z", "nobody"), call("z", "look", '{"x": "no"}')])
async def test_under_note_a_call_that_cannot_be_run_is_one_error_event_and_leaves_no_call(bad):
    model = ScriptedModel([p.assistant("Two.", bad, call("a")), "done"])
    async with Agent(model, tools=[LOOK], invalid_calls="note").stream("go") as running:
        seen = [each async for each in running]
    run = running.result
    assert refused_path(run.path) == {}
    assert broken_pairs(run.path.messages) == []
    assert results(run) == ["saw 1"]
    assert len(tagged(run, notes.TOOL_CALL_ERROR)) == 1
    assert [each.call.id for each in seen if isinstance(each, events.ToolStarted | events.ToolFinished)] == ["a", "a"]
    refused = [each.call for each in seen if isinstance(each, events.CallRefused)]
    assert [(each.id, each.name, each.raw) for each in refused] == [("z", bad.name, bad.arguments_json)]
    assert refused[0].reason
    assert notes.TOOL_CALL_ERROR in [tag for each in model.asked[1].messages for tag in each.tags]
    assert [each.id for each in run.path.messages[1].tool_calls] == ["a"]


@pytest.mark.row("DAS-24")
@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (call("z", "nobody"), "Unknown tool 'nobody'. Available tools: look."),
        (call("z", "look", "{}"), "x"),
        (call("z", "look", '{"x": "no"}'), "x"),
    ],
)
async def test_a_call_that_cannot_be_run_is_answered_with_what_is_wrong(bad, text):
    run = await carried(Agent(ScriptedModel([p.assistant(bad, call("a")), "done"]), tools=[LOOK]), "go")
    assert text in results(run)[0]
    assert bad.name in results(run)[0]
    assert results(run)[1] == "saw 1"
    assert [each.is_error for each in run.path.messages if isinstance(each, p.ToolMessage)] == [True, False]


@pytest.mark.row("DAS-23")
@pytest.mark.parametrize(("name", "found"), [("Look", True), ("LOOK", True), ("look!", False)])
async def test_a_name_that_is_nearly_right_finds_its_tool(name, found):
    run = await carried(Agent(ScriptedModel([p.assistant(call("a", name)), "done"]), tools=[LOOK]), "go")
    assert (results(run) == ["saw 1"]) == found


@pytest.mark.row("DAS-24")
@pytest.mark.parametrize(("length", "cut"), [(6000, False), (6001, True)])
@pytest.mark.parametrize("character", ["x", "e\u0301"])
async def test_results_are_cut_behind_six_thousand_characters(length, cut, character):
    def look(x: int) -> str:
        """Look."""
        return character * length

    agent = Agent(ScriptedModel([calls("a"), "done"]), tools=[look])
    run = await carried(agent, "go")
    (text,) = results(run)
    assert text.count(character) == min(length, 6000)
    assert ("[Result truncated: showing the first 6000 of 6001 characters.]" in text) == cut
    records = [each for each in run.path.records if each.source == "result"]
    assert [each.payload["text"] for each in records] == ([character * length] if cut else [])


# -- parts and the end of a turn ---------------------------------------------------------------------------------------


@pytest.mark.row("CBF-19")
async def test_a_step_keeps_parts_as_they_came_then_results_then_notes():
    message = p.assistant(p.Reasoning("hm"), "One.", call("a"), "Two.", BAD, call("b", arguments='{"x": 2}'))
    model = ScriptedModel([message, "done"])
    async with Agent(model, tools=[LOOK]).stream("go") as running:
        seen = [each async for each in running]
    run = running.result
    assert [type(each).__name__ for each in run.path.messages[1].content] == [
        "Reasoning", "Text", "ToolCall", "Text", "MalformedToolCall", "ToolCall",
    ]  # fmt: skip
    assert [each.text for each in run.path.messages[2:4]] == ["saw 1", "saw 2"]
    assert run.path.messages[4].tags == (notes.TOOL_CALL_ERROR,)
    kinds = [type(each).__name__ for each in seen]
    assert kinds.index("TextDelta") < kinds.index("ToolStarted") < kinds.index("ToolFinished")
    assert Counter(kinds)["ToolStarted"] == 2
    assert (kinds[0], kinds[-1], kinds.count("RunFinished")) == ("RunStarted", "RunFinished", 1)


THINKS = p.AssistantMessage(content=(p.Reasoning("hm"),), finish_reason="stop")
CUT = p.AssistantMessage(content=(p.Text("I was"),), finish_reason="length")
PAUSES = p.AssistantMessage(content=(p.Text("wait"),), finish_reason="pause")
FILTERED = p.AssistantMessage(content=(p.Text("I"),), finish_reason="content_filter")
REFUSES = p.assistant(p.Reasoning("hm"), p.Refusal("I will not."), finish_reason="stop")
STOPPED = p.assistant("I", finish_reason="refusal")
FAILS = p.assistant("I will call", finish_reason="error", finish_reason_raw="MALFORMED_FUNCTION_CALL")
TORN = Broken(p.assistant("It is "), "reset by peer")
LAST_TORN = Broken(p.assistant("It is "), "the last detail")

ENDS: dict[str, tuple[list[Any], dict[str, Any], str, str, int]] = {
    "an answer": (["done"], {}, "completed", "done", 1),
    "thoughts alone go on": ([THINKS, "done"], {}, "completed", "done", 2),
    "thoughts alone, four times": ([THINKS] * 4, {}, "failed", "", 4),
    "nothing at all goes on": ([p.AssistantMessage(), "done"], {}, "completed", "done", 2),
    "a pause goes on": ([PAUSES, "done"], {}, "completed", "done", 2),
    "a pause, for ever": ([PAUSES] * 5, {"iterations": 5}, "max_iterations", "wait", 5),
    "cut off": ([CUT], {}, "length", "I was", 1),
    "cut off for ever": ([CUT] * 4, {"continue_cut": True}, "failed", "I was", 4),
    "refused": ([REFUSES], {}, "refused", "", 1),
    "refused by the provider": ([STOPPED], {}, "refused", "I", 1),
    "failed at the provider": ([FAILS, "done"], {}, "completed", "done", 2),
    "failed at the provider, four times": ([FAILS] * 4, {}, "failed", "I will call", 4),
    "cut off, and asked to go on": ([CUT, " here"], {"continue_cut": True}, "completed", " here", 2),
    "filtered": ([FILTERED], {}, "blocked", "I", 1),
    "torn once": ([TORN, "the end"], {}, "completed", "the end", 2),
    "torn three times": ([TORN, TORN, TORN, "ok"], {}, "completed", "ok", 4),
    "torn four times": ([TORN, TORN, TORN, LAST_TORN], {}, "failed", "It is ", 4),
    "tools between forgive": ([TORN, TORN, calls("a"), TORN, TORN, "ok"], {}, "completed", "ok", 6),
    "no answer at all": ([StoreError("no")], {}, "failed", "", 1),
}


@pytest.mark.row("CBF-25")
@pytest.mark.parametrize("case", ENDS)
async def test_how_a_turn_ends(case):
    script, limits, outcome, text, asked = ENDS[case]
    model = ScriptedModel(script)
    run = await carried(Agent(model, tools=[LOOK], limits=Limits(**limits)), "go")
    assert (run.outcome, run.text, len(model.asked)) == (outcome, text, asked)
    if case == "torn four times":
        assert "the last detail" in run.reason
    again = await carried(Agent(ScriptedModel(["later"]), tools=[LOOK]), "again", previous=run)
    assert again.text == "later"


@pytest.mark.finding("S-19")
@pytest.mark.parametrize(
    ("script", "outcome", "reason"),
    [
        ([CUT], "length", "the answer was cut at the model's output limit"),
        ([REFUSES], "refused", "I will not."),
        ([STOPPED], "refused", "I"),
        ([FAILS] * 4, "failed", "the provider says that its answer failed: MALFORMED_FUNCTION_CALL"),
    ],
)
async def test_a_run_without_a_whole_answer_is_not_ok_and_says_why(script, outcome, reason):
    run = await carried(Agent(ScriptedModel(script)), "go")
    assert (run.outcome, run.ok, run.reason) == (outcome, False, reason)
    with pytest.raises(RunError, match=outcome):
        run.check()
    assert Run.load(run.dump()).outcome == outcome


@pytest.mark.finding("S-19")
async def test_a_refusal_is_not_asked_for_in_another_form():
    model = ScriptedModel([REFUSES, '{"a": 1}'])
    run = await carried(Agent(model, output=dict[str, int]), "go")
    assert (run.outcome, len(model.asked), run.output) == ("refused", 1, None)


@pytest.mark.finding("S-19")
async def test_a_cut_answer_is_no_output_though_it_has_the_form():
    run = await carried(Agent(ScriptedModel([CUT.replace(content='{"a": 1}')]), output=dict[str, int]), "go")
    assert (run.outcome, run.output, run.text) == ("length", None, '{"a": 1}')


@pytest.mark.finding("S-22")
async def test_a_call_of_the_model_that_was_blocked_before_it_is_not_counted():
    model = ScriptedModel([calls("a"), "never"])
    guard = Guardrail(before_model=lambda _p, _c: deny("no") if model.asked else None)
    run = await carried(Agent(model, tools=[LOOK], middleware=[guard]), "go")
    assert (run.outcome, run.iterations, len(model.asked)) == ("blocked", 1, 1)
    first = await carried(
        Agent(ScriptedModel([]), middleware=[Guardrail(before_model=lambda _p, _c: deny("no"))]), "go"
    )
    assert first.iterations == 0
    answered = await carried(
        Agent(ScriptedModel(["x"]), middleware=[Guardrail(after_model=lambda _m, _c: deny("no"))]), "go"
    )
    assert answered.iterations == 1


@pytest.mark.finding("S-22")
async def test_a_saved_run_with_an_outcome_that_is_none_is_refused():
    saved = (await carried(Agent(ScriptedModel(["x"])), "go")).dump()
    with pytest.raises(DecodeError, match="outcome"):
        Run.load(saved.replace(b'"completed"', b'"waitin"'))


@pytest.mark.row("CBF-21")
async def test_an_answer_that_broke_off_is_gone_on_with():
    run = await carried(Agent(ScriptedModel([TORN] * 4)), "go")
    model = ScriptedModel(["the end"])
    again = await carried(Agent(model), thread=run.thread)
    assert (again.outcome, again.text, len(model.asked)) == ("completed", "the end", 1)
    done = await carried(Agent(ScriptedModel([])), thread=run.thread)
    assert (done.outcome, done.iterations) == ("completed", 0)


# -- steering ----------------------------------------------------------------------------------------------------------


@pytest.mark.row("CBF-26")
async def test_what_is_said_meanwhile_joins_behind_the_results_and_keeps_the_turn_alive():
    async with Agent(ScriptedModel([calls("a", "b"), "done", "and that"]), tools=[LOOK]).stream("go") as running:
        async for event in running:
            if isinstance(event, events.ToolStarted) and event.call.id == "a":
                running.steer("Be brief.")
            if isinstance(event, events.TextDelta) and event.text == "done":
                running.steer("More.")
    run = running.result
    assert roles(run) in ("u a t t u a u a", "u a t t u u a")
    assert broken_pairs(run.path.messages) == []
    said_ = [each for each in run.path.messages[1:] if isinstance(each, p.UserMessage)]
    assert all(notes.USER_PROMPT in each.tags for each in said_)
    with pytest.raises(MessageError, match="the run has finished"):
        running.steer("Too late.")


async def test_what_is_said_while_a_decision_waits_is_heard_when_the_run_goes_on():
    agent = Agent(ScriptedModel([calls("a"), "done"]), tools=[look], policy="ask")
    async with agent.stream("go") as running:
        async for event in running:
            if isinstance(event, events.IterationStarted):
                running.steer("By the way.")
    run = running.result
    assert run.outcome == "waiting"
    assert "By the way" not in str([each.content for each in run.path.messages])
    for how in ({"decisions": {"a": approve()}}, {"prompt": "Never mind."}):
        thread = Thread()
        thread.append(*[each.message for each in run.path])
        again = await carried(agent.replace(model=ScriptedModel(["done"])), thread=thread, **how)
        texts = [each.text for each in again.path.messages if isinstance(each, p.UserMessage)]
        assert sum("By the way." in each for each in texts) == 1
        assert again.text == "done"


async def test_what_is_said_when_the_run_is_over_is_kept():
    class Late(Middleware):
        async def after_agent(self, context: Any) -> None:
            running.steer("One more thing.")

    running = Agent(ScriptedModel(["done"]), middleware=[Late()]).stream("go")
    async with running:
        run = await running.wait()
    assert (run.text, run.outcome) == ("done", "completed")
    assert "One more thing." in run.path.messages[-1].text


# -- approvals that outlive a run ----------------------------------------------------------------------------------


def writes(done: list[int], **how: Any) -> Any:
    def write(x: int) -> str:
        """Write."""
        done.append(x)
        return f"wrote {x}"

    return function_tool(write, **how)


async def test_a_call_that_may_have_run_is_asked_however_often_the_run_is_resumed():
    done: list[int] = []
    thread = Thread()
    thread.append(p.user("go"), calls("a", name="write"))  # as a process leaves it that was killed in the call
    agent = Agent(ScriptedModel([], then="done"), tools=[writes(done)])
    for _ in range(3):
        run = await carried(agent, thread=thread, whole=False)
        assert (run.outcome, done) == ("waiting", [])
        assert [notes.MAY_HAVE_RUN in each.reason for each in run.pending] == [True]
    length = len(thread)
    assert len((await agent.run(thread=thread)).path) == length, "asking again writes nothing"
    run = await carried(agent, thread=thread, decisions={"a": reject("It ran.")})
    assert (run.outcome, done) == ("completed", [])
    assert "rejected" in results(run)[0]
    assert notes.MAY_HAVE_RUN_BEFORE in results(run)[0]


@pytest.mark.finding("F-11")
@pytest.mark.parametrize(("effect", "says"), [("write", True), ("read", False)])
async def test_a_call_that_is_denied_after_a_crash_says_that_it_may_have_run(effect, says):
    thread = Thread()
    thread.append(p.user("go"), calls("a", name="write"))
    agent = Agent(ScriptedModel(["done"]), tools=[writes([], effect=effect)], policy="deny")
    run = await carried(agent, thread=thread)
    assert (notes.MAY_HAVE_RUN_BEFORE in results(run)[0]) is says


async def test_the_decider_sees_that_a_call_may_have_run_whatever_the_policy_asks():
    thread = Thread()
    thread.append(p.user("go"), calls("a", name="write"))
    run = await carried(Agent(ScriptedModel([]), tools=[writes([])], policy="ask"), thread=thread, whole=False)
    assert [each.reason for each in run.pending] == [notes.MAY_HAVE_RUN]


async def test_decisions_may_come_one_by_one_and_what_was_decided_stands():
    done: list[int] = []
    agent = Agent(
        ScriptedModel([calls("a", "b", "c", name="write"), "done"]), tools=[writes(done)], policy={"write": "ask"}
    )
    run = await carried(agent, "go", whole=False)
    for each, decision in (("b", edit({"x": 20})), ("c", reject())):
        run = await carried(agent, thread=run.thread, decisions={each: decision}, whole=False)
        assert (run.outcome, done) == ("waiting", [])
    assert [each.call.id for each in run.pending] == ["a"]
    with pytest.raises(MessageError, match="nothing is pending"):
        await agent.run(thread=run.thread, decisions={"b": approve()})
    run = await carried(agent, thread=run.thread, decisions={"a": approve()})
    assert (run.outcome, done) == ("completed", [0, 20])
    assert "rejected" in results(run)[2]


async def test_a_call_that_was_asked_is_asked_under_another_policy_too():
    done: list[int] = []
    agent = Agent(ScriptedModel([calls("a", name="write"), "done"]), tools=[writes(done)], policy="ask")
    run = await carried(agent, "go", whole=False)
    run = await carried(agent.replace(policy="allow"), thread=run.thread, whole=False)
    assert (run.outcome, done) == ("waiting", [])
    run = await carried(agent.replace(policy="deny"), thread=run.thread, decisions={"a": approve()})
    assert (run.outcome, done) == ("completed", [])


async def test_a_decision_is_of_the_calls_it_was_asked_of_alone():
    """Providers without ids of their own count them from 0 in each answer."""
    done: list[int] = []
    agent = Agent(
        ScriptedModel([calls("call_0", name="write"), p.assistant(call("call_0", "write", '{"x": 99}')), "done"]),
        tools=[writes(done)],
        policy="ask",
    )
    run = await carried(agent, "go", whole=False)
    run = await carried(agent, thread=run.thread, decisions={"call_0": approve()}, whole=False)
    assert (run.outcome, done) == ("waiting", [0])
    assert run.pending[0].call.arguments == {"x": 99}


@pytest.mark.parametrize("kind", ["approve", "reject"])
@pytest.mark.parametrize("effect", ["read", "write"])
async def test_after_a_crash_behind_a_decision_only_what_may_have_run_is_asked(kind, effect):
    done: list[int] = []
    agent = Agent(ScriptedModel([calls("a", name="write"), "done"]), tools=[writes(done, effect=effect)], policy="ask")
    run = await carried(agent, "go", whole=False)
    decision = approve() if kind == "approve" else reject()
    run.thread.append(approvals.decided_record({"a": decision}))
    run = await carried(agent, thread=run.thread, whole=False)
    asked = kind == "approve" and effect == "write"
    assert run.outcome == ("waiting" if asked else "completed")
    assert done == ([0] if (kind, effect) == ("approve", "read") else [])


async def test_a_new_prompt_closes_what_was_open():
    agent = Agent(ScriptedModel([calls("a"), "done"]), tools=[look], policy="ask")
    run = await carried(agent, "go", whole=False)
    run = await carried(agent, "Never mind.", previous=run)
    assert (results(run), run.text) == ([notes.NOT_RUN_UNDECIDED], "done")


# -- logs, stores, cost ------------------------------------------------------------------------------------------------


class Log:
    """A sink that raises, or remembers."""

    def __init__(self, fails: bool) -> None:
        self.fails, self.lines = fails, []

    def append(self, message: Any, context: Any) -> None:
        if self.fails:
            raise OSError("disk full")
        self.lines.append((message, context))


@pytest.mark.row("DAS-21")
async def test_a_log_that_fails_stops_nothing_and_is_reported():
    async with Agent(ScriptedModel([calls("a"), "done"]), tools=[LOOK], log=Log(fails=True)).stream("go") as running:
        seen = [each async for each in running]
    assert running.result.outcome == "completed"
    assert [each.text for each in seen if isinstance(each, events.Warned)] == ["log: OSError: disk full"] * 4


@pytest.mark.row("DAS-20")
async def test_what_is_logged():
    log = Log(fails=False)
    run = await carried(Agent(ScriptedModel([calls("a"), "done"]), name="ann", tools=[LOOK], log=log), "go")
    assert [message for message, _ in log.lines] == list(run.path.messages)
    assert [context.entry for _, context in log.lines] == [each.id for each in run.path]
    assert [context.round for _, context in log.lines] == [None, 1, 1, 2]
    assert {(context.run, context.agent, context.thread) for _, context in log.lines} == {
        (run.id, "ann", run.thread.id)
    }
    assert [context.generation_seconds is not None for _, context in log.lines] == [False, True, False, True]


@pytest.mark.parametrize("kept", ["thread", "same handle", "other handle"])
async def test_another_writer_of_the_branch_is_noticed(kept):
    store = MemoryStore()
    thread: Any = Thread() if kept == "thread" else store.open(store.create("trip").id)
    other = store.open("trip") if kept == "other handle" else thread

    def look(x: int) -> str:
        """Somebody else writes."""
        if kept == "other handle":
            other.refresh()
        other.append(p.user("me too"))
        return "saw"

    run = await Agent(ScriptedModel([calls("a"), "done"]), tools=[look]).run("go", thread=thread)
    assert run.outcome == "failed"
    assert isinstance(run.error, ConflictError)
    again = store.open("trip") if kept == "other handle" else thread
    more = await carried(Agent(ScriptedModel(["done"]), tools=[LOOK]), "and now?", thread=again, whole=False)
    assert more.outcome == "completed"


@pytest.mark.row("DAS-29")
@pytest.mark.parametrize("lasting", [True, False])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
async def test_a_store_that_is_full_fails_the_run(at, lasting, monkeypatch):
    store = MemoryStore()
    thread = store.open(store.create("trip").id)
    known, count = store.append, itertools.count(1)

    def append(*args: Any, **how: Any) -> Any:
        number = next(count)
        if number == at or (lasting and number > at):
            raise UnavailableError("full")
        return known(*args, **how)

    monkeypatch.setattr(store, "append", append)
    run = await carried(Agent(ScriptedModel([calls("a"), "done"]), tools=[LOOK]), "go", thread=thread, whole=False)
    assert (run.outcome, str(run.error)) == ("failed", "full")
    assert store.open("trip").path().messages == run.path.messages
    monkeypatch.undo()
    assert lasting or broken_pairs(run.path.messages) == []
    again = await carried(Agent(ScriptedModel(["done"]), tools=[LOOK]), "and now?", thread=store.open("trip"))
    assert again.text == "done"


async def test_an_exception_beside_parallel_tools_is_raised_unwrapped(monkeypatch):
    store = MemoryStore()
    thread = store.open(store.create("trip").id)
    known = store.append

    def append(id: str, messages: Any, **how: Any) -> Any:
        if isinstance(messages[0], p.ToolMessage):
            raise UnavailableError("full")
        return known(id, messages, **how)

    monkeypatch.setattr(store, "append", append)
    run = await carried(Agent(ScriptedModel([calls("a", "b")]), tools=[LOOK]), "go", thread=thread, whole=False)
    assert isinstance(run.error, UnavailableError)
    assert run.reason == "full"


@pytest.mark.row("ASK-30")
async def test_a_turn_costs_what_is_new_in_it(monkeypatch):
    """Counted, not timed: how much of the conversation is looked at in a late turn is what an early one looks at."""
    looked: list[int] = []
    known = ReplayView.__call__

    def view(self: Any, path: Any) -> Any:
        before = 0 if self._visible is None else len(self._visible)
        messages = known(self, path)
        looked.append(len(messages) - before)
        return messages

    monkeypatch.setattr(ReplayView, "__call__", view)
    model = endless()
    run = await Agent(model, tools=[LOOK], limits=Limits(iterations=300)).run("go")
    assert run.iterations == 300
    assert set(looked[1:]) <= {2, 3}, "an answer, a result, and at times a warning"
    visible = [each.messages for each in model.asked]
    assert all(later.continues(earlier) for earlier, later in itertools.pairwise(visible))
    more = await Agent(model, tools=[LOOK], limits=Limits(iterations=2)).run("more", previous=run)
    assert more.iterations == 2
