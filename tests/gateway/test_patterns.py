"""Patterns of names."""

import re

import pytest
from hypothesis import given, strategies as st

from palaver.gateway.patterns import LONGEST_NAME, match_pieces, matches


@given(st.text("*aAb-\n", max_size=8), st.text("aAb-\n", max_size=12))
def test_a_star_stands_for_any_text(pattern, name):
    expected = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL | re.IGNORECASE)
    assert matches([pattern], name) == (expected.fullmatch(name) is not None)
    exact = re.compile(expected.pattern, re.DOTALL)
    pieces = pattern.split("*")
    stars = match_pieces(pieces, name)
    assert (stars is not None) == (exact.fullmatch(name) is not None)
    if stars is not None:
        assert "".join([first + star for first, star in zip(pieces, (*stars, ""), strict=True)]) == name


@pytest.mark.parametrize("stars", [4, 60])
def test_no_name_makes_a_pattern_slow(stars):
    """With a search that tries again, this would take longer than the universe is old."""
    assert not matches(["*-" * stars + ":0"], "-" * LONGEST_NAME)


def test_no_pattern_matches_a_name_that_is_too_long():
    assert not matches(["*"], "x" * (LONGEST_NAME + 1))
    assert not matches([], "x")
