"""Stages that replace results and reasoning by labels. The thread keeps the originals.

Rules (docs/spec/kairo.md#3.3, KAI-10, D4, D30; golden ``compaction``):

- A cleared result stays a tool message with all its fields; its content becomes one label, so pairs stay whole and the
  call id is the handle for the original.
- ``supersede`` (ours) clears results of a call that was repeated later with the same arguments, without an error.
- ``time_micro`` clears results older than 30 minutes except the last five, and cuts long texts, when the user's last
  message is an hour old. ``snip`` clears all results but the last five; ``micro`` every one that the model has seen.
- An answer loses all its reasoning proofs or none: providers refuse a part of them. An answer with calls that the
  provider ran, or with unknown blocks, keeps its reasoning, which these depend on.
- Content that weighs no more than its label stays. Each stage is one pass; only ``supersede`` parses JSON (arguments).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET

from palaver.context import labels
from palaver.context.labels import Preserved, preserved
from palaver.context.plan import Item, Plan
from palaver.context.rewrite import with_content
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import (
    AnyPart,
    AssistantPart,
    Opaque,
    Reasoning,
    ServerToolResult,
    Text,
    ToolCall,
)
from palaver.tokens.estimate import estimate_text

LAST_RESULTS: Final = labels.LAST
"""The number of results that ``time_micro`` and ``snip`` keep."""
LAST_MESSAGES: Final = 3
"""The number of messages whose reasoning ``snip`` keeps."""
IDLE: Final = 60 * 60 * 1000
"""``time_micro`` runs this many milliseconds after the user's last message, or later."""
OLD: Final = 30 * 60 * 1000
"""The age in milliseconds from which on it clears a message."""
MAX_TEXT: Final = 500
"""The most characters of a text that it keeps."""

Labeller: TypeAlias = Callable[[ToolMessage], str]
_P = TypeVar("_P", bound=AnyPart)

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(order="sorted").encode


def supersede(plan: Plan) -> Plan:
    """Clear results that a later call supersedes."""
    alone = preserved(plan)
    places = [place for place in _superseded(plan.items) if not alone.untouchable[place]]
    items = list(plan.items)
    return plan.changed("supersede", items, _cleared(items, places, "supersede", labels.result_label))


def time_micro(plan: Plan) -> Plan:
    """Clear old results, and cut long texts, when the user was away."""
    spoken = next((item.message.sent_at for item in reversed(plan.items) if _is_dialogue(item.message)), None)
    if spoken is None or plan.now - spoken < IDLE:
        return plan
    alone, before = preserved(plan), plan.now - OLD
    items = list(plan.items)
    old = [
        place for place, item in enumerate(items) if item.message.sent_at is not None and item.message.sent_at < before
    ]
    results = set(_results(plan, alone, LAST_RESULTS))
    changed = _cleared(items, [place for place in old if place in results], "time_micro", labels.result_label)
    for place in old:
        if alone.removable(place):
            cut = _cut(items[place])
            if cut is not None:
                items[place] = cut
                changed += 1
    return plan.changed("time_micro", items, changed)


def snip(plan: Plan) -> Plan:
    """Clear all results but the last five, and reasoning outside the last three messages."""
    alone = preserved(plan)
    items = list(plan.items)
    changed = _cleared(items, _results(plan, alone, LAST_RESULTS), "snip", labels.snipped_label)
    changed += _shorten_old(items, alone, max(len(items) - LAST_MESSAGES, 0), "snip")
    return plan.changed("snip", items, changed)


def micro(plan: Plan) -> Plan:
    """Clear every result that the model has seen, and all reasoning."""
    alone = preserved(plan)
    items = list(plan.items)
    changed = _cleared(items, _results(plan, alone, 0), "micro", labels.result_label)
    changed += _shorten_old(items, alone, len(items), "micro")
    return plan.changed("micro", items, changed)


# -- which ones --------------------------------------------------------------------------------------------------------


def _results(plan: Plan, alone: Preserved, last: int) -> list[int]:
    """Return the places of results that may be cleared, without the last ones."""
    places = [place for place, item in enumerate(plan.items) if type(item.message) is ToolMessage]
    if last:
        places = places[:-last]
    untouchable = alone.untouchable
    return [place for place in places if not untouchable[place]]


