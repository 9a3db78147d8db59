"""A conversation is compacted because somebody says so, and that is taken back."""

import re

import anyio
import pytest

import palaver as p
from palaver.agent import Agent, Compaction, Compactor, approve, compact, undo
from palaver.context.compaction import pipeline
from palaver.context.contents import contents
from palaver.context.rewrite import is_record
from palaver.core.errors import ConflictError, ContextOverflowError, MessageError
from palaver.models.scripted import ScriptedModel
from palaver.store.memory import MemoryStore
from palaver.threads.thread import Thread
from palaver.threads.view import for_model
from palaver.turn.compaction import Summariser
from palaver.turn.events import ContextCompacted, Warned
from palaver.turn.open_calls import open_answer
from tests.agent.scripts import assert_valid, call, calls, noting

WINDOW = 40_000


def long(steps=20, size=400, *, talks=False):
    """A task and what was done for it; with ``talks`` nothing can be cleared, only summed up."""
    made = [p.user("Move billing to the new queue.")]
    for at in range(steps):
        if talks:
            made += [p.assistant(f"answer {at} " * size), p.user(f"question {at} " * size)]
        else:
            made += [
                p.assistant(f"step {at}", call("read", id=f"c{at}", path=str(at))),
                p.tool(f"line {at} " * size, tool_call_id=f"c{at}"),
            ]
    return [*made, p.assistant("done")]


def begun(store, messages):
    """A thread of either kind that holds the messages."""
    thread = Thread() if store is None else store.open("talk")
    thread.append(*messages)
    return thread


@pytest.fixture(params=[None, MemoryStore], ids=["in memory", "in a store"])
def store(request):
    return request.param and request.param()


def texts(thread):
    return [entry.message for entry in thread.path()]


@pytest.mark.anyio
@pytest.mark.row("DAS-28")
async def test_it_is_brought_to_half_and_what_it_was_stays_as_a_branch(store):
    thread = begun(store, long())
    before = texts(thread)
    done = await compact(thread, window=WINDOW)
    assert done.goal == done.before // 2
    assert done.after <= done.goal
    assert done.changes
    assert done.original_branch == "main/before-1"
    tree = getattr(thread, "tree", thread)
    assert [entry.message for entry in tree.path("main/before-1")] == before
    assert for_model(thread.path())[0] is before[0]
    assert_valid(for_model(thread.path()))


@pytest.mark.anyio
async def test_it_is_taken_back_with_what_was_said_since_and_that_too(store):
    thread = begun(store, long())
    before = texts(thread)
    await compact(thread, window=WINDOW)
    short = texts(thread)
    thread.append(p.user("and now?"))
    kept = await undo(thread)
    assert [message.text for message in texts(thread)] == [*(message.text for message in before), "and now?"]
    tree = getattr(thread, "tree", thread)
    assert [entry.message for entry in tree.path(kept)][:-1] == short
    assert await undo(thread) is None


@pytest.mark.anyio
@pytest.mark.row("KAI-10")
async def test_calls_that_wait_for_a_decision_come_through_unharmed(store):
    ran = []
    thread = begun(store, long())
    waits = calls(call("note", id="c99", to="bo"), call("send", id="c100", to="ada"))
    agent = Agent(
        ScriptedModel([waits], then="sent."),
        tools=[noting(ran), noting(ran, name="note", effect="read")],
        policy={"send": "ask"},
    )
    assert (await agent.run("tell ada", thread=thread)).outcome == "waiting"
    before = open_answer(thread.path())
    done = await compact(thread, window=WINDOW)
    after = open_answer(thread.path())
    assert done.original_branch
    assert before is not None
    assert after == before
    assert after.recorded.pending
    assert not any(each.role == "tool" and each.tool_call_id == "c100" for each in texts(thread))
    ran.clear()
    run = await agent.run(thread=thread, decisions={"c100": approve()})
    assert (run.outcome, ("send", "ada", 1) in ran, ran.count(("send", "ada", 1))) == ("completed", True, 1)
    await undo(thread)
    assert texts(thread)[-1].text == "sent."
    assert_valid(for_model(thread.path()))


@pytest.mark.anyio
async def test_what_an_open_answer_reported_is_not_believed_of_what_is_left(store):
    reported = p.Usage(input=30_000, output=10)
    thread = begun(store, [*long(), p.user("tell ada"), calls(call(id="c100", to="ada")).replace(usage=reported)])
    done = await compact(thread, window=WINDOW)
    assert done.before >= 30_000
    again = await compact(thread, window=WINDOW, trial=True)
    assert again.before < 10_000
    assert open_answer(thread.path()) is not None


