"""Answers inherit the metadata of what they answer (C12)."""

from __future__ import annotations

import pytest

import palaver as p
from palaver import user
from palaver.agent import Agent, Run
from palaver.models.scripted import ScriptedModel
from palaver.threads import Thread

pytestmark = pytest.mark.finding("F-05")

IDS = {"session_id": "s-77", "nested": {"a": [1, None]}}


def look() -> str:
    """Look."""
    return "seen"


def answers(run: Run) -> list[p.AssistantMessage]:
    return [each for each in run.messages if isinstance(each, p.AssistantMessage)]


@pytest.mark.conflict("C12")
def test_every_answer_of_a_run_has_the_metadata_of_its_prompt() -> None:
    model = ScriptedModel([p.assistant(p.tool_call("look", {}, id="c")), "done"])
    run = Agent(model, tools=[look]).sync.run(user("hi", metadata=IDS))
    assert [each.metadata for each in answers(run)] == [IDS, IDS]
    assert all("session_id" not in each.metadata for each in run.messages if isinstance(each, p.ToolMessage))


def test_what_an_answer_says_itself_stands_before_it() -> None:
    model = ScriptedModel([p.assistant("done", metadata={"session_id": "own", "more": 1})])
    run = Agent(model).sync.run(user("hi", metadata=IDS))
    assert answers(run)[-1].metadata == {**IDS, "session_id": "own", "more": 1}


def test_a_prompt_without_metadata_ends_what_was_inherited() -> None:
    agent = Agent(ScriptedModel(["a", "b"]))
    first = agent.sync.run(user("hi", metadata=IDS))
    second = agent.sync.run("on", previous=first)
    assert (answers(first)[-1].metadata, answers(second)[-1].metadata) == (IDS, {})


def test_a_message_of_the_runtime_changes_nothing() -> None:
    nudge = user("go on", source="continuation:limit", metadata={"synthetic": True})
    thread = Thread()
    thread.append(user("hi", metadata=IDS), p.assistant("so"), nudge)
    run = Agent(ScriptedModel(["done"])).sync.run(thread=thread)
    assert answers(run)[-1].metadata == IDS


def test_the_mark_of_compaction_is_not_inherited() -> None:
    run = Agent(ScriptedModel(["done"])).sync.run(user("hi", metadata={**IDS, "compaction": "micro"}))
    assert answers(run)[-1].metadata == IDS
