"""The summary by a model: what is cut and what stays, what is asked, and what an answer is worth."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import assume, given, settings, strategies as st

import palaver as p
from palaver import wires
from palaver.context import Breaker, Plan, Stage, SummaryRequest, plan_of, summarizer, summary_of
from palaver.context.compaction import AUTO_SHARE, pipeline
from palaver.context.labels import preserved, rounds
from palaver.context.plan import Work
from palaver.core.errors import ContextOverflowError, MessageError, OverloadedError, SummaryError, TransportError
from palaver.core.request import Settings
from palaver.testing import rules
from tests.context.driving import SUMMARY, TAG, asked, conversations, driven, filled, one_task, shown
from tests.folding import over
from tests.generated import examples
from tests.wires.histories import histories

AUTO = Stage("auto", summarizer(), AUTO_SHARE)
TARGETS = [
    target for name in wires.names() for target in (name, *(f"{name}:{variant}" for variant in wires.variants(name)))
]
TOOLS = (p.Tool.of("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),)
OVERFLOW = ContextOverflowError("some_wire", "prompt is too long")


def question(plan: Plan, work: Work | None = None) -> SummaryRequest:
    found = (work or summarizer())(plan)
    assert isinstance(found, SummaryRequest)
    return found


def whole(messages: tuple[p.Message, ...]) -> bool:
    """Whether every call has its result behind it, and every result its call."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, p.ToolMessage):
            if message.tool_call_id not in waiting:
                return False
            waiting.remove(message.tool_call_id)
        elif waiting:
            return False
        else:
            waiting = [call.id for call in message.tool_calls]
    return not waiting


# -- the cut ---------------------------------------------------------------------------------------


@pytest.mark.row("DAS-28")
def test_a_run_of_one_task_is_cut_between_rounds() -> None:
    messages = one_task()
    plan = filled(messages)
    found = question(plan).apply(SUMMARY)
    assert [item.origin for item in found.items] == [0, None, *range(len(messages) - 6, len(messages))]
    assert found.items[1].message.text.startswith(f"[Auto-compacted summary]\n{SUMMARY}\n")
    assert whole(found.messages)


@given(conversations(), st.integers(0, 8), st.sampled_from([0.0, 0.1, 0.25, 1.0]), st.floats(0.5, 2.0))
def test_the_promises_hold(messages: list[p.Message], keep: int, most: float, scale: float) -> None:
    """I1, I2, I6, I8, I10 and DAS-28: the bounds of the tail."""
    plan = filled(messages, scale=scale, keep_last=[TAG])
    asking = summarizer(keep=keep, max_share=most)(plan)
    if not isinstance(asking, SummaryRequest):
        assert asking is plan
        return
    found = asking.apply("ok")
    known = preserved(plan)
    at = next(place for place, item in enumerate(found.items) if item.origin is None)
    origins = [item.origin for item in found.items if item.origin is not None]
    assert sum(item.origin is None for item in found.items) == 1
    assert origins == sorted(set(origins)), "in order"
    assert all(plan.items[item.origin] is item for item in found.items if item.origin is not None), "byte for byte"
    assert all(known.removable(place) for place in range(len(plan.items)) if place not in origins)
    assert whole(found.messages)
    assert found.tokens <= plan.tokens
    assert found.sum < plan.sum
    tail = found.items[at + 1 :]
    assert [item.origin for item in tail] == list(range(len(plan.items) - len(tail), len(plan.items)))
    answers = [part for part in rounds(plan.items) if isinstance(plan.items[part[0]].message, p.AssistantMessage)]
    least = len(plan.items) - rounds(plan.items)[-1][0]
    if answers and answers[-1][1] - answers[-1][0] > 1:  # nobody has seen these results
        least = max(least, len(plan.items) - answers[-1][0])
    if len(tail) > least:
        assert len(tail) <= keep
        assert plan.scaled(sum(item.tokens for item in tail)) <= most * plan.capacity
    assert len(tail) >= least


