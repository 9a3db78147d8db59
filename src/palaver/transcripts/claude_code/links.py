"""The links between the records of a session, and the leaf at which its program goes on.

Rules (docs/spec/dialects.md#2, *Tree*):

- Links are ``parentUuid`` only. A record that comes again under its ``uuid`` (forks and resumes write a chain again)
  stands where it came last.
- A terminal is a record that none names as its parent. Its leaf is the nearest record of a user or an assistant, up the
  chain; the walk ends at a cycle. The conversation goes on at the terminal whose leaf stands last in the file, among
  those that are no sidechain, no team mate's and not ``isMeta``; where there is none such, among all.
- What ``last-prompt`` names counts more, until more is said on a main line behind it.
- Two ids are held for each record.

Stability: experimental.
"""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        """Whether there was a record of that id."""
        return uuid in self._nodes

    def above(self, uuid: str | None) -> Iterator[str]:
        """The records from one up to its root, ``FAR`` of them at most."""
        for _ in range(FAR):
            if uuid is None:
                return
            yield uuid
            node = self._nodes.get(uuid)
            uuid = None if node is None else node.parent

    def end(self) -> str | None:
        """The terminal at which the conversation goes on; ``None`` when nothing was said."""
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
        """The way from a record; those that were walked before are not walked again."""
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
