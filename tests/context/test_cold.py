import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.context import Stage, compaction_flow, due, plan_of, without_model
from palaver.context.compaction import CODEBUFF
from palaver.context.digest_stage import PRUNE
from palaver.context.marks import TTL, cold_stages, idle, is_cold
from palaver.core.errors import MessageError, PalaverError
from tests.context.memories import step, words

_MINUTE = 60_000


def _plan(*sent, now=0, capacity=10_000):
    roles = {"u": p.user, "a": p.assistant, "s": p.system}
    messages = [roles[role](words(100), sent_at=None if at is None else at * _MINUTE) for role, at in sent]
    return plan_of(messages, capacity=capacity, now=now * _MINUTE)


@pytest.mark.row("CBF-29")
@pytest.mark.parametrize(
    ("sent", "now", "minutes"),
    [
        ([], 9, 0),
        ([("u", 1)], 9, 0),
        ([("u", 1), ("a", 2), ("u", 7)], 0, 5),
        ([("u", 1), ("a", 2), ("u", 7)], 8, 6),
        ([("u", 1), ("a", 2), ("u", 7), ("a", 8)], 9, 1),
        ([("u", 1), ("a", 2), ("u", None)], 4, 2),
        ([("u", 1), ("a", 2), ("u", None)], 0, 0),
        ([("u", 1), ("a", 2), ("a", None), ("u", 9)], 0, 7),
        ([("u", 1), ("a", 5), ("u", 3)], 0, 0),
    ],
)
def test_idle_is_the_time_since_the_last_answer(sent, now, minutes):
    assert idle(_plan(*sent, now=now)) == minutes * _MINUTE


@pytest.mark.row("CBF-29")
@pytest.mark.parametrize(("gap", "cold"), [(TTL, False), (TTL + 1, True)])
def test_a_cache_is_cold_after_more_than_five_minutes(gap, cold):
    messages = [p.user("a", sent_at=1), p.assistant("b", sent_at=10), p.user("c", sent_at=10 + gap)]
    plan = plan_of(messages, capacity=1_000_000)
    assert is_cold(plan) is cold
    assert PRUNE.due(plan) is cold
    assert is_cold(plan, gap - 1)
    waiting = plan_of(messages[:2], capacity=1_000_000, now=10 + gap)
    assert is_cold(waiting) is cold


@pytest.mark.row("CBF-29")
@pytest.mark.parametrize(("room", "runs"), [(1_000, False), (999, True), (0, True)])
def test_the_summary_is_due_when_fewer_than_1000_tokens_are_left(room, runs):
    plan = _plan(("u", 1), ("a", 2), ("u", 3))
    full = plan_of(plan.messages, capacity=9_700 + room, fixed=9_400)
    assert full.tokens == 9_700
    assert due(full, [PRUNE]) is runs


def test_results_that_took_long_leave_the_cache_cold():
    late = step(0, "x", sent_at=9 * _MINUTE)
    messages = [p.user("go", sent_at=0), late[0].replace(sent_at=1), late[1]]
    assert is_cold(plan_of(messages, capacity=9))


@pytest.mark.parametrize(("tokens", "cold", "runs"), [(499, True, False), (500, True, True), (999, False, False)])
def test_stages_run_from_a_share_on_while_the_cache_is_cold(tokens, cold, runs):
    stage = Stage("it", lambda plan: plan, 1.0)
    messages = [p.user(words(100), sent_at=1), p.assistant(words(100), sent_at=2)]
    plan = plan_of(messages, capacity=1_000, fixed=tokens - 200, now=10 * _MINUTE if cold else 3)
    assert due(plan, cold_stages([stage])) is runs
    assert not due(plan, [stage])
    assert due(plan, cold_stages([stage], 0.1)) is cold


def test_another_reason_of_a_stage_and_its_own_trigger_stay():
    stage = Stage("it", lambda plan: plan, 0.5, early=lambda plan: plan.capacity == 77)
    (wrapped,) = cold_stages([stage])
    assert wrapped.due(plan_of([], capacity=77))
    assert wrapped.due(plan_of([], capacity=1_000, fixed=500))
    assert not wrapped.due(plan_of([], capacity=1_000))


def test_trim_removes_nothing_before_it_has_to_also_when_cold():
    messages = [p.assistant(words(100), sent_at=1) for _ in range(8)]
    plan = plan_of(messages, capacity=1_000, now=10 * _MINUTE)
    assert due(plan, cold_stages(CODEBUFF))
    assert without_model(compaction_flow(plan, cold_stages(CODEBUFF)), PalaverError("none")).plan is plan


@pytest.mark.parametrize("share", [0, -0.5, 1.01, float("nan"), float("inf")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(MessageError, match="share"):
        cold_stages([], share)


@given(st.lists(st.tuples(st.sampled_from("uas"), st.none() | st.integers(0, 99))), st.integers(0, 99))
def test_idle_is_never_negative(sent, now):
    assert idle(_plan(*sent, now=now)) >= 0
