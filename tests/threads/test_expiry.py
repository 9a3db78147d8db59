"""Messages that are there for a step or a prompt: docs/spec/codebuff.md#9.1, cell by cell."""

from __future__ import annotations

from typing import Any

import pytest

import palaver as p
from palaver.agent import Agent, function_tool
from palaver.core.errors import MessageError
from palaver.models.scripted import ScriptedModel
from palaver.threads import Thread, expire, for_agent, for_model
from palaver.threads.view import EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT, ModelView

STAYS = [
    ((), "agent-step", True),
    ((), "user-prompt", True),
    ((EXPIRES_AGENT_STEP,), "agent-step", False),
    ((EXPIRES_AGENT_STEP,), "user-prompt", False),
    ((EXPIRES_USER_PROMPT,), "agent-step", True),
    ((EXPIRES_USER_PROMPT,), "user-prompt", False),
    ((EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT), "agent-step", False),
    ((EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT), "user-prompt", False),
]


@pytest.mark.parametrize(("tags", "end_of", "stays"), STAYS)
def test_a_message_stays_as_long_as_its_tags_say(tags: tuple[str, ...], end_of: Any, stays: bool) -> None:
    first, last = p.user("first"), p.assistant("last").replace(tags=("other",))
    messages = [first, p.system("here for a while").replace(tags=("other", *tags)), last]
    left = expire(messages, end_of)
    assert list(left) == (messages if stays else [first, last])
    assert (left is messages) == stays


def test_the_tags_are_those_that_are_stored() -> None:
    assert (EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT) == ("expires:agent-step", "expires:user-prompt")


@pytest.mark.finding("F-14")
def test_the_names_of_codebuff_are_taken_and_others_are_refused() -> None:
    for tags, end_of, stays in STAYS:
        theirs: Any = {"agent-step": "agentStep", "user-prompt": "userPrompt"}[end_of]
        assert bool(expire([p.user("x", tags=tags)], theirs)) == stays
    for wrong in ("step", "", "agent_step"):
        for messages in ([], [p.user("x", tags=(EXPIRES_AGENT_STEP,))]):
            with pytest.raises(MessageError, match="agent-step"):
                expire(messages, wrong)  # type: ignore[arg-type]


@pytest.mark.finding("F-14")
def test_pairs_expire_whole() -> None:
    one, two = p.ToolCall("1", "read", "{}"), p.ToolCall("2", "read", "{}")
    brief = (EXPIRES_AGENT_STEP,)
    answer = p.assistant("Both.", one, two)
    results = p.tool("a", tool_call_id="1", tags=brief), p.tool("b", tool_call_id="2")
    left = expire([answer, *results], "agent-step")
    assert left == (p.assistant("Both.", two), results[1])
    assert expire([p.assistant(one), results[0]], "agent-step") == ()
    assert expire([answer.replace(tags=brief), *results], "agent-step") == ()


STEP, PROMPT = (EXPIRES_AGENT_STEP,), (EXPIRES_USER_PROMPT,)
PATHS = [
    # what was said, and what a model sees of it
    ([p.user("q"), p.user("T", tags=STEP)], "qT"),
    ([p.user("q"), p.user("T", tags=STEP), p.assistant("a")], "qa"),
    ([p.user("T", tags=STEP), p.user("q")], "Tq"),
    ([p.user("q"), p.user("T", tags=PROMPT), p.assistant("a")], "qTa"),
    ([p.user("q"), p.user("T", tags=PROMPT), p.assistant("a"), p.user("n", mode="tool")], "qTan"),
    ([p.user("q"), p.user("T", tags=PROMPT), p.assistant("a"), p.user("n")], "qan"),
    ([p.user("q"), p.assistant("a"), p.user("T", tags=PROMPT), p.user("n")], "qaTn"),
    ([p.user("q"), p.assistant("a"), p.user("T", tags=PROMPT), p.user("n"), p.assistant("b"), p.user("m")], "qanbm"),
    ([p.user("q"), p.system("T", tags=PROMPT), p.system("s"), p.assistant("a"), p.user("n")], "qsan"),
    ([p.user("q"), p.user("T", tags=STEP), p.user("s", mode="tool", source="compaction"), p.user("n")], "qsn"),
    ([p.user("q"), p.user("T", tags=STEP), p.assistant("d", tags=("discarded",))], "qT"),
    ([p.user("q"), p.assistant("a"), p.user("T", tags=STEP), p.assistant("b"), p.rescue(), p.user("n")], "qan"),
]


@pytest.mark.finding("F-14")
@pytest.mark.parametrize(("said", "seen"), PATHS)
def test_views_obey_lifetimes_message_by_message(said: list[p.Message], seen: str) -> None:
    thread, view = Thread(), ModelView()
    held: list[tuple[Any, list[str]]] = []
    for message in said:
        thread.append(message)
        now = view(thread.path())
        held.append((now, [each.text for each in now]))
    assert "".join(each.text for each in view(thread.path())) == seen
    assert "".join(each.text for each in for_model(thread.path())) == seen
    for now, texts in held:  # what was given before does not change
        assert [each.text for each in now] == texts


@pytest.mark.finding("F-14")
def test_an_agent_sees_out_its_own_steps_only() -> None:
    thread = Thread()
    thread.append(p.user("q"), p.user("T", tags=STEP), p.assistant("a", agent="other"))
    assert [each.text for each in for_agent(thread.path(), "mine")] == ["q", "T", "a"]
    thread.append(p.assistant("b", agent="mine"))
    assert [each.text for each in for_agent(thread.path(), "mine")] == ["q", "a", "b"]


@pytest.mark.finding("F-14")
def test_what_expired_is_not_sent_by_the_loop() -> None:
    thread = Thread()
    thread.append(p.user("q"), p.user("step", tags=STEP), p.user("prompt", tags=PROMPT))
    look = function_tool(lambda: "seen", name="look", description="Look.", effect="read")
    model = ScriptedModel([p.assistant(p.ToolCall("1", "look", "{}")), "a", "b"])
    agent = Agent(model, tools=[look])
    agent.sync.run(None, thread=thread)
    agent.sync.run("next", thread=thread)
    asked = [[each.text for each in prompt.messages] for prompt in model.asked]
    assert asked == [["q", "step", "prompt"], ["q", "prompt", "", "seen"], ["q", "", "seen", "a", "next"]]
    assert [entry.message.text for entry in thread.path()][:3] == ["q", "step", "prompt"]