@given(conversations())
@pytest.mark.row("KAI-08")
def test_summing_up_again_changes_nothing(messages: list[p.Message]) -> None:
    plan = filled(messages, 1.0)
    once, questions = driven(plan, AUTO, "ok")
    assume(questions)
    if once.plan.tokens < AUTO.trigger(plan.capacity):
        again, none = driven(once.plan, AUTO, "must not be asked")
        assert again.plan is once.plan
        assert none == []
    else:  # what may not be touched is too heavy: one summary is not summed up over and over
        assert summarizer()(once.plan) is once.plan


@given(conversations(), st.sampled_from([0.9, 1.0, 1.5, 4.0]), st.sampled_from(["ok", "", OVERFLOW]))
@pytest.mark.row("KAI-05")
@pytest.mark.row("KAI-06")
def test_the_promises_hold_among_the_other_stages(
    messages: list[p.Message], share: float, answer: str | Exception
) -> None:
    plan = filled(messages, share)
    known = preserved(plan)
    found, _ = driven(plan, pipeline(summarizer()), answer)
    alone = [item for at, item in enumerate(plan.items) if known.untouchable[at]]
    assert [item for item in found.plan.items if item in alone] == alone
    assert known.task is None or known.task in [item.origin for item in found.plan.items]
    assert whole(found.plan.messages)
    assert found.plan is plan or found.plan.sum < plan.sum
    assert {each.stage for each in found.failures} <= {"auto"}


def test_results_that_the_model_has_not_seen_stay_behind_the_summary() -> None:
    messages = [*one_task(8), p.user("stop that", id="u1"), p.user("at once", id="u2")]
    found = question(filled(messages), summarizer(keep=0, max_share=0)).apply(SUMMARY)
    assert [message.id for message in found.messages] == ["u0", None, "a7", "rc00070000", "u1", "u2"]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [p.user("hi")],
        [p.user("task" * 500), p.assistant("done")],
        [p.user("task"), *asked(0), *asked(1), p.assistant("x" * 90_000), p.user("go on")][:6],
        [p.user("u" * 9000, verbatim=True) for _ in range(9)],
        [p.user("task"), *[p.assistant(reasoning="r" * 3000) for _ in range(9)]],
    ],
    ids=["nothing", "one message", "one turn", "within the tail", "all verbatim", "nothing to read"],
)
def test_where_nothing_can_be_cut_the_plan_comes_back(messages: list[p.Message]) -> None:
    plan = filled(messages)
    assert summarizer(max_share=1.0)(plan) is plan


def test_too_little_is_not_worth_asking() -> None:
    rest = [p.assistant("x" * 60_000), p.user("y")]
    for size in (1, 1000):
        messages = [p.user("task"), p.assistant("a" * size), p.assistant("b" * size), *rest]
        plan = filled(messages)
        assert summarizer(keep=2, max_share=1.0)(plan) is plan
        assert summarizer(keep=1, max_share=1.0)(plan) is not plan


@pytest.mark.parametrize(("scale", "stays"), [(0.5, 5), (1.0, 2), (2.0, 1)])
def test_the_tail_is_weighed_in_the_tokens_of_the_provider(scale: float, stays: int) -> None:
    messages = [p.user("task"), *[p.assistant("a" * 350) for _ in range(20)]]
    plan = plan_of(messages, capacity=1000, scale=scale)
    found = question(plan, summarizer(keep=5)).apply(SUMMARY)
    assert len(found.items) == 2 + stays


@pytest.mark.parametrize(
    "wrong", [{"keep": -1}, {"max_share": -0.1}, {"max_share": 1.1}, {"max_share": math.nan}, {"capacity": 0}]
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match=next(iter(wrong))):
        summarizer(**wrong)


# -- the question ----------------------------------------------------------------------------------


