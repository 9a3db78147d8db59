"""A summary without a model: what can be told in few words becomes one message, and the turn goes on behind it.

Rules (docs/spec/codebuff.md#9.4; CBF-29):

- Everything becomes memory (``memory``) but for: untouchable messages (``kept``), the first task of the user (I8), the
  last message with the tag ``INSTRUCTIONS_PROMPT``, and what the model has not answered yet: the live prompt of the
  user and what is behind it or, in the middle of a turn, results that it has not seen with the answer that called for
  them (I10). Rounds go whole (I2). What stays keeps its order; the memory stands where the first message stood that it
  replaces.
- In the middle of a turn the live prompt is memory too (when it is not the first task), and a message that asks the
  model to continue stands behind the memory: last where all is memory, else before the results that the model has not
  seen. So both rules hold: nothing else is said to the model before it goes on, and an open turn is as it was. A turn
  that the model has ended with an answer is not continued.
- Images of the last user message that has any stay: with that message, or beside the memory that it went into.
- An earlier memory is read again and its entries take part in the budgets. Where there is nothing new to tell, nothing
  is changed (I9).
- The budgets are 50,000 tokens for what the user said and 20,000 for the rest; in a small window they share half of
  the room that is left, in the same proportion. No entry is longer than its budget.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from palaver.context import memory
from palaver.context.cold import is_cold
from palaver.context.kept import kept, rounds
from palaver.context.memory import Entry, Kind, Tools
from palaver.context.plan import SOURCE, Item, Plan
from palaver.context.stages import Stage
from palaver.context.standing import standing
from palaver.core.messages import AssistantMessage, ToolMessage, UserMessage
from palaver.core.parts import Image

INSTRUCTIONS: Final = "INSTRUCTIONS_PROMPT"
CONTINUE: Final = (
    "<system>Continue the existing assistant turn from where it left off. The user's request and the work so far are "
    "in the memory above; do not begin anew.</system>"
)

_UNFINISHED: Final = frozenset(("length", "pause", "error"))
_LEAST: Final = 100
_BUDGETS: Final[dict[Kind, int]] = {"user": memory.USER_TOKENS, "work": memory.WORK_TOKENS}


class _Turn(NamedTuple):
    """Where what the model has not answered begins, and whether a turn is to be continued there."""

    begins: int
    continued: bool


def prune(plan: Plan, *, tools: Tools = Tools()) -> Plan:  # noqa: B008 (frozen)
    """The plan with a memory in the place of what is behind the model; the same where that wins nothing."""
    turn = _turn(plan.items)
    stays = _stays(plan, turn)
    folded = [item for place, item in enumerate(plan.items) if not stays[place]]
    if all(item.message.source == SOURCE for item in folded):
        return plan  # nothing was said since the last time
    told = [entry for item in folded for entry in memory.entries(item.message, tools)]
    entries = _fitting(told, _budgets(plan, stays))
    if not entries:
        return plan
    images = _images(plan, stays)
    record = memory.lengths(entries)
    summary = standing(plan, memory.STAGE, memory.written(entries), folded, *images, entries=record)
    items: list[Item] = []
    for place, item in enumerate(plan.items):
        if place == stays.find(0):
            items.append(summary)
        if place == turn.begins and turn.continued:
            items.append(_continue(plan))
        if stays[place]:
            items.append(item)
    if turn.continued and turn.begins == len(plan.items):
        items.append(_continue(plan))
    return plan.changed(memory.STAGE, items, len(folded))


def _continue(plan: Plan) -> Item:
    return standing(plan, memory.CONTINUED, CONTINUE, ())


# -- what stays --------------------------------------------------------------------------------------------------------


def _turn(items: Sequence[Item]) -> _Turn:
    prompt = max([place for place, item in enumerate(items) if _is_prompt(item)], default=-1)
    answer = max([place for place, item in enumerate(items) if isinstance(item.message, AssistantMessage)], default=-1)
    if answer <= prompt:
        return _Turn(max(prompt, 0), continued=False)
    behind = answer + 1
    if behind < len(items):
        unseen = isinstance(items[behind].message, ToolMessage)
        return _Turn(answer if unseen else behind, continued=True)
    last = items[answer].message
    unfinished = isinstance(last, AssistantMessage) and last.finish_reason in _UNFINISHED
    return _Turn(behind, continued=unfinished)


def _is_prompt(item: Item) -> bool:
    """Whether a person said it, as far as messages tell that."""
    message = item.message
    if not isinstance(message, UserMessage) or message.mode == "tool" or message.is_summary:
        return False
    return INSTRUCTIONS not in message.tags


def _stays(plan: Plan, turn: _Turn) -> bytearray:
    """1 where a message stays as it is."""
    items = plan.items
    held = kept(plan)
    tagged = [place for place, item in enumerate(items) if INSTRUCTIONS in item.message.tags]
    stays = bytearray(len(items))
    for start, end in rounds(items):
        alone = (
            not any(held.untouchable[place] or place == held.task for place in range(start, end))
            and start not in tagged[-1:]
        )
        if not alone or start >= turn.begins:
            stays[start:end] = b"\1" * (end - start)
    return stays


def _images(plan: Plan, stays: bytearray) -> tuple[Image, ...]:
    """The images of the last user message that has any, if it does not stay."""
    for place in range(len(plan.items) - 1, -1, -1):
        message = plan.items[place].message
        if isinstance(message, UserMessage) and message.images:
            return () if stays[place] else message.images
    return ()


# -- what fits ---------------------------------------------------------------------------------------------------------


def _budgets(plan: Plan, stays: bytearray) -> dict[Kind, int]:
    """The budgets, in tokens; less where half of the room is less."""
    held = sum([item.tokens for place, item in enumerate(plan.items) if stays[place]])
    around = plan.fixed + round(plan.around * (sum(stays) + 1))
    room = max(int(plan.capacity / plan.scale) - around - held, 0)
    total = sum(_BUDGETS.values())
    return {kind: tokens * min(room // 2, total) // total for kind, tokens in _BUDGETS.items()}


def _fitting(told: Sequence[Entry], budgets: dict[Kind, int]) -> list[Entry]:
    """The entries that fit; none is longer than its budget."""
    short = [Entry(each.kind, memory.cut(each.text, max(budgets[each.kind] * 3, _LEAST))) for each in told]
    return memory.budgeted(short, budgets)


PRUNE: Final = Stage(memory.STAGE, prune, 1.0, 999, is_cold)
"""When fewer than 1,000 tokens are left, or when the prompt's cache is cold (docs/spec/codebuff.md#9.4)."""
