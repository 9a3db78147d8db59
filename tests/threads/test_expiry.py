"""Messages that are there for a step or a prompt: docs/spec/codebuff.md#9.1, cell by cell."""

from __future__ import annotations

from typing import Any

import pytest

import palaver as p
from palaver.threads import expire
from palaver.threads.expiry import EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT

STAYS = [
    ((), "agent-step", True),
    ((), "user-prompt", True),
    ((EXPIRES_AGENT_STEP,), "agent-step", False),
    ((EXPIRES_AGENT_STEP,), "user-prompt", False),
    ((EXPIRES_USER_PROMPT,), "agent-step", True),
    ((EXPIRES_USER_PROMPT,), "user-prompt", False),
    ((EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT), "agent-step", False),
    ((EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT), "user-prompt", False),
]


@pytest.mark.parametrize(("tags", "end_of", "stays"), STAYS)
def test_a_message_stays_as_long_as_its_tags_say(tags: tuple[str, ...], end_of: Any, stays: bool) -> None:
    first, last = p.user("first"), p.assistant("last").replace(tags=("other",))
    messages = [first, p.system("here for a while").replace(tags=("other", *tags)), last]
    left = expire(messages, end_of)
    assert list(left) == (messages if stays else [first, last])
    assert (left is messages) == stays


def test_the_tags_are_those_that_are_stored() -> None:
    assert (EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT) == ("expires:agent-step", "expires:user-prompt")