@pytest.mark.anyio
@pytest.mark.row("DAS-28")
async def test_a_model_summarises_what_cannot_be_cleared_and_its_usage_is_reported():
    thread = begun(None, long(12, talks=True))
    model = ScriptedModel(
        [p.assistant("## Task\nMove billing.", finish_reason="stop", usage=p.Usage(input=9, output=3))]
    )
    done = await compact(thread, model, window=WINDOW)
    assert "auto" in [each.stage for each in done.changes]
    assert (done.usage.input, done.usage.output) == (9, 3)
    assert any("Move billing." in message.text and message.is_summary for message in texts(thread))


@pytest.mark.anyio
@pytest.mark.row("DAS-28")
async def test_a_stage_that_fails_changes_nothing_and_is_reported():
    thread = begun(None, long(12, talks=True))
    before = thread.path()
    stages = [each for each in pipeline(lambda _: 1 / 0) if each.name == "auto"]
    done = await compact(thread, stages=stages, window=WINDOW)
    assert (done.changes, done.original_branch) == ((), None)
    assert [(each.stage, type(each.error)) for each in done.failures] == [("auto", ZeroDivisionError)]
    assert thread.path() == before
    assert list(thread.branches) == ["main"]


@pytest.mark.anyio
async def test_nobody_is_asked_where_that_is_said_and_it_is_no_failure():
    thread = begun(None, long(12, talks=True))
    model = ScriptedModel([])
    done = await compact(thread, model, window=WINDOW, summaries=False)
    assert not done.failures
    assert "auto" not in [each.stage for each in done.changes]
    assert (await compact(begun(None, long(12, talks=True)), window=WINDOW)).failures[0].stage == "auto"


@pytest.mark.anyio
async def test_a_trial_says_the_same_and_writes_nothing(store):
    thread = begun(store, long())
    before = texts(thread)
    tried = await compact(thread, window=WINDOW, trial=True)
    assert (tried.original_branch, texts(thread)) == (None, before)
    done = await compact(thread, window=WINDOW)
    assert (done.before, done.after, [each.stage for each in done.changes]) == (
        tried.before,
        tried.after,
        [each.stage for each in tried.changes],
    )


@pytest.mark.anyio
@pytest.mark.parametrize("how", [{"to": 0}, {"window": 0}, {"to": -3}])
async def test_sizes_that_are_none_are_refused(how):
    with pytest.raises(MessageError):
        await compact(begun(None, long(1)), **how)


@pytest.mark.anyio
async def test_an_empty_conversation_and_one_message_are_left_alone(store):
    for messages in ([], [p.user("hi")]):
        thread = begun(None, messages)
        done = await compact(thread)
        assert isinstance(done, Compaction)
        assert (done.changes, done.original_branch) == ((), None)


@pytest.mark.anyio
async def test_another_writer_is_not_overwritten():
    store = MemoryStore()
    thread = begun(store, long())
    store.open("talk").append(p.user("I was here"))
    with pytest.raises(ConflictError):
        await compact(thread, window=WINDOW)
    assert store.path("talk")[-1].message.text == "I was here"


@pytest.mark.anyio
async def test_a_summary_that_is_cancelled_changes_nothing():
    class Hangs:
        name = "m/hangs"
        capabilities = ScriptedModel([]).capabilities

        def session(self):
            return self

        def ask(self, *_args, **_how):
            return self

        async def __aenter__(self):
            await anyio.sleep_forever()

        async def __aexit__(self, *_):
            return None

    thread = begun(None, long(12, talks=True))
    before = thread.path()
    with anyio.move_on_after(0.05):
        await compact(thread, Hangs(), window=WINDOW, summariser=Summariser())
    assert thread.path() == before


@pytest.mark.anyio
@pytest.mark.finding("F-15")
async def test_without_a_compactor_the_largest_message_of_an_overflow_is_named(store):
    thread = begun(
        store, [p.user("read it"), p.assistant(call("read", id="c")), p.tool("line\n" * 50_000, tool_call_id="c")]
    )
    agent = Agent(ScriptedModel([ContextOverflowError("scripted", "too long")]))
    warned = []
    run = await agent.run(None, thread=thread, on_event=lambda e: warned.append(e) if isinstance(e, Warned) else None)
    assert run.outcome == "failed"
    (text,) = [each.text for each in warned]
    assert "the result of call c " in text
    assert texts(thread)[2].id in text
    assert "cut_results=True" in text


