"""Stages that put one message in the place of many.

Rules (docs/spec/kairo.md#3.3, KAI-10, D30; golden ``compaction``):

- ``collapse``: three or more messages in a row that are about tools become one answer of the assistant: what the
  assistant said in them, in order, and a label that counts calls, not messages. Only whole rounds are folded; the
  newest round stays, and so does a round with an untouchable message. In the open turn, a fixed user message follows
  when reasoning comes next: on some wires answers in a row are one, and an answer that does not begin with reasoning
  ends all reasoning in its turn (docs/spec/wires.md#4.3.4). A later fold removes that message too.
- ``partial``, the last resort, needs no model: all that may be removed becomes one note, at the place of the first
  removed message. System messages, verbatim messages, the task, the last message from a person, and the last five
  others stay, by whole rounds; fewer of the last five, down to the newest round, when the plan does not fit otherwise.
  Summaries that a model wrote are removed last. ``partial_up_to`` removes the messages before a given one instead.
- A message that stands for others has the ``source`` ``"compaction"``, and a payload with the stage that made it, the
  ids of the messages that it ``replaces`` (of those that have one), how many ``messages`` and ``tokens`` they were,
  how often each tool was called, and how many calls failed. The counts of a message that stood for others itself are
  included.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct

from palaver.context import labels
from palaver.context.labels import Preserved, preserved, rounds
from palaver.context.plan import SOURCE, Item, Plan
from palaver.core import jsontext
from palaver.core.errors import MessageError
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import MalformedToolCall, Reasoning, Refusal, ServerToolResult, Text, ToolCall
from palaver.tokens.estimate import estimate_text

MIN_RUN: Final = 3
"""The fewest messages of a run."""
LAST: Final = labels.LAST
"""The number of other messages that ``partial`` keeps."""

_MECHANICAL: Final = ("collapse", "partial")


class Count(Struct, omit_defaults=True):
    """What a message stands for: the form of ``payload["compaction"]``."""

    stage: str
    replaces: list[str] = []
    messages: int = 0
    tokens: int = 0
    calls: dict[str, int] = {}
    failed: int = 0

    def add(self, item: Item) -> None:
        """Count a message, or the messages that it stands for."""
        message = item.message
        if message.id is not None:
            self.replaces.append(message.id)
        earlier = stands_for(message) if message.source == SOURCE else None
        if earlier is None:
            self.messages += 1
            self.tokens += item.tokens
            if type(message) is ToolMessage:
                self.failed += message.is_error
            elif type(message) is AssistantMessage:
                self._add_calls(message)
            return
        if message.id is None:
            self.replaces += earlier.replaces
        self.messages += earlier.messages
        self.tokens += earlier.tokens
        self.failed += earlier.failed
        for name, count in earlier.calls.items():
            self.calls[name] = self.calls.get(name, 0) + count

    def _add_calls(self, message: AssistantMessage) -> None:
        for part in message.content:
            if type(part) is ToolCall or type(part) is MalformedToolCall:
                name = part.name or "unknown"
                self.calls[name] = self.calls.get(name, 0) + 1
                self.failed += type(part) is MalformedToolCall
            elif type(part) is ServerToolResult:
                self.failed += part.is_error

    @property
    def payload(self) -> Raw:
        """The payload of the message that stands for everything counted."""
        return jsontext.raw({"compaction": msgspec.to_builtins(self)})


class _Payload(Struct):
    compaction: Count


_read = msgspec.json.Decoder(_Payload).decode


def stands_for(message: Message) -> Count | None:
    """Return the messages that a message stands for, by its payload; ``None`` when it has no such payload."""
    if message.source != SOURCE or message.payload_json is UNSET:
        return None
    try:
        return _read(message.payload_json).compaction
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _made_by(message: Message, *stages: str) -> bool:
    count = stands_for(message)
    return count is not None and count.stage in stages


# -- collapse ----------------------------------------------------------------------------------------------------------


def collapse(plan: Plan) -> Plan:
    """Fold runs of tool rounds, except the newest round."""
    items, alone = plan.items, preserved(plan)
    made: list[Item] = []
    run: list[Item] = []
    folded = 0
    spans = rounds(items)
    newest = next((begin for begin, _ in reversed(spans) if _calls(items[begin].message)), -1)
    for begin, end in spans:
        message = items[begin].message
        if begin != newest and (_foldable(items, alone, begin, end) or (run and _is_note(message))):
            run += items[begin:end]
            continue
        folded += _folded(run, made, noted=begin >= alone.open_turn and _reasons(message))
        run = []
        made += items[begin:end]
    folded += _folded(run, made)
    return plan.changed("collapse", made, folded)


def _reasons(message: Message) -> bool:
    return type(message) is AssistantMessage and Reasoning in map(type, message.content)


def _is_note(message: Message) -> bool:
    return type(message) is UserMessage and _made_by(message, "collapse")


def _calls(message: Message) -> bool:
    if type(message) is not AssistantMessage:
        return False
    kinds = [type(part) for part in message.content]
    return ToolCall in kinds or MalformedToolCall in kinds


def _foldable(items: Sequence[Item], alone: Preserved, begin: int, end: int) -> bool:
    message = items[begin].message
    if type(message) is not AssistantMessage or 1 in alone.untouchable[begin:end]:
        return False
    return end - begin > 1 or _calls(message) or _made_by(message, "collapse")


def _folded(run: list[Item], made: list[Item], *, noted: bool = False) -> int:
    """Replace a run by one message, if that is lighter; return how many messages were folded."""
    if len(run) >= MIN_RUN:
        folded = [_collapsed(run), _NOTE] if noted else [_collapsed(run)]
        if sum([each.tokens for each in folded]) < sum([each.tokens for each in run]):
            made += folded
            return len(run)
    made += run
    return 0


_NOTE: Final = Item(
    UserMessage(content=(Text(labels.GO_ON),), mode="tool", source=SOURCE, payload_json=Count("collapse").payload),
    estimate_text(labels.GO_ON),
)
"""A message that stands for no other."""


def _collapsed(run: list[Item]) -> Item:
    count = Count("collapse")
    said: list[Text] = []
    for item in run:
        count.add(item)
        message = item.message
        if type(message) is AssistantMessage:
            texts = [Text(part.text) for part in message.content if type(part) is Text or type(part) is Refusal]
            said += texts[:-1] if _made_by(message, "collapse") else texts  # its label is counted into ours
    first = run[0].message
    message = AssistantMessage(
        content=(
            *[part for part in said if part.text.strip()],
            Text(labels.collapsed_label(count.calls, count.failed)),
        ),
        agent=first.agent,
        source=SOURCE,
        payload_json=count.payload,
    )
    return Item(message, sum([estimate_text(part.text) for part in message.content if type(part) is Text]))


# -- partial -----------------------------------------------------------------------------------------------------------


def partial(plan: Plan) -> Plan:
    """Replace all removable messages, except the last ones, by one note."""
    spans = rounds(plan.items)
    held = _kept_places(plan)
    best = plan
    for summaries in (True, False):
        least = _with_summaries(plan, held) if summaries else held
        _whole(least, spans)
        weight = sum([item.tokens for item, stays in zip(plan.items, least, strict=True) if stays])
        for last in range(LAST, -1, -1):
            stays, more = _last(plan, spans, least, last)
            if last and plan.tokens_for(weight + more, stays.count(1)) > plan.capacity:
                continue  # without counting the removed messages: it does not fit
            found = _with_note(plan, stays, _label(last))
            if found.sum < best.sum:
                best = found
            if best.tokens <= plan.capacity:
                return best
    return best


def _label(last: int) -> Callable[[Count], str]:
    return lambda count: labels.partial_label(count.messages, count.tokens, max(last, 1))


def partial_up_to(marker: str) -> Callable[[Plan], Plan]:
    """Return a stage that removes all before the message with the id ``marker``; without it, acts as ``partial``."""
    if not marker:
        raise MessageError("marker: expected the id of a message")

    def run(plan: Plan) -> Plan:
        place = next((place for place, item in enumerate(plan.items) if item.message.id == marker), None)
        if place is None:
            return partial(plan)
        stays = _kept_places(plan)
        for begin, end in rounds(plan.items):
            if end > place:
                stays[begin:end] = b"\1" * (end - begin)
        _whole(stays, rounds(plan.items))
        return _with_note(plan, stays, lambda count: labels.partial_up_to_label(count.messages, count.tokens, marker))

    return run


def _kept_places(plan: Plan) -> bytearray:
    """Return 1 for each message that stays in any case, else 0."""
    alone = preserved(plan)
    held = alone.untouchable
    for place in (alone.task, alone.prompt):
        if place is not None:
            held[place] = 1
    return held


def _with_summaries(plan: Plan, held: bytearray) -> bytearray:
    """Return 1 for each message that stays in any case or is a summary by a model, else 0."""
    stays = bytearray(held)
    for place, item in enumerate(plan.items):
        if item.message.source == SOURCE and not _made_by(item.message, *_MECHANICAL):
            stays[place] = 1
    return stays


def _last(plan: Plan, spans: Sequence[tuple[int, int]], least: bytearray, last: int) -> tuple[bytearray, int]:
    """Return 1 for each message that stays: ``least``, and ``last`` others, by whole rounds; and their tokens."""
    stays = bytearray(least)
    others = tokens = 0
    for begin, end in reversed(spans):
        added = [item.tokens for item, held in zip(plan.items[begin:end], stays[begin:end], strict=True) if not held]
        if end < len(stays) and others + len(added) > last:
            break
        others += len(added)
        tokens += sum(added)
        stays[begin:end] = b"\1" * (end - begin)
    return stays, tokens


def _whole(stays: bytearray, spans: Iterable[tuple[int, int]]) -> None:
    """Keep all of a round when one of its messages stays."""
    for begin, end in spans:
        if end - begin > 1 and 1 in stays[begin:end]:
            stays[begin:end] = b"\1" * (end - begin)


def _with_note(plan: Plan, stays: bytearray, label_of: Callable[[Count], str]) -> Plan:
    """Return the plan with a note in place of the removed messages; the same plan when nothing is saved."""
    count = Count("partial")
    removed = fresh = weight = 0
    for item, held in zip(plan.items, stays, strict=True):
        if not held:
            before = count.tokens
            count.add(item)
            removed += 1
            if count.tokens - before == item.tokens:  # it stands for no other message
                fresh, weight = fresh + 1, weight + item.tokens
    if not removed:
        return plan
    # what the plan weighs less without them: their own estimates may add up to more than the whole
    less = plan.tokens - plan.tokens_for(plan.sum - weight, len(plan.items) - fresh)
    count.tokens += max(less, 0) - weight
    label = label_of(count)
    note = UserMessage(content=(Text(label),), mode="tool", source=SOURCE, payload_json=count.payload)
    place = stays.index(0)
    items = [item for item, held in zip(plan.items, stays, strict=True) if held]
    items.insert(place, Item(note, estimate_text(label)))
    return plan.changed("partial", items, removed)
