"""The behaviours of the suites Summarization (19) and TokenCounter (3), one test each.

Source: docs/spec/deepagents-swift.md#8.5, #12.

What differs from the original is what section 13 says of it: a run of one prompt is cut too, there is no made-up
answer behind the summary, and images and reasoning count. That a compaction is told as an event and lands in the store
is a matter of the agent.
"""

from __future__ import annotations

import pytest

import palaver as p
from palaver.context import SUMMARY_ONLY, compaction_flow, due, plan_of, without_model
from palaver.core.errors import OverloadedError, SummaryError
from palaver.tokens import estimate
from tests.context.driving import SUMMARY, asked, driven, filled, one_task, shown

pytestmark = pytest.mark.row("DAS-28")


def turns(count: int = 10, size: int = 300) -> list[p.Message]:
    """A chat without tools."""
    return [
        message
        for number in range(count)
        for message in (p.user(f"question {number} " + "q" * size), p.assistant(f"answer {number} " + "a" * size))
    ]


# -- when it runs ----------------------------------------------------------------------------------


def test_01_below_the_threshold_nothing_is_asked() -> None:
    plan = filled(turns(), 0.849)
    found, questions = driven(plan, SUMMARY_ONLY, SUMMARY)
    assert found.plan is plan
    assert questions == []


def test_02_at_the_threshold_it_runs() -> None:
    plan = filled(turns(), 0.86)
    assert due(plan, [SUMMARY_ONLY])
    assert driven(plan, SUMMARY_ONLY, SUMMARY)[0].plan is not plan


@pytest.mark.parametrize(("window", "threshold"), [(100, 85), (101, 85), (107, 90), (32_768, 27_852)])
def test_03_the_threshold_is_rounded_down(window: int, threshold: int) -> None:
    assert SUMMARY_ONLY.trigger(window) == threshold
    plan = plan_of([], capacity=window, fixed=threshold)
    assert due(plan, [SUMMARY_ONLY])
    assert not due(plan_of([], capacity=window, fixed=threshold - 1), [SUMMARY_ONLY])


