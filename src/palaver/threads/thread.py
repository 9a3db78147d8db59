"""The thread: an append-only tree of messages, with named branches.

Rules:

- An entry is a message with an id (UUID version 7) and the id of its parent. Entries are never changed or removed
  (R01).
- An append stamps each message once: ``id`` with the id of its entry, ``sent_at`` with the time. Values that are set
  stay (MSG-06, C9, C10).
- A branch names a leaf, its head; ``None`` while it is empty. An append moves the head. ``fork`` names another place
  and copies nothing; ``rewind`` moves a head back, and the old leaf stays among the ``leaves`` (pains 6, 18).
- ``path(branch)`` is the conversation up to a head, oldest first: an immutable prefix of a growing list. The first path
  of a branch walks up the tree; later ones cost what was appended since.
- No I/O. A thread is not safe for use from several OS threads; a store is.

An immutable prefix of a list that only grows:

- Taking a prefix copies nothing, and the prefix never changes. The owner of the list may only append to it.
- ``continues`` tells in constant time whether one prefix extends another of the same list.

Usage totals of conversations, with each answer counted once (docs/spec/dialects.md#0.4, #17.7):

- ``response_id`` identifies an answer, else its message id. Branches, forks and sub-agents share answers, and files
  repeat them; each counts once over all messages given.
- Of several reports of one answer, the one with the most generated tokens counts: reports grow while an answer streams.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeVar, cast, overload

from msgspec import UNSET, Struct, UnsetType, structs

from palaver.core import notebook, type_checks
from palaver.core.errors import ConflictError, MessageError, NotFoundError, StoreError
from palaver.core.messages import MESSAGE_CLASSES, AssistantMessage, Message
from palaver.core.prompt_input import as_messages
from palaver.core.type_checks import check_arguments
from palaver.core.usage import Usage
from palaver.core.value import short_repr
from palaver.threads.ids import now_ms, uuid7

# -- prefix ----------------------------------------------------------------------------------------


T = TypeVar("T")


class ListPrefix(Sequence[T]):
    """The first ``length`` items of ``items``; immutable."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[T], length: int | None = None) -> None:
        """Wrap a list that only grows; without ``length``, all its present items."""
        self._items = items
        self._length = len(items) if length is None else length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        """Return the item at ``index``, or the items of a slice. Raises ``IndexError``."""
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step < 0:
                return [self._items[position] for position in range(start, stop, step)]
            return self._items[start:stop:step]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._items[index if index >= 0 else index + self._length]

    def continues(self, other: object) -> bool:
        """Whether this begins with all of ``other``, a prefix of the same list. Takes constant time.

        ``False`` for equal items in another list, and for any other object.
        """
        if not isinstance(other, ListPrefix):
            return False
        its = cast("ListPrefix[object]", other)
        return self._items is its._items and self._length >= len(its)  # noqa: SLF001 (of the same class)

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    def __eq__(self, other: object) -> bool:
        """Two are equal when their items are."""
        if not isinstance(other, ListPrefix):
            return NotImplemented
        others = cast("ListPrefix[object]", other)
        return len(self) == len(others) and all(mine == its for mine, its in zip(self, others, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the size, not the text."""
        return f"{type(self).__name__}({self._length} items)"


# -- thread ----------------------------------------------------------------------------------------


MAIN: Final = "main"
"""The branch that a thread begins with."""

RECORD: Final = "record"
"""Tag of a message without content in which a runtime stores state. No view shows it."""

_MIN_PREFIX: Final = 4


class Entry(Struct, frozen=True, gc=False):
    """A message in a thread. ``parent`` is the id of the entry before it, and ``None`` for a first message."""

    id: str
    parent: str | None
    message: Message

    def __repr__(self) -> str:
        """Return the set fields, shortened."""
        return short_repr(self)


class Path(ListPrefix[Entry]):
    """A conversation from its first entry to a leaf; immutable. ``path[-1]`` is the leaf."""

    __slots__ = ()

    @property
    def leaf(self) -> str | None:
        """The id of the last entry; ``None`` when there is none."""
        return self[-1].id if self else None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, oldest first, without records. Costs the length of the path."""
        return tuple([entry.message for entry in self if RECORD not in entry.message.tags])

    @property
    def records(self) -> tuple[Message, ...]:
        """The records that files and runtimes put between the messages, oldest first. Costs the length of the path."""
        return tuple([entry.message for entry in self if RECORD in entry.message.tags])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Show the conversation in a notebook."""
        return notebook.bundle(self, notebook.messages_html(self.messages))

    def __repr__(self) -> str:
        """Show the size and the leaf, not the text."""
        return f"Path({len(self)} entries, leaf={self.leaf!r})"


def stamped(message: Message, entry: str, now: int) -> Message:
    """Return the message with the id of its entry and the time, where it has none of its own."""
    if message.id is not None and message.sent_at is not None:
        return message
    return structs.replace(
        message,
        id=entry if message.id is None else message.id,
        sent_at=now if message.sent_at is None else message.sent_at,
    )


def verified(messages: Iterable[Message]) -> list[Message]:
    """Return the messages as a list, checked. Raises ``MessageError`` with the message and the field."""
    several = cast("object", messages)
    if isinstance(several, (str, bytes, Struct)) or not isinstance(several, Iterable):
        raise MessageError(f"messages: expected a list of messages, got {type(several).__name__}")
    given = list(cast("Iterable[object]", several))
    for index, message in enumerate(given):
        if not isinstance(message, MESSAGE_CLASSES):
            raise MessageError(f"messages[{index}]: expected a message, got {type(message).__name__}")
        try:
            type_checks.verify(message)
        except MessageError as error:
            raise MessageError(f"messages[{index}]: {error}") from None
    return cast("list[Message]", given)


class Thread:
    """A tree of messages in memory. ``id`` names it in a store; ``clock`` returns Unix milliseconds."""

    __slots__ = ("_at", "_branches", "_children", "_clock", "_entries", "_paths", "id")

    def __init__(self, id: str | None = None, *, clock: Callable[[], int] = now_ms) -> None:
        """Make an empty thread."""
        check_arguments("Thread", Thread.__init__, locals())
        self.id = uuid7() if id is None else id
        self._clock = clock
        self._entries: list[Entry] = []
        self._at: dict[str, int] = {}
        self._children: dict[str | None, list[str]] = {}
        self._branches: dict[str, str | None] = {MAIN: None}
        self._paths: dict[str, list[Entry]] = {}

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries, in the order in which they were added; nothing is copied."""
        return Path(self._entries)

    @property
    def branches(self) -> Mapping[str, str | None]:
        """The head of each branch, by its name."""
        return MappingProxyType(self._branches)

    @property
    def leaves(self) -> tuple[str, ...]:
        """The entries without a following entry, named by a branch or not, in the order in which they were added."""
        return tuple([entry.id for entry in self._entries if entry.id not in self._children])

    def __len__(self) -> int:
        """The number of entries, on all branches."""
        return len(self._entries)

    def __contains__(self, entry: object) -> bool:
        """Whether an entry of that id is in the thread."""
        return entry in self._at

    def entry(self, id: str) -> Entry:
        """Return the entry of an id. Raises ``NotFoundError``."""
        return self._entries[self.position(id)]

    def position(self, id: str) -> int:
        """Return the place of an entry in the order of appends. Raises ``NotFoundError``."""
        try:
            return self._at[id]
        except KeyError:
            raise NotFoundError(f"thread {self.id}: no entry {id!r}") from None

    def children(self, id: str | None) -> tuple[str, ...]:
        """Return the ids of the entries that follow an entry; for ``None``, of those without a parent."""
        return tuple(self._children.get(id, ()))

    def head(self, branch: str = MAIN) -> str | None:
        """Return the head of ``branch``; ``None`` while it is empty. Raises ``NotFoundError``."""
        try:
            return self._branches[branch]
        except KeyError:
            raise NotFoundError(f"thread {self.id}: no branch {branch!r}") from None

    def find(self, name: str) -> str | None:
        """Return the entry that ``name`` means: a branch, an id, or a prefix of one (4 characters or more).

        Raises ``NotFoundError`` for none, or more than one.
        """
        if name in self._branches:
            return self._branches[name]
        if name in self._at:
            return name
        found = [each for each in self._at if each.startswith(name)] if len(name) >= _MIN_PREFIX else []
        if len(found) != 1:
            why = "several entries match" if found else "no branch or entry has that name"
            raise NotFoundError(f"thread {self.id}: {name!r}: {why}")
        return found[0]

    def path(self, of: str = MAIN) -> Path:
        """Return the conversation up to ``of``: the head of a branch, or an entry, as ``find`` reads it.

        Raises ``NotFoundError``.
        """
        leaf = self.find(of)
        known = self._paths.get(of) if of in self._branches else None
        end = known[-1].id if known else None
        if known is not None and leaf == end:
            return Path(known)
        walked: list[Entry] = []
        while leaf is not None and leaf != end:
            entry = self._entries[self._at[leaf]]
            walked.append(entry)
            leaf = entry.parent
        walked.reverse()
        if known is None or leaf != end:
            known = walked
        else:
            known.extend(walked)
        if of in self._branches:
            self._paths[of] = known
        return Path(known)

    # -- growing ---------------------------------------------------------------------------------------------------

    def append(
        self, *messages: Message | str, branch: str = MAIN, expect: str | UnsetType | None = UNSET
    ) -> tuple[Entry, ...]:
        """Append stamped ``messages`` to ``branch``; return their entries. A text is a user message.

        ``expect`` is the head that the caller knows. Raises ``ConflictError`` when the head is another one,
        ``NotFoundError`` for a branch that does not exist, and ``MessageError`` for an invalid message.
        """
        head = self.checked_head(branch, expect)
        entries = self.new_entries(as_messages(messages), head, self._clock())
        self._add(entries)
        if entries:
            self._branches[branch] = entries[-1].id
        return entries

    def new_entries(self, messages: Iterable[Message], parent: str | None, now: int) -> tuple[Entry, ...]:
        """Make stamped entries of ``messages`` that follow ``parent``, without adding them.

        ``now`` is the time in Unix milliseconds, for messages without ``sent_at``. Raises ``MessageError`` for a value
        that is not a message, and for a message with a value of a wrong type.
        """
        entries: list[Entry] = []
        for message in verified(messages):
            entry = uuid7()
            entries.append(Entry(entry, parent, stamped(message, entry, now)))
            parent = entry
        return tuple(entries)

    def add(self, entries: Iterable[Entry], branches: Mapping[str, str | None] | None = None) -> int:
        """Add existing ``entries``, parents first, and set heads; return the number of new ones.

        ``branches`` are heads by branch name, which replace those that the thread has. Known entries are skipped.
        Raises ``StoreError``, and adds nothing, when a parent or a head is missing, or when a known entry has another
        message or parent.
        """
        new = self.missing(entries, branches or {})
        self._add(new)
        self._branches.update(branches or {})
        return len(new)

    def missing(self, entries: Iterable[Entry], branches: Mapping[str, str | None]) -> tuple[Entry, ...]:
        """Return the entries that ``add`` would add for ``entries`` and ``branches``. Raises as ``add`` does."""
        new: dict[str, Entry] = {}
        for entry in entries:
            known = self._entries[self._at[entry.id]] if entry.id in self._at else new.get(entry.id)
            if known is None:
                if entry.parent is not None and entry.parent not in self._at and entry.parent not in new:
                    raise StoreError(f"thread {self.id}: entry {entry.id} follows {entry.parent!r}, which is not there")
                new[entry.id] = entry
            elif known != entry:
                raise StoreError(f"thread {self.id}: entry {entry.id} already exists with other content")
        for name, head in branches.items():
            if head is not None and head not in self._at and head not in new:
                raise StoreError(f"thread {self.id}: the head of branch {name!r} is {head!r}, which is not there")
        return tuple(new.values())

    def _add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._at[entry.id] = len(self._entries)
            self._entries.append(entry)
            self._children.setdefault(entry.parent, []).append(entry.id)

    def checked_head(self, branch: str, expect: str | UnsetType | None) -> str | None:
        """Return the head of ``branch``. Raises ``NotFoundError``, and ``ConflictError`` when it is not ``expect``.

        ``expect`` is the id of an entry, ``None`` for an empty branch, or ``UNSET`` to accept any head.
        """
        head = self.head(branch)
        if expect is not UNSET and expect != head:
            raise head_conflict(self.id, branch, head)
        return head

    # -- branching -------------------------------------------------------------------------------------------------

    def fork(self, name: str, *, of: str = MAIN, at: str | UnsetType | None = UNSET) -> str | None:
        """Create the branch ``name`` at the entry ``at`` (``None``: before the first), else at the head of ``of``.

        Copies nothing; returns the head. Raises ``ConflictError`` for a name that is taken, ``NotFoundError`` for a
        place that is not there.
        """
        if name in self._branches:
            raise ConflictError(f"thread {self.id}: the branch {name!r} already exists", found=self._branches[name])
        head = self.head(of) if at is UNSET else at
        if head is not None:
            self.position(head)
        self._branches[name] = head
        return head

    def rewind(self, to: str | None, *, branch: str = MAIN, expect: str | UnsetType | None = UNSET) -> None:
        """Move the head of ``branch`` to the entry ``to``, or before the first (``None``). Removes nothing.

        ``expect`` is the head that the caller knows. Raises ``NotFoundError``, and ``ConflictError`` as ``append``
        does.
        """
        self.checked_head(branch, expect)
        if to is not None:
            self.position(to)
        self._branches[branch] = to

    def rebase(
        self, messages: Iterable[Message], *, onto: str | None, keep: str, branch: str = MAIN
    ) -> tuple[Entry, ...]:
        """Move ``branch`` behind the entry ``onto`` (``None``: to the beginning), and append ``messages`` there.

        The new branch ``keep`` has its old head. Removes nothing; returns the new entries. Raises ``NotFoundError`` for
        a place that is not there, and ``ConflictError`` when there is a branch ``keep``.
        """
        head = self.head(branch)
        if onto is not None:
            self.position(onto)
        entries = self.new_entries(messages, onto, self._clock())
        self.fork(keep, at=head)
        self._add(entries)
        self._branches[branch] = entries[-1].id if entries else onto
        return entries

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Show the main branch in a notebook."""
        messages = self.path().messages
        return notebook.bundle(self, notebook.thread_html(self.id, self._branches, messages))

    def __repr__(self) -> str:
        """Return the size, not the text."""
        return f"Thread({self.id!r}, {len(self._entries)} entries, branches={list(self._branches)})"


# -- accounting ------------------------------------------------------------------------------------


def head_conflict(thread: str, branch: str, head: str | None) -> ConflictError:
    """Return the error for a ``head`` of a branch that is not the one expected."""
    moved = "is empty: it was rewound, or the thread was deleted and created again"
    text = moved if head is None else f"has moved on to {head!r}"
    return ConflictError(f"thread {thread}: branch {branch!r} {text}", found=head)


def usage_once(messages: Iterable[Message]) -> Usage:
    """Return the total usage of the answers among ``messages``, each answer counted once.

    ``messages`` may come from any number of threads, branches and files.
    """
    largest: dict[object, Usage] = {}
    for place, message in enumerate(messages):
        if not isinstance(message, AssistantMessage) or message.usage is None:
            continue
        answer = message.response_id or message.id or place
        known = largest.get(answer)
        if known is None or _generated(message.usage) > _generated(known):
            largest[answer] = message.usage
    return sum(largest.values(), Usage())


def _generated(usage: Usage) -> int:
    return (usage.output or 0) + (usage.reasoning or 0)
