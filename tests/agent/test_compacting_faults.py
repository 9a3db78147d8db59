"""A compaction that is cancelled at any await is done or not done; and what a cold cache brings on (laws 7 and 9)."""

from __future__ import annotations

import json
import time
from typing import Any

import anyio
import pytest

import palaver as p
from palaver.agent import Agent, function_tool
from palaver.context.plan import Stage
from palaver.context.rewrite import is_record
from palaver.context.summary_stage import HEAD, summarizer
from palaver.core import canonical
from palaver.models.catalogue import Capabilities
from palaver.models.scripted import ScriptedModel
from palaver.store.sqlite import SQLiteStore
from palaver.store.store import to_thread
from palaver.threads import Thread
from palaver.turn import journal as journal_module
from palaver.turn.compaction import Compactor
from palaver.turn.events import ContextCompacted
from tests.agent.tracing import Points, TracedModel
from tests.agent.wholeness import broken_pairs, refused_path

MINUTE = 60_000


@function_tool(effect="read")
def look(n: int) -> str:
    """Look."""
    return f"page {n} " * 200


def rounds(count, **fields):
    for n in range(count):
        yield p.assistant(p.ToolCall(f"c{n}", "look", json.dumps({"n": n})), **fields)
        yield p.tool(f"page {n} " * 200, tool_call_id=f"c{n}", tool_name="look", **fields)


def answers(prompt):
    return "They looked." if "<transcript>" in prompt.messages[-1].text else "Seen."


async def cancelled_at(stop, thread):
    """Run with a compaction, cancelled at its ``stop``-th await; give how many there were."""
    points = Points(stop)
    model = TracedModel(ScriptedModel([], then=answers, capabilities=Capabilities(window=6_000, max_output=1)), points)
    agent = Agent(model, tools=[look], middleware=[Compactor((Stage("auto", summarizer(keep=2), 0.5),))])
    with anyio.CancelScope() as scope:
        points.then = scope.cancel
        await agent.run("And now?", thread=thread)
    return points


@pytest.mark.law(7)
@pytest.mark.law(9)
@pytest.mark.row("KAI-09")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("stored", [False, True])
def test_a_compaction_that_is_cancelled_at_any_await_is_done_or_not_done(tmp_path, monkeypatch, backend, stored):
    state: dict[str, Points] = {}
    original = Points.__init__

    def known(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        state["points"] = self

    async def traced(function: Any, *args: Any) -> Any:
        points = state["points"]
        points.touch("store: begins")
        found = await to_thread(function, *args)
        points.touch("store: done")
        return found

    monkeypatch.setattr(Points, "__init__", known)
    monkeypatch.setattr(journal_module, "to_thread", traced)
    done = {True: 0, False: 0}
    with SQLiteStore(tmp_path / "palaver.db") as store:
        stop = 0
        while True:
            stop += 1
            thread = store.open(store.create(f"t{stop}").id) if stored else Thread()
            thread.append(p.user("Look at all."), *rounds(12), p.assistant("All seen."))
            before = [canonical.encode(entry.message) for entry in thread.path()]
            points = anyio.run(cancelled_at, stop, thread, backend=backend)
            tree = thread.tree if stored else thread
            path = store.open(thread.id).path() if stored else thread.path()
            compacted = "main/before-1" in tree.branches
            done[compacted] += 1
            kept = tree.path("main/before-1") if compacted else path
            assert [canonical.encode(entry.message) for entry in kept][: len(before)] == before, points.stopped_at
            assert [is_record(entry.message) for entry in path].count(True) == compacted, points.stopped_at
            assert [entry.message.text.startswith(HEAD) for entry in path].count(True) == compacted
            assert len(kept) == len(before) + 1 or not compacted
            assert path.messages == tree.path().messages
            assert broken_pairs(path.messages) == []
            assert refused_path(path) == {}
            if points.count < stop:
                break
        assert store.verify().ok
    assert min(done.values()) >= 2


@pytest.mark.anyio
@pytest.mark.parametrize(("minutes", "cleared"), [(10, True), (1, False)])
async def test_a_cold_cache_is_the_time_to_clear(minutes, cleared):
    sent = time.time_ns() // 1_000_000 - minutes * MINUTE
    thread = Thread()
    text = "a page that says very little. " * 800
    thread.append(p.user("Look at all.", sent_at=sent))
    for n in range(40):
        thread.append(
            p.assistant(p.ToolCall(f"c{n}", "look", json.dumps({"n": n})), sent_at=sent),
            p.tool(text, tool_call_id=f"c{n}", tool_name="look", sent_at=sent),
        )
    thread.append(p.assistant("All seen.", sent_at=sent))
    events: list[ContextCompacted] = []
    weight = 40 * len(text) * 2 // 9
    can = Capabilities(window=int(weight / 0.6) + 13_000, max_output=1)
    model = ScriptedModel(["Well."], capabilities=can)
    agent = Agent(model, tools=[look], middleware=[Compactor()])
    run = await agent.run("And now?", thread=thread, on_event=lambda e: events.append(e))  # noqa: PLW0108
    assert run.ok
    results = [m.text for m in model.asked[0].messages if m.role == "tool"]
    assert (results.count(text) < 40) == cleared
    found = [event for event in events if isinstance(event, ContextCompacted)]
    assert bool(found) == cleared
    for event in found:
        assert 0.5 < event.before / event.capacity < 0.7
