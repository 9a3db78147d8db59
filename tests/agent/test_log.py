"""The log of a run: every message of it, those of compactions and sub-agents too, for any kind of sink."""

import anyio
import anyio.lowlevel
import pytest

from palaver import MessageError, assistant, tool_call
from palaver.agent import Agent, Compactor, compact, undo
from palaver.agent.subagents import subagents
from palaver.context import SUMMARY_ONLY
from palaver.models.scripted import ScriptedModel
from palaver.store.jsonl import JsonlLog, read_log, threads_of
from palaver.store.memory import MemoryStore
from palaver.threads import Thread


@pytest.mark.finding("F-02")
@pytest.mark.row("DAS-21")
@pytest.mark.parametrize("make", [Thread, lambda: MemoryStore().open("t")])
def test_a_log_has_what_compaction_made_and_what_it_left_behind(make, tmp_path):
    thread = make()
    tree = thread if isinstance(thread, Thread) else thread.tree
    agent = Agent(
        ScriptedModel([], then="a" * 900),
        middleware=[Compactor((SUMMARY_ONLY,), window=3000)],
        log=JsonlLog(tmp_path),
    )
    for _ in range(8):
        agent.sync.run("u" * 900, thread=thread)
    rebuilt = threads_of(read_log(tmp_path))
    assert rebuilt.damage == ()
    again = rebuilt.threads[thread.id]
    assert len(tree.branches) > 2
    assert {each.id: each for each in again.entries} == {each.id: each for each in tree.entries}
    assert dict(again.branches) == dict(tree.branches)
    assert list(again.path()) == list(tree.path())
    marks = [line.context.kept for line in read_log(tmp_path) if line.context.kept is not None]
    assert sorted(marks) == sorted(set(tree.branches) - {"main"}), "each compaction names the branch that it left"


@pytest.mark.finding("F-02")
@pytest.mark.row("DAS-21")
@pytest.mark.parametrize("make", [Thread, lambda: MemoryStore().open("t")])
def test_a_log_has_what_compact_and_undo_wrote(make, tmp_path):
    thread = make()
    tree = thread if isinstance(thread, Thread) else thread.tree
    log = JsonlLog(tmp_path)
    agent = Agent(ScriptedModel([], then="a" * 900), log=log)
    for _ in range(4):
        agent.sync.run("u" * 900, thread=thread)
    anyio.run(lambda: compact(thread, to=300, log=log))
    rebuilt = threads_of(read_log(tmp_path))
    assert rebuilt.damage == ()
    assert dict(rebuilt.threads[thread.id].branches) == dict(tree.branches)
    assert list(rebuilt.threads[thread.id].path()) == list(tree.path())

    agent.sync.run("behind it", thread=thread)
    anyio.run(lambda: undo(thread, log=log))
    rebuilt = threads_of(read_log(tmp_path))
    assert rebuilt.damage == ()
    assert dict(rebuilt.threads[thread.id].branches) == dict(tree.branches)
    assert list(rebuilt.threads[thread.id].path()) == list(tree.path())


@pytest.mark.row("DAS-21")
def test_a_log_knows_where_a_branch_went_on_after_an_undo(tmp_path):
    """An undo with nothing behind the compaction adds no message, so the next message tells of it."""
    thread, log = Thread(), JsonlLog(tmp_path)
    agent = Agent(ScriptedModel([], then="a" * 900), log=log)
    for _ in range(4):
        agent.sync.run("u" * 900, thread=thread)
    anyio.run(lambda: compact(thread, to=300, log=log))
    anyio.run(lambda: undo(thread, log=log))
    agent.sync.run("on", thread=thread)
    again = threads_of(read_log(tmp_path)).threads[thread.id]
    assert list(again.path()) == list(thread.path())
    assert {each.id for each in again.entries} == {each.id for each in thread.entries}


@pytest.mark.row("DAS-21")
def test_a_log_that_fails_stops_no_compaction_and_is_warned_of(caplog):
    thread = Thread()
    Agent(ScriptedModel(["a" * 900])).sync.run("u" * 9000, thread=thread)
    Agent(ScriptedModel(["b" * 900])).sync.run("u" * 9000, thread=thread)
    done = anyio.run(lambda: compact(thread, to=300, log=AsyncSink(OSError("disk full"))))
    assert done.original_branch is not None
    assert "the log did not take a compaction: disk full" in caplog.text


@pytest.mark.finding("F-02")
@pytest.mark.row("DAS-21")
@pytest.mark.parametrize("own", [False, True])
def test_a_log_has_the_messages_of_sub_agents(own, tmp_path):
    kid = Agent(ScriptedModel(["child"]), name="kid", log=JsonlLog(tmp_path / "kid") if own else None)
    ask = assistant(tool_calls=[tool_call("task", {"description": "D", "agent": "kid"}, id="t")])
    log = JsonlLog(tmp_path / "parent")
    Agent(ScriptedModel([ask, "end"]), name="parent", middleware=[subagents([kid])], log=log).sync.run("go")
    lines = list(read_log(tmp_path / ("kid" if own else "parent")))
    spoken = [line.message.text for line in lines if line.context.agent == "kid"]
    assert spoken == ["D", "child"]
    if not own:
        first, *_, last = [line for line in lines if line.context.agent == "parent"]
        assert (first.message.text, last.message.text) == ("go", "end")
        assert len({line.context.run for line in lines}) == 2
    assert len({line.context.thread for line in lines}) == (1 if own else 2)


class AsyncSink:
    """A log of an application, as its database driver makes it."""

    def __init__(self, error=None):
        self.texts = []
        self.error = error

    async def append(self, message, context):
        await anyio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        self.texts.append((message.text, context.agent))


@pytest.mark.finding("F-03")
@pytest.mark.filterwarnings("error")
def test_an_async_log_is_awaited_in_order():
    sink = AsyncSink()
    run = Agent(ScriptedModel(["hi"]), name="me", log=sink).sync.run("go")
    assert run.ok
    assert sink.texts == [("go", "me"), ("hi", "me")]


@pytest.mark.finding("F-03")
@pytest.mark.row("DAS-21")
@pytest.mark.filterwarnings("error")
def test_an_async_log_that_fails_stops_nothing_and_is_reported():
    events = []
    run = Agent(ScriptedModel(["hi"]), log=AsyncSink(OSError("disk full"))).sync.run("go", on_event=events.append)
    assert run.ok
    assert any("disk full" in str(event) for event in events)


@pytest.mark.finding("F-03")
@pytest.mark.parametrize("log", [print, "folder", object(), {}])
def test_what_is_no_log_is_refused_where_it_is_given(log):
    with pytest.raises(MessageError, match=r"^log: .* has no method append"):
        Agent(ScriptedModel([]), log=log)
