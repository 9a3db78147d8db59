"""Reasoning split off a whole text."""

import pytest
from hypothesis import given, strategies as st

from palaver.stream import local


@pytest.mark.row("DAS-04")
@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("Just an answer.", None, "Just an answer."),
        ("<think>why</think>The answer.", "why", "The answer."),
        ("<think>\n why \n</think>\n\nThe answer.\n", "why", "The answer."),
        ("<think>one</think>A<think>two</think>B", "one\n\ntwo", "AB"),
        ("before <think>x</think> after", "x", "before  after"),
        ("<think></think>The answer.", None, "The answer."),
        ("<think> \n </think>The answer.", None, "The answer."),
        ("The answer<think>never closed", "never closed", "The answer"),
        ("", None, ""),
        ("<think>all of it", "all of it", ""),
        ("<think>a<think>b</think>c</think>", "a<think>b", "c</think>"),
        ("<Think>x</Think>", None, "<Think>x</Think>"),
        ("</think>x", None, "</think>x"),
        ("<think>a</think> <think> </think> <think>b", "a\n\nb", ""),
    ],
)
def test_thinking_is_split_off(text, reasoning, answer):
    assert local.split_thinking(text) == (reasoning, answer)


@given(st.lists(st.sampled_from(["<think>", "</think>", "a", "b", " ", "\n", "<thin"]), max_size=20).map("".join))
def test_splitting_loses_nothing_but_tags_and_space(text):
    reasoning, answer = local.split_thinking(text)
    kept = (reasoning or "") + answer

    def letters(source):
        return sorted(source.replace("<think>", "").replace("</think>", "").replace("<thin", "c").split())

    assert sorted("".join(letters(kept))) == sorted("".join(letters(text)))
