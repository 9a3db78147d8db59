"""What a person reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

import palaver as p
from palaver.threads import DISCARDED, PLACEHOLDER, for_people
from tests.threads.logs import logs, path_of

SHOWN: dict[str, p.Message] = {
    "typed": p.user("x", mode="user"),
    "said by nobody in particular": p.user("x"),
    "an answer": p.assistant("x", mode="tool"),
    "a call": p.assistant(tool_calls=[p.tool_call("f", id="c")]),
    "a result": p.tool("x", tool_call_id="c"),
    "emitted": p.assistant("x", source="emit"),
    "a placeholder": p.assistant("Sorry?", tags=(PLACEHOLDER,)),
    "a rescue": p.rescue("bad"),
    "a flush": p.flush(),
}
HIDDEN: dict[str, p.Message] = {
    "system": p.system("x"),
    "developer": p.developer("x"),
    "the continuation of a tool": p.user("x", mode="tool"),
    "a note of the runtime": p.user("x", source="note"),
    "a discarded answer": p.assistant("x", tags=(DISCARDED,)),
    "a summary": p.assistant("x", source="summarization"),
}


@pytest.mark.conflict("C7")
@pytest.mark.parametrize("name", SHOWN)
def test_shown(name: str):
    assert len(for_people(path_of(SHOWN[name]))) == 1


@pytest.mark.conflict("C7")
@pytest.mark.parametrize("name", HIDDEN)
def test_hidden(name: str):
    assert len(for_people(path_of(HIDDEN[name]))) == 0


def test_markers_hide_nothing_from_people_and_the_order_is_kept():
    shown = (
        SHOWN["typed"],
        SHOWN["a call"],
        SHOWN["a rescue"],
        SHOWN["a result"],
        SHOWN["a flush"],
        SHOWN["an answer"],
    )
    path = path_of(shown[0], HIDDEN["system"], *shown[1:3], HIDDEN["a summary"], *shown[3:])
    assert list(for_people(path)) == [
        each.message for each in path if each.message not in (path[1].message, path[4].message)
    ]


@given(log=logs())
def test_the_view_is_a_selection_in_order(log: Any):
    path = path_of(*log)
    view = for_people(path)
    rest = iter([each.message for each in path])
    assert all(each in rest for each in view)
    assert {each.role for each in view} <= {"user", "assistant", "tool", "rescue", "flush"}
