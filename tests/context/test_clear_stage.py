"""Stages that empty results and reasoning (docs/spec/kairo.md#3.3; golden ``compaction``)."""

from __future__ import annotations

from typing import Any

import pytest

import palaver as p
from palaver.context import Plan, clear_stage, labels
from palaver.context.clear_stage import micro, snip, supersede, time_micro
from palaver.context.plan import plan_of
from tests.context.conversations import MINUTE, NOW, planned
from tests.context.goldens import AT, COMPACTION, conversation


def _replaced(before: Plan, after: Plan) -> dict[str, str]:
    """What was replaced by what, as the golden spells it."""
    found: dict[str, str] = {}
    for old, new in zip(before.messages, after.messages, strict=True):
        if new is old:
            continue
        assert (new.id, type(new)) == (old.id, type(old))
        if isinstance(old, p.ToolMessage):
            found[f"{old.id}"] = new.text
        elif old.reasoning != new.reasoning:
            found[f"{old.id} reasoning"] = new.reasoning or ""
            assert new.text == old.text
            assert new.tool_calls == old.tool_calls
    return found


def _golden(*, now: int = AT) -> Plan:
    return plan_of(conversation(), capacity=1_000, now=now)


@pytest.mark.row("KAI-10")
@pytest.mark.parametrize("stage", [micro, snip])
def test_a_stage_gives_the_golden_texts(stage: Any) -> None:
    plan = _golden()
    assert _replaced(plan, stage(plan)) == COMPACTION[stage.__name__]["replaced_text"]


@pytest.mark.row("KAI-10")
def test_time_micro_gives_the_golden_texts() -> None:
    plan = _golden(now=AT + 61 * MINUTE)
    assert _replaced(plan, time_micro(plan)) == COMPACTION["time_micro_idle"]["replaced_text"]


def test_time_micro_waits_until_the_user_was_away_for_an_hour() -> None:
    plan = _golden(now=AT + 60 * MINUTE - 1)
    assert time_micro(plan) is plan
    assert time_micro(_golden(now=AT + 60 * MINUTE)) is not plan


def test_time_micro_leaves_what_is_young_and_what_has_no_time() -> None:
    old, young = NOW - 90 * MINUTE, NOW - 30 * MINUTE
    messages = (
        p.user("go", sent_at=old),
        p.assistant("x" * 600, id="old", sent_at=old),
        p.assistant("x" * 600, id="young", sent_at=young),
        p.assistant("x" * 600, id="timeless"),
        p.assistant("x" * 528, id="short", sent_at=old),
    )
    plan = planned(messages)
    cut = time_micro(plan)
    assert [m.id for m, n in zip(messages, cut.messages, strict=True) if m is not n] == ["old"]
    assert cut.messages[1].text == "x" * 500 + labels.CUT
    assert cut.messages[1].metadata == {"compaction": "time_micro"}
    assert time_micro(cut) is cut


@pytest.mark.row("KAI-10")
def test_a_cleared_result_keeps_its_fields() -> None:
    image = p.Image(p.Inline("AAAA" * 500), "image/png")
    result = p.tool(
        "x" * 100,
        image,
        tool_call_id="c",
        tool_name="read",
        is_error=True,
        id="r",
        agent="a",
        tags=("t",),
        metadata={"session": "s", "n": 5e-06},
        payload={"k": 1},
        provider={"w": {"f": 1}},
        sent_at=3,
    )
    plan = planned((p.user("u"), p.assistant(tool_calls=[p.ToolCall("c", "read")]), result, p.assistant("done")))
    cleared = micro(plan).messages[2]
    assert isinstance(cleared, p.ToolMessage)
    label = "[Result: c - error - 1600 bytes]"
    assert cleared == result.replace(
        content=(p.Text(label),), metadata={"session": "s", "n": 5e-06, "compaction": "micro"}
    )


@pytest.mark.parametrize(
    ("metadata", "after"),
    [
        ({}, {"compaction": "micro"}),
        ({"compaction": "older"}, {"compaction": "micro"}),
        ({"b": [1]}, {"b": [1], "compaction": "micro"}),
    ],
)
def test_metadata_gain_the_stage(metadata: Any, after: Any) -> None:
    messages = (
        p.user("u"),
        p.assistant(tool_calls=[p.ToolCall("c", "read")]),
        p.tool("x" * 400, tool_call_id="c", metadata=metadata),
        p.assistant("done"),
    )
    assert micro(planned(messages)).messages[2].metadata == after


def test_snip_then_micro_leaves_the_first_label() -> None:
    plan = snip(_golden())
    after = micro(plan)
    assert [m.text for m in after.messages if m.id in ("r0", "r1")] == [
        m.text for m in plan.messages if m.id in ("r0", "r1")
    ]


def test_a_short_result_stays() -> None:
    messages = (
        p.user("u"),
        p.assistant(tool_calls=[p.ToolCall("c", "read")]),
        p.tool("short", tool_call_id="c"),
        p.assistant("done"),
    )
    plan = planned(messages)
    assert micro(plan) is plan


# -- reasoning ---------------------------------------------------------------------------------------------------------

_THOUGHT = p.Reasoning("think " * 40, "sig", wire="anthropic_messages")


def _thinking(*parts: Any) -> Any:
    (found,) = micro(planned((p.user("u"), p.assistant(*parts), p.user("more")))).messages[1:2]
    return found


