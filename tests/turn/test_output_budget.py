"""Marks of an output budget: golden ``output_budget_parse``; docs/spec/kairo.md#D43."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from palaver.turn.limits import parse

GOLDEN = [
    ("+500k fix it", 500_000, "fix it"),
    ("refactor this +2m", 2_000_000, "refactor this"),
    ("refactor this +1.5M.", 1_500_000, "refactor this"),
    ("spend 2M tokens on it", 2_000_000, "on it"),
    ("use 1B tokens please", 1_000_000_000, "please"),
    ("a+5k", None, "a+5k"),
    ("no budget", None, "no budget"),
    ("please +3kg", None, "please +3kg"),
]
OURS = [
    ("+5k do it +2m", 2_000_000, "do it"),
    ("+5k spend 1k tokens doing it +2m +3m", 3_000_000, "doing it"),
    ("+5k use 1k tokens doing it", 5000, "doing it"),
    ("Please SPEND 1k tokens\n  here, and use 2k tokens.", 1000, "Please here, and"),
    ("+500k", 500_000, ""),
    ("", None, ""),
    ("  two\n\n  lines  +1K\n", 1000, "two\n\n  lines"),
    ("in the +5k middle", None, "in the +5k middle"),
    ("use use 1k tokens 2k tokens now", 1000, "now"),
    ("spend 2 tokens", None, "spend 2 tokens"),
    ("+.5k x", None, "+.5k x"),
    ("+1.2345k", 1234, ""),
    ("+٣k x", None, "+٣k x"),
]


@pytest.mark.row("KAI-29")
@pytest.mark.parametrize(("prompt", "tokens", "left"), GOLDEN + OURS)
def test_a_budget_is_read_and_stripped(prompt, tokens, left):
    assert parse(prompt) == (tokens, left)


words = st.sampled_from(["+5k", "+2m.", "spend", "use", "2M", "1k", "tokens", "tokens!", "do", "+3kg", "\n", " "])


@pytest.mark.row("KAI-29")
@given(st.lists(words).map(" ".join) | st.text())
def test_what_is_left_holds_no_budget(prompt):
    tokens, left = parse(prompt)
    assert parse(left) == (None, left)
    assert tokens is not None or left == prompt.strip()


def test_many_marks_cost_their_length():
    prompt = "+5k " * 200_000 + "use " * 200_000 + "1k tokens " * 200_000
    assert parse(prompt) == (5000, "")