def _superseded(items: Iterable[Item]) -> list[int]:
    """Return the places of results whose call was repeated later and answered without an error, oldest first."""
    calls: dict[str | None, tuple[str, bytes]] = {}
    earlier: dict[tuple[str, bytes], list[int]] = {}
    found: list[int] = []
    for place, item in enumerate(items):
        message = item.message
        if type(message) is AssistantMessage:
            for part in message.content:
                if type(part) is ToolCall and not part.provider_executed:
                    calls[part.id] = part.name, _canonical(part.arguments_json)
        elif type(message) is ToolMessage:
            call = calls.pop(message.tool_call_id, None)
            if call is None:
                continue
            same = earlier.get(call)
            if same is None:
                earlier[call] = [place]
                continue
            if not message.is_error:
                found += same
                same.clear()
            same.append(place)
    found.sort()
    return found


def _canonical(arguments: str) -> bytes:
    """Return the arguments in a canonical form; arguments that cannot be parsed are returned as they are."""
    try:
        return _encode(_decode(arguments))
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError):
        return arguments.strip().encode("utf-8", "surrogatepass") or b"{}"


def _is_dialogue(message: Message) -> bool:
    """Return whether the message is from a person."""
    return type(message) is UserMessage and message.mode != "tool" and not message.is_summary


# -- what becomes of them ----------------------------------------------------------------------------------------------


def _cleared(items: list[Item], places: Iterable[int], stage: str, label_of: Labeller) -> int:
    """Replace results by labels; return how many were heavier than their labels."""
    changed = 0
    for place in places:
        item = items[place]
        message = item.message
        if type(message) is not ToolMessage or (message.metadata_json is not UNSET and labels.is_label(message)):
            continue
        label = label_of(message)
        tokens = labels.result_tokens(label)
        if tokens < item.tokens:
            items[place] = Item(with_content(message, (Text(label),), stage), tokens, item.origin)
            changed += 1
    return changed


def _shorten_old(items: list[Item], alone: Preserved, end: int, stage: str) -> int:
    """Replace reasoning before ``end`` by labels, except in the open turn; return how many answers changed."""
    changed = 0
    untouchable = alone.untouchable
    for place in range(min(end, alone.open_turn)):
        item = items[place]
        message = item.message
        if type(message) is not AssistantMessage or untouchable[place]:
            continue
        content = message.content
        if Reasoning not in map(type, content):
            continue
        quiet = _shorten_content(content)
        if quiet is not None:
            message = with_content(message, quiet[0], stage)
            items[place] = Item(message, max(item.tokens - quiet[1], 0), item.origin)
            changed += 1
    return changed


_BOUND: Final = frozenset({Opaque, ServerToolResult})


def _shorten_content(content: tuple[AssistantPart, ...]) -> tuple[tuple[AssistantPart, ...], int] | None:
    """Return content with labels for reasoning, and the tokens saved; ``None`` when nothing is saved.

    A proof counts when the label is compared with the reasoning; estimates of tokens know the text only.
    """
    made: list[AssistantPart] = []
    won = shorter = 0
    for part in content:
        if type(part) is Reasoning:
            text, proof = part.text, len(part.signature or part.encrypted or "")
            label = labels.reasoning_label(text)
            if len(label) < len(text) + proof and (proof or label is not text):
                shorter += 1
            elif text:
                label = text
            won += estimate_text(text)
            if text:
                won -= estimate_text(label)
                made.append(Reasoning(label))
        elif type(part) in _BOUND or (type(part) is ToolCall and part.provider_executed):
            return None
        else:
            made.append(part)
    return (tuple(made), won) if made and shorter else None


def _cut(item: Item) -> Item | None:
    """Return a message with its long texts cut; ``None`` when it has none."""
    message = item.message
    most = MAX_TEXT + len(labels.CUT)
    for part in message.content:
        if type(part) is Text and len(part.text) > most:
            break
    else:
        return None
    if message.is_summary:
        return None
    changed: Message
    if type(message) is UserMessage:
        content, won = _trimmed(message.content)
        changed = with_content(message, content, "time_micro") if won else message
    elif type(message) is AssistantMessage:
        said, won = _trimmed(message.content)
        changed = with_content(message, said, "time_micro") if won else message
    else:
        return None
    return Item(changed, max(item.tokens - won, 0), item.origin) if won > 0 else None


def _trimmed(content: tuple[_P, ...]) -> tuple[tuple[_P | Text, ...], int]:
    """Return content with its long texts cut, and the tokens saved."""
    won = 0
    made: list[_P | Text] = []
    for part in content:
        if isinstance(part, Text) and len(part.text) > MAX_TEXT + len(labels.CUT):
            short = part.text[:MAX_TEXT] + labels.CUT
            won += estimate_text(part.text) - estimate_text(short)
            made.append(Text(short, provider_json=part.provider_json))
        else:
            made.append(part)
    return (tuple(made), won) if won > 0 else (content, 0)
