"""The stage ``shorten``: a message that fills a good part of the window keeps its head and its tail.

Rules (ours; docs/spec/kairo.md#3.7):

- Shortened is what weighs more than a quarter of the capacity: texts of users and answers, and results that the model
  has seen. So a single huge message can be compacted too, without a model.
- Nothing untouchable is. The first user message, the task, only where the plan cannot fit without: where all that must
  stay is more than the capacity.
- ``cut_results`` is for results alone, and cuts also those that the model has not seen: nothing else helps against one
  that fills the window. It is no part of a pipeline; somebody must ask for it.
- Texts are cut, and JSON that a tool gave becomes a cut text; of each a head and a tail stay, and a line between that
  says how many characters were left out. A result's line names its call, by which the whole can be read. Calls,
  reasoning and media stay, as do summaries, and texts of less than twice ``LEAST`` characters.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final, TypeVar

from palaver.context import labels
from palaver.context.changing import changed_with
from palaver.context.kept import Kept, kept
from palaver.context.plan import Item, Plan
from palaver.core.messages import AssistantMessage, ToolMessage, UserMessage
from palaver.core.parts import AnyPart, Json, Text, ToolPart
from palaver.tokens.estimate import estimate

CUT: Final = "cut_results"
SHARE: Final = 4
"""A message may weigh one part in so many of the capacity."""
LEAST: Final = 1_000
"""Characters that stay of a text at least."""

_P = TypeVar("_P", bound=AnyPart)
_Shortened = UserMessage | AssistantMessage | ToolMessage


def shorten(plan: Plan) -> Plan:
    """Cut the middle out of what is too large."""
    limit = _limit(plan)
    large = [place for place, item in enumerate(plan.items) if item.tokens > limit]
    if not large:
        return plan
    alone = kept(plan)
    items = list(plan.items)
    changed = 0
    for place in large:
        if alone.removable(place) or _too_large(plan, alone, place):
            shorter = _shorter(items[place], limit)
            if shorter is not None:
                items[place] = shorter
                changed += 1
    return plan.changed("shorten", items, changed)


def cut_results(plan: Plan) -> Plan:
    """Cut the middle out of results that are too large, also out of those that the model has not seen."""
    items = list(plan.items)
    changed = 0
    for place in oversized(plan):
        shorter = _shorter(items[place], _limit(plan), CUT)
        if shorter is not None:
            items[place] = shorter
            changed += 1
    return plan.changed(CUT, items, changed)


def oversized(plan: Plan) -> list[int]:
    """Places of results that ``cut_results`` would cut."""
    kinds = enumerate(plan.items)
    return [
        place
        for place, item in kinds
        if isinstance(item.message, ToolMessage) and not item.message.verbatim and item.tokens > _limit(plan)
    ]


def _limit(plan: Plan) -> int:
    """What a message may weigh, by estimate."""
    return int(plan.capacity / SHARE / plan.scale) if plan.scale > 0 else 0


def _too_large(plan: Plan, alone: Kept, place: int) -> bool:
    """Whether nothing else helps: what is not to be touched does not fit beside a task that stays."""
    if alone.untouchable[place]:
        return False
    stays = sum([item.tokens for item, held in zip(plan.items, alone.untouchable, strict=True) if held])
    return plan.weighing(stays + plan.items[place].tokens, sum(alone.untouchable) + 1) > plan.capacity


def _shorter(item: Item, limit: int, stage: str = "shorten") -> Item | None:
    """A message that weighs no more than the limit, or as near to that as it can; ``None`` where nothing is won."""
    message = item.message
    if not isinstance(message, _Shortened) or (message.is_summary and isinstance(message, UserMessage)):
        return None
    if not any(map(_is_long, message.content)):
        return None
    weight = estimate(message)
    wanted = limit / item.tokens
    best = item
    for share in (wanted, wanted * 0.7, wanted * 0.4, 0.0):
        cut = _with_share(message, share, stage)
        tokens = -(-item.tokens * estimate(cut) // weight)  # whatever counted them
        if tokens < best.tokens:
            best = Item(cut, tokens, item.origin)
        if tokens <= limit:
            break
    return None if best is item else best


def _with_share(message: _Shortened, share: float, stage: str) -> _Shortened:
    match message:
        case UserMessage():
            return changed_with(message, _halves(message.content, share), stage)
        case AssistantMessage():
            return changed_with(message, _halves(message.content, share), stage)
        case ToolMessage():
            content = tuple([_as_text(part) for part in message.content])
            return changed_with(message, _halves(content, share, message.tool_call_id), stage)


def _halves(content: tuple[_P, ...], share: float, call: str | None = None) -> tuple[_P | Text, ...]:
    """Content whose long texts keep a share of their characters."""
    return tuple([_cut(part, share, call) if isinstance(part, Text) and _is_long(part) else part for part in content])


def _cut(part: Text, share: float, call: str | None) -> Text:
    text = part.text
    stays = max(int(len(text) * share), LEAST)
    line = labels.left_out(len(text) - stays, call)
    stays = max(stays - len(line), 0)
    if stays + len(line) >= len(text):
        return part
    head = stays * 2 // 3
    tail = stays - head
    line = labels.left_out(len(text) - stays, call)
    return Text(text[:head] + line + text[len(text) - tail :], provider_json=part.provider_json)


def _is_long(part: AnyPart) -> bool:
    match part:
        case Text():
            return len(part.text) > 2 * LEAST
        case Json():
            return len(memoryview(part.value_json)) > 2 * LEAST
        case _:
            return False


def _as_text(part: ToolPart) -> ToolPart:
    """Long JSON as a text, which can be cut."""
    return Text(bytes(part.value_json).decode("utf-8", "replace")) if type(part) is Json and _is_long(part) else part