def test_the_question() -> None:
    request = question(filled(one_task(400))).request
    assert isinstance(request.messages[0], p.SystemMessage)
    assert isinstance(request.messages[1], p.UserMessage)
    assert len(request.messages) == 2
    assert request.tools == ()
    assert request.model is None
    assert request.settings.temperature == 0.3
    text = request.messages[1].text
    assert "User (kept): Mend the parser" in text
    assert 'Assistant: step 0\n  Called: read({"path":"/a/c0000' in text
    assert "Tool result: [read] XXX" in text
    assert "thought" not in text
    assert "step 399" not in text, "it stays, and is not told"
    assert text.endswith("and nothing else.")


@pytest.mark.parametrize(("capacity", "most"), [(400_000, 20_480), (40_000, 10_000), (100, 1024)])
def test_the_answer_has_room(capacity: int, most: int) -> None:
    asking = question(filled(one_task(100)), summarizer(capacity=capacity))
    assert asking.request.settings == Settings(max_tokens=most, temperature=0.3)
    assert question(filled(one_task()), summarizer(settings=Settings(max_tokens=500))).request.settings == Settings(
        max_tokens=500
    )


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("capacity", [8_000, 32_768])
def test_the_question_fits_the_model_that_is_asked(capacity: int, scale: float) -> None:
    messages = [p.user("task"), *[p.assistant("é" * 9000) for _ in range(90)], p.user("go on")]
    plan = filled(messages, scale=scale)
    request = question(plan, summarizer(capacity=capacity)).request
    asked_for = plan_of(request.messages, capacity=1, scale=scale).tokens + (request.settings.max_tokens or 0)
    assert capacity // 2 < asked_for <= capacity * 1.02


def test_an_earlier_summary_is_summed_up_and_replaced() -> None:
    first = question(filled(one_task())).apply("The first summary.")
    more = [*first.messages, *[each for number in range(20, 30) for each in asked(number)]]
    asking = question(filled(more))
    assert "Earlier summary: The first summary.\n\n" in shown(asking)
    assert "[Auto-compacted" not in shown(asking)
    assert "read back" not in shown(asking)
    found = asking.apply("The second.")
    assert [message.text[:38] for message in found.messages if message.is_summary] == [
        "[Auto-compacted summary]\nThe second.\n\n"
    ]


def test_asking_about_less_leaves_out_the_oldest_but_not_what_people_said() -> None:
    messages = [p.user("old", source="compaction"), *one_task(20)]
    asking = question(filled(messages))
    less = asking.shorter()
    assert less is not None
    assert "step 0\n" in shown(asking)
    assert "step 0\n" not in shown(less)
    assert "Earlier summary: old" in shown(less)
    assert "User (kept): Mend" in shown(less)
    assert "[6 earlier messages are left out here]" in shown(less)  # a fifth of 34
    assert less.apply(SUMMARY) == asking.apply(SUMMARY), "what is replaced is the same"


def test_what_was_shortened_already_is_asked_in_less_room() -> None:
    messages = [p.user("task"), *[p.assistant("a" * 9000) for _ in range(170)], p.user("go on")]
    asking = question(filled(messages), summarizer(capacity=30_000))
    less = asking.shorter()
    assert less is not None
    assert 0.4 * len(shown(asking)) < len(shown(less)) < 0.82 * len(shown(asking))


@given(conversations(), st.sampled_from([None, 3000]))
def test_asking_about_less_ends_and_always_sends_less(messages: list[p.Message], capacity: int | None) -> None:
    asking = summarizer(capacity=capacity)(filled(messages))
    assume(isinstance(asking, SummaryRequest))
    while isinstance(asking, SummaryRequest):
        less = asking.shorter()
        assert less is None or len(shown(less)) < len(shown(asking))
        asking = less


# -- the answer ------------------------------------------------------------------------------------


