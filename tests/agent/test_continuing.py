"""Going on behind a run: docs/spec/codebuff.md#7, CBF-22, CBF-23, KAI-26."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.agent.agent import Agent
from palaver.agent.functions import merged
from palaver.core.errors import DecodeError, MessageError, PalaverError, RateLimitError
from palaver.core.parts import MalformedToolCall
from palaver.models.scripted import Broken, ScriptedModel
from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore
from palaver.testing.strategies import any_messages
from palaver.threads.thread import Path, Thread
from palaver.turn.approvals import approve
from palaver.turn.limits import Limits
from palaver.turn.run import Run
from palaver.turn.tool import ToolContext
from tests.agent.scripts import assert_valid, call, calls, noting


def remember(word: str, ctx: ToolContext) -> str:
    """Remember a word."""
    ctx.values.setdefault("words", []).append(word)
    return "ok"


def facts(run):
    """All that a run says of itself, as it is now."""
    fields = {name: getattr(run, name) for name in Run.__struct_fields__ if name not in ("thread", "carry")}
    return copy.deepcopy(fields), run.dump(), run.text, run.ok


# -- previous --------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.row("CBF-22")
@pytest.mark.parametrize("stored", [False, True])
async def test_a_run_is_what_it_was_when_another_went_on_behind_it(anyio_backend, stored):
    def words(number):
        return calls(call("remember", f"w{number}", word=str(number)))

    model = ScriptedModel([words(1), "one", words(2), "two", words(3), "three"])
    agent = Agent(model, tools=[remember])
    with MemoryStore() as store:
        first = await agent.run("go", thread=store.open("t") if stored else None)
        before = facts(first)
        second = await agent.run("on", previous=first)
        assert facts(first) == before
        assert first.values == {"words": ["1"]}
        assert second.values == {"words": ["1", "2"]}
        third = await agent.run("or else", previous=first)
        assert facts(first) == before
        assert [each.text for each in third.path.messages if each.role == "user"] == ["go", "or else"]
        assert [each.text for each in second.path.messages if each.role == "user"] == ["go", "on"]
        assert (first.branch, second.branch) == ("main", "main")
        assert third.branch != "main"
        assert third.values == {"words": ["1", "3"]}
        for run in (first, second, third):
            assert_valid(run.path.messages)


@pytest.mark.anyio
@pytest.mark.row("CBF-22")
async def test_every_run_has_its_budget_anew(anyio_backend):
    def round_of(number):
        return calls(call(id=f"c{number}", to=str(number)))

    script = [round_of(1), "stopped", round_of(2), "stopped", round_of(3), "stopped"]
    agent = Agent(ScriptedModel(script), tools=[noting([])], limits=Limits(iterations=2))
    run = await agent.run("go")
    for _ in range(2):
        assert (run.outcome, run.iterations) == ("max_iterations", 2)
        run = await agent.run("on", previous=run)
    assert (run.outcome, run.iterations, len(run.messages)) == ("max_iterations", 2, 4)


@pytest.mark.anyio
async def test_previous_and_thread_are_one_too_many(anyio_backend):
    agent = Agent(ScriptedModel(["a", "b"]))
    run = await agent.run("go")
    with pytest.raises(MessageError, match="pass previous or thread, not both"):
        await agent.run("on", previous=run, thread=Thread())


@pytest.mark.row("CBF-22")
def test_the_later_tool_of_a_name_wins_in_the_place_of_the_first():
    ran = []
    old, new, other = noting(ran), noting(ran, effect="read"), noting(ran, "other")
    first, second, third = merged([old, remember], [other, new])
    assert (first, second.name, third) == (new, "remember", other)
    assert [each.name for each in merged([old], [remember])] == ["send", "remember"]
    assert merged([], []) == ()


# -- saved and loaded ------------------------------------------------------------------------------------------------


class City(msgspec.Struct):
    name: str


@pytest.mark.anyio
@pytest.mark.row("CBF-22", "KAI-26")
@pytest.mark.parametrize(
    "make", [lambda _: None, lambda _: MemoryStore(), lambda path: SQLiteStore(str(path / "s.db"))]
)
async def test_a_run_is_saved_and_loaded_with_all_that_json_can_say(anyio_backend, tmp_path, make):
    usage = p.Usage(input=3, output=2)
    script = [
        calls(call("remember", word="é\ud800")),
        p.assistant('{"name": "Rome"}').replace(usage=usage),
        calls(call(id="c2", to="ann")),
        "sent",
    ]
    agent = Agent(
        ScriptedModel(script), tools=[remember, noting([])], policy={"send": "ask", "*": "allow"}, output=City
    )
    run = await agent.run("where?", values={"live": object(), "n": 1}, thread=None)
    assert run.output == City("Rome")
    store = make(tmp_path)
    loaded = Run.load(run.dump(), store)
    same = ("id", "agent", "branch", "start", "outcome", "reason", "usage", "usage_by_model", "cost", "iterations")
    assert {name: getattr(loaded, name) for name in same} == {name: getattr(run, name) for name in same}
    assert (loaded.seconds, loaded.path, loaded.leaf) == (run.seconds, run.path, run.leaf)
    assert (loaded.thread.id, loaded.text, loaded.messages) == (run.thread.id, run.text, run.messages)
    assert loaded.output == {"name": "Rome"}
    assert loaded.values == {"n": 1, "words": ["é\ud800"]}
    assert loaded.dump() == run.dump()
    waits = await agent.replace(output=None).run("send it", previous=loaded)
    assert waits.outcome == "waiting"
    again = Run.load(waits.dump(), store)
    assert again.pending == waits.pending
    done = await agent.replace(output=None).run(thread=again.thread, decisions={"c2": approve()})
    assert done.text == "sent"
    assert Run.load(run.dump(), store).path == run.path
    assert_valid(done.path.messages)
    if store is not None:
        sibling = await agent.replace(output=None, model=ScriptedModel(["no"])).run("stay", previous=loaded)
        assert sibling.path[: len(run.path)] == list(run.path)
        assert sibling.branch != "main"
        store.close()


@pytest.mark.anyio
@pytest.mark.share(2)
async def test_another_process_goes_on_behind_a_saved_run(anyio_backend, tmp_path):
    agent = Agent(ScriptedModel(["one"]), name="a")
    run = await agent.run("go")
    (tmp_path / "run.json").write_bytes(run.dump())
    program = f"""