@pytest.mark.anyio
@pytest.mark.finding("F-15")
async def test_a_result_that_fills_the_window_is_named_and_can_be_cut(store):
    def answer(prompt):
        weight = sum(len(each.text) for each in prompt.messages) // 4
        return ContextOverflowError("scripted", "too long") if weight > 12_000 else "Done."

    thread = begun(
        store, [p.user("read it"), p.assistant(call("read", id="c")), p.tool("line\n" * 50_000, tool_call_id="c")]
    )
    agent = Agent(ScriptedModel([], then=answer), middleware=[Compactor(window=16_000)])
    for prompt in (None, "please go on"):
        warned = []
        run = await agent.run(
            prompt, thread=thread, on_event=lambda e, to=warned: to.append(e) if isinstance(e, Warned) else None
        )
        assert run.outcome == "failed"
        (told,) = [each.text for each in warned]
        assert "call c " in told
        assert texts(thread)[2].id in told
        assert "cut_results=True" in told
    assert not (await compact(thread, to=5_000)).changes
    done = await compact(thread, to=5_000, cut_results=True)
    assert done.after <= 5_000
    (cut,) = [each for each in for_model(thread.path()) if each.role == "tool"]
    assert cut.tool_call_id == "c"
    assert (await agent.run("go on", thread=thread)).ok
    await undo(thread)
    assert any(each.role == "tool" and len(each.text) == 250_000 for each in texts(thread))


@pytest.mark.anyio
@pytest.mark.finding("S-15")
@pytest.mark.parametrize("field", ["to", "window", "keep_last", "branch"])
async def test_an_argument_of_a_wrong_type_is_named_and_nothing_is_written(store, field):
    thread = begun(store, long())
    before = texts(thread)
    for wrong in ("x", 5.5, True) if field in {"to", "window"} else (5,):
        with pytest.raises(MessageError, match=f"compact: {field}: expected "):
            await compact(thread, **{field: wrong})
    assert texts(thread) == before


@pytest.mark.anyio
@pytest.mark.finding("S-21")
@pytest.mark.parametrize("rounds", [10, 40])
async def test_the_note_of_a_compaction_counts_no_more_than_there_was(rounds):
    thread = Thread()
    thread.append(p.system("Rules"), p.user("Count the boats."))
    for number in range(rounds):
        thread.append(
            p.assistant(f"answer {number} {'words and more words ' * 60}"), p.user(f"question {number} {'why ' * 80}")
        )
    found = await compact(thread, None, to=1500, window=8000)
    note = next(each.text for each in thread.path().messages if "Partial compaction" in each.text)
    messages, tokens = (int(each) for each in re.findall(r"\d+", note)[:2])
    last = found.changes[-1]
    assert (last.stage, messages) == ("partial", last.messages)
    assert found.before - found.after <= tokens <= found.before


@pytest.mark.anyio
@pytest.mark.finding("S-21")
@pytest.mark.parametrize("to", [1_500, 700, 500, 200])
@pytest.mark.parametrize("talks", [True, False])
async def test_a_compaction_gives_the_tokens_of_what_is_sent_next(store, talks, to):
    thread = begun(store, long(20, 40, talks=talks))
    found = await compact(thread, to=to, window=8_000)
    sent = contents(thread.path(), thread.path().messages, window=8_000)
    assert found.changes
    assert (found.after, found.changes[-1].after) == (sent.tokens, sent.tokens)
    noted = next(e.message for e in reversed(thread.path()) if is_record(e.message))
    assert noted.payload["stages"][-1]["after"] == sent.tokens


@pytest.mark.anyio
@pytest.mark.finding("S-21")
@pytest.mark.parametrize("steps", [20, 29, 38])
async def test_a_compaction_in_a_run_ends_at_what_the_model_is_sent(steps):
    thread, heard = begun(None, long(steps, 21, talks=True)), []
    made = Agent(ScriptedModel([], then="## State\nAll is well."), middleware=[Compactor(window=5_000)], name="A")
    await made.run("And now?", thread=thread, on_event=heard.append)
    compacted = [each for each in heard if isinstance(each, ContextCompacted)]
    assert compacted
    for each in compacted:
        assert each.changes[-1].after == each.after
