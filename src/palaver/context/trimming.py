"""Shrinking and trimming: results get shorter, then whole rounds go, oldest first, until the plan fits.

Rules (docs/spec/codebuff.md#9.2, #9.3 and #11; CBF-27, CBF-28):

- ``simplify``: of results of terminal tools the 5 newest stay, older ones say only which command ran and how it ended.
  Background processes and errors are left alone, and do not count among the 5.
- ``omit_large``: an output of more than 1,000 characters gives way to its size. A text counts as it is, anything else
  as its JSON.
- ``trim`` removes rounds until the plan fits, and not one more. Each run of removed messages becomes one placeholder; a
  run that weighs no more than its placeholder stays. A placeholder of an earlier trim is taken into the run beside it.
  When what is kept exceeds the capacity alone, all else is removed, and ``Compacted.fits`` is false.
- Untouchable messages (``kept``) are left alone by all three. Shortened results keep all fields, and gain the name of
  the stage in their metadata.

The original differs in two faults that were measured: it removes half of what it has to, and calls without their
results.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from palaver.context.changing import changed_with
from palaver.context.kept import kept, rounds
from palaver.context.plan import Item, Plan
from palaver.context.results import TERMINAL, failed, objects
from palaver.context.standing import record_of, standing
from palaver.core import canonical
from palaver.core.messages import ToolMessage
from palaver.core.parts import Json, Text, ToolPart
from palaver.tokens.estimate import estimate, estimate_text

NEWEST: Final = 5
"""Results of terminal tools that stay as they are."""
LARGE: Final = 1000
"""Characters that an output may have."""
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
    return not failed(message) and not any("processId" in each for each in objects(message))


def _simple(message: ToolMessage) -> Sequence[ToolPart]:
    """What is left of a result; media and unknown blocks stay."""
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
    """The plan with other content in its results, where that is less."""
    untouchable = kept(plan).untouchable
    items = list(plan.items)
    changed = 0
    for place, item in enumerate(plan.items):
        if (
            untouchable[place]
            or not isinstance(item.message, ToolMessage)
            or (places is not None and place not in places)
        ):
            continue
        message = changed_with(item.message, tuple(content(item.message)), stage)
        tokens = estimate(message)
        if tokens < item.tokens:
            items[place] = Item(message, tokens, item.origin)
            changed += 1
    return plan.changed(stage, items, changed) if changed else plan


# -- fewer messages ----------------------------------------------------------------------------------------------------


def trim(plan: Plan) -> Plan:
    """Without the oldest rounds, as many as it takes to fit; the same object when it fits."""
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
    held = kept(plan)
    for start, end in rounds(plan.items):
        yield plan.items[start:end], all(held.removable(place) for place in range(start, end))


def _enough(plan: Plan, spans: Sequence[tuple[Sequence[Item], bool]]) -> int:
    """How many rounds from the oldest on have to go, where they may, for the rest to fit."""
    before = gain = run = gone = 0
    for place, (span, removable) in enumerate(spans):
        if not removable:
            before, run = gain, 0
            continue
        run += sum([item.tokens for item in span])
        gone += len(span)
        gain = before + max(run - _WEIGHT, 0)
        if plan.weighing(plan.sum - gain, len(plan.items) - gone + 1) <= plan.capacity:
            return place + 1
    return len(spans)


def _close(plan: Plan, run: Sequence[Item], items: list[Item]) -> int:
    """End a run of removed messages. Gives the number of messages that its placeholder stands for."""
    if sum([item.tokens for item in run]) <= _WEIGHT:
        items += run
        return 0
    items.append(standing(plan, "trim", OMITTED, run))
    return len(run)


def _is_placeholder(span: Sequence[Item]) -> bool:
    return (record_of(span[0].message) or {}).get("stage") == "trim"
