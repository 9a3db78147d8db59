"""What compaction leaves alone, and what it keeps together.

Rules (docs/spec/kairo.md#3.7):

- ``untouchable`` messages come out of every stage as they went in, in the same order: those marked ``verbatim`` (I1),
  system and developer messages, the last message of each tag in ``Plan.keep_last``, and results that the model has not
  seen, with the answer that asked for them (I10).
- The first message of the user, which is the task, is never removed (I8), and neither is the last one, which is what
  is worked at (docs/spec/codebuff.md#9.4); where one alone is too long it may be shortened.
- In the open turn, behind the last user message, as long as the model has not given an answer without calls, the
  reasoning of what stays is left as it is (I10): providers refuse a tool turn whose proofs were changed.
- A ``round`` is an answer with the results of its calls; it is removed whole or not at all (I2). Every other message is
  a round of its own.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from palaver.context.plan import Item, Plan
from palaver.core.messages import AssistantMessage, DeveloperMessage, SystemMessage, ToolMessage, UserMessage


class Kept(NamedTuple):
    """Places in the items of a plan. ``task``: the first user message; ``prompt``: the last."""

    untouchable: bytearray
    """1 where a message is not to be touched."""
    task: int | None
    open_turn: int
    """Where the open turn begins; the number of items when no turn is open."""
    prompt: int | None = None

    def removable(self, place: int) -> bool:
        """Whether a message may be removed, or folded into another."""
        return not self.untouchable[place] and place not in (self.task, self.prompt)


def kept(plan: Plan) -> Kept:
    """What of a plan is to be left alone. Costs one pass."""
    items, tags = plan.items, plan.keep_last
    size = len(items)
    untouchable = bytearray(size)
    task: int | None = None
    user = -1
    last_answer = -1
    for place, item in enumerate(items):
        message = item.message
        if message.verbatim:
            untouchable[place] = 1
        kind = type(message)  # of a closed family: cheaper than isinstance
        if kind is AssistantMessage:
            last_answer = place
        elif kind is UserMessage:
            if message.mode != "tool" and not message.is_summary:
                user = place
                if task is None:
                    task = place
        elif kind is SystemMessage or kind is DeveloperMessage:
            untouchable[place] = 1
    seen_all = last_answer < 0 or not (
        last_answer < size - 1 and isinstance(items[last_answer + 1].message, ToolMessage)
    )
    open_turn = size
    if last_answer >= 0 and not seen_all:
        for place in range(last_answer, size):
            message = items[place].message
            if place == last_answer or isinstance(message, ToolMessage):
                untouchable[place] = 1
        open_turn = user + 1
    if tags:
        left = set(tags)
        for place in range(size - 1, -1, -1):
            found = left.intersection(items[place].message.tags)
            if found:
                untouchable[place] = 1
                left -= found
                if not left:
                    break
    return Kept(untouchable, task, open_turn, user if user >= 0 else None)


def rounds(items: Sequence[Item]) -> list[tuple[int, int]]:
    """The rounds, oldest first, each as the places where it begins and ends (behind its last message)."""
    starts = [place for place, item in enumerate(items) if type(item.message) is not ToolMessage or place == 0]
    return list(pairwise([*starts, len(items)]))
