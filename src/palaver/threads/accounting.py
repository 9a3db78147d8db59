"""Usage totals of conversations, with each answer counted once.

Rules (docs/spec/dialects.md#0.4, #17.7):

- ``response_id`` identifies an answer, else its message id. Branches, forks and sub-agents share answers, and files
  repeat them; each counts once over all messages given.
- Of several reports of one answer, the one with the most generated tokens counts: reports grow while an answer streams.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.core.messages import AssistantMessage, Message
from palaver.core.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable


def usage_once(messages: Iterable[Message]) -> Usage:
    """The sum of what answers cost; of any number of threads, branches and files together."""
    largest: dict[object, Usage] = {}
    for place, message in enumerate(messages):
        if not isinstance(message, AssistantMessage) or message.usage is None:
            continue
        answer = message.response_id or message.id or place
        known = largest.get(answer)
        if known is None or _generated(message.usage) > _generated(known):
            largest[answer] = message.usage
    return sum(largest.values(), Usage())


def _generated(usage: Usage) -> int:
    return (usage.output or 0) + (usage.reasoning or 0)