from palaver.agent.agent import Agent
from palaver.turn.run import Run
from palaver.models.scripted import ScriptedModel
run = Run.load(open({str(tmp_path / "run.json")!r}, "rb").read())
print([each.text for each in Agent(ScriptedModel(["two"])).sync.run("on", previous=run).path.messages])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: ASYNC221
    assert (done.stdout, done.stderr) == ("['go', 'one', 'on', 'two']\n", "")


@pytest.mark.anyio
@pytest.mark.row("CBF-21")
@pytest.mark.parametrize(
    "error",
    [
        RateLimitError("openai_chat", "slow down", code="rate_limit", status=429, request_id="r1"),
        MessageError("odd"),
        ValueError("foreign"),
    ],
)
async def test_an_error_keeps_its_words_and_a_provider_s_its_status(anyio_backend, error):
    run = await Agent(ScriptedModel([error])).run("go")
    loaded = Run.load(run.dump())
    assert (loaded.outcome, str(loaded.error), loaded.reason) == ("failed", str(error), run.reason)
    assert isinstance(loaded.error, PalaverError)
    if isinstance(error, RateLimitError):
        assert isinstance(loaded.error, RateLimitError)
        assert (loaded.error.status, loaded.error.code, loaded.error.request_id) == (429, "rate_limit", "r1")
        assert loaded.dump() == run.dump()


@pytest.mark.anyio
async def test_what_a_newer_version_wrote_is_kept(anyio_backend):
    run = await Agent(ScriptedModel(["one"])).run("go")
    newer = {**json.loads(run.dump()), "mood": {"a": [1.50]}}
    newer["entries"][0]["message"]["new_field"] = 1
    loaded = Run.load(json.dumps(newer))
    assert json.loads(loaded.dump()) == newer
    with pytest.raises(DecodeError, match="expected version 1"):
        Run.load(json.dumps({**newer, "palaver_run": 2}))


@pytest.mark.law(6)
@given(st.data())
def test_any_bytes_are_a_run_or_one_error(data):
    whole = json.loads(Agent(ScriptedModel(["one"])).sync.run("go").dump())
    name = data.draw(st.sampled_from(sorted(whole)))
    values = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.dictionaries(st.text(), st.integers()))
    whole[name] = data.draw(values)
    for text in (json.dumps(whole), data.draw(st.binary())):
        try:
            Run.load(text)
        except DecodeError as error:
            assert str(error).startswith("run: ")  # noqa: PT017 (it may be a run)


@given(st.lists(any_messages(), max_size=6))
def test_every_message_survives(said):
    thread = Thread()
    thread.append(*said)
    run = Run(id="r", agent="a", thread=thread, branch="main", path=thread.path(), start=0, outcome="completed")
    assert Run.load(run.dump()).path == run.path


