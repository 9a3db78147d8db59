"""Law 7: whatever happens at any await of a run, its thread is whole, keeps what was said, and can be gone on with.

KAI-21, CBF-20, CBF-21, DAS-29; docs/spec/pains.md#1.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio
from hypothesis import HealthCheck, given, seed, settings, strategies as st

import palaver as p
from palaver.agent.agent import Agent
from palaver.agent.functions import function_tool
from palaver.core.errors import MessageError
from palaver.models.scripted import ScriptedModel
from palaver.store.sqlite import SQLiteStore
from palaver.store.store import to_thread
from palaver.threads.thread import Thread
from palaver.turn import events, journal as journal_module, notes
from palaver.turn.approvals import approve
from palaver.turn.middleware import Middleware
from palaver.turn.open_calls import pending
from palaver.turn.tool import ToolContext
from tests.agent.tracing import Points, Scene, agent as made, tools
from tests.agent.wholeness import broken_pairs, refused_path

BACKENDS = ["asyncio", "trio"]
WAYS = [
    *[(backend, way) for backend in BACKENDS for way in ("scope", "running")],
    ("asyncio", "native"),
    ("asyncio", "native twice"),
]
"""How a run is cancelled: by a scope around it, by its own ``cancel``, by ``Task.cancel``, and by two of those."""

# -- what a run is, and what must hold of it ---------------------------------------------------------------------------


class Ran:
    """A run that was cancelled somewhere: its result, what was shown, and what tools gave back."""

    def __init__(self) -> None:
        self.result: Any = None
        self.shown: list[Any] = []
        self.finished: list[str] = []
        self.steered = 0

    @property
    def text(self) -> str:
        return "".join(each.text for each in self.shown if isinstance(each, events.TextDelta))


async def play(scene: Scene, thread: Any, stop: int, way: str) -> tuple[Ran, Points]:
    """Run a scene, cancelled at its ``stop``-th await (0: never)."""
    ran, points = Ran(), Points(stop)
    agent = made(scene, points, ran.finished)
    if way == "running":
        await _watched(agent, scene, thread, points, ran)
    elif way == "scope":
        with anyio.CancelScope() as scope:
            points.then = scope.cancel
            ran.result = await agent.run("go", thread=thread)
    else:
        task = asyncio.ensure_future(agent.run("go", thread=thread))

        def cancel() -> None:
            task.cancel()
            if way == "native twice":  # again, while the run is being brought to its end
                again = asyncio.get_running_loop()
                again.call_soon(lambda: again.call_soon(task.cancel))

        points.then = cancel
        await asyncio.wait([task])
        ran.result = None if task.cancelled() else task.result()
    return ran, points


async def _watched(agent: Agent, scene: Scene, thread: Any, points: Points, ran: Ran) -> None:
    async with agent.stream("go", thread=thread) as running:
        points.then = running.cancel
        async for event in running:
            if len(ran.shown) in scene.steers:
                ran.steered += _said(running)
            ran.shown.append(event)
    ran.result = running.result
    assert isinstance(ran.shown[0], events.RunStarted)
    assert isinstance(ran.shown[-1], events.RunFinished)


def _said(running: Any) -> int:
    try:
        running.steer("steered")
    except MessageError:  # it was over already
        return 0
    return 1


def must_hold(ran: Ran, thread: Any, scene: Scene, where: str) -> None:
    path = thread.path()
    messages = [each.message for each in path]
    said = [each.text for each in messages if isinstance(each, p.UserMessage)]
    assert said.count("go") == 1, where
    assert refused_path(path) == {}, where
    waiting = ran.result.outcome == "waiting" if ran.result is not None else "after_agent" in where and pending(thread)
    if not waiting:
        assert broken_pairs(messages) == [], where
    written = [each.text for each in messages if isinstance(each, p.AssistantMessage)]
    assert ran.text in "".join(written), where
    results = [each.text for each in messages if isinstance(each, p.ToolMessage)]
    assert [each for each in ran.finished if each not in results] == [], where
    assert [each for each in results if "ancelled" in each and not each.startswith("Not run")] == [], where
    interruptions = [each for each in messages if notes.INTERRUPTED in each.tags]
    if ran.result is not None:
        assert len(interruptions) == (ran.result.outcome == "cancelled"), where
    elif "after_agent" not in where:  # where the run is over already
        assert len(interruptions) == 1, where


async def goes_on(thread: Any, *, prompt: str | None) -> None:
    """A later run, by somebody else, completes."""
    finished: list[str] = []
    agent = Agent(ScriptedModel([], then="Well."), tools=tools(Points(), finished))
    run = await agent.run(prompt, thread=thread)
    if run.outcome == "waiting":
        run = await agent.run(thread=thread, decisions={each.call.id: approve() for each in run.pending})
    assert run.outcome == "completed", run.reason
    assert broken_pairs(run.path.messages) == []
    assert refused_path(run.path) == {}


def tasks_now() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return trio.lowlevel.current_statistics().tasks_living


async def at_every_await(
    scene: Scene, way: str, new_thread: Any, reopened: Any = None, *, first: int = 1, step: int = 1
) -> int:
    before = tasks_now()
    stop = first - step
    while True:
        stop += step
        thread = new_thread()
        ran, points = await play(scene, thread, stop, way)
        where = f"{way}, await {stop}: {points.stopped_at}"
        await anyio.lowlevel.checkpoint()
        assert tasks_now() <= before, where
        must_hold(ran, thread, scene, where)
        kept = thread if reopened is None else reopened(thread)
        assert kept.path().messages == thread.path().messages, where
        await goes_on(kept, prompt=None if stop % 2 else "and now?")
        if points.count < stop:
            return stop


# -- random scripts ----------------------------------------------------------------------------------------------------

PARTS = st.one_of(
    st.integers(0, 99).map(lambda n: p.Text(f"text {n}. ")),
    st.just(p.Reasoning("hm")),
    st.builds(
        p.ToolCall,
        st.sampled_from(["a", "b", "c", "d"]),
        st.sampled_from(["look", "look", "note", "note", "boom", "slow", "nobody"]),
        st.sampled_from(['{"x": 1}', '{"x": 2}', '{"x": 3}', '{"x": "no"}', "{}"]),
    ),
    st.just(p.MalformedToolCall('{"x": ', "cut off", "look", "m1")),
)
TURNS = st.tuples(
    st.sampled_from(["answer"] * 7 + ["broken", "broken", "error"]), st.lists(PARTS, min_size=1, max_size=4)
)
SCENES = st.builds(
    Scene,
    turns=st.lists(TURNS, min_size=1, max_size=4).map(tuple),
    decides=st.sampled_from(["approve", "reject", "leave"]),
    fails=st.sampled_from([0, 0, 0, 0, 0, 0, 1, 3, 4, 5, 6]),
    steers=st.lists(st.integers(0, 25), max_size=2).map(tuple),
    repeats=st.sampled_from(["answer", "run"]),
)


@pytest.mark.law(7)
@pytest.mark.row("KAI-21")
@pytest.mark.row("CBF-20")
@pytest.mark.row("DAS-29")
@pytest.mark.parametrize("scenes", [2, pytest.param(40, marks=pytest.mark.long)])
@pytest.mark.parametrize(("backend", "way"), WAYS)
def test_a_run_can_be_cancelled_at_every_await(backend, way, scenes):
    """Each way meets scenes of its own."""
    own = seed(WAYS.index((backend, way))) if settings.default.derandomize else lambda test: test

    @own
    @settings(max_examples=scenes, suppress_health_check=[HealthCheck.too_slow])
    @given(SCENES)
    def holds(scene):
        anyio.run(at_every_await, scene, way, Thread, backend=backend)

    holds()


@pytest.mark.law(7)
@pytest.mark.row("CBF-21")
@pytest.mark.hypothesis
@pytest.mark.parametrize("backend", BACKENDS)
def test_whatever_models_tools_and_hooks_do_the_thread_is_whole(backend):
    async def whole(scene: Scene) -> None:
        thread = Thread()
        ran, _ = await play(scene, thread, 0, "running")
        must_hold(ran, thread, scene, "not cancelled")
        await goes_on(thread, prompt=None)
        said = [each.text for each in thread.path().messages if isinstance(each, p.UserMessage)]
        assert sum("steered" in each for each in said) == ran.steered

    @given(SCENES)
    def holds(scene):
        anyio.run(whole, scene, backend=backend)

    holds()


FULL = Scene(
    turns=(
        ("answer", [p.Text("I look. "), p.ToolCall("a", "look", '{"x": 1}'), p.ToolCall("b", "look", '{"x": 2}')]),
        ("answer", [p.Reasoning("hm"), p.ToolCall("c", "note", '{"x": 2}'), p.ToolCall("d", "note", '{"x": 1}')]),
        ("broken", [p.Text("It is ")]),
    ),
    steers=(3, 9),
)


@pytest.mark.law(7)
@pytest.mark.row("KAI-21")
@pytest.mark.row("DAS-29")
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(("backend", "way"), WAYS)
def test_a_stored_run_can_be_cancelled_at_every_await(backend, way, step, tmp_path, monkeypatch):
    """Also before and after each append is begun, and while it goes on in its thread.

    The ways take turns: each await is met by one of those that come before, and one of those that come behind.
    """
    part = partial(at_every_await, first=WAYS.index((backend, way)) % step + 1, step=step)
    state: dict[str, Points] = {}

    async def traced(function: Any, *args: Any) -> Any:
        points = state["points"]

        def slowly() -> Any:
            time.sleep(0.001)
            return function(*args)

        points.touch("store: begins")
        entries = await to_thread(slowly)
        points.touch("store: done")
        return entries

    monkeypatch.setattr(journal_module, "to_thread", traced)
    original = Points.__init__

    def known(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        state["points"] = self

    monkeypatch.setattr(Points, "__init__", known)
    with SQLiteStore(tmp_path / "store.db") as store:
        ids = map(str, itertools.count())

        def new() -> Any:
            return store.open(store.create(next(ids)).id)

        count = anyio.run(part, FULL, way, new, lambda thread: store.open(thread.id), backend=backend)
        assert count > 60
        assert store.verify().ok


# -- single cases ------------------------------------------------------------------------------------------------------


@pytest.mark.row("CBF-20")
@pytest.mark.parametrize("anyio_backend", BACKENDS)
@pytest.mark.anyio
async def test_a_run_that_is_cancelled_before_it_begins_asks_no_model(anyio_backend):
    model, thread = ScriptedModel(["no"]), Thread()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await Agent(model).run("go", thread=thread)
    assert model.asked == []
    assert thread.path().messages[0].text == "go"
    assert scope.cancelled_caught


@pytest.mark.row("KAI-21")
@pytest.mark.parametrize("where", ["model", "tool", "sync_tool", "hook", "decide"])
@pytest.mark.parametrize("anyio_backend", BACKENDS)
@pytest.mark.anyio
async def test_cancellation_waits_for_nothing_that_runs(anyio_backend, where):
    reached, release = anyio.Event(), threading.Event()
    waited: list[str] = []

    async def stay(*_: Any) -> Any:
        reached.set()
        await anyio.sleep_forever()

    async def tool() -> None:
        """Wait."""
        await stay()

    def sync_tool() -> None:
        """Wait in a thread, which nobody can stop."""
        anyio.from_thread.run_sync(reached.set)
        release.wait(60)
        waited.append(where)

    class Hook(Middleware):
        async def before_model(self, context: Any) -> None:
            await stay()

    def answer(_: Any) -> Any:
        if where == "model":
            reached.set()
        return p.assistant(p.ToolCall("a", "sync_tool" if where == "sync_tool" else "tool", "{}"))

    agent = Agent(
        ScriptedModel([answer], delay=30.0 if where == "model" else 0.0),
        tools=[tool, sync_tool],
        middleware=[Hook()] if where == "hook" else [],
        policy="ask" if where == "decide" else "allow",
        decide=stay,
    )
    async with agent.stream("go") as running:
        await reached.wait()
        running.cancel("enough")
        run = await running.wait()
        assert waited == []  # nothing was waited for to its end
        release.set()
    assert run.outcome == "cancelled"
    assert "enough" in run.path.messages[-1].text
    assert all(each.text.startswith(("Not run", "No result")) for each in run.messages if each.role == "tool")
    assert refused_path(run.path) == {}


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", BACKENDS)
async def test_leaving_a_run_by_an_error_raises_that_error(anyio_backend):
    async def waits() -> None:
        """Wait."""
        await anyio.sleep(30)

    agent = Agent(ScriptedModel([p.assistant(p.ToolCall("a", "waits", "{}"))]), tools=[waits])
    running = agent.stream("go")

    async def reads() -> None:
        async with running:
            async for event in running:
                if isinstance(event, events.ToolStarted):
                    raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await reads()
    assert running.result.outcome == "cancelled"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", BACKENDS)
async def test_a_tool_in_a_worker_thread_can_show_how_far_it_is(anyio_backend):
    def counts(context: ToolContext) -> str:
        """Count."""
        for number in range(3):
            context.emit(number)
        return "done"

    agent = Agent(ScriptedModel([p.assistant(p.ToolCall("a", "counts", "{}")), "ok"]), tools=[function_tool(counts)])
    async with agent.stream("go") as running:
        seen = [each async for each in running]
    assert [each.value for each in seen if isinstance(each, events.ToolProgress)] == [0, 1, 2]
    assert running.result.text == "ok"
