"""The links between the records of a session: where the conversation continues, and what a compaction preserved.

Rules (docs/spec/dialects.md#2, *Tree* and *Two histories*):

- Links are ``parentUuid`` only. A record that is repeated under its ``uuid`` counts at its last place.
- A terminal is a record that none names as its parent. Its leaf is the nearest record of a user or an assistant, up the
  chain; the walk ends at a cycle. The conversation continues at the terminal whose leaf is last in the file, among
  those that are not a sidechain, a team mate's or ``isMeta``; without any such, among all. ``last-prompt`` overrides
  this until a main line continues after it.
- A boundary names the messages that it preserves in ``compactMetadata``: ``preservedMessages.uuids``, or
  ``preservedSegment`` from ``headUuid`` to ``tailUuid``. Any record of a response may stand for it.
- Memory: two ids for each record, and the last ``MOST`` messages, ``SIZE`` bytes, since the last compaction. Older
  messages are not repeated after the summary.

Stability: experimental.
"""

from __future__ import annotations

from collections import deque
from sys import intern
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from palaver.core import jsontext
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.transcripts.fields import inner, listed, string

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.core.jsontext import Fields

Standing: TypeAlias = Literal["link", "aside", "main"]
"""A record without a message; one beside the conversation; one of it."""

FAR: Final = 1024


class _Node(NamedTuple):
    parent: str | None
    standing: Standing


class _Way(NamedTuple):
    """The path from a record to its root: the nearest record with a message, and whether it has the named one."""

    said: str | None = None
    named: bool = False


_NOWHERE: Final = _Way()


class Links:
    """The links of one file."""

    def __init__(self) -> None:
        """Start without records."""
        self._nodes: dict[str, _Node] = {}
        self._named: str | None = None

    def add(self, uuid: str, parent: str | None, standing: Standing) -> None:
        """Add the next record."""
        self._nodes.pop(uuid, None)  # one string for each id: a long file has many records
        self._nodes[intern(uuid)] = _Node(None if parent is None else intern(parent), standing)
        if standing == "main":
            self._named = None

    def name(self, uuid: str | None) -> None:
        """Set the record that ``last-prompt`` names."""
        self._named = uuid

    def __contains__(self, uuid: object) -> bool:
        """Return whether there was a record with that id."""
        return uuid in self._nodes

    def above(self, uuid: str | None) -> Iterator[str]:
        """Yield the records from one up to its root, at most ``FAR`` of them."""
        for _ in range(FAR):
            if uuid is None:
                return
            yield uuid
            node = self._nodes.get(uuid)
            uuid = None if node is None else node.parent

    def end(self) -> str | None:
        """Return the terminal at which the conversation continues; ``None`` without messages."""
        parents = {node.parent for node in self._nodes.values()}
        places = {uuid: place for place, uuid in enumerate(self._nodes)}
        ways: dict[str, _Way] = {}
        best: tuple[bool, bool, int, int] | None = None
        found: str | None = None
        for uuid in self._nodes:
            if uuid in parents:
                continue
            said, named = self._way(uuid, ways)
            if said is None and not named:
                continue
            leaf = said or uuid
            rank = (named, self._nodes[leaf].standing == "main", places[leaf], places[uuid])
            if best is None or rank > best:
                best, found = rank, uuid
        return found

    def _way(self, uuid: str, ways: dict[str, _Way]) -> _Way:
        """Return the path from a record; known paths are not walked again."""
        path: list[str] = []
        passed: set[str] = set()
        at: str | None = uuid
        while at is not None and at in self._nodes and at not in ways and at not in passed:
            passed.add(at)
            path.append(at)
            at = self._nodes[at].parent
        way = ways.get(at or "", _NOWHERE)
        for each in reversed(path):
            said = way.said if self._nodes[each].standing == "link" else each
            way = ways[each] = _Way(said, way.named or each == self._named)
        return way


MOST: Final = 512
SIZE: Final = 1 << 24


class _Held(NamedTuple):
    uuid: str
    messages: Sequence[Message]
    size: int


class Preserved(NamedTuple):
    """The preserved messages, and their records."""

    messages: tuple[Message, ...] = ()
    uuids: tuple[str, ...] = ()


class Recent:
    """The messages since the last compaction."""

    def __init__(self) -> None:
        """Start without messages."""
        self._stored: deque[_Held] = deque()
        self._size = 0

    def add(self, uuid: str, messages: Sequence[Message], size: int) -> None:
        """Add the messages of a record or a response."""
        said = [each for each in messages if isinstance(each, UserMessage | AssistantMessage | ToolMessage)]
        if not said:
            return
        self._stored.append(_Held(uuid, said, size))
        self._size += size
        while len(self._stored) > MOST or (self._size > SIZE and len(self._stored) > 1):
            self._size -= self._stored.popleft().size

    def preserved(self, metadata: Fields, at: Mapping[str, str]) -> Preserved:
        """Return the messages that a boundary preserves; ``at`` returns the entry of a record."""
        listing = listed(inner(metadata, "preservedMessages"), "uuids")
        uuids = [jsontext.text(each) for each in listing if jsontext.kind(each) == "a string"]
        if uuids:
            wanted = {at.get(each) for each in uuids} - {None}
            found = [each for each in self._stored if at.get(each.uuid) in wanted]
        else:
            segment = inner(metadata, "preservedSegment")
            uuids = [each for key in ("headUuid", "tailUuid") if (each := string(segment, key)) is not None]
            found = self._segment([at.get(each.uuid) for each in self._stored], [at.get(each) for each in uuids])
        if not found:
            return Preserved()
        messages = tuple([message for each in found for message in each.messages])
        return Preserved(messages, tuple(dict.fromkeys([*uuids, *(each.uuid for each in found)])))

    def compacted(self, preserved: Preserved) -> None:
        """Start again after a compaction, with the messages that it preserved."""
        self._stored = deque([each for each in self._stored if each.uuid in preserved.uuids])
        self._size = sum(each.size for each in self._stored)

    def _segment(self, entries: Sequence[str | None], ends: Sequence[str | None]) -> list[_Held]:
        """Return the messages from one entry to another; nothing when one of them is missing."""
        if not ends or None in ends or any(each not in entries for each in ends):
            return []
        stop = len(entries) - entries[::-1].index(ends[-1])
        return list(self._stored)[entries.index(ends[0]) : stop]
