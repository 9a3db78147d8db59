"""Messages that stand for others, which compaction took out.

Rules:

- Such a message is a user message, so that every wire carries it (I4), with ``source="compaction"``. What a user writes
  never has that source, whatever its text says.
- ``payload["compaction"]`` says which ``stage`` made it, how many ``messages`` and ``tokens`` it stands for, and the
  ids of the messages that it ``replaces``. One that itself stood for others counts as those, in messages and tokens;
  its own id is in ``replaces``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from palaver.context.plan import SOURCE, Item, Plan
from palaver.context.rewriting import COMPACTION
from palaver.core import jsontext
from palaver.core.factories import user
from palaver.core.messages import Message
from palaver.core.parts import Image
from palaver.tokens.estimate import estimate


def standing(
    plan: Plan, stage: str, text: str, items: Sequence[Item], *images: Image, entries: Sequence[Any] | None = None
) -> Item:
    """A message that stands for items of a plan; ``entries`` are what it remembers of them, for its record."""
    record = {
        "stage": stage,
        "messages": sum([_messages(item.message) for item in items]),
        "tokens": sum([_tokens(plan, item) for item in items]),
        "replaces": [item.message.id for item in items if item.message.id is not None],
        **({} if entries is None else {"entries": entries}),
    }
    message = user(text, *images, mode="tool", source=SOURCE, payload={COMPACTION: record})
    return Item(message, estimate(message))


def record_of(message: Message) -> Mapping[str, Any] | None:
    """What a message that stands for others says about that; ``None`` for any other message."""
    if message.source != SOURCE or message.payload_json is UNSET:
        return None
    return _object(_object(message.payload).get(COMPACTION)) or None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, jsontext.FrozenDict) else {}


def _messages(message: Message) -> int:
    return _counted(message, "messages") or 1


def _tokens(plan: Plan, item: Item) -> int:
    return _counted(item.message, "tokens") or plan.scaled(item.tokens)


def _counted(message: Message, what: str) -> int | None:
    """How many messages or tokens a message says that it stands for."""
    count = (record_of(message) or {}).get(what)
    return count if type(count) is int and count > 0 else None
