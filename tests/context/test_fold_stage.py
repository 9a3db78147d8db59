"""Stages that put one message in the place of many (docs/spec/kairo.md#3.3; golden ``compaction``)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

import palaver as p
from palaver import wires
from palaver.context import labels, plan_of
from palaver.context.fold_stage import SOURCE, Count, collapse, partial, partial_up_to, stands_for
from palaver.context.plan import Item, SummaryRequest
from palaver.context.summary_stage import summarizer
from palaver.core.errors import MessageError
from palaver.core.request import Encoded
from palaver.testing import rules
from tests.context.conversations import planned
from tests.context.goldens import COMPACTION, conversation
from tests.context.growing import EVERY, thought


def _ids(messages: tuple[p.Message, ...]) -> list[str | None]:
    return [message.id for message in messages]


def _round(number: int, name: str = "read", *, failed: bool = False, said: str = "") -> tuple[p.Message, ...]:
    call = p.ToolCall(f"c{number}", name, "{}")
    parts = [said] if said else []
    return (
        p.assistant(*parts, call, id=f"a{number}"),
        p.tool("x" * 400, tool_call_id=call.id, is_error=failed, id=f"r{number}"),
    )


# -- collapse ----------------------------------------------------------------------------------------------------------


@pytest.mark.row("KAI-10")
def test_collapse_gives_the_golden() -> None:
    plan = planned(conversation())
    after = collapse(plan)
    assert _ids(after.messages) == ["sys", "u0", "fact", None, "a6", "r6", "u1"]
    folded = after.messages[3]
    assert folded.source == "compaction"
    texts = [part.text for part in folded.content if isinstance(part, p.Text)]
    assert texts == [*[f"step {n}" for n in range(6)], COMPACTION["collapse"]["fixed_label"]]
    said = folded.payload["compaction"]
    assert said["stage"] == "collapse"
    assert said["replaces"] == _ids(plan.messages)[3:15]
    assert said["messages"] == 12
    assert said["tokens"] == sum([item.tokens for item in plan.items[3:15]])
    assert [item.origin for item in after.items] == [0, 1, 2, None, 15, 16, 17]
    assert collapse(after) is after


@pytest.mark.row("KAI-10")
def test_counts_add_up_when_what_was_folded_is_folded_again() -> None:
    once = collapse(
        planned((p.user("u", id="u"), *_round(1, said="one"), *_round(2, "write", failed=True), *_round(3)))
    )
    assert once.messages[1].text.endswith(labels.collapsed_label({"read": 1, "write": 1}, 1))
    stamped = once.messages[1].replace(id="folded")
    twice = collapse(planned((once.messages[0], stamped, *_round(3), *_round(4, "write", said="two"), *_round(5))))
    assert _ids(twice.messages) == ["u", None, "a5", "r5"]
    texts = [part.text for part in twice.messages[1].content if isinstance(part, p.Text)]
    assert texts == ["one", "two", labels.collapsed_label({"read": 2, "write": 2}, 1)]
    count = stands_for(twice.messages[1])
    assert count is not None
    assert (count.messages, count.replaces) == (8, ["folded", "a3", "r3", "a4", "r4"])
    unstamped = collapse(planned((*once.messages, *_round(4), *_round(5))))
    count = stands_for(unstamped.messages[1])
    assert count is not None
    assert count.replaces == ["a1", "r1", "a2", "r2", "a3", "r3", "a4", "r4"]


@pytest.mark.row("KAI-06")
def test_parallel_calls_and_rounds_with_something_verbatim_stay_whole() -> None:
    calls = [p.ToolCall(f"p{n}", "read") for n in range(3)]
    parallel = (p.assistant(*calls, id="a"), *[p.tool("x" * 200, tool_call_id=call.id) for call in calls])
    after = collapse(planned((p.user("u"), *parallel, *_round(9))))
    assert after.messages[1].text == "[Collapsed: 3 tool calls (read x3) - all successful]"
    pinned = (*parallel[:3], parallel[3].replace(verbatim=True))
    plan = planned((p.user("u"), *_round(1), *pinned, *_round(2), *_round(3), *_round(4)))
    after = collapse(plan)
    assert after.messages[:7] == plan.messages[:7]
    assert after.messages[7].text.startswith("[Collapsed: 2 tool calls")


def test_what_stands_between_rounds_parts_them() -> None:
    nudge = p.user("go on", mode="tool")
    messages = (p.user("u"), *_round(1), nudge, *_round(2), p.assistant("said"), *_round(3))
    plan = planned(messages)
    assert collapse(plan) is plan


def test_calls_that_did_not_parse_or_that_the_provider_ran_are_counted() -> None:
    served = p.ToolCall("s", "web", "{}", provider_executed=True)
    found = p.ServerToolResult("s", p.Json.of({"x": "y" * 900}).value_json, "w", is_error=True)
    bad = p.MalformedToolCall("{" * 900, "cut off")
    messages = (p.user("u"), p.assistant(served, found), p.assistant(bad), *_round(1), *_round(2))
    assert collapse(planned(messages)).messages[1].text == (
        "[Collapsed: 3 tool calls (web x1, unknown x1, read x1) - 1 successful, 2 errors]"
    )


def test_a_run_that_is_lighter_than_its_label_stays() -> None:
    short = [
        message
        for n in range(2)
        for message in (p.assistant(tool_calls=[p.ToolCall(f"c{n}", "f")]), p.tool("k", tool_call_id=f"c{n}"))
    ]
    plan = planned((p.user("u"), *short, *_round(9)))
    assert collapse(plan) is plan


@pytest.mark.parametrize(
    "payload",
    [None, 3, {}, {"compaction": 1}, {"compaction": {"stage": 1}}, {"compaction": {"stage": "x", "calls": 1}}],
)
def test_a_payload_that_says_nothing_of_it_is_passed_over(payload: Any) -> None:
    assert stands_for(p.user("x", source="compaction", payload=payload)) is None


def test_only_what_compaction_made_stands_for_others() -> None:
    payload = {"compaction": {"stage": "partial", "messages": 3}}
    assert stands_for(p.user("x", payload=payload)) is None
    assert stands_for(p.user("x", payload=payload, source="compaction")) == Count("partial", messages=3)


# -- partial -----------------------------------------------------------------------------------------------------------


@pytest.mark.row("KAI-10")
def test_partial_keeps_the_task_the_last_messages_and_their_order() -> None:
    plan = planned(conversation())
    after = partial(plan)
    assert _ids(after.messages) == ["sys", "u0", "fact", None, "a4", "r4", "a5", "r5", "a6", "r6", "u1"]
    note = after.messages[3]
    tokens = sum([item.tokens for item in plan.items[3:11]])
    assert note.text == COMPACTION["labels"]["partial_from"].replace("<n>", "8").replace("<t>", str(tokens))
    assert (note.role, note.mode, note.source) == ("user", "tool", "compaction")
    assert note.payload["compaction"] == {
        "stage": "partial",
        "replaces": _ids(plan.messages)[3:11],
        "messages": 8,
        "tokens": tokens,
        "calls": {"read": 3, "write": 1},
    }
    assert partial(after) is after


def test_partial_keeps_fewer_where_it_must() -> None:
    plan = planned((p.user("u", id="u"), *_round(1), *_round(2), *_round(3), p.assistant("done", id="d")), share=0.4)
    after = partial(plan)
    assert after.tokens <= plan.capacity
    assert _ids(after.messages) == ["u", None, "d"]
    assert "last 2 messages" in after.messages[1].text


def test_partial_keeps_what_a_person_said_last_and_a_summary_as_long_as_it_can() -> None:
    summary = p.user("what was " * 50, id="s", mode="tool", source="compaction")
    rounds = [message for n in range(8) for message in _round(n)]
    messages = (p.user("task", id="u"), summary, p.user("now this", id="now"), *rounds, p.assistant("done", id="d"))
    after = partial(planned(messages, share=0.9))
    assert _ids(after.messages) == ["u", "s", "now", None, "a6", "r6", "a7", "r7", "d"]
    tight = partial(planned(messages, share=0.02))
    assert _ids(tight.messages) == ["u", None, "now", "d"]


def test_notes_add_up() -> None:
    first = partial(planned((p.user("u"), *_round(1), *_round(2), *_round(3), *_round(4), p.assistant("d"))))
    again = partial(planned((*first.messages, *_round(5), *_round(6), p.assistant("e"))))
    (note,) = [message for message in again.messages if message.source == "compaction"]
    count = stands_for(note)
    assert count is not None
    assert count.messages == 9
    assert count.replaces == ["a1", "r1", "a2", "r2", "a3", "r3", "a4", "r4"]


@pytest.mark.row("KAI-10")
def test_partial_up_to_a_message_keeps_the_rest() -> None:
    plan = planned(conversation())
    after = partial_up_to("r3")(plan)
    assert _ids(after.messages)[3:6] == [None, "a3", "r3"]
    assert after.messages[3].text.endswith("compressed up to marker 'r3'.]")
    assert partial_up_to("gone")(plan) == partial(plan)
    with pytest.raises(MessageError, match="marker"):
        partial_up_to("")


def test_nothing_to_remove_is_nothing_done() -> None:
    plan = plan_of((p.user("u"), p.assistant("a")), capacity=1)
    assert partial(plan) is plan
    assert partial_up_to("gone")(plan) is plan


# -- reasoning in the open turn ----------------------------------------------------------------------------------------


def _thinking(*numbers: int, wire: str = "anthropic_messages") -> list[p.Message]:
    """Rounds that begin with reasoning, as a wire gives it."""
    said: list[p.Message] = []
    for number in numbers:
        answer, result = _round(number, said=f"step {number}")
        said += [answer.replace(content=(thought(wire, number), *answer.content)), result]
    return said


def _sent(messages: Sequence[p.Message], wire: str = "anthropic_messages") -> Encoded:
    settings = p.Settings(max_tokens=8_000, reasoning_tokens=2_000)
    tools = (p.Tool.of("read", "Read.", {"type": "object"}),)
    return wires.get(wire).encode_request(
        p.Request(messages=tuple(messages), model="m", tools=tools, settings=settings)
    )


@pytest.mark.row("KAI-10")
@pytest.mark.parametrize("name", ["collapse", "partial", "auto"])
def test_the_model_goes_on_reasoning_in_a_long_turn(name: str) -> None:
    plan = planned((p.user("task"), *_thinking(*range(12))), share=0.9)
    if name == "auto":
        question = summarizer()(plan)
        assert isinstance(question, SummaryRequest)
        after = question.apply("So far, twelve files were read, and all of them are fine.")
    else:
        after = {"collapse": collapse, "partial": partial}[name](plan)
    assert len(after.items) < len(plan.items)
    sent = _sent(after.messages)
    assert [loss.what for loss in sent.losses] == []
    assert json.loads(bytes(sent.body))["thinking"] == {"type": "enabled", "budget_tokens": 2_000}
    assert rules.check_request("anthropic_messages", sent.body) == []


@pytest.mark.parametrize("wire", EVERY)
def test_every_wire_takes_the_note_behind_what_was_folded(wire: str) -> None:
    name, _, variant = wire.partition(":")
    after = collapse(planned((p.user("task"), *_thinking(*range(6), wire=wire))))
    assert after.messages[2].text == labels.GO_ON
    assert rules.check_request(name, _sent(after.messages, wire).body, variant or None) == []


def test_one_note_stays_and_counts_for_nothing() -> None:
    once = collapse(planned((p.user("task", id="u"), *_thinking(*range(4)))))
    assert _ids(once.messages) == ["u", None, None, "a3", "r3"]
    note = once.messages[2]
    assert (note.text, note.role, note.mode, note.source) == (labels.GO_ON, "user", "tool", "compaction")
    assert collapse(once) is once
    stamped = [message if message.id else message.replace(id=f"n{at}") for at, message in enumerate(once.messages)]
    twice = collapse(planned((*stamped, *_thinking(4, 5))))
    assert _ids(twice.messages) == ["u", None, None, "a5", "r5"]
    assert [message.text for message in twice.messages].count(labels.GO_ON) == 1
    count = stands_for(twice.messages[1])
    assert count is not None
    assert (count.messages, count.calls) == (10, {"read": 5})
    assert count.replaces == ["n1", "n2", "a3", "r3", "a4", "r4"]
    over = collapse(planned((*twice.messages, *_thinking(6), *_round(7), p.user("next", id="v"))))
    assert _ids(over.messages) == ["u", None, "a7", "r7", "v"]


def test_where_nothing_was_thought_or_the_turn_is_over_no_note_is_needed() -> None:
    plain = collapse(planned((p.user("task"), *_thinking(0, 1, 2), *_round(3))))
    over = collapse(planned((p.user("task"), *_thinking(0, 1, 2, 3), p.assistant("done"), p.user("next"))))
    for after in (plain, over):
        assert after.changes
        assert labels.GO_ON not in [message.text for message in after.messages]


@pytest.mark.finding("F-17")
def test_a_note_that_stands_for_others_counts_all_that_went():
    earlier = Count("partial")
    earlier.add(Item(p.user("a" * 400, id="m1"), 100))
    earlier.add(Item(p.assistant("b" * 200, id="m2"), 50))
    note = p.UserMessage(content=(p.Text("2 messages"),), id="m3", source=SOURCE, payload_json=earlier.payload)
    later = Count("partial")
    later.add(Item(note, 7))
    later.add(Item(p.user("c", id="m4"), 3))
    assert (later.messages, later.tokens) == (3, 153)
