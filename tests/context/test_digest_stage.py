import json

import pytest
from hypothesis import assume, given, settings, strategies as st

import palaver as p
from palaver.context import plan_of
from palaver.context.digest_stage import CONTINUE, PRUNE, Entry, Tools, is_memory, parse, prune
from palaver.testing.rules import WIRES, check_request
from palaver.wires import get
from tests.context.memories import IMAGE, assert_promises, plans, step, turns, words
from tests.folding import over

_ROOMS = st.sampled_from([0, 100, 500, 3_000, 200_000])
_BULK = "x" * 5_000


def _turn(number, prompt="then", answer="done", **fields):
    return (p.user(f"{prompt} {number}", **fields), *step(number, _BULK), p.assistant(f"{answer} {number}"))


def _plan(*groups, capacity=200_000, **fields):
    return plan_of([message for group in groups for message in group], capacity=capacity, **fields)


def _roles(plan):
    return [
        "memory" if is_memory(each) else "continue" if each.text == CONTINUE else f"{each.role} {each.text[:6]}".strip()
        for each in plan.messages
    ]


def _memory(plan):
    (found,) = [each for each in plan.messages if is_memory(each)]
    return found


def _told(plan):
    return [entry.text for entry in parse(_memory(plan))]


@pytest.mark.row("CBF-29")
def test_before_a_turn_the_live_prompt_and_the_instructions_stay():
    rules = [p.user("how to", tags=("INSTRUCTIONS_PROMPT",))]
    plan = _plan([p.system("rules")], _turn(0), rules, _turn(1), rules, [p.user("live")], [p.user("note", mode="tool")])
    after = prune(plan)
    assert _roles(after) == ["system rules", "user then 0", "memory", "user how to", "user live", "user note"]
    assert after.items[3].origin == plan.items.index(plan.items[-3])
    assert _told(after) == [
        "[ASSISTANT]\nCalled read_files: path: a.txt",
        "[ASSISTANT]\nProgress note:\ndone 0",
        "[USER]\nthen 1",
        "[ASSISTANT]\nCalled read_files: path: a.txt",
        "[ASSISTANT]\nProgress note:\ndone 1",
    ]


@pytest.mark.row("CBF-29")
def test_in_the_middle_of_a_turn_the_prompt_is_memory_and_the_unseen_results_stay():
    unseen = step(9, "new" * 900, text="look")
    plan = _plan(_turn(0), [p.user("live")], step(8, _BULK), unseen)
    after = prune(plan)
    assert _roles(after) == ["user then 0", "memory", "continue", "assistant look", "tool newnew"]
    assert after.messages[-2:] == unseen
    assert all(one is other for one, other in zip(after.messages[-2:], unseen, strict=True))
    assert _told(after)[-2] == "[USER]\nlive"


@pytest.mark.row("CBF-29")
@pytest.mark.parametrize("reason", ["length", "pause", "error"])
def test_a_turn_that_broke_off_ends_with_the_wish_to_continue(reason):
    plan = _plan(_turn(0), [p.user("live"), p.assistant("I be" + _BULK, finish_reason=reason)])
    assert _roles(prune(plan)) == ["user then 0", "memory", "continue"]


def test_a_turn_that_is_over_is_not_continued_and_a_note_behind_it_is():
    plan = _plan(_turn(0), _turn(1))
    assert _roles(prune(plan)) == ["user then 0", "memory"]
    noted = _plan(_turn(0), _turn(1), [p.user("go on", mode="tool")])
    assert _roles(prune(noted)) == ["user then 0", "memory", "continue", "user go on"]


def test_the_first_task_stays_also_when_it_is_the_live_prompt():
    plan = _plan([p.user("task")], step(0, _BULK), step(1, "new"))
    after = prune(plan)
    assert _roles(after) == ["user task", "memory", "continue", "assistant", "tool new"]
    assert "[USER]" not in _memory(after).text


@pytest.mark.row("CBF-29")
def test_the_memory_says_what_it_stands_for():
    plan = _plan(
        [message.replace(id=f"m{place}") for place, message in enumerate((*_turn(0), *_turn(1), p.user("live")))]
    )
    message = _memory(prune(plan))
    record = dict(message.payload["compaction"])
    record.pop("entries")
    folded = plan.items[1:-1]
    assert record == {
        "stage": "prune",
        "messages": 7,
        "tokens": sum(item.tokens for item in folded),
        "replaces": [f"m{place}" for place in range(1, 8)],
    }
    assert (message.source, message.role) == ("compaction", "user")
    assert message.text.startswith("<conversation_summary>\n")
    assert "\n\n<historical_memory>\n" in message.text
    assert "\n</historical_memory>\n</conversation_summary>\n\n" in message.text
    assert "\n\n---\n\n" in message.text


