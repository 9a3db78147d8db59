"""What every stage promises, alone and with the others, for any conversation (docs/spec/kairo.md#3.7; law 9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver import wires
from palaver.context import Compacted, Ledger, Plan, Stage, compaction_flow, without_model
from palaver.context.compaction import pipeline
from palaver.context.labels import preserved
from palaver.context.rewrite import with_stage
from palaver.core.errors import StoreError
from palaver.core.pairs import Placed, whole
from palaver.testing import rules
from tests.context.conversations import planned, plans
from tests.corpus import Exchange
from tests.folding import over

STAGES = {stage.name: (stage,) for stage in pipeline()} | {"all": pipeline()}
each_stage = over("name", STAGES, STAGES)
"""All stages, for each conversation: to make a conversation takes longer than to compact it."""
_TARGETS = [*wires.names(), *(f"openai_chat:{name}" for name in wires.variants("openai_chat"))]


def _run(plan: Plan, stages: Sequence[Stage], goal: int | None = 0) -> Compacted:
    """The stages, all of them unless there is another goal."""
    return without_model(compaction_flow(plan, stages, goal=goal), StoreError("no model"))


def _forced(plan: Plan, name: str) -> Plan:
    done = _run(plan, STAGES[name])
    assert done.failures == ()
    return done.plan


@pytest.mark.law(9)
@pytest.mark.row("KAI-05")
@given(plan=plans())
@each_stage
def test_what_is_untouchable_is_there_in_order(name: str, plan: Plan) -> None:
    alone = preserved(plan)
    after = _forced(plan, name)
    found = iter(after.messages)
    for message, held in zip(plan.messages, alone.untouchable, strict=True):
        if held:
            assert any(each is message for each in found)


@pytest.mark.law(9)
@pytest.mark.row("KAI-06")
@given(plan=plans())
@each_stage
def test_pairs_stay_whole_and_results_stay_results(name: str, plan: Plan) -> None:
    after = _forced(plan, name)
    assert whole([Placed(place, message) for place, message in enumerate(after.messages)])
    before = {message.id: message for message in plan.messages}
    for message in after.messages:
        if isinstance(message, p.ToolMessage):
            old = before[message.id]
            assert message == old.replace(content=message.content, metadata_json=message.metadata_json)


@pytest.mark.law(9)
@pytest.mark.row("KAI-08")
@pytest.mark.finding("F-10")
@given(plan=plans())
@each_stage
def test_what_a_stage_wins_is_what_a_ledger_measures_less(name: str, plan: Plan) -> None:
    """The plan is not asked: another ledger, which knows nothing of it, measures what came out."""
    messages = plan.messages
    ledger = Ledger()
    before = ledger.measure(messages, fixed=50)
    after = _forced(ledger.plan(messages, before, capacity=plan.capacity, now=plan.now, keep_last=plan.keep_last), name)
    measured = Ledger().measure(after.messages, fixed=50)
    pictures = sum(isinstance(part, p.Image) for message in messages for part in message.content)
    assert abs(after.tokens - measured.tokens) <= 2 + pictures  # each is rounded by itself
    assert measured.tokens < before.tokens or after.messages == messages


@pytest.mark.law(9)
@given(plan=plans())
@each_stage
def test_what_comes_out_weighs_less_or_is_the_same(name: str, plan: Plan) -> None:
    after = _forced(plan, name)
    assert after is plan or after.sum < plan.sum
    assert after.sum == sum([item.tokens for item in after.items])
    assert min([item.tokens for item in after.items], default=0) >= 0
    if after is not plan:
        (*_, last) = after.changes
        assert (after.changes[0].before, last.after) == (plan.tokens, after.tokens)
        assert all(change.after < change.before or plan.scale < 1 for change in after.changes)
        assert all(change.messages > 0 for change in after.changes)


@pytest.mark.law(9)
@pytest.mark.row("KAI-08")
@given(plan=plans())
@each_stage
def test_a_second_time_changes_nothing(name: str, plan: Plan) -> None:
    once = _forced(plan, name)
    if name == "all":  # what a later stage made may be work for an earlier one, as long as the plan is too heavy
        assert _run(once, STAGES[name], goal=once.tokens).plan is once
    else:
        assert _forced(once, name).messages == once.messages


@pytest.mark.law(9)
@pytest.mark.row("KAI-10")
@given(plan=plans())
@each_stage
def test_the_task_survives(name: str, plan: Plan) -> None:
    task = preserved(plan).task
    if task is not None:
        assert plan.messages[task].id in [message.id for message in _forced(plan, name).messages]


@pytest.mark.law(9)
@pytest.mark.row("KAI-10")
@given(plan=plans())
@each_stage
def test_reasoning_of_the_open_turn_is_as_it_was(name: str, plan: Plan) -> None:
    begin = preserved(plan).open_turn
    thoughts = {
        message.id: [part for part in message.content if isinstance(part, p.Reasoning)]
        for message in plan.messages[begin:]
    }
    for message in _forced(plan, name).messages:
        if message.id in thoughts:
            assert [part for part in message.content if isinstance(part, p.Reasoning)] == thoughts[message.id]


@pytest.mark.law(9)
@given(plan=plans())
@each_stage
def test_order_and_origin_are_kept(name: str, plan: Plan) -> None:
    after = _forced(plan, name)
    origins = [item.origin for item in after.items if item.origin is not None]
    assert origins == sorted(set(origins))
    for item in after.items:
        if item.origin is None:
            assert item.message.source == "compaction"
        elif item.message is not plan.messages[item.origin]:
            old = plan.messages[item.origin]
            assert item.message.id == old.id
            stage = item.message.metadata["compaction"]
            assert stage in STAGES
            assert item.message == old.replace(
                content=item.message.content, metadata_json=with_stage(old.metadata_json, stage)
            )


@pytest.mark.row("KAI-08")
@given(plan=plans())
def test_a_stage_runs_only_while_the_plan_is_over_its_trigger(plan: Plan) -> None:
    ran: list[tuple[int, int]] = []

    def counted(stage: Stage) -> Stage:
        def run(given: Plan) -> Any:
            ran.append((given.tokens, stage.trigger(given.capacity)))
            return stage.run(given)

        return Stage(stage.name, run, stage.share, stage.buffer)

    done = _run(plan, [counted(stage) for stage in pipeline()], goal=None)
    assert all(weight >= trigger for weight, trigger in ran)
    if plan.tokens < min([stage.trigger(plan.capacity) for stage in pipeline()]):
        assert ran == []
        assert done.plan is plan


@pytest.mark.law(9)
@pytest.mark.row("KAI-06")
@given(plan=plans(), name=st.sampled_from([*STAGES]))
@over("target", _TARGETS, _TARGETS)
def test_every_wire_takes_what_comes_out(target: str, plan: Plan, name: str) -> None:
    wire, _, variant = target.partition(":")
    request = p.Request(messages=_forced(plan, name).messages, model="m", tools=(p.Tool.of("read", "Read.", {}),))
    body = wires.get(target).encode_request(request).body
    assert rules.check_request(wire, body, variant or None) == []


@pytest.mark.law(9)
@pytest.mark.row("KAI-06")
@pytest.mark.recorded(share=4)
def test_recorded_conversations_go_back_to_where_they_came_from(exchange: Exchange) -> None:
    """With all that a provider keeps beside its messages: item ids, proofs, forms of results."""
    wire = wires.get(exchange.wire)
    request = wire.decode_request(exchange.record["request"])
    plan = planned(request.messages, share=0.1)
    took = {str(each) for each in rules.check_request(exchange.wire, wire.encode_request(_edited(request, plan)).body)}
    for name in ("snip", "micro", "collapse", "all"):
        body = wire.encode_request(_edited(request, _forced(plan, name))).body
        assert {str(each) for each in rules.check_request(exchange.wire, body)} <= took, name


def _edited(request: p.Request, plan: Plan) -> p.Request:
    return request.replace(messages=(*plan.messages, p.user("next")))