@pytest.mark.row("KAI-10")
def test_an_answer_loses_all_its_proofs_or_none() -> None:
    redacted = p.Reasoning("", encrypted="more", wire="anthropic_messages")
    short = p.Reasoning("ok", "sig2", wire="anthropic_messages")
    said = _thinking(_THOUGHT, redacted, short, "text")
    assert said.content == (p.Reasoning(labels.reasoning_label(_THOUGHT.text)), p.Reasoning("ok"), p.Text("text"))
    assert _thinking(short, "text").content[0] == short
    assert _thinking(p.Reasoning("", encrypted="e" * 400), "text").content == (p.Text("text"),)
    assert _thinking(p.Reasoning("", encrypted="e" * 400)).content[0].encrypted is not None  # nothing would be left


def test_reasoning_that_something_depends_on_stays() -> None:
    served = p.ToolCall("s", "web_search", "{}", provider_executed=True)
    assert _thinking(_THOUGHT, served).content[0] == _THOUGHT
    assert _thinking(_THOUGHT, p.Opaque("w", p.Json.of({}).value_json)).content[0] == _THOUGHT


@pytest.mark.row("KAI-10")
def test_reasoning_of_the_open_turn_stays() -> None:
    messages = (
        p.user("u"),
        p.assistant(_THOUGHT, p.ToolCall("c1", "read")),
        p.tool("x" * 400, tool_call_id="c1"),
        p.assistant(_THOUGHT, p.ToolCall("c2", "read", '{"n":1}')),
        p.tool("x" * 400, tool_call_id="c2"),
    )
    open_turn = micro(planned(messages)).messages
    assert open_turn[1] is messages[1]
    assert open_turn[2].text.startswith("[Result: c1")
    assert open_turn[3:] == messages[3:]
    closed = micro(planned((*messages, p.assistant("done")))).messages
    assert closed[1].reasoning == closed[3].reasoning == labels.reasoning_label(_THOUGHT.text)


def test_snip_leaves_the_reasoning_of_the_last_three_messages() -> None:
    messages = (p.user("u"), *[p.assistant(_THOUGHT, "said", id=f"a{n}") for n in range(5)])
    plan = planned(messages)
    changed = [n.id for m, n in zip(messages, snip(plan).messages, strict=True) if m is not n]
    assert changed == ["a0", "a1"]


# -- what is out of date -----------------------------------------------------------------------------------------------


def _reads(*calls: tuple[str, str, bool]) -> tuple[p.Message, ...]:
    """A round for each call: name, arguments, whether it failed."""
    messages: list[p.Message] = [p.user("u")]
    for number, (name, arguments, failed) in enumerate(calls):
        messages.append(p.assistant(tool_calls=[p.ToolCall(f"c{number}", name, arguments)]))
        messages.append(p.tool("x" * 400, tool_call_id=f"c{number}", is_error=failed))
    return (*messages, p.assistant("done"))


@pytest.mark.parametrize(
    ("calls", "cleared"),
    [
        ([("read", '{"a":1}', False), ("read", '{"a":1}', False)], [0]),
        ([("read", '{"a":1,"b":2}', False), ("read", '{ "b" : 2, "a" : 1 }', False)], [0]),
        ([("read", '{"a":1}', False), ("read", '{"a":2}', False)], []),
        ([("read", '{"a":1}', False), ("look", '{"a":1}', False)], []),
        ([("read", '{"a":1}', False), ("read", '{"a":1}', True)], []),
        ([("read", '{"a":1}', True), ("read", '{"a":1}', False)], [0]),
        ([("read", "", False), ("read", "{}", False)], [0]),
        ([("read", "{", False), ("read", "{", False)], [0]),
        ([("read", "[" * 5000, False), ("read", "1e999", False)], []),
        ([("read", '{"a":1}', False), ("read", '{"a":1}', True), ("read", '{"a":1}', False)], [0, 1]),
        ([("read", '{"a":1}', False)] * 4, [0, 1, 2]),
    ],
)
def test_a_result_is_superseded_by_a_later_one_of_the_same_call(calls: Any, cleared: list[int]) -> None:
    plan = planned(_reads(*calls))
    after = supersede(plan)
    assert [n for n in range(len(calls)) if after.messages[2 + 2 * n] is not plan.messages[2 + 2 * n]] == cleared
    for number in cleared:
        outcome = "error" if calls[number][2] else "success"
        assert after.messages[2 + 2 * number].text == f"[Result: c{number} - {outcome} - 400 bytes]"
        assert after.messages[2 + 2 * number].metadata == {"compaction": "supersede"}


def test_a_result_that_was_not_seen_supersedes_and_stays() -> None:
    messages = _reads(("read", "{}", False), ("read", "{}", False))[:-1]
    after = supersede(planned(messages)).messages
    assert after[2].text.startswith("[Result: c0")
    assert after[4] is messages[4]


def test_a_verbatim_result_is_not_cleared() -> None:
    messages = list(_reads(("read", "{}", False), ("read", "{}", False)))
    messages[2] = messages[2].replace(verbatim=True)
    plan = planned(messages)
    assert supersede(plan) is plan
    assert micro(plan).messages[2] is messages[2]
    assert clear_stage.LAST_RESULTS == 5
