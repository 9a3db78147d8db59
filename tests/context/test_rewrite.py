"""From a plan back to the thread: what stays, what follows, and how it is undone."""

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.context.plan import Change, Item, Plan, plan_of
from palaver.context.rewrite import is_record, plan_rewrite, plan_undo, record
from palaver.threads import DISCARDED, PLACEHOLDER, RECORD, Thread, for_model
from palaver.turn.journal import Depths, ReplayView
from tests.threads.logs import logs


def thread_of(*messages):
    thread = Thread("t")
    thread.append(*messages)
    return thread


def changed(plan, items):
    """The plan with other items, as a stage would give it."""
    return Plan(
        items=tuple(items),
        sum=sum(item.tokens for item in items),
        capacity=plan.capacity,
        changes=(Change("a stage", 1, 10, 5),),
    )


def without(plan, *places):
    return changed(plan, [item for place, item in enumerate(plan.items) if place not in places])


def carried_out(thread, change):
    path = thread.path()
    thread.rebase(change.messages, onto=path[change.kept - 1].id if change.kept else None, keep="before")


def test_nothing_changed_is_nothing_written():
    thread = thread_of(p.user("a"), p.assistant("b"))
    messages = for_model(thread.path())
    assert plan_rewrite(thread.path(), messages, plan_of(messages, capacity=9)) is None


def test_what_stands_before_the_first_change_is_shared():
    thread = thread_of(*[p.user(text) for text in "abcdef"])
    before = thread.path()
    messages = for_model(before)
    plan = plan_of(messages, capacity=9)
    summary = Item(p.user("c and d", source="compaction"), 1)
    change = plan_rewrite(before, messages, changed(plan, [*plan.items[:2], summary, *plan.items[4:]]))
    assert change is not None
    carried_out(thread, change)
    after = thread.path()
    assert [each.id for each in after[:2]] == [each.id for each in before[:2]]
    assert [each.text for each in for_model(after)] == ["a", "b", "c and d", "e", "f"]
    assert for_model(after)[3] is messages[4]
    assert thread.path("before").messages == before.messages


def test_records_and_texts_for_people_stay_behind_the_last_change_and_markers_do_not():
    hidden = [p.user("x", tags=[RECORD]), p.assistant("y", tags=[PLACEHOLDER]), p.assistant("z", tags=[DISCARDED])]
    thread = thread_of(
        p.user("old"), hidden[0], p.assistant("old"), p.user("new"), hidden[1], p.user("failed"), p.rescue("why"),
        p.user("last"), hidden[2],
    )  # fmt: skip
    messages = for_model(thread.path())
    assert [each.text for each in messages] == ["old", "old", "new", "last"]
    change = plan_rewrite(thread.path(), messages, without(plan_of(messages, capacity=9), 0, 1))
    assert change is not None
    assert change.kept == 0
    assert [each.text for each in change.messages[:-1]] == ["new", "y", "last", "z"]
    assert is_record(change.messages[-1])


def test_the_last_compaction_is_undone_first_and_what_was_said_since_stays():
    thread = thread_of(*[p.user(text) for text in "abcd"])
    for number in (1, 2):
        messages = for_model(thread.path())
        change = plan_rewrite(thread.path(), messages, without(plan_of(messages, capacity=9), 1))
        assert change is not None
        path = thread.path()
        thread.rebase(change.messages, onto=path[change.kept - 1].id if change.kept else None, keep=f"before {number}")
        thread.append(p.user(f"said {number}"))
    assert [each.text for each in for_model(thread.path())] == ["a", "d", "said 1", "said 2"]
    for expected in (["a", "c", "d", "said 1", "said 2"], ["a", "b", "c", "d", "said 1", "said 2"]):
        back = plan_undo(thread.path())
        assert back is not None
        thread.rebase(back.messages, onto=back.leaf, keep=f"undone {len(expected)}")
        assert [each.text for each in for_model(thread.path())] == expected
    assert plan_undo(thread.path()) is None


@pytest.mark.parametrize("payload", [None, 3, "x", {}, {"leaf": 3, "depth": "x"}, {"depth": None}])
def test_a_record_that_says_nonsense_is_read_without_harm(payload):
    thread = thread_of(p.user("a"), p.system("", source="compaction", tags=[RECORD], payload=payload))
    assert plan_undo(thread.path()) == (None, ())
    assert Depths().at(thread.path(), 1) == 1
    assert record(thread.path(), Plan(items=(), sum=0, capacity=1)).payload["depth"] == 2


@given(logs(), st.data())
def test_the_view_of_what_is_written_is_the_plan(log, data):
    thread = Thread("t")
    thread.append(*log)
    path = thread.path()
    messages = for_model(thread.path())
    plan = plan_of(messages, capacity=9)
    stays = data.draw(st.lists(st.booleans(), min_size=len(plan.items), max_size=len(plan.items)))
    items = [item for item, stay in zip(plan.items, stays, strict=True) if stay]
    if data.draw(st.booleans()):
        items.insert(data.draw(st.integers(0, len(items))), Item(p.user("sum", source="compaction"), 1))
    change = plan_rewrite(thread.path(), messages, changed(plan, items))
    assert change is not None
    carried_out(thread, change)
    seen = [each.replace(id=None, sent_at=None) for each in for_model(thread.path())]
    assert seen == [item.message.replace(id=None, sent_at=None) for item in items]
    assert thread.path("before").messages == path.messages


def test_no_two_entries_of_a_conversation_have_one_depth():
    thread, depths, seen = Thread("t"), Depths(), []
    for round_ in range(4):
        thread.append(p.user("u"), p.assistant("a"))
        seen.append(depths.at(thread.path(), len(thread.path()) - 1))
        assert Depths().at(thread.path(), len(thread.path()) - 1) == seen[-1]
        messages = for_model(thread.path())
        change = plan_rewrite(thread.path(), messages, without(plan_of(messages, capacity=9), 0))
        assert change is not None
        path = thread.path()
        thread.rebase(change.messages, onto=path[change.kept - 1].id if change.kept else None, keep=f"b{round_}")
    assert seen == sorted(set(seen))


@pytest.mark.finding("F-10")
def test_a_result_that_a_repair_moved_does_not_bring_back_what_was_removed():
    """What stands between the call and its late result was kept beside what stands for it, and read twice."""
    call = p.assistant(p.ToolCall("c", "f", "{}"))
    thread = thread_of(p.user("a"), call, p.user("b"), p.user("c"), p.tool("late", tool_call_id="c"), p.user("d"))
    messages = ReplayView()(thread.path())
    assert [each.text for each in messages] == ["a", "", "late", "b", "c", "d"]
    plan = plan_of(messages, capacity=9)
    note = Item(p.user("note", source="compaction"), 1)
    change = plan_rewrite(thread.path(), messages, changed(plan, [*plan.items[:3], note, plan.items[5]]))
    assert change is not None
    carried_out(thread, change)
    assert [each.text for each in ReplayView()(thread.path())] == ["a", "", "late", "note", "d"]
