"""What conversations cost, each answer counted once.

Rules (docs/spec/dialects.md#0.4, #17.7):

- An answer is known by the provider's id of it (``response_id``), else by the id of its message. Branches share
  answers, forks and sub-agents repeat their parent's, and files report one answer several times: it counts once over
  all that is given.
- Where reports of one answer differ, the one with the most generated tokens counts: a report grows while the answer is
  written.

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
