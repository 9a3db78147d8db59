"""Write a compacted plan back into its thread, and undo it.

Rules (law 9; docs/spec/pains.md#4; docs/spec/kairo.md#D36):

- Entries before the first change are shared. Behind them come the messages of the plan, then a record of the
  compaction. Nothing is removed: a branch keeps the path as it was, and ``plan_undo`` restores it.
- Behind the last change, entries with a tag that keeps them from models stay in place. Other hidden entries behind the
  first change, markers included, are dropped: a marker without its turn would hide another turn.
- A message that moves keeps its id and its time.
- The record names the stages and the leaf of the earlier path. The latest compaction is undone first.
- A changed message keeps its class and all other fields; ``metadata["compaction"]`` names the stage.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import UNSET, Raw, UnsetType, structs

from palaver.context.plan import SOURCE, Plan
from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from palaver.core.parts import AnyPart
from palaver.threads.thread import Entry
from palaver.threads.view import RECORD, is_sent

# --- rewriting --------------------------------------------------------------------------------------------------------


COMPACTION: Final = "compaction"
"""The key of compaction's own data: in the metadata of shortened messages, and in the payload of those it made."""


class Rewrite(NamedTuple):
    """The new continuation of a path: behind ``kept`` of its entries come ``messages``."""

    kept: int
    messages: tuple[Message, ...]


class Undo(NamedTuple):
    """The undoing of a compaction: behind the entry ``leaf`` come ``messages``, which were added since."""

    leaf: str | None
    messages: tuple[Message, ...]


def plan_rewrite(
    path: Sequence[Entry], messages: Sequence[Message], plan: Plan, *, learned: Mapping[str, Any] | None = None
) -> Rewrite | None:
    """Return what stays of a path, and what follows it; ``None`` when no stage changed anything.

    ``messages`` are those that a view gave of the path, and that the plan was made of. ``learned`` is what the record
    says of the model (``Ledger.learned``). Costs the length of the path.
    """
    if not plan.changes:
        return None
    places = {id(entry.message): place for place, entry in enumerate(path)}
    stands = [places.get(id(message)) for message in messages]
    after = [item.message for item in plan.items]
    head = _alone(_same(messages, after, stands), stands)
    most = min(len(messages), len(after)) - head
    tail = _same(messages[::-1][:most], after[::-1][:most], [None if at is None else -at for at in stands[::-1][:most]])
    kept = (stands[head - 1] or 0) + 1 if head else 0
    begins = stands[len(stands) - tail] if tail else _end(stands)
    stays = {id(message) for message in messages[len(messages) - tail :]}
    behind = [
        entry.message
        for entry in path[kept if begins is None else begins :]
        if id(entry.message) in stays or not is_sent(entry.message)
    ]
    return Rewrite(kept, (*after[head : len(after) - tail], *behind, record(path, plan, learned=learned)))


def _same(one: Sequence[Message], other: Sequence[Message], stands: Sequence[int | None]) -> int:
    """Return how many messages at the beginning are the same, and stand in the path in this order."""
    before: int | None = None
    for count, (mine, its, at) in enumerate(zip(one, other, stands, strict=False)):
        if mine is not its or at is None or (before is not None and at <= before):
            return count
        before = at
    return min(len(one), len(other))


def _alone(head: int, stands: Sequence[int | None]) -> int:
    """Return how many messages stay at the beginning without any later message among them in the path.

    A repair moves results to their calls: a later message may stand before one of them.
    """
    later = [at for at in stands[head:] if at is not None]
    least = min(later) if later else None
    while head and least is not None and (at := stands[head - 1]) is not None and at > least:
        least = min(least, at)
        head -= 1
    return head


def _end(stands: Sequence[int | None]) -> int | None:
    """Return the place behind the last message in the path."""
    found = [at for at in stands if at is not None]
    return max(found) + 1 if found else None


def record(path: Sequence[Entry], plan: Plan, *, learned: Mapping[str, Any] | None = None) -> SystemMessage:
    """Return the record of a compaction, which no view shows: its changes, and the earlier end of the path."""
    changes: list[dict[str, Any]] = [
        {"stage": each.stage, "messages": each.messages, "before": each.before, "after": each.after}
        for each in plan.changes
    ]
    depth = len(path)
    for place in range(len(path) - 1, -1, -1):
        known = depth_of(path[place].message)
        if known is not None:
            depth += known - place
            break
    payload: dict[str, Any] = {"leaf": path[-1].id if path else None, "depth": depth, "stages": changes}
    if learned is not None:
        payload["learned"] = dict(learned)
    return SystemMessage(source=SOURCE, tags=(RECORD,), mode="tool").replace(payload=payload)


def depth_of(message: Message) -> int | None:
    """Return how many entries preceded the end of the conversation before compaction, if this is the record of one."""
    known = _record_payload(message).get("depth")
    return known if isinstance(known, int) else None


def calibration_before(message: Message) -> Mapping[str, Any] | None:
    """Return what was learned of the model before a compaction, if the message is the record of one."""
    learned = _record_payload(message).get("learned")
    return learned if isinstance(learned, jsontext.FrozenDict) else None


def is_record(message: Message) -> bool:
    """Return whether a message is the record of a compaction."""
    return message.source == SOURCE and RECORD in message.tags


def plan_undo(path: Sequence[Entry]) -> Undo | None:
    """Return how to undo the last compaction of a path; ``None`` when there is none."""
    for place in range(len(path) - 1, -1, -1):
        message = path[place].message
        if is_record(message):
            leaf = _record_payload(message).get("leaf")
            after = tuple([entry.message for entry in path[place + 1 :]])
            return Undo(leaf if isinstance(leaf, str) else None, after)
    return None


def _record_payload(message: Message) -> Mapping[str, Any]:
    """Return the payload of a record; empty for any other message."""
    if not is_record(message) or message.payload_json is UNSET:
        return {}
    return jsontext.view(message.payload_json) if jsontext.kind(message.payload_json) == "an object" else {}


# --- changing ---------------------------------------------------------------------------------------------------------


_M = TypeVar("_M", UserMessage, AssistantMessage, ToolMessage)


def with_stage(metadata: Raw | UnsetType, stage: str) -> Raw:
    """Return the metadata with the name of a stage. Metadata that are not an object stay as they are."""
    if metadata is UNSET:
        return _fresh(stage)
    text = bytes(metadata)
    if text[:1] == b"{" and text[-1:] == b"}" and b"compaction" not in text and b"\\" not in text:
        inside = text[1:-1].strip()
        return Raw(b"{" + inside + b"," + _pair(stage) + b"}") if inside else _fresh(stage)
    return _remarked(metadata, stage)


def _remarked(metadata: Raw, stage: str) -> Raw:
    if jsontext.is_null(metadata):
        return _fresh(stage)
    try:
        fields = jsontext.fields(metadata)
    except DecodeError:
        return metadata
    fields[COMPACTION] = jsontext.raw(stage)
    return jsontext.raw(fields)


def _pair(stage: str) -> bytes:
    return b'"compaction":"' + stage.encode() + b'"'


@cache
def _fresh(stage: str) -> Raw:
    return Raw(b"{" + _pair(stage) + b"}")


def with_content(message: _M, content: tuple[AnyPart, ...], stage: str) -> _M:
    """Return a message with other content, marked."""
    return structs.replace(message, content=content, metadata_json=with_stage(message.metadata_json, stage))
