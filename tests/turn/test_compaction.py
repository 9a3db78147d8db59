"""Compaction, over a run of an agent and over a turn of a swarm; and what of a swarm's thread it must not touch."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver.agent import Compactor, Limits, function_tool
from palaver.context.plan import Stage
from palaver.context.rewrite import is_record
from palaver.context.summary_stage import summarizer
from palaver.models.catalogue import Capabilities
from palaver.models.scripted import ScriptedModel
from palaver.store.sqlite import SQLiteStore
from palaver.swarm import State, Swarm, SwarmAgent
from palaver.turn.events import ContextCompacted

pytestmark = pytest.mark.anyio

WORDS = "some words of a result that says very little, over and over again. "
CAN = Capabilities(window=20_000, max_output=1_000)
SUMMARISES = (Stage("auto", summarizer(keep=2), 0.5),)


@function_tool(effect="read")
def look(n: int) -> str:
    """Look."""
    return f"page {n}: " + WORDS * 50


def asks(prompt):
    """Whether a prompt asks for a summary."""
    return "<transcript>" in prompt.messages[-1].text


def looking(pages):
    """A model that looks at so many pages, and sums up when it is asked to."""
    done = 0

    def script(prompt):
        nonlocal done
        if asks(prompt):
            return "They looked."
        done += 1
        if done > pages:
            return "done"
        return p.assistant(p.ToolCall(id=f"c{done}", name="look", arguments_json=json.dumps({"n": done})))

    return ScriptedModel([], then=script, capabilities=CAN)


def size_of(prompt):
    return sum(len(message.text) for message in prompt.messages)


async def test_a_long_turn_stays_within_its_window(over):
    made = Compactor()
    limits = Limits(iterations=500)
    done = await over(looking(60), "look", tools=[look], middleware=[made], result_limit=None, limits=limits)
    assert (done.run.outcome, done.shown) == ("completed", "done")
    assert done.of(ContextCompacted)
    assert max(size_of(each) for each in done.asked if not asks(each)) < 20_000 * 4
    assert any(is_record(entry.message) for entry in done.run.path)


def chatting(name, **options):
    def script(prompt):
        return "They talked." if asks(prompt) else f"{name}: " + WORDS * 20

    return SwarmAgent(name, ScriptedModel([], then=script, capabilities=CAN), keep=None, **options)


async def test_a_compaction_keeps_values_named_turns_and_what_others_keep_to_themselves(tmp_path):
    note = State("note", "")
    agents = [chatting("A", middleware=[Compactor(SUMMARISES)]), chatting("B")]
    swarm = Swarm("shop", agents, states=[note])

    async def talk(session):
        await session.complete("first", run="t0")
        await session.state(note).set("kept")
        await session.change_to("B")
        await session.commit_tool_request([("look", {})])
        call = session.messages[-1].tool_calls[0].id
        await session.commit_tool_output(call, "of B alone")
        await session.change_to("A")
        for turn in range(40):
            await session.complete(f"question {turn}: " + WORDS * 5)
        return call

    with SQLiteStore(tmp_path / "a.db") as store:
        async with swarm.start(store=store) as live, live.session("ann") as session:
            first = await session.complete("zero", run="zero")
            call = await talk(session)
            assert any(is_record(entry.message) for entry in session.log.path)
            assert await session.state(note).get() == "kept"
            assert await session.complete("zero", run="zero") == first
    with SQLiteStore(tmp_path / "a.db") as store:
        async with swarm.start(store=store) as live, live.session("ann") as session:
            assert session.agent == "A"
            assert await session.state(note).get() == "kept"
            assert call in [each.tool_call_id for each in session.messages if each.role == "tool"]
            assert await session.complete("zero", run="zero") == first
            before = session.log.entries
            assert sum("question 0:" in entry.message.text for entry in before) >= 1
