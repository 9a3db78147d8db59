"""The stage ``shorten``: head and tail of what is too large."""

from __future__ import annotations

import re
from typing import Any

import pytest

import palaver as p
from palaver.context import Plan, plan_of
from palaver.context.shorten_stage import MIN_RESULT, shorten
from palaver.tokens import estimate

_LINE = re.compile(r"\n\[\.\.\. (\d+) characters(?: of the result of (\S+))? left out \.\.\.]\n")


def _long(mark: str = "x", size: int = 100_000) -> str:
    return f"HEAD{mark * size}TAIL"


def _shortened(message: p.Message, *others: p.Message, capacity: int = 8_000) -> tuple[Plan, p.Message]:
    before = (p.user("task"), p.assistant("yes"))
    plan = plan_of((*before, message, p.assistant("seen"), *others), capacity=capacity)
    after = shorten(plan)
    return after, after.messages[2]


@pytest.mark.parametrize("mark", ["x", "é", "日", "\ud83d "])
@pytest.mark.parametrize("make", [p.user, p.assistant])
def test_a_huge_message_keeps_head_and_tail(make: Any, mark: str) -> None:
    text = _long(mark)
    after, short = _shortened(make(text, id="m", metadata={"s": 1}))
    assert estimate(short) <= (7_000 if make is p.user else 2_000)  # the last prompt of a user keeps what there is
    head, left_out, call, tail = _LINE.split(short.text)
    assert call is None
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + int(left_out) + len(tail) == len(text)
    assert len(head) > len(tail) > MIN_RESULT / 4
    assert short.metadata == {"s": 1, "compaction": "shorten"}
    assert after.items[2].tokens == estimate(short)
    assert shorten(after) is after


def test_a_result_names_its_call() -> None:
    call = p.assistant(tool_calls=[p.ToolCall("c7", "read")])
    big = p.tool(p.Json.of({"k": _long()}), p.Image(p.Url("https://e.com/x.png")), tool_call_id="c7")
    plan = plan_of((p.user("task"), call, big, p.assistant("seen")), capacity=8_000)
    after = shorten(plan)
    short = after.messages[2]
    assert short.text.startswith('{"k":"HEAD')
    match = _LINE.search(short.text)
    assert match is not None
    assert match[2] == "c7"
    assert short.images == big.images
    unseen = plan_of((p.user("task"), call, big), capacity=8_000)
    assert shorten(unseen) is unseen


def test_a_message_of_many_texts_is_cut_as_far_as_it_goes() -> None:
    message = p.user(*[_long(size=3_000)] * 20, "end")
    after, short = _shortened(message, capacity=4_000)
    assert estimate(short) < estimate(message)
    assert short.text.endswith("end")
    assert shorten(after) is after


@pytest.mark.row("KAI-05")
def test_what_is_not_to_be_touched_stays() -> None:
    for message in (
        p.user(_long(), verbatim=True),
        p.system(_long()),
        p.user(_long(), source="compaction"),
        p.assistant(p.Reasoning(_long())),
        p.user("small"),
    ):
        after, same = _shortened(message)
        assert same is message
        assert after.changes == ()


_SYSTEM = p.system("x" * 2_000)


@pytest.mark.row("KAI-10")
@pytest.mark.parametrize("size", [17_000, 19_000, 100_000, 1_000_000])
@pytest.mark.parametrize("capacity", [4_000, 3_000])
def test_a_prompt_alone_is_cut_no_further_than_it_must(size: int, capacity: int) -> None:
    plan = plan_of((_SYSTEM, p.user(_long(size=size))), capacity=capacity)
    assert plan.tokens > capacity
    after = shorten(plan)
    assert capacity * 0.8 < after.tokens < capacity * 0.9
    assert shorten(after) is after


@pytest.mark.row("KAI-10")
@pytest.mark.parametrize(
    ("task", "prompt", "shares"),
    [
        (0.6, 0.6, (0.44, 0.44)),
        (0.3, 3.0, (0.30, 0.57)),
        (3.0, 0.1, (0.77, 0.10)),
        (0.9, 0.01, (0.90, 0.01)),
        (0.9, 0.2, (0.67, 0.20)),
    ],
)
def test_the_first_and_the_last_prompt_share_what_there_is(
    task: float, prompt: float, shares: tuple[float, float]
) -> None:
    capacity = 10_000
    first, last = [p.user("word " * int(each * capacity * 0.7)) for each in (task, prompt)]
    weighed = [estimate(first), estimate(last)]
    given = plan_of((first, p.assistant("yes"), last), capacity=capacity)
    after = shorten(given)
    fits = sum(weighed) <= capacity
    assert (after is given) is fits
    assert after.tokens <= capacity
    wanted = weighed if fits else [min(each, share * capacity) for each, share in zip(weighed, shares, strict=True)]
    found = [after.items[place].tokens for place in (0, 2)]
    assert found == pytest.approx(wanted, abs=0.04 * capacity)


def test_a_cut_of_a_cut_counts_what_both_left_out() -> None:
    text = _long()
    once = shorten(plan_of((p.user(text),), capacity=8_000)).messages[0]
    twice = shorten(plan_of((once,), capacity=2_000)).messages[0]
    head, left_out, _, tail = _LINE.split(twice.text)
    assert len(head) + int(left_out) + len(tail) == len(text)


def test_a_prompt_that_is_cut_leaves_the_conversation_as_much_as_before() -> None:
    before = [p.assistant("word " * 200, id=str(number)) for number in range(8)]
    plan = plan_of((p.user("task"), *before, p.user(_long())), capacity=8_000)
    after = shorten(plan)
    assert after.messages[:-1] == plan.messages[:-1]
    assert 6_800 < after.tokens < 7_200


@pytest.mark.row("KAI-10")
def test_the_task_is_shortened_only_where_nothing_else_helps() -> None:
    task = p.user(_long(size=10_000), id="task")
    plan = plan_of((task, *[p.assistant("word " * 200)] * 40), capacity=9_000)
    assert plan.tokens > plan.capacity
    assert shorten(plan) is plan
    tight = plan_of((p.system("x" * 7_000), task, p.assistant("yes")), capacity=4_000)
    assert tight.items[0].tokens < tight.capacity < tight.tokens
    short = shorten(tight).messages[1]
    assert short.id == "task"
    assert _LINE.search(short.text) is not None
    verbatim = plan_of((p.system("x" * 7_000), task.replace(verbatim=True), p.assistant("yes")), capacity=4_000)
    assert shorten(verbatim) is verbatim
