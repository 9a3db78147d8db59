"""What a single agent's model sees."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.core.errors import StoreError
from palaver.threads import DISCARDED, PLACEHOLDER, ModelView, Thread, for_model
from tests.threads.logs import KEEPS, logs, path_of


def _reference(log: tuple[p.Message, ...], keep: int | None) -> list[p.Message]:
    seen: list[p.Message] = []
    for at, each in enumerate(log):
        if not isinstance(each, (p.RescueMarker, p.FlushMarker)):
            seen.append(each)
            continue
        scope = each.scope or ("turn" if each.role == "rescue" else "thread")
        if scope != "agent":
            turns = [i for i in range(at) if log[i].role == "user" and log[i].mode != "tool"]
            gone = log[turns[-1] if turns and scope == "turn" else 0 : at]
            seen = [message for message in seen if all(message is not other for other in gone)]
    seen = [each for each in seen if not {DISCARDED, PLACEHOLDER} & set(each.tags)]
    if keep is None:
        return seen
    outside = {"system", "developer"}
    tail = [i for i, each in enumerate(seen) if each.role not in outside]
    tail = tail[len(tail) - keep :] if 0 < keep < len(tail) else tail if keep else []
    asked = [each for each in log if each.role == "user" and each.mode != "tool"][-1:] if keep else []
    tail = sorted({*tail, *(i for i, each in enumerate(seen) if any(each is one for one in asked))})
    left = [each for i, each in enumerate(seen) if each.role in outside or i in tail]
    out: list[p.Message] = []
    for each in left:
        called = {call.id for one in out for call in (*one.tool_calls, *one.malformed_tool_calls)}
        if not isinstance(each, p.ToolMessage) or each.tool_call_id in {None, *called}:
            out.append(each)
    return out


@given(log=logs(), keep=st.sampled_from(KEEPS))
def test_the_view_is_that_of_the_reference(log: Any, keep: Any):
    path = path_of(*log)
    assert list(for_model(path, keep=keep)) == _reference([e.message for e in path], keep)


def test_a_window_holds_pairs_whole_and_system_messages_always():
    log = (
        p.system("s"),
        p.user("1"),
        p.assistant(tool_calls=[p.tool_call("f", id="c1"), p.tool_call("f", id="c2")]),
        p.tool("r1", tool_call_id="c1"),
        p.developer("d"),
        p.tool("r2", tool_call_id="c2"),
        p.tool("free"),
        p.user("2"),
    )
    views = {keep: [each.text for each in for_model(path_of(*log), keep=keep)] for keep in (0, 1, 2, 3, 4, 5, 9)}
    assert views[0] == ["s", "d"]
    assert views[1] == ["s", "d", "2"]
    assert views[2] == ["s", "d", "free", "2"]
    assert views[3] == ["s", "d", "free", "2"]
    assert views[4] == ["s", "d", "free", "2"]
    assert views[5] == ["s", "", "r1", "d", "r2", "free", "2"]
    assert views[9] == ["s", "1", "", "r1", "d", "r2", "free", "2"]


@pytest.mark.finding("F-43")
def test_the_last_question_stays_in_its_place_before_a_window_behind_it():
    calls = [p.assistant(tool_calls=[p.tool_call("f", id=f"c{n}")]) for n in range(3)]
    pairs = [each for n, call in enumerate(calls) for each in (call, p.tool(f"r{n}", tool_call_id=f"c{n}"))]
    log = (p.user("old"), p.assistant("answer"), p.system("s"), p.user("question"), p.developer("d"), *pairs)
    texts = {keep: [each.text for each in for_model(path_of(*log), keep=keep)] for keep in (0, 2, 4, 7)}
    assert texts[0] == ["s", "d"]
    assert texts[2] == ["s", "question", "d", "", "r2"]
    assert texts[4] == ["s", "question", "d", "", "r1", "", "r2"]
    assert texts[7] == ["s", "question", "d", "", "r0", "", "r1", "", "r2"]


def test_a_result_of_a_call_that_could_not_be_read_stays_beside_it():
    broken = p.assistant(p.MalformedToolCall("<f", "no end tag", "f", "c1"))
    log = (p.user("q"), broken, p.tool("try again", tool_call_id="c1"))
    assert [each.text for each in for_model(path_of(*log), keep=2)] == ["q", "", "try again"]
    assert [each.text for each in for_model(path_of(*log), keep=1)] == ["q"]


@pytest.mark.row("ASK-04")
def test_markers_hide_and_are_never_sent():
    log = (p.user("old"), p.flush(), p.user("1"), p.assistant("2"), p.user("bad"), p.assistant("worse"), p.rescue())
    assert [each.text for each in for_model(path_of(*log))] == ["1", "2"]
    assert [each.text for each in for_model(path_of(*log, p.flush(scope="agent", agent="a")))] == ["1", "2"]


def test_a_view_that_was_given_out_stays_as_it_was():
    view, thread = ModelView(), Thread()
    thread.append(p.user("1"), p.assistant("2"), p.user("bad"))
    before = view(thread.path())
    thread.append(p.rescue(), p.user("3"))
    after = view(thread.path())
    assert [each.text for each in before] == ["1", "2", "bad"]
    assert [each.text for each in after] == ["1", "2", "3"]


def test_a_window_cannot_be_negative():
    with pytest.raises(StoreError, match="keep"):
        ModelView(keep=-2)
