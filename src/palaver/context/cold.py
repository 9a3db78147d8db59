"""Whether a provider still has the prompt in its cache, and what that means for compaction.

Rules (docs/spec/codebuff.md#9.4; ours):

- A prompt is in the cache since it was last sent: the last answer tells when. What came after it, be it the results of
  its calls or the next prompt of the user, warmed nothing. ``idle`` is the time from that answer to ``Plan.now``, or to
  the last message where the plan has no time. Without an answer whose time is known there is nothing to be cold.
- A cache is cold when it was idle for more than its time to live, which is 5 minutes.
- When it is cold the prompt is paid for in full, compacted or not, so compacting now costs no cached prefix, and saves
  from now on: ``cold_stages`` then lets stages run from a share of the capacity on. What they do stays the same: one
  that stops when the plan fits, such as ``trim``, removes nothing before it has to.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import structs

from palaver.context.plan import Plan
from palaver.context.stages import Stage
from palaver.core.errors import MessageError
from palaver.core.messages import AssistantMessage

TTL: Final = 5 * 60 * 1000
"""Milliseconds that the cache of a provider keeps a prompt, as a rule."""


def idle(plan: Plan) -> int:
    """Milliseconds since the last answer; 0 when that is not known."""
    latest = plan.now
    for item in reversed(plan.items):
        sent = item.message.sent_at
        if sent is None:
            continue
        latest = latest or sent
        if isinstance(item.message, AssistantMessage):
            return max(latest - sent, 0)
    return 0


def is_cold(plan: Plan, ttl: int = TTL) -> bool:
    """Whether the cache of its prompt has expired."""
    return idle(plan) > ttl


def cold_stages(stages: Sequence[Stage], share: float = 0.5, *, ttl: int = TTL) -> tuple[Stage, ...]:
    """The stages, each of which also runs from a share of the capacity on while the cache is cold.

    Raises ``MessageError`` for a share that is none.
    """
    if not 0 < share <= 1:
        raise MessageError(f"share: expected a number above 0 and up to 1, got {share!r}")
    return tuple([structs.replace(stage, early=partial(_early, share, ttl, stage.early)) for stage in stages])


def _early(share: float, ttl: int, early: Callable[[Plan], bool] | None, plan: Plan) -> bool:
    if early is not None and early(plan):
        return True
    return plan.tokens >= int(share * plan.capacity) and is_cold(plan, ttl)