def test_the_summary_tells_what_it_stands_for() -> None:
    plan = filled(one_task(6), scale=2.0)
    found = question(plan, summarizer(max_share=1.0)).apply(SUMMARY)
    message = found.messages[1]
    assert isinstance(message, p.UserMessage)
    assert (message.mode, message.source, message.is_summary) == ("tool", "compaction", True)
    gone = plan.items[1:7]
    assert message.payload == {
        "compaction": {
            "stage": "auto",
            "replaces": [item.message.id for item in gone],
            "messages": 6,
            "tokens": 2 * sum(item.tokens for item in gone),
        }
    }
    assert [(change.stage, change.messages) for change in found.changes] == [("auto", 6)]
    json.dumps(message.payload)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (f"  {SUMMARY}\n", SUMMARY),
        (f"<think>\nLet me see.\n</think>\n\n{SUMMARY}", SUMMARY),
        (f"<think>a</think><think>b</think>{SUMMARY}", SUMMARY),
        (f"[THINK]a[/THINK]{SUMMARY}", SUMMARY),
        ("The tag <think> was never closed.", "The tag <think> was never closed."),
        ("Uses <think>a</think>", "Uses <think>a</think>"),
        ("Text with </think> inside.", "Text with </think> inside."),
        ("要約", "要約"),
    ],
)
def test_only_reasoning_before_the_summary_is_taken_off(answer: str, text: str) -> None:
    found = question(filled(one_task())).apply(answer)
    assert found.messages[1].text.startswith(f"[Auto-compacted summary]\n{text}\n\n[")


NOTHING = {
    "empty": "",
    "blank": " \n\t\u2003",
    "think-only": "<think>All is clear.</think>",
    "think-only, unclosed": "<think>All is clea",
    "think-only, opened by the prompt": "All is clear.\n</think>\n",
    "zero width": "\u200b\ufeff",
    "no word": "...\n```\n```",
    "headings": "## Goal\n\n## Progress\n- (none)\n\n## Notes\nN/A",
}


@pytest.mark.row("KAI-09")
@pytest.mark.row("DAS-28")
@pytest.mark.parametrize("answer", NOTHING.values(), ids=NOTHING)
def test_an_answer_that_says_nothing_changes_nothing(answer: str) -> None:
    plan = filled(one_task())
    found, questions = driven(plan, AUTO, answer)
    assert found.plan is plan
    assert len(questions) == 1
    assert [(each.stage, type(each.error)) for each in found.failures] == [("auto", SummaryError)]


@pytest.mark.row("KAI-09")
@pytest.mark.row("DAS-28")
@pytest.mark.parametrize(
    "error", [OverloadedError("w", "busy"), TransportError("reset"), SummaryError("cut off"), RuntimeError("a defect")]
)
def test_a_model_that_fails_changes_nothing(error: Exception) -> None:
    plan = filled(one_task())
    found, _ = driven(plan, AUTO, error)
    assert found.plan is plan
    assert [each.error for each in found.failures] == [error]


@pytest.mark.row("KAI-09")
def test_an_answer_that_is_longer_than_what_it_replaces_changes_nothing() -> None:
    plan = filled(one_task())
    gone = sum(item.tokens for item in plan.items[1:-6])
    found, _ = driven(plan, AUTO, "word " * gone)
    assert found.plan is plan
    assert isinstance(found.failures[0].error, SummaryError)
    assert "not shorter than the 18 messages" in str(found.failures[0].error)


@pytest.mark.row("KAI-09")
@pytest.mark.conflict("D13")
def test_a_prompt_that_is_too_long_is_asked_again_about_less_three_times() -> None:
    plan = filled(one_task(40))
    found, questions = driven(plan, AUTO, OVERFLOW)
    assert found.plan is plan
    assert [each.error for each in found.failures] == [OVERFLOW]
    lengths = [len(shown(each)) for each in questions]
    assert len(lengths) == 4
    assert lengths == sorted(set(lengths), reverse=True)
    found, questions = driven(plan, AUTO, OVERFLOW, OVERFLOW, SUMMARY)
    assert len(questions) == 3
    assert found.failures == ()
    assert found.fits


@pytest.mark.row("KAI-09")
@pytest.mark.conflict("D5")
def test_the_third_failed_summary_opens_the_breaker() -> None:
    plan, breaker = filled(one_task()), Breaker()
    for now, answer in enumerate(["", OverloadedError("w", "busy"), "<think>x</think>"]):
        assert breaker.allows(now)
        failures = driven(plan, AUTO, answer)[0].failures
        breaker = breaker.failed(now) if failures else breaker.succeeded()
    assert not breaker.allows(3)
    assert breaker.allows(32)