def test_04_what_is_sent_besides_the_messages_counts() -> None:
    plan = filled(turns(), 0.7)
    assert not due(plan, [SUMMARY_ONLY])
    assert due(filled(turns(), 0.7, fixed=plan.capacity // 5), [SUMMARY_ONLY])


def test_05_somebody_who_asks_for_it_gets_it_below_the_threshold() -> None:
    plan = filled(turns(), 0.1)
    compaction = compaction_flow(plan, [SUMMARY_ONLY], goal=0)
    next(compaction)
    with pytest.raises(StopIteration) as stop:
        compaction.send(SUMMARY)
    assert stop.value.value.plan.tokens < plan.tokens


def test_06_asked_for_where_nothing_can_be_cut_it_asks_nobody() -> None:
    plan = filled([p.user("hi"), p.assistant("hello")], 0.1)
    found = without_model(compaction_flow(plan, [SUMMARY_ONLY], goal=0), SummaryError("nobody"))
    assert found.plan is plan
    assert found.failures == ()


# -- what stays ------------------------------------------------------------------------------------


def test_07_the_history_is_the_task_the_summary_and_the_newest_six() -> None:
    messages = turns(40)
    found = driven(filled(messages), SUMMARY_ONLY, SUMMARY)[0].plan
    assert list(found.messages[2:]) == messages[-6:]
    assert found.messages[0] is messages[0]
    assert SUMMARY in found.messages[1].text


def test_08_the_tail_never_begins_with_a_result() -> None:
    messages = [p.user("task"), *[each for number in range(30) for each in asked(number, calls=4)]]
    found = driven(filled(messages), SUMMARY_ONLY, SUMMARY)[0].plan
    assert [message.role for message in found.messages[2:]] == ["assistant", *["tool"] * 4]


def test_09_a_run_of_one_prompt_is_cut_too() -> None:
    found = driven(filled(one_task(40)), SUMMARY_ONLY, SUMMARY)[0].plan
    assert found.changes[0].messages == 2 * (40 - 3)


def test_10_a_history_that_is_all_tail_stays() -> None:
    plan = filled([p.user("task"), *asked(0, calls=9, size=9000)])
    found, questions = driven(plan, SUMMARY_ONLY, SUMMARY)
    assert found.plan is plan
    assert questions == []


def test_11_the_tail_weighs_no_more_than_a_quarter() -> None:
    messages = [*turns(20), p.user("u" * 2500), p.assistant("a" * 2500), p.user("last")]
    plan = filled(messages)
    found = driven(plan, SUMMARY_ONLY, SUMMARY)[0].plan
    tail = found.items[2:]
    assert [item.message.text[0] for item in tail] == ["a", "l"]
    assert sum(item.tokens for item in tail) <= plan.capacity * 0.25


def test_12_one_message_that_is_heavier_than_that_stays_alone() -> None:
    messages = [*turns(20), p.user("u" * 60_000)]
    found = driven(filled(messages), SUMMARY_ONLY, SUMMARY)[0].plan
    assert list(found.messages[2:]) == messages[-1:]


# -- what is asked ---------------------------------------------------------------------------------


def test_13_the_transcript_has_all_that_goes_and_nothing_that_stays_behind() -> None:
    _, questions = driven(filled(turns(40)), SUMMARY_ONLY, SUMMARY)
    text = shown(questions[0])
    assert "User: question 1 q" in text
    assert "Assistant: answer 36 a" in text
    assert "question 37" not in text
    assert questions[0].request.tools == ()


def test_14_it_fits_the_window_whatever_was_said() -> None:
    plan = plan_of(turns(30, size=60_000), capacity=8000)
    _, questions = driven(plan, SUMMARY_ONLY, SUMMARY)
    request = questions[0].request
    assert sum(map(estimate, request.messages)) + (request.settings.max_tokens or 0) <= 8000
    assert "left out" in shown(questions[0])


# -- what an answer is worth -----------------------------------------------------------------------


@pytest.mark.parametrize("answer", [OverloadedError("w", "busy"), "", "  \n", "long " * 9000])
def test_15_16_17_a_failure_an_empty_one_and_a_long_one_change_nothing(answer: str | Exception) -> None:
    plan = filled(turns())
    before = plan.messages
    found, _ = driven(plan, SUMMARY_ONLY, answer)
    assert found.plan is plan
    assert found.plan.messages == before
    assert len(found.failures) == 1


def test_18_a_later_summary_takes_in_the_earlier_one() -> None:
    once = driven(filled(turns(40)), SUMMARY_ONLY, "Of the first forty.")[0].plan
    found, questions = driven(filled([*once.messages, *turns(40)]), SUMMARY_ONLY, "Of all eighty.")
    assert "Earlier summary: Of the first forty.\n" in shown(questions[0])
    summaries = [message for message in found.plan.messages if message.is_summary]
    assert ["Of all eighty." in message.text for message in summaries] == [True]
    assert once.messages[1].id not in [message.id for message in found.plan.messages if message.id]


def test_19_the_summary_says_where_the_originals_are_and_names_no_path() -> None:
    found = driven(filled(one_task(40)), SUMMARY_ONLY, SUMMARY)[0].plan
    message = found.messages[1]
    assert message.source == "compaction"
    assert "can be read back" in message.text
    assert "/" not in message.text.replace(SUMMARY, "")
    assert message.payload["compaction"]["replaces"][:2] == ["a0", "rc00000000"]


# -- TokenCounter ----------------------------------------------------------------------------------


def test_20_text_counts_by_its_length() -> None:
    assert [estimate(p.user("x" * size)) for size in (0, 1, 7, 8, 3500)] == [1, 1, 2, 2, 1000]


def test_21_arguments_count() -> None:
    bare, long = (p.assistant(tool_calls=[p.tool_call("f", {"a": "x" * size}, id="1")]) for size in (1, 1000))
    assert estimate(long) - estimate(bare) == pytest.approx(200, abs=1)


def test_22_reasoning_and_images_count() -> None:
    assert estimate(p.assistant(reasoning="x" * 3500)) == 1000
    assert estimate(p.user(p.Image(p.Inline("iVBORw0KGgo=")))) > 0
