"""Literal tags in text that arrives in pieces."""

import pytest
from hypothesis import given, strategies as st

from palaver import MessageError
from palaver.stream.local.modes import Tags

TAGS = ("<think>", "</think>", "<tool_call>")


@pytest.mark.row("DAS-17")
@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("abc", ""),
        ("abc<", "<"),
        ("abc</", "</"),
        ("abc<t", "<t"),
        ("a<<thin", "<thin"),
        ("<think", "<think"),
        ("<tool_cal", "<tool_cal"),
        ("<tool_calx", ""),
        ("<THINK", ""),
        ("", ""),
    ],
)
def test_the_longest_text_that_may_become_a_tag_is_held(text, held):
    assert text[Tags(*TAGS).pending(text, 0) :] == held


def test_nothing_before_the_given_place_is_held():
    assert Tags("<think>").pending("<th", 1) == 3


def test_the_leftmost_tag_is_found():
    tags = Tags(*TAGS)
    assert tags.find("a<tool_call>b<think>", 0) == (1, "<tool_call>")
    assert tags.find("a<tool_call>b<think>", 2) == (13, "<think>")
    assert tags.find("a<Think>", 0) is None
    assert Tags().find("anything", 0) is None
    assert Tags().pending("anything", 0) == 8


@pytest.mark.parametrize("names", [("",), ("<a>", "x<a>y"), ("```", "```code"), ("", "a"), ("x" * 201,)])
def test_ambiguous_tags_are_refused(names):
    with pytest.raises(MessageError):
        Tags(*names)


@given(st.text("<>/thinkool_cal", max_size=40), st.integers(0, 40))
def test_what_is_held_is_a_proper_beginning_of_a_tag_and_nothing_longer_is(text, at):
    tags = Tags(*TAGS)
    start = tags.pending(text, at)
    assert start == len(text) or any(tag.startswith(text[start:]) and tag != text[start:] for tag in TAGS)
    for earlier in range(at, start):
        assert not any(tag != text[earlier:] and tag.startswith(text[earlier:]) for tag in TAGS)