@pytest.mark.parametrize("reason", ["length", "content_filter", "refusal", "error", "pause", "tool_calls"])
def test_half_a_summary_is_none(reason: Any) -> None:
    with pytest.raises(SummaryError, match=reason):
        summary_of(p.assistant(SUMMARY, finish_reason=reason))


@pytest.mark.parametrize("reason", [None, "stop", "other"])
def test_a_whole_summary_is_its_text(reason: Any) -> None:
    assert summary_of(p.assistant("a", "b", reasoning="r", finish_reason=reason)) == "ab"


# -- on the wire -----------------------------------------------------------------------------------


@pytest.mark.row("KAI-07")
@pytest.mark.conflict("D3")
@pytest.mark.parametrize("target", TARGETS)
def test_the_summary_is_in_the_body_of_every_wire(target: str) -> None:
    rest = one_task()
    for head in ([], [p.system("Be brief.")], [p.system("Be brief."), p.developer("In English.")]):
        messages = [*head, *rest[: len(rest) // 2], p.system("A notice."), *rest[len(rest) // 2 :]]
        found = question(filled(messages)).apply("The words of the summary.")
        request = p.Request(messages=found.messages, model="some-model", tools=TOOLS)
        wire = wires.get(target)
        encoder = wire.request_encoder(p.Request(model="some-model", tools=TOOLS))
        encoder.append(*found.messages)
        for body in (wire.encode_request(request).body, b"".join(encoder.chunks())):
            assert b"The words of the summary." in body
            assert b"Mend the parser in" in body
            assert body.count(b"Be brief.") == len(head[:1])
            assert rules.check_request(target.partition(":")[0], body, target.partition(":")[2] or None) == []


@pytest.mark.row("KAI-07")
@pytest.mark.row("KAI-06")
@settings(max_examples=examples(30))
@given(messages=conversations())
@over("target", TARGETS)
def test_a_conversation_that_was_summed_up_goes_to_every_wire(target: str, messages: list[p.Message]) -> None:
    asking = summarizer()(filled(messages))
    assume(isinstance(asking, SummaryRequest))
    assert isinstance(asking, SummaryRequest)
    for request in (asking.request, p.Request(messages=asking.apply("Sumtoken.").messages, tools=TOOLS)):
        body = wires.get(target).encode_request(request.replace(model="some-model")).body
        assert rules.check_request(target.partition(":")[0], body, target.partition(":")[2] or None) == []
        assert request is asking.request or b"Sumtoken." in body


@pytest.mark.row("KAI-06")
@settings(max_examples=20)
@given(history=histories(), keep=st.integers(0, 6))
@over("target", TARGETS)
def test_so_does_any_history(target: str, history: tuple[p.Message, ...], keep: int) -> None:
    """Broken pairs, odd ids and parts of every kind, before the cut and behind it."""
    sent = [message for message in history if not isinstance(message, p.RescueMarker | p.FlushMarker)]
    plan = filled([p.user("task"), p.assistant("x" * 4000), p.assistant("y" * 4000), *sent, p.user("go on")])
    asking = question(plan, summarizer(keep=keep))
    found = asking.apply("Sumtoken.")
    for messages in (asking.request.messages, found.messages):
        request = p.Request(messages=messages, tools=TOOLS, model="some-model")
        body = wires.get(target).encode_request(request).body
        assert rules.check_request(target.partition(":")[0], body, target.partition(":")[2] or None) == []
    assert b"Sumtoken." in body


def test_a_stage_has_its_own_name() -> None:
    plan = filled(one_task())
    found, _ = driven(plan, Stage("mine", summarizer("mine"), share=0.5), SUMMARY)
    assert found.plan.changes[0].stage == "mine"
    assert found.plan.messages[1].payload["compaction"]["stage"] == "mine"