def test_a_small_cost_and_a_short_time_are_read_again():
    thread = Thread()
    path = thread.path()
    run = Run(id="r", agent="a", thread=thread, branch="main", path=path, start=0, outcome="completed")
    loaded = Run.load(msgspec.structs.replace(run, cost=5e-05, seconds=6e-06).dump())
    assert (loaded.cost, loaded.seconds) == (5e-05, 6e-06)


def test_the_size_is_that_of_the_messages():
    sizes = []
    for turns in (1, 2):
        run = Agent(ScriptedModel([], then="x" * 1000)).sync.run("go")
        for _ in range(50 * turns):
            run = Agent(ScriptedModel(["x" * 1000])).sync.run("on", previous=run)
        sizes.append(len(run.dump()))
    assert sizes[1] < 2.05 * sizes[0]


# -- the thread is the snapshot --------------------------------------------------------------------------------------

STORY = [
    calls(call(to="ann"), call("look", "c2", to="x"), call("look", "c3", to="y")),
    Broken(p.assistant("half", call(id="c4", to="ben"))),
    p.assistant("hm", MalformedToolCall("<tool>", "no JSON", "send", "c5")),
    calls(call("none", "c6")),
    calls(call(id="c7", to=7), call(id="c8", to="eve")),
    "done",
]


@pytest.mark.anyio
@pytest.mark.row("CBF-23", "KAI-26")
@pytest.mark.law(7)
@pytest.mark.share(2)
async def test_every_prefix_of_a_thread_is_a_snapshot_to_go_on_with(anyio_backend):
    ran = []
    tools = [noting(ran), noting(ran, "look", effect="read")]
    agent = Agent(ScriptedModel(STORY), tools=tools, decide=lambda asked: {each.call.id: approve() for each in asked})
    whole = await agent.run("go")
    assert whole.ok
    for policy in ("allow", {"send": "ask", "*": "allow"}):
        story = await agent.replace(model=ScriptedModel(STORY), policy=policy).run("go")
        for length in range(1, len(story.path) + 1):
            ran.clear()
            cut = Thread()
            cut.add(story.path[:length], {"main": story.path[length - 1].id})
            run = await agent.replace(model=ScriptedModel(["the end"]), policy=policy).run(thread=cut)
            assert run.ok, (policy, length, run.outcome)
            assert len(ran) <= 3
            assert_valid(run.path.messages)
            prompted = Thread()
            prompted.add(story.path[:length], {"main": story.path[length - 1].id})
            run = await agent.replace(model=ScriptedModel(["the end"])).run("and now?", thread=prompted)
            assert run.ok
            assert_valid(run.path.messages)


@pytest.mark.anyio
@pytest.mark.row("CBF-23")
async def test_the_path_of_a_run_under_way_grows_with_the_thread_and_never_changes_under_its_holder(anyio_backend):
    agent = Agent(ScriptedModel([calls(call(to="ann")), "done"]), tools=[noting([])])
    running = agent.stream("go")
    assert running.path == Path([])
    seen = []
    async with running:
        async for _ in running:
            if not seen or len(running.path) != len(seen[-1][0]):
                seen.append((running.path, running.path.messages))
    assert [len(path) for path, _ in seen] == sorted({len(path) for path, _ in seen})
    assert all(path.messages == held for path, held in seen)
    assert seen[-1][0] == running.result.path
    late = len(running.result.path)
    await agent.replace(model=ScriptedModel(["more"])).run("on", previous=running.result)
    assert len(running.result.path) == late


# -- what a run says -------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.row("CBF-25")
async def test_the_last_turn_is_what_was_said_since_anybody_spoke(anyio_backend):
    script = [
        calls(call(to="ann")),
        p.assistant("hm", MalformedToolCall("<tool>", "no JSON", "send", "c5")),
        calls(call(id="c2", to="ben")),
        "done",
    ]
    agent = Agent(
        ScriptedModel(script), tools=[noting([])], policy="ask", decide=lambda asked: {asked[0].call.id: approve()}
    )
    run = await agent.run("go")
    assert [each.role for each in run.last_turn] == ["assistant", "tool", "assistant", "assistant", "tool", "assistant"]
    assert run.text == run.last_turn[-1].text == "done"
    later = await agent.replace(model=ScriptedModel(["ok"])).run("thanks", previous=run)
    assert [each.text for each in later.last_turn] == ["ok"]
    nothing = await agent.replace(model=ScriptedModel([ValueError("x")])).run("go")
    assert (nothing.last_turn, nothing.text, nothing.answer) == ([], "", None)
