"""Compaction in a run: when it comes, what it leaves, and what happens when it cannot."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import anyio
import pytest

import palaver as p
from palaver.agent import Agent, Limits, Middleware, Run, ToolContext, function_tool, subagents
from palaver.context.compaction import pipeline
from palaver.context.plan import Stage
from palaver.context.rewrite import is_record, plan_undo
from palaver.context.summary_stage import HEAD, summarizer
from palaver.core.errors import ConflictError, ContextOverflowError, StreamError, SummaryError
from palaver.core.request import Response
from palaver.models.catalogue import Capabilities
from palaver.models.scripted import ScriptedModel
from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore
from palaver.threads import Thread, for_model
from palaver.turn.compaction import Compactor
from palaver.turn.events import ContextCompacted, SubagentEvent, Warned
from tests.agent.scripts import assert_valid

TOO_LONG = ContextOverflowError("openai_chat", "the prompt is too long")
WORDS = "some words of a result that says very little, over and over again. "
LIMITS = Limits(iterations=500)
SUMMARISES = (Stage("auto", summarizer(keep=2), 0.5),)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@function_tool(effect="read")
def look(n: int) -> str:
    """Look."""
    return f"page {n}: " + WORDS * 50


def asks(prompt):
    """Whether a prompt asks for a summary."""
    return "<transcript>" in prompt.messages[-1].text


def calls(n):
    return p.assistant(p.ToolCall(id=f"c{n}", name="look", arguments_json=json.dumps({"n": n})))


class Looking:
    """A model that looks at so many pages, one after the other, and sums up when it is asked to."""

    def __init__(self, pages, summary="They looked.", *, counted=False):
        self.pages, self.summary, self.counted = pages, summary, counted
        self.done, self.summaries = 0, 0

    def __call__(self, prompt):
        if asks(prompt):
            self.summaries += 1
            return self.summary(self.summaries) if callable(self.summary) else self.summary
        self.done += 1
        answer = calls(self.done) if self.done <= self.pages else p.assistant("done")
        if not self.counted:
            return answer
        size = sum(len(message.text) for message in prompt.messages)
        return answer.replace(usage=p.Usage(input=size // 2, output=20))


def agent(script, *, window=20_000, stages=None, **how):
    can = Capabilities(window=window, max_output=1_000)
    middleware = Compactor(stages) if stages is not None else Compactor()
    return Agent(
        ScriptedModel([], then=script, capabilities=can), tools=[look], middleware=[middleware], result_limit=None,
        limits=LIMITS, **how,
    )  # fmt: skip


def size_of(prompt):
    return sum(len(message.text) for message in prompt.messages)


def prompts(made):
    return [each for each in made.model.asked if not asks(each)]


async def watched(made, prompt, **how):
    async with made.stream(prompt, **how) as running:
        events = [event async for event in running]
    return running.result, [event for event in events if isinstance(event, ContextCompacted)]


@pytest.mark.anyio
async def test_a_window_that_is_not_known_is_assumed_and_said_once():
    made = agent(Looking(400, counted=False), window=None)
    events = []
    for _ in range(2):
        async with made.stream("Look at all.") as running:
            events += [event async for event in running]
    assert {event.capacity < 128_000 for event in events if isinstance(event, ContextCompacted)} == {True}
    told = [event.text for event in events if isinstance(event, Warned) and "is not known" in event.text]
    assert len(told) == 1
    assert "Compactor(window=…)" in told[0]


@pytest.mark.anyio
@pytest.mark.row("KAI-05", "KAI-06", "KAI-08")
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.share(2)
async def test_a_long_run_stays_within_its_window(counted):
    made = agent(Looking(60, counted=counted), window=20_000)
    fact = p.user("Never touch main.py", verbatim=True)
    run, compacted = await watched(made, [p.user("Look at all."), fact])
    assert run.ok
    assert compacted
    before = ()
    for prompt in prompts(made):
        if not prompt.messages.continues(before):  # it was compacted; others only grew
            assert_valid(prompt.messages)
        before = prompt.messages
        assert [each for each in prompt.messages if each.verbatim] == [run.thread.entries[1].message]
        assert prompt.messages[0].text == "Look at all."
    assert_valid(before)
    assert max(map(size_of, prompts(made))) < 20_000 * (2 if counted else 4.5)
    assert not any(event.failures for event in compacted)
    assert all(event.after < event.before for event in compacted)


@pytest.mark.anyio
async def test_what_left_the_window_is_in_the_thread_and_can_be_read_back():
    reads = p.assistant(p.ToolCall(id="r", name="read_result", arguments_json='{"handle": "c2", "length": 30}'))
    looking = Looking(30)

    def script(prompt):
        if looking.done == 30:
            looking.done += 1
            return reads
        return looking(prompt)

    made = agent(script)
    run, compacted = await watched(made, "Look at all.")
    assert compacted
    cleared = [m for m in run.messages if m.role == "tool" and m.tool_call_id == "c2"]
    assert all("page 2" not in m.text for m in cleared)
    (read,) = [m for m in run.messages if m.role == "tool" and m.tool_call_id == "r"]
    assert read.text.startswith("page 2: some words")
    first = run.thread.path("main/before-1")
    assert [m.tool_call_id for m in first.messages if m.role == "tool"][:2] == ["c1", "c2"]
    assert all("page" in m.text for m in first.messages if m.role == "tool")


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_stored_thread_goes_on_in_another_process(tmp_path, kind):
    store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "palaver.db")
    with store:
        made = agent(Looking(30), stages=SUMMARISES)
        run, _ = await watched(made, "Look at all.", thread=store.open("t"))
        assert run.ok
        again = store.open("t")
        assert again.messages == run.path.messages
        assert [m for m in for_model(again.path()) if m.is_summary]
        later = agent(Looking(0))
        await later.run("And now?", thread=again)
        assert later.model.asked[0].messages[:-1] == [*for_model(run.path)]
        path = again.path()
        back = plan_undo(path)
        assert back is not None
        again.rebase(back.messages, onto=back.leaf, keep="undone")
        assert len(again.path()) > len(path)
        assert store.verify().ok


@pytest.mark.anyio
async def test_a_prompt_that_is_too_long_is_compacted_and_asked_once_more():
    refused = []

    def script(prompt):
        if asks(prompt):
            return "They looked."
        if len(prompt.messages) > 12 and len(refused) < 1:
            refused.append(prompt)
            return TOO_LONG
        return looking(prompt)

    looking = Looking(20)
    made = agent(script, window=1_000_000)
    run, compacted = await watched(made, "Look at all.")
    assert run.ok
    assert len(refused) == 1
    again = prompts(made)[prompts(made).index(refused[0]) + 1]
    assert compacted[0].after <= compacted[0].before // 2
    assert size_of(again) < size_of(refused[0])
    assert_valid(again.messages)
    assert all(event.capacity < compacted[0].before for event in compacted), "it remembers what was too long"


@pytest.mark.anyio
async def test_a_prompt_that_stays_too_long_ends_the_run_after_one_more_try():
    looking = Looking(6)
    made = agent(lambda prompt: TOO_LONG if len(prompt.messages) > 6 else looking(prompt), window=1_000_000)
    run = await made.run("Look at all.")
    assert run.outcome == "failed"
    assert isinstance(run.error, ContextOverflowError)
    assert_valid(for_model(run.path))


@pytest.mark.anyio
@pytest.mark.row("KAI-09")
@pytest.mark.parametrize("summary", [RuntimeError("down"), "", "  \n", p.assistant("half", finish_reason="length")])
async def test_a_summary_that_fails_changes_nothing_is_counted_and_opens_the_breaker(summary):
    looking = Looking(12, summary)
    made = agent(looking, window=12_000, stages=SUMMARISES)
    run, compacted = await watched(made, "Look at all.")
    assert len(compacted) >= 3
    assert all(len(event.failures) == 1 and not event.changes for event in compacted)
    assert looking.summaries == 3 if not isinstance(summary, RuntimeError) else True
    assert [event.before == event.after for event in compacted] == [True] * len(compacted)
    assert isinstance(compacted[-1].failures[0].error, SummaryError)
    assert not any(is_record(m) or m.is_summary for m in run.messages)
    assert list(run.thread.branches) == ["main"]


@pytest.mark.anyio
@pytest.mark.row("KAI-09")
async def test_a_summary_that_hangs_is_given_up():
    def script(prompt):
        return looking(prompt)

    looking = Looking(8)
    slow = ScriptedModel([], then="late", delay=60)
    can = Capabilities(window=12_000, max_output=1_000)
    made = Agent(
        ScriptedModel([], then=script, capabilities=can),
        tools=[look],
        middleware=[Compactor(SUMMARISES, model=slow, seconds=0.01)],
        result_limit=None,
    )
    with anyio.fail_after(60):
        run, compacted = await watched(made, "Look at all.")
    assert run.ok
    assert compacted
    assert all("longer than 0.01" in str(event.failures[0].error) for event in compacted[:3])


@pytest.mark.anyio
async def test_a_run_knows_its_own_messages_behind_a_compaction():
    thread = Thread()
    made = agent(Looking(30), stages=SUMMARISES)
    await made.run("Look at all.", thread=thread)
    again = agent(Looking(30), stages=SUMMARISES)
    run = await again.run("And at the others?", thread=thread)
    assert run.ok
    assert run.messages[0].text == "And at the others?"
    assert run.text == "done"
    assert run.messages[-1] is run.path[-1].message


@pytest.mark.anyio
async def test_no_two_calls_have_one_idempotency_key():
    keys = []

    @function_tool
    async def note(n: int, ctx: ToolContext) -> str:
        """Note."""
        keys.append(ctx.idempotency_key)
        return WORDS * 50

    looking = Looking(40)

    def script(prompt):
        turn = looking(prompt)
        return turn if isinstance(turn, str) else renamed(turn)

    def renamed(turn):
        return turn.replace(content=[
            p.ToolCall(part.id, "note", part.arguments_json) if part.__class__ is p.ToolCall else part
            for part in turn.content
        ])  # fmt: skip

    can = Capabilities(window=16_000, max_output=1_000)
    made = Agent(
        ScriptedModel([], then=script, capabilities=can), tools=[note],
        middleware=[Compactor(pipeline())], result_limit=None, limits=LIMITS,
    )  # fmt: skip
    run, compacted = await watched(made, "Note all.")
    assert run.ok
    assert len(compacted) > 1
    assert len(set(keys)) == len(keys) == 40


@pytest.mark.anyio
async def test_a_result_that_would_take_what_is_left_is_cut_when_it_comes():
    @function_tool(effect="read")
    def huge() -> str:
        """Get all."""
        return "x" * 1_000_000

    script = [p.assistant(p.ToolCall("h", "huge", "{}")), "done"]
    can = Capabilities(window=20_000, max_output=1_000)
    made = Agent(ScriptedModel(script, capabilities=can), tools=[huge], middleware=[Compactor()], result_limit=None)
    run = await made.run("Get it.")
    assert run.ok
    (result,) = [m for m in run.messages if m.role == "tool"]
    assert len(result.text) < 20_000 * 2
    assert re.search(r'read_result with \{"handle": "h"', result.text)


@pytest.mark.anyio
async def test_one_huge_message_of_the_user_is_brought_to_the_window():
    made = agent(lambda prompt: "done", window=20_000)  # noqa: ARG005 (a script)
    run, compacted = await watched(made, "y" * 1_000_000)
    assert run.ok
    assert compacted
    assert len(made.model.asked[-1].messages[0].text) < 80_000
    assert len(run.thread.path("main/before-1")[0].message.text) == 1_000_000


HUGE = "word and more " * 45_000
"""About 160,000 tokens: more than the 128,000 that are assumed."""


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("how", "is_whole"),
    [
        ({}, True),
        ({"capabilities": Capabilities(window=128_000)}, False),
        ({"middleware": Compactor(window=128_000)}, False),
        ({"limits": Limits(context_tokens=100_000)}, False),
    ],
    ids=["assumed", "model", "compactor", "limits"],
)
async def test_no_prompt_is_cut_for_a_window_that_is_only_assumed(how, is_whole):
    model = ScriptedModel([], then=lambda _: "done", capabilities=how.get("capabilities", Capabilities()))
    made = Agent(model, middleware=[how.get("middleware", Compactor())], limits=how.get("limits", LIMITS))
    async with made.stream(HUGE) as running:
        warned = [event.text async for event in running if isinstance(event, Warned)]
    again = await made.run("And now?", previous=running.result)
    assert again.ok
    assert [len(each.messages[0].text) == len(HUGE) for each in model.asked] == [is_whole, is_whole]
    assert any("is sent whole, and 256,000 are assumed" in text for text in warned) is is_whole


@pytest.mark.anyio
async def test_a_prompt_that_the_provider_refuses_is_cut_though_the_window_is_assumed():
    def script(prompt):
        return TOO_LONG if size_of(prompt) == len(HUGE) else "done"

    made = agent(script, window=None)
    run, (compacted,) = await watched(made, HUGE)
    assert run.ok
    assert [size_of(each) == len(HUGE) for each in made.model.asked] == [True, False]
    assert compacted.capacity < compacted.before
    assert len(run.thread.path("main/before-1")[0].message.text) == len(HUGE)


@pytest.mark.anyio
@pytest.mark.parametrize("window", [3_000, 8_000, 30_000, 60_000])
async def test_a_prompt_is_halved_until_it_fits_a_window_that_is_not_known(window):
    made = agent(lambda prompt: "done" if size_of(prompt) < window * 4 else TOO_LONG, window=None)
    run, compacted = await watched(made, HUGE)
    again = await made.run("And now?", previous=run)
    assert (run.ok, again.ok) == (True, True)
    sizes = [size_of(each) for each in made.model.asked]
    assert sizes[0] == len(HUGE)
    assert all(later < earlier for earlier, later in pairwise(sizes[:-1]))
    assert len(compacted) == len(sizes) - 2, "each was seen"
    assert len(run.thread.path("main/before-1")[0].message.text) == len(HUGE)


@pytest.mark.anyio
async def test_a_prompt_that_fits_no_window_ends_the_run():
    made = agent(lambda _: TOO_LONG, window=None)
    run = await made.run(HUGE)
    assert isinstance(run.error, ContextOverflowError)
    assert len(made.model.asked) < 10
    assert len(run.thread.path("main/before-1")[0].message.text) == len(HUGE)


@pytest.mark.anyio
async def test_the_summary_is_that_of_the_model_and_says_what_it_replaces():
    made = agent(Looking(12, "They looked at pages."), window=12_000, stages=SUMMARISES)
    run, _ = await watched(made, "Look at all.")
    (summary,) = [m for m in for_model(run.path) if m.is_summary]
    assert summary.text.startswith(HEAD + "They looked at pages.")
    assert summary.source == "compaction"
    told = summary.payload["compaction"]
    stored = {entry.message.id for entry in run.thread.entries}
    assert told["messages"] > 2
    assert set(told["replaces"]) <= stored


def long_thread(thread=None, turns=40):
    thread = Thread() if thread is None else thread
    for n in range(turns):
        thread.append(p.user(f"{n}: " + WORDS * 20), p.assistant("Yes."))
    return thread


class Redacting(Middleware):
    """Changes the messages of a prompt."""

    async def wrap_model_call(self, prompt, context, call):
        messages = [
            m.replace(content=m.text.replace("secret", "***")) if m.role == "user" else m for m in prompt.messages
        ]
        return await call(prompt.replace(messages=tuple(messages)))


@pytest.mark.anyio
async def test_behind_middleware_that_changes_the_messages_nothing_is_compacted_and_it_says_so():
    thread = long_thread()
    before = [entry.message for entry in thread.path()]
    model = ScriptedModel(["done"], capabilities=Capabilities(window=12_000, max_output=1_000))
    made = Agent(model, middleware=[Redacting(), Compactor()])
    async with made.stream("My secret.", thread=thread) as running:
        warned = [event.text for event in await all_of(running) if isinstance(event, Warned)]
    assert ["before" in text for text in warned] == [True]
    assert running.result.ok
    assert [entry.message for entry in thread.path()][: len(before)] == before
    assert list(thread.branches) == ["main"]
    assert all("secret" not in message.text for message in model.asked[0].messages)


@pytest.mark.anyio
async def test_middleware_that_changes_the_messages_stands_behind():
    thread = long_thread()
    can = Capabilities(window=12_000, max_output=1_000)
    model = ScriptedModel([], then=lambda prompt: "They looked." if asks(prompt) else "done", capabilities=can)
    run, compacted = await watched(Agent(model, middleware=[Compactor(), Redacting()]), "My secret.", thread=thread)
    assert run.ok
    assert compacted
    assert "secret" not in model.asked[-1].messages[-1].text
    assert "secret" in run.path[run.start].message.text, "the thread has what was said"


async def all_of(running):
    return [event async for event in running]


@pytest.mark.anyio
async def test_an_overflow_in_the_middle_of_an_answer_keeps_it_and_compacts_the_next_prompt():
    half = Response(p.assistant("Half an ans", finish_reason="error"))
    broke = StreamError("w", "too long", kind="provider", response=half)
    broke.__cause__ = TOO_LONG
    asked = []

    def script(prompt):
        if asks(prompt):
            return "They looked."
        asked.append(prompt)
        return broke if len(asked) == 1 else "done"

    thread = long_thread()
    made = Agent(ScriptedModel([], then=script, capabilities=Capabilities(window=1_000_000)), middleware=[Compactor()])
    run, compacted = await watched(made, "And?", thread=thread)
    assert run.ok, run.reason
    assert compacted
    assert compacted[0].after < compacted[0].before
    assert size_of(asked[1]) < size_of(asked[0])
    assert "Half an ans" in [m.text for m in run.messages]
    assert_valid(asked[1].messages)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "cut",
    [
        p.assistant("", finish_reason="length", finish_reason_raw="model_context_window_exceeded"),
        p.assistant("It begins", finish_reason="length", finish_reason_raw="model_context_window_exceeded"),
        p.assistant(finish_reason="length", usage=p.Usage(input=20_000, output=0)),
    ],
)
async def test_an_answer_that_the_end_of_the_window_cut_off_teaches_how_large_it_is(cut):
    asked = []

    def script(prompt):
        if asks(prompt):
            return "They looked."
        asked.append(prompt)
        return cut if len(asked) == 1 else "done"

    made = Agent(
        ScriptedModel([], then=script, capabilities=Capabilities(window=1_000_000)),
        middleware=[Compactor()],
        limits=Limits(continue_cut=True),
    )
    run, compacted = await watched(made, "And?", thread=long_thread())
    assert run.ok, run.reason
    assert compacted
    assert size_of(asked[1]) < size_of(asked[0])


@pytest.mark.anyio
async def test_an_answer_as_long_as_it_may_be_teaches_nothing():
    cut = p.assistant("It is", finish_reason="length", finish_reason_raw="max_tokens", usage=p.Usage(output=100))
    script = [cut, "done"]
    made = Agent(
        ScriptedModel(script, capabilities=Capabilities(window=1_000_000)), middleware=[Compactor()],
        limits=Limits(continue_cut=True),
    )  # fmt: skip
    _, compacted = await watched(made, "And?", thread=long_thread())
    assert not compacted


@pytest.mark.anyio
async def test_a_run_is_compacted_before_its_limit_of_context_ends_it():
    looking = Looking(40, counted=True)
    made = agent(looking, window=1_000_000).replace(limits=Limits(iterations=500, context_tokens=20_000))
    run, compacted = await watched(made, "Look at all.")
    assert run.outcome == "completed", run.reason
    assert compacted


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_another_writer_at_the_time_of_a_compaction_fails_the_run_and_loses_nothing(tmp_path, kind):
    store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "palaver.db")
    with store:
        store.open("t").append(*[e.message for e in long_thread().path()])

        def other(prompt):
            if asks(prompt):
                store.open("t").append(p.user("Somebody else."))
                return "They looked."
            return "done"

        can = Capabilities(window=12_000, max_output=1_000)
        model = ScriptedModel([], then=other, capabilities=can)
        run = await Agent(model, middleware=[Compactor(SUMMARISES)]).run("And?", thread=store.open("t"))
        assert run.outcome == "failed"
        assert isinstance(run.error, ConflictError)
        assert "moved on" in run.reason
        again = store.open("t")
        assert [m.text for m in again.messages][-2:] == ["And?", "Somebody else."]
        assert len(again.messages) == 82
        assert store.verify().ok
        later = Agent(ScriptedModel([], then=lambda _: "done", capabilities=can), middleware=[Compactor()])
        assert (await later.run("And now?", thread=again)).ok


@pytest.mark.anyio
@pytest.mark.parametrize("stored", [False, True])
async def test_a_run_that_fails_right_behind_a_compaction_is_resumed(stored):
    failing = [True]

    def script(prompt):
        if asks(prompt):
            return "They looked."
        return RuntimeError("down") if failing and len(prompt.messages) < 30 else "done"

    with MemoryStore() as store:
        thread = long_thread(store.open("t") if stored else None)
        can = Capabilities(window=12_000, max_output=1_000)
        made = Agent(ScriptedModel([], then=script, capabilities=can), middleware=[Compactor(SUMMARISES)])
        run, compacted = await watched(made, "And?", thread=thread)
        assert run.outcome == "failed"
        assert compacted
        assert is_record(run.path[-1].message)
        failing.clear()
        if stored:
            thread = store.open("t")
        run = await made.run(thread=thread)
        assert run.ok, run.reason
        assert run.text == "done"


@pytest.mark.anyio
@pytest.mark.parametrize("when", [0.0, 0.001, 0.01])
async def test_a_cancel_at_any_time_of_a_compaction_leaves_a_whole_thread(tmp_path, when):
    with SQLiteStore(tmp_path / "palaver.db") as store:
        long_thread(store.open("t"))
        can = Capabilities(window=12_000, max_output=1_000)
        model = ScriptedModel([], then=lambda prompt: "They looked." if asks(prompt) else "done", capabilities=can)
        made = Agent(model, middleware=[Compactor(SUMMARISES)])
        with anyio.move_on_after(when):
            await made.run("And?", thread=store.open("t"))
        again = store.open("t")
        assert_valid(for_model(again.path()))
        assert store.verify().ok
        assert (await made.run("And now?", thread=again)).ok


@pytest.mark.anyio
async def test_a_run_that_was_saved_behind_a_compaction_goes_on():
    made = agent(Looking(30), stages=SUMMARISES)
    run, compacted = await watched(made, "Look at all.")
    assert compacted
    loaded = Run.load(run.dump())
    assert loaded.messages == run.messages
    later = agent(Looking(0))
    after = await later.run("And now?", previous=loaded)
    assert after.ok
    assert later.model.asked[0].messages[:-1] == [*for_model(run.path)]


@pytest.mark.anyio
async def test_what_a_summary_used_counts_in_usage_cost_and_limits():
    def script(prompt):
        if asks(prompt):
            return p.assistant("They looked.", usage=p.Usage(input=5_000, output=10))
        return p.assistant("done", usage=p.Usage(input=10, output=1))

    can = Capabilities(window=12_000, max_output=1_000)
    model = ScriptedModel([], then=script, capabilities=can)
    made = Agent(model, middleware=[Compactor(SUMMARISES)], prices=lambda _, usage: usage.total / 1000)
    run = await made.run("And?", thread=long_thread())
    assert run.usage.input >= 5_010
    assert run.cost == pytest.approx(run.usage.total / 1000)


@pytest.mark.anyio
async def test_one_object_serves_an_agent_and_its_sub_agent():
    shared = Compactor(SUMMARISES)
    can = Capabilities(window=20_000, max_output=1_000)
    child = Agent(
        ScriptedModel([], then=Looking(20), capabilities=can), name="child", tools=[look], middleware=[shared],
        result_limit=None, limits=LIMITS,
    )  # fmt: skip
    task = p.assistant(p.ToolCall("t", "task", '{"description": "Look at all."}'))
    parent = Agent(ScriptedModel([task, "done"], capabilities=can), middleware=[shared, subagents([child])])
    async with parent.stream("Have it looked at.") as running:
        events = await all_of(running)
    assert running.result.ok
    inside = [event.event for event in events if isinstance(event, SubagentEvent)]
    assert any(isinstance(event, ContextCompacted) for event in inside)
    assert not any(isinstance(event, ContextCompacted) for event in events)
    assert [m.text for m in running.result.messages if m.role == "tool"] == ["done"]


@pytest.mark.anyio
async def test_a_summary_that_breaks_off_is_paid_for():
    half = Response(p.assistant("They", usage=p.Usage(input=5_000, output=10), finish_reason="error"))

    def script(prompt):
        if asks(prompt):
            return StreamError("w", "gone", kind="torn", response=half)
        return p.assistant("done", usage=p.Usage(input=10, output=1))

    model = ScriptedModel([], then=script, capabilities=Capabilities(window=12_000, max_output=1_000))
    run = await Agent(model, middleware=[Compactor(SUMMARISES)]).run("And?", thread=long_thread())
    assert run.ok
    assert run.usage.input == 5_010
