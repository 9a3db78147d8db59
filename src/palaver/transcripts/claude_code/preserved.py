"""What a compaction preserved: messages that stand behind its summary as they were.

Source: docs/spec/dialects.md#2, *Two histories*.

Rules:

- A boundary names them in ``compactMetadata``: by ``preservedMessages.uuids``, or from the first to the last
  (``preservedSegment``, ``headUuid`` and ``tailUuid``). Any record of a response may stand for it.
- Held are the messages since the last compaction, the last ``MOST`` of them and ``SIZE`` bytes of records: a program
  preserves what is recent. What is not held any more is not repeated behind the summary.

Stability: experimental.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from palaver.core import jsontext
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.transcripts.fields import inner, listed, string

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.core.jsontext import Fields

MOST: Final = 512
SIZE: Final = 1 << 24


class _Held(NamedTuple):
    uuid: str
    messages: Sequence[Message]
    size: int


class Preserved(NamedTuple):
    """What was preserved: the messages, and the records that stood for them."""

    messages: tuple[Message, ...] = ()
    uuids: tuple[str, ...] = ()


class Recent:
    """The messages since the last compaction."""

    def __init__(self) -> None:
        """Begin with none."""
        self._held: deque[_Held] = deque()
        self._size = 0

    def add(self, uuid: str, messages: Sequence[Message], size: int) -> None:
        """Hold the messages of a record or a response."""
        said = [each for each in messages if isinstance(each, UserMessage | AssistantMessage | ToolMessage)]
        if not said:
            return
        self._held.append(_Held(uuid, said, size))
        self._size += size
        while len(self._held) > MOST or (self._size > SIZE and len(self._held) > 1):
            self._size -= self._held.popleft().size

    def preserved(self, metadata: Fields, at: Mapping[str, str]) -> Preserved:
        """What a boundary says was preserved; ``at`` tells which entry a record became."""
        listing = listed(inner(metadata, "preservedMessages"), "uuids")
        uuids = [jsontext.text(each) for each in listing if jsontext.kind(each) == "a string"]
        if uuids:
            wanted = {at.get(each) for each in uuids} - {None}
            found = [each for each in self._held if at.get(each.uuid) in wanted]
        else:
            segment = inner(metadata, "preservedSegment")
            uuids = [each for key in ("headUuid", "tailUuid") if (each := string(segment, key)) is not None]
            found = self._segment([at.get(each.uuid) for each in self._held], [at.get(each) for each in uuids])
        if not found:
            return Preserved()
        messages = tuple([message for each in found for message in each.messages])
        return Preserved(messages, tuple(dict.fromkeys([*uuids, *(each.uuid for each in found)])))

    def compacted(self, preserved: Preserved) -> None:
        """Begin anew behind a compaction, with what it preserved."""
        self._held = deque([each for each in self._held if each.uuid in preserved.uuids])
        self._size = sum(each.size for each in self._held)

    def _segment(self, entries: Sequence[str | None], ends: Sequence[str | None]) -> list[_Held]:
        """What is held from one entry to another; nothing when one of them is not."""
        if not ends or None in ends or any(each not in entries for each in ends):
            return []
        stop = len(entries) - entries[::-1].index(ends[-1])
        return list(self._held)[entries.index(ends[0]) : stop]