@pytest.mark.row("CBF-29")
def test_the_images_of_the_last_user_message_with_images_stay():
    other = p.Image(p.Url("https://example.com/b.png"))
    plan = _plan([p.user("task")], [p.user("a", IMAGE)], _turn(0), [p.user("b", other)], _turn(1), [p.user("live")])
    assert _memory(prune(plan)).images == (other,)
    again = _plan(prune(plan).messages, [p.assistant(_BULK)], _turn(2), [p.user("more")])
    assert _memory(prune(again)).images == (other,)
    seen = _plan([p.user("task")], [p.user("a", IMAGE)], _turn(0), [p.user("live", other)])
    assert _memory(prune(seen)).images == ()


@pytest.mark.row("CBF-29")
def test_a_memory_goes_into_the_next_with_all_its_entries():
    first = prune(_plan(_turn(0), _turn(1), [p.user("live")]))
    assert prune(first) is first
    second = prune(_plan(first.messages, step(5, _BULK), [p.assistant("done 2")], [p.user("next")]))
    assert _told(second)[: len(_told(first))] == _told(first)
    assert _told(second)[-1] == "[ASSISTANT]\nProgress note:\ndone 2"
    assert "[USER]\nlive" in _told(second)
    assert prune(second) is second


@pytest.mark.row("CBF-29")
def test_a_memory_that_a_user_wrote_is_attributed_to_the_user():
    forged = _memory(prune(_plan(_turn(0), _turn(1), [p.user("live")]))).text
    plan = _plan([p.user("task")], [p.user(forged)], _turn(1), [p.user("live")])
    assert f"[USER]\n{forged}" in _told(prune(plan))


@pytest.mark.row("CBF-29")
def test_the_newest_entry_stays_and_a_small_window_has_smaller_budgets():
    old = [message for number in range(40) for message in _turn(number, prompt=words(300), answer=words(300))]
    for capacity in (0, 1_000, 4_000, 200_000):
        plan = plan_of([*old, p.user("live")], capacity=capacity)
        after = prune(plan)
        assert _told(after)[-1].endswith("9")
        assert after.messages[0] is old[0]
        assert capacity < 1_000 or after.tokens <= capacity
    assert _told(prune(plan_of([*old, p.user("live")], capacity=200_000)))[0].startswith("[ASSISTANT]")


def test_names_of_tools_are_a_table():
    plan = _plan([p.user("task")], step(0, "wrote" + _BULK, name="save"), _turn(1), [p.user("live")])
    assert "[EDIT RESULT] save" not in _memory(prune(plan)).text
    assert "[EDIT RESULT] save\nwrote" in _memory(prune(plan, tools=Tools(edits=frozenset({"save"})))).text


def test_where_nothing_is_to_be_won_nothing_is_changed():
    for messages in ([], [p.user("a")], [p.user("a"), p.assistant("b")], [p.system("s"), *step(0, _BULK)]):
        plan = plan_of(messages, capacity=0)
        assert prune(plan) is plan


@pytest.mark.row("CBF-29")
@given(plans(_ROOMS))
def test_the_promises_hold_and_pruning_twice_is_pruning_once(plan):
    after = prune(plan)
    assert_promises(plan, after)
    assert prune(after) is after


@pytest.mark.row("CBF-29")
@given(turns(), turns(), _ROOMS)
def test_pruning_again_loses_no_newest_entry(first, later, capacity):
    once = prune(plan_of(first, capacity=capacity))
    assume(any(is_memory(each) for each in once.messages))
    before = parse(_memory(once))
    twice = prune(plan_of([*once.messages, *later], capacity=capacity))
    memories = [each for each in twice.messages if is_memory(each)]
    assert len(memories) == 1
    after = parse(memories[0])
    if capacity == 200_000:
        assert after[: len(before)] == before
    else:
        newest = [entry for entry in after if entry not in before]
        assert newest or before[-1] in after


@pytest.mark.row("CBF-29")
@given(plans(_ROOMS))
def test_the_live_prompt_stays_until_it_is_answered(plan):
    after = prune(plan)
    people = [
        item for item in plan.items if item.message.role == "user" and "INSTRUCTIONS_PROMPT" not in item.message.tags
    ]
    if people and plan.items.index(people[-1]) > max(
        (place for place, item in enumerate(plan.items) if item.message.role == "assistant"), default=-1
    ):
        assert people[-1] in after.items


@pytest.mark.row("CBF-29")
@settings(max_examples=15)
@given(plan=plans(st.just(200_000)))
@over("wire", sorted(WIRES))
def test_every_wire_can_send_it_and_carries_the_memory(wire, plan):
    after = prune(plan)
    assume(after is not plan)
    body = get(wire).encode_request(p.Request(messages=after.messages, model="m")).body
    assert check_request(wire, json.loads(body)) == []
    assert "<historical_memory>" in body.decode()


def test_the_stage_is_the_summary():
    plan = _plan(_turn(0), _turn(1), [p.user("live")])
    assert PRUNE.run(plan) == prune(plan)
    assert isinstance(parse(_memory(prune(plan)))[0], Entry)
