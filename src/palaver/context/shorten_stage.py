"""Stages that shorten results and messages, and remove whole rounds, oldest first.

Rules (docs/spec/codebuff.md#9.2, #9.3, #11; CBF-27, CBF-28; docs/spec/kairo.md#3.7):

- ``simplify`` keeps the 5 newest results of terminal tools; older ones keep only the command and its outcome.
  Background processes and errors are unchanged, and do not count among the 5.
- ``omit_large`` replaces an output of more than 1,000 characters by its size.
- ``trim`` removes rounds until the plan fits, and no more (Codebuff removes half of that, and calls without their
  results). Each run of removed messages becomes one placeholder, which absorbs placeholders of earlier trims.
- ``shorten`` (ours) cuts the middle out of messages that weigh more than a quarter of the capacity: texts of users and
  answers, and results that the model has seen.
- The first and the last prompt of a user are cut only when the plan cannot fit otherwise (``cuts_prompt``), and no
  further than they must: to what the other messages leave of seven eighths of the capacity, so that no model is
  asked for a summary at once. Two such prompts share that, and what the one does not need the other gets. When
  messages that can be removed leave less than a quarter of the capacity, a prompt keeps that quarter.
- ``cut_results`` also cuts results that the model has not seen. No pipeline contains it.
- A cut names the number of omitted characters, with those of an earlier cut, and for a result its call. Calls,
  reasoning, media, summaries and texts under twice ``MIN_RESULT`` stay. Preserved messages are never changed.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from palaver.context import labels
from palaver.context.labels import TERMINAL, Preserved, is_failed, objects, placeholder, preserved, record_of, rounds
from palaver.context.plan import Item, Plan
from palaver.context.rewrite import with_content
from palaver.core import canonical
from palaver.core.messages import AssistantMessage, ToolMessage, UserMessage
from palaver.core.parts import AnyPart, Json, Text, ToolPart
from palaver.tokens.estimate import estimate, estimate_text

# --- trimming ---------------------------------------------------------------------------------------------------------


NEWEST: Final = 5
"""Results of terminal tools that stay as they are."""
LARGE: Final = 1000
"""The most characters of an output."""
OMITTED: Final = "<system>Previous message(s) omitted due to length</system>"
LARGE_OMITTED: Final = "[LARGE_TOOL_RESULT_OMITTED]"

_WEIGHT: Final = estimate_text(OMITTED)


# -- shorter results ---------------------------------------------------------------------------------------------------


def simplify(plan: Plan, *, tools: Collection[str] = TERMINAL, newest: int = NEWEST) -> Plan:
    """Terminal results beyond the newest ones, as ``{command, message?, stdoutOmittedForLength, exitCode?}``."""
    left = newest
    older: set[int] = set()
    for place in range(len(plan.items) - 1, -1, -1):
        message = plan.items[place].message
        if isinstance(message, ToolMessage) and message.tool_name in tools and _may_be_simple(message):
            if left <= 0:
                older.add(place)
            left -= 1
    return _shorter(plan, "simplify", _simple, older) if older else plan


def _may_be_simple(message: ToolMessage) -> bool:
    return not is_failed(message) and not any("processId" in each for each in objects(message))


def _simple(message: ToolMessage) -> Sequence[ToolPart]:
    """Return the rest of a result; media and unknown blocks stay."""
    ran = next((each for each in objects(message) if isinstance(each.get("command"), str)), {"command": ""})
    fields = {"command": ran["command"]}
    if "message" in ran:
        fields["message"] = ran["message"]
    fields["stdoutOmittedForLength"] = True
    if "exitCode" in ran:
        fields["exitCode"] = ran["exitCode"]
    return (Json.of(fields), *[part for part in message.content if not isinstance(part, Text | Json)])


def omit_large(plan: Plan, *, limit: int = LARGE) -> Plan:
    """Outputs of more than ``limit`` characters, as ``{message, originalSize}``."""

    def small(message: ToolMessage) -> Sequence[ToolPart]:
        return [_omitted(size) if (size := _size(part)) > limit else part for part in message.content]

    return _shorter(plan, "omit_large", small)


def _omitted(size: int) -> Json:
    return Json.of({"message": LARGE_OMITTED, "originalSize": size})


def _size(part: ToolPart) -> int:
    match part:
        case Text():
            return len(part.text)
        case Json():
            return len(bytes(part.value_json).decode())
        case _:
            return len(canonical.encode(part).decode())


def _shorter(
    plan: Plan, stage: str, content: Callable[[ToolMessage], Sequence[ToolPart]], places: Collection[int] | None = None
) -> Plan:
    """Return the plan with other content in its results, where that is less."""
    untouchable = preserved(plan).untouchable
    items = list(plan.items)
    changed = 0
    for place, item in enumerate(plan.items):
        if (
            untouchable[place]
            or not isinstance(item.message, ToolMessage)
            or (places is not None and place not in places)
        ):
            continue
        message = with_content(item.message, tuple(content(item.message)), stage)
        tokens = estimate(message)
        if tokens < item.tokens:
            items[place] = Item(message, tokens, item.origin)
            changed += 1
    return plan.changed(stage, items, changed) if changed else plan


# -- fewer messages ----------------------------------------------------------------------------------------------------


def trim(plan: Plan) -> Plan:
    """Remove the oldest rounds, as many as are needed to fit; the same object when the plan fits."""
    if plan.tokens <= plan.capacity:
        return plan
    spans = list(_spans(plan))
    end = _enough(plan, spans)
    items: list[Item] = []
    run: list[Item] = []
    removed = 0
    for place, (span, removable) in enumerate(spans):
        if removable and (place < end or (run and _is_placeholder(span))):
            run += span
            continue
        removed += _close(plan, run, items)
        items += span
        run = []
    removed += _close(plan, run, items)
    return plan.changed("trim", items, removed)


def _spans(plan: Plan) -> Iterator[tuple[tuple[Item, ...], bool]]:
    """The rounds of a plan, and whether each may be removed."""
    held = preserved(plan)
    for start, end in rounds(plan.items):
        yield plan.items[start:end], all(held.removable(place) for place in range(start, end))


def _enough(plan: Plan, spans: Sequence[tuple[Sequence[Item], bool]]) -> int:
    """Return how many of the oldest removable rounds must go for the rest to fit."""
    before = gain = run = gone = 0
    for place, (span, removable) in enumerate(spans):
        if not removable:
            before, run = gain, 0
            continue
        run += sum([item.tokens for item in span])
        gone += len(span)
        gain = before + max(run - _WEIGHT, 0)
        if plan.tokens_for(plan.sum - gain, len(plan.items) - gone + 1) <= plan.capacity:
            return place + 1
    return len(spans)


def _close(plan: Plan, run: Sequence[Item], items: list[Item]) -> int:
    """End a run of removed messages. Returns the number of messages that its placeholder stands for."""
    if sum([item.tokens for item in run]) <= _WEIGHT:
        items += run
        return 0
    items.append(placeholder(plan, "trim", OMITTED, run))
    return len(run)


def _is_placeholder(span: Sequence[Item]) -> bool:
    return (record_of(span[0].message) or {}).get("stage") == "trim"


# --- shortening -------------------------------------------------------------------------------------------------------


CUT: Final = "cut_results"
SHARE: Final = 4
"""A message may weigh at most the capacity divided by this."""
FILL: Final = 0.875
"""How much of the capacity is filled by a plan whose prompts had to be cut."""
MIN_RESULT: Final = 1_000
"""The fewest characters that stay of a text."""

_OMISSION: Final = re.compile(r"\n\[\.\.\. (\d{1,12}) characters(?: of the result of [^\n]*)? left out \.\.\.\]\n")
"""The line of ``labels.omitted``."""

_P = TypeVar("_P", bound=AnyPart)
_Shortened = UserMessage | AssistantMessage | ToolMessage


def shorten(plan: Plan) -> Plan:
    """Cut the middle out of messages that are too large."""
    limit = _limit(plan)
    large = [place for place, item in enumerate(plan.items) if item.tokens > limit]
    if not large:
        return plan
    alone = preserved(plan)
    items = list(plan.items)
    changed = _cut_places(items, dict.fromkeys(filter(alone.removable, large), limit))
    changed += _cut_places(items, _prompt_limits(plan, alone, items))
    return plan.changed("shorten", items, changed)


def cuts_prompt(plan: Plan) -> bool:
    """Return whether ``shorten`` would cut the first or the last prompt, which do not fit even without the others."""
    return bool(_prompt_limits(plan, preserved(plan), plan.items))


def cut_results(plan: Plan) -> Plan:
    """Cut the middle out of results that are too large, even of those that the model has not seen."""
    items = list(plan.items)
    changed = 0
    for place in oversized(plan):
        shorter = _shorter_message(items[place], _limit(plan), CUT)
        if shorter is not None:
            items[place] = shorter
            changed += 1
    return plan.changed(CUT, items, changed)


def oversized(plan: Plan) -> list[int]:
    """Return places of results that ``cut_results`` would cut."""
    kinds = enumerate(plan.items)
    return [
        place
        for place, item in kinds
        if isinstance(item.message, ToolMessage) and not item.message.verbatim and item.tokens > _limit(plan)
    ]


def _limit(plan: Plan) -> int:
    """Return the most that a message may weigh, by estimate."""
    return int(plan.capacity / SHARE / plan.scale) if plan.scale > 0 else 0


def _cut_places(items: list[Item], limits: Mapping[int, int]) -> int:
    """Cut messages to their limits, in place. Returns how many became shorter."""
    changed = 0
    for place, limit in limits.items():
        shorter = _shorter_message(items[place], limit)
        if shorter is not None:
            items[place] = shorter
            changed += 1
    return changed


def _prompt_limits(plan: Plan, alone: Preserved, items: Sequence[Item]) -> dict[int, int]:
    """Return the limits of the prompts that must be cut, by place; none when they fit beside the untouchable messages.

    ``items`` are those of the plan, some of which are cut already.
    """
    prompts = {place for place in (alone.task, alone.prompt) if place is not None and not alone.untouchable[place]}
    if not prompts:
        return {}
    weights = {place: items[place].tokens for place in prompts}
    stays = sum([item.tokens for item, held in zip(items, alone.untouchable, strict=True) if held])
    number = sum(alone.untouchable) + len(prompts)
    if plan.tokens_for(stays + sum(weights.values()), number) <= plan.capacity:
        return {}
    least = _limit(plan)
    others = sum([item.tokens for item in items]) - sum(weights.values())
    room = max(_room(plan, others, len(items)), least * len(prompts))
    room = max(min(room, _room(plan, stays, number)), len(prompts))
    smaller = min(weights.values()) if len(weights) > 1 else 0
    limit = max(room - smaller, room // len(weights))
    return {place: limit for place, tokens in weights.items() if tokens > max(limit, least)}


def _room(plan: Plan, others: int, messages: int) -> int:
    """Return the estimate of what messages of a weight leave of the capacity that may be filled."""
    if plan.scale <= 0:
        return 0
    return int(plan.capacity * FILL / plan.scale - plan.fixed - plan.around * messages) - others


def _shorter_message(item: Item, limit: int, stage: str = "shorten") -> Item | None:
    """Return a message no heavier than the limit, or as near to it as possible; ``None`` when nothing is saved."""
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
        tokens = -(-item.tokens * estimate(cut) // weight)  # by any counter
        if tokens < best.tokens:
            best = Item(cut, tokens, item.origin)
        if tokens <= limit:
            break
    return None if best is item else best


def _with_share(message: _Shortened, share: float, stage: str) -> _Shortened:
    match message:
        case UserMessage():
            return with_content(message, _halves(message.content, share), stage)
        case AssistantMessage():
            return with_content(message, _halves(message.content, share), stage)
        case ToolMessage():
            content = tuple([_as_text(part) for part in message.content])
            return with_content(message, _halves(content, share, message.tool_call_id), stage)


def _halves(content: tuple[_P, ...], share: float, call: str | None = None) -> tuple[_P | Text, ...]:
    """Return content in which long texts keep a share of their characters."""
    return tuple([_cut(part, share, call) if isinstance(part, Text) and _is_long(part) else part for part in content])


def _cut(part: Text, share: float, call: str | None) -> Text:
    text = part.text
    stays = max(int(len(text) * share), MIN_RESULT)
    line = labels.omitted(len(text) - stays, call)
    stays = max(stays - len(line), 0)
    if stays + len(line) >= len(text):
        return part
    head = stays * 2 // 3
    tail = stays - head
    line = labels.omitted(_characters(text[head : len(text) - tail]), call)
    return Text(text[:head] + line + text[len(text) - tail :], provider_json=part.provider_json)


def _characters(gone: str) -> int:
    """Return how many characters were in a text, where earlier cuts in it count as what they left out."""
    return len(gone) + sum([int(found[1]) - len(found[0]) for found in _OMISSION.finditer(gone)])


def _is_long(part: AnyPart) -> bool:
    match part:
        case Text():
            return len(part.text) > 2 * MIN_RESULT
        case Json():
            return len(memoryview(part.value_json)) > 2 * MIN_RESULT
        case _:
            return False


def _as_text(part: ToolPart) -> ToolPart:
    """Return long JSON as a text, which can be cut."""
    return Text(bytes(part.value_json).decode("utf-8", "replace")) if type(part) is Json and _is_long(part) else part
