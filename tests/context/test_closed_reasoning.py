"""What fills a window holds no reasoning that is not sent: that of turns that are over."""

from __future__ import annotations

import pytest

import palaver as p
from palaver.context.contents import contents
from palaver.threads.thread import Thread


def shares(*messages: p.Message) -> dict[str, object]:
    """The tokens and the number of each kind, and the largest messages."""
    thread = Thread()
    thread.append(*messages)
    found = contents(thread.path(), thread.path().messages)
    assert sum(each.tokens for each in found.kinds) == found.tokens
    kinds = {each.kind: (each.tokens, each.count) for each in found.kinds}
    return {**kinds, "largest": [(each.place, each.tokens) for each in found.largest]}


@pytest.mark.finding("F-10")
def test_reasoning_of_turns_that_are_over_has_no_share() -> None:
    thought = p.assistant(
        p.Reasoning("thinking " * 4_000, signature="s" * 90, wire="anthropic_messages"), "Well. " * 50
    )
    plain = p.assistant("Well. " * 50)
    closed = shares(p.user("Task " * 500), thought, p.user("And?"))
    assert closed == shares(p.user("Task " * 500), plain, p.user("And?"))
    opened = shares(p.user("Task " * 500), thought)
    assert "reasoning" in opened
    assert "reasoning" not in closed
