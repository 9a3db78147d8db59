"""The links between the records of a session: where the conversation goes on, and what a compaction preserved.

Rules (docs/spec/dialects.md#2, *Tree* and *Two histories*):

- Links are ``parentUuid`` only. A record that comes again under its ``uuid`` stands where it came last.
- A terminal is a record that none names as its parent. Its leaf is the nearest record of a user or an assistant, up the
  chain; the walk ends at a cycle. The conversation goes on at the terminal whose leaf stands last in the file, among
  those that are no sidechain, no team mate's and not ``isMeta``; without any such, among all. ``last-prompt`` overrides
  this until a main line goes on behind it.
- A boundary names the messages that it preserves in ``compactMetadata``: ``preservedMessages.uuids``, or
  ``preservedSegment`` from ``headUuid`` to ``tailUuid``. Any record of a response may stand for it.
- Memory: two ids for each record, and the last ``MOST`` messages, ``SIZE`` bytes, since the last compaction. Older
  messages are not repeated behind the summary.

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
"""A record that nobody said; one beside the conversation; one of it."""

FAR: Final = 1024


class _Node(NamedTuple):
    parent: str | None
    standing: Standing


class _Way(NamedTuple):
    """What lies on the way from a record to its root: the nearest that was said, and whether the one named does."""

    said: str | None = None
    named: bool = False


_NOWHERE: Final = _Way()


class Links:
    """The links of one file."""

    def __init__(self) -> None:
        """Begin without any."""
        self._nodes: dict[str, _Node] = {}
        self._named: str | None = None

    def add(self, uuid: str, parent: str | None, standing: Standing) -> None:
        """Take the next record."""
        self._nodes.pop(uuid, None)  # one string for each id: a long file has many records
        self._nodes[intern(uuid)] = _Node(None if parent is None else intern(parent), standing)
        if standing == "main":
            self._named = None

    def name(self, uuid: str | None) -> None:
        """Take what ``last-prompt`` names."""
        self._named = uuid

    def __contains__(self, uuid: object) -> bool:
        """Return whether there was a record of that id."""
        return uuid in self._nodes

    def above(self, uuid: str | None) -> Iterator[str]:
        """Yield the records from one up to its root, ``FAR`` of them at most."""
        for _ in range(FAR):
            if uuid is None:
                return
            yield uuid
            node = self._nodes.get(uuid)
            uuid = None if node is None else node.parent

    def end(self) -> str | None:
        """Return the terminal at which the conversation goes on; ``None`` when nothing was said."""
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
        """Return the way from a record; those that were walked before are not walked again."""
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
    """What was preserved: the messages, and the records that stood for them."""

    messages: tuple[Message, ...] = ()
    uuids: tuple[str, ...] = ()


class Recent:
    """The messages since the last compaction."""

    def __init__(self) -> None:
        """Begin with none."""
        self._stored: deque[_Held] = deque()
        self._size = 0

    def add(self, uuid: str, messages: Sequence[Message], size: int) -> None:
        """Hold the messages of a record or a response."""
        said = [each for each in messages if isinstance(each, UserMessage | AssistantMessage | ToolMessage)]
        if not said:
            return
        self._stored.append(_Held(uuid, said, size))
        self._size += size
        while len(self._stored) > MOST or (self._size > SIZE and len(self._stored) > 1):
            self._size -= self._stored.popleft().size

    def preserved(self, metadata: Fields, at: Mapping[str, str]) -> Preserved:
        """What a boundary says was preserved; ``at`` tells which entry a record became."""
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
        """Begin anew behind a compaction, with what it preserved."""
        self._stored = deque([each for each in self._stored if each.uuid in preserved.uuids])
        self._size = sum(each.size for each in self._stored)

    def _segment(self, entries: Sequence[str | None], ends: Sequence[str | None]) -> list[_Held]:
        """What is held from one entry to another; nothing when one of them is not."""
        if not ends or None in ends or any(each not in entries for each in ends):
            return []
        stop = len(entries) - entries[::-1].index(ends[-1])
        return list(self._stored)[entries.index(ends[0]) : stop]
