"""The contract of a store, and the values that it takes and gives.

A store keeps threads. Every store passes the one conformance suite (``palaver.testing.stores``); the docstrings of
``Store`` say what that suite holds it to.

What is promised:

- *Acknowledged means kept.* When a method that writes has returned, what it wrote survives the death of the process,
  and, with the store's default settings, of the machine.
- *Whole or not at all.* What one call writes is seen whole, or not at all, by every reader and after every crash.
- *Nothing is lost to a race.* Appends of several writers to one branch stand one behind the other. With ``expect``,
  the one who came second is told instead.
- *What was given comes back.* Messages read back equal those that were given, stamped (law 1); what a newer version
  wrote is kept; base64 text, tool arguments and ids come back byte for byte.
- *Nothing disappears unasked.* Only ``delete`` removes messages, and then they are gone: ``gc`` also from the disk.

What is not promised:

- That a call is quick: it blocks. From async code, call it as ``await to_thread(store.append, …)``.
- That a reader sees what another process wrote before its ``append`` has returned; nor any order between threads.
- That a failed call wrote nothing when the cause is ``UnavailableError``: the answer may be what was lost. Calling
  again with the same ``key`` is safe, and says which.

A store is safe for use from several OS threads, and, but for ``MemoryStore``, from several processes.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias

from msgspec import UNSET, Struct, UnsetType, structs

from palaver.core.errors import ConflictError, NotFoundError, StoreError
from palaver.core.messages import Message, Role
from palaver.core.parts import Blob
from palaver.core.type_checks import check_arguments
from palaver.core.value import short_repr
from palaver.store.stored_thread import StoredThread
from palaver.threads.thread import MAIN, Entry, Thread

if TYPE_CHECKING:
    from types import TracebackType

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called now and then with what is done, and what there is to do where that is known."""


class ThreadInfo(Struct, frozen=True, kw_only=True):
    """What a store knows of a thread beside its messages. Times are Unix milliseconds.

    ``created_at`` is when it began, ``updated_at`` when messages joined or a branch moved last. What joins as it is (an
    import, a copy) has the times of the conversation: of the messages that joined, the first and the last ``sent_at``.
    Title, tags and metadata change neither.
    ``length`` counts the entries of all branches; ``branches`` gives the head of each.
    """

    id: str
    title: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}
    created_at: int
    updated_at: int
    length: int
    branches: Mapping[str, str | None]

    def __repr__(self) -> str:
        """Show what was set, shortened."""
        return short_repr(self)


class Appended(Struct, frozen=True):
    """What became of an append: the entries, and whether an earlier one with the same key had made them."""

    entries: tuple[Entry, ...]
    repeated: bool = False

    @property
    def head(self) -> str | None:
        """The id of the last entry; ``None`` when nothing was appended."""
        return self.entries[-1].id if self.entries else None


class Query(Struct, frozen=True, kw_only=True):
    """What to look for. Everything that is set must hold; nothing set finds every message.

    ``text``: words that must all occur, in any order; ``"in quotes"`` a phrase; ``be*`` the beginning of a word. Case
    and variants do not matter. ``tool`` is the name of a tool that was called, or that answered; ``tag`` one tag of
    the message. ``since`` ≤ ``sent_at`` < ``until``, Unix milliseconds. Only the first 250,000 characters of a message
    are searched.
    """

    text: str = ""
    role: Role | None = None
    agent: str | None = None
    tool: str | None = None
    tag: str | None = None
    since: int | None = None
    until: int | None = None
    thread: str | None = None
    limit: int = 20

    def __post_init__(self) -> None:
        """Raise ``StoreError`` for a field of another type, a role that there is not, and a limit below 0."""
        check_arguments("Query", Query, structs.asdict(self), StoreError)
        if self.limit < 0:
            raise StoreError(f"Query: limit: expected 0 or more, got {self.limit}")


class Hit(Struct, frozen=True):
    """A message that was found: its thread, its entry, and the stretch of its text where the words stand."""

    thread: str
    entry: Entry
    excerpt: str

    def __repr__(self) -> str:
        """Show what was set, shortened."""
        return short_repr(self)


DamageKind: TypeAlias = Literal["torn", "altered", "missing", "unreadable"]


class Damage(Struct, frozen=True):
    """One thing that is not as it was written.

    ``kind``: ``torn`` (the end of it is not there), ``altered`` (its hash does not agree), ``missing`` (something
    that is referred to is not there) or ``unreadable``. ``place`` names table and row, or file and offset in bytes.
    """

    kind: DamageKind
    place: str
    reason: str
    thread: str | None = None
    entry: str | None = None

    def __str__(self) -> str:
        """``entries 17: altered (its hash does not agree), thread trip``."""
        whose = "" if self.thread is None else f", thread {self.thread}"
        return f"{self.place}: {self.kind} ({self.reason}){whose}"


class Verified(Struct, frozen=True):
    """What ``verify`` looked at, and what is wrong with it. Sizes are in bytes."""

    threads: int = 0
    entries: int = 0
    blobs: int = 0
    size: int = 0
    damage: tuple[Damage, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damage


class Freed(Struct, frozen=True):
    """What ``gc`` removed, that nothing referred to; ``size`` is by how many bytes the store on disk is smaller."""

    messages: int = 0
    blobs: int = 0
    size: int = 0


def check_given(method: str, **given: object) -> None:
    """Raise ``StoreError`` where what a method of a store was given is of another type; for stores."""
    check_arguments(method, getattr(Store, method), given, StoreError)


class Store(Protocol):
    """Keeps threads. See the module for what is promised; every method may raise ``UnavailableError``."""

    # -- threads ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def create(
        self,
        id: str | None = None,
        *,
        title: str | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> ThreadInfo:
        """Begin a thread; without an id it gets one (UUID version 7).

        Raises ``ConflictError`` when there is one of that id, and ``StoreError`` for an id that is empty, longer than
        200 characters, or holds control characters or lone surrogates. An id is never a path.
        """
        ...

    @abstractmethod
    def info(self, thread: str) -> ThreadInfo:
        """What is known of a thread. Raises ``NotFoundError``."""
        ...

    @abstractmethod
    def threads(self, *, tag: str | None = None, limit: int | None = None) -> Iterator[ThreadInfo]:
        """The threads, those that went on last first, those of one ``tag`` where asked.

        Holds no lock between two items. Times are milliseconds: of threads that changed in the same one, the order is
        not promised.
        """
        ...

    @abstractmethod
    def update(
        self,
        thread: str,
        *,
        title: str | UnsetType | None = UNSET,
        tags: Iterable[str] | UnsetType = UNSET,
        metadata: Mapping[str, Any] | UnsetType = UNSET,
    ) -> ThreadInfo:
        """Change what is given, and nothing else. Raises ``NotFoundError``."""
        ...

    @abstractmethod
    def delete(self, thread: str) -> None:
        """Remove a thread with all its entries, keys and words.

        What it said is found by no method any more. Messages and blobs that no other thread holds are removed from the
        disk by ``gc``. Raises ``NotFoundError``.
        """
        ...

    # -- messages --------------------------------------------------------------------------------------------------

    @abstractmethod
    def append(
        self,
        thread: str,
        messages: Iterable[Message],
        *,
        branch: str = MAIN,
        expect: str | UnsetType | None = UNSET,
        key: str | None = None,
    ) -> Appended:
        """Let messages join at the end of a branch, stamped, all or none; return when they are kept.

        ``expect`` is the head that the caller knows (``None``: an empty branch). ``key`` makes the call safe to repeat:
        the second with the same key in the same thread adds nothing, and gives what the first made, wherever the
        head is by then. Raises
        ``ConflictError`` for another head, and for a known key with other messages; ``NotFoundError`` for an unknown
        thread or branch, and for a blob that a message names and that is not there: ``gc`` removes what no message
        names yet.
        """
        ...

    @abstractmethod
    def add(
        self,
        thread: str,
        entries: Iterable[Entry],
        *,
        branches: Mapping[str, str | None] | None = None,
        absent: Collection[str] = (),
    ) -> int:
        """Add entries as they are, parents first, and set heads; give how many were new. All or none.

        Entries that are there already are passed over, so that a copy can be repeated. The thread is begun where it
        does not exist. Raises ``StoreError`` when a parent or a head is missing, or an entry is there with another
        message or parent, and ``NotFoundError`` when a new entry names a blob that is not there. ``absent`` are the
        hashes of blobs that are known to be lost: entries that name them are added all the same, and ``verify``
        reports them.
        """
        ...

    @abstractmethod
    def read(self, thread: str, *, start: int = 0, stop: int | None = None) -> Sequence[Entry]:
        """The entries of all branches in the order of joining, from the place ``start`` on: ``0`` is the first.

        Places never change, so ``read(thread, start=n)`` gives what joined since ``n`` entries were seen. Raises
        ``NotFoundError``, and ``DamageError`` for what cannot be read back.
        """
        ...

    @abstractmethod
    def path(self, thread: str, of: str = MAIN, *, last: int | None = None) -> Sequence[Entry]:
        """The conversation that ends in the head of a branch or in an entry, oldest first; only its ``last`` entries.

        ``of`` is a branch, an entry's id, or its beginning. Raises as ``read`` does.
        """
        ...

    # -- branches --------------------------------------------------------------------------------------------------

    @abstractmethod
    def fork(self, thread: str, name: str, *, of: str = MAIN, at: str | UnsetType | None = UNSET) -> str | None:
        """Name a new branch that begins at an entry (``None``: before the first), else at the head of ``of``.

        Copies no message; gives the head. Raises ``ConflictError`` for a name that is taken, ``NotFoundError`` for a
        place that is not there, ``StoreError`` for a name that no thread id could be.
        """
        ...

    @abstractmethod
    def rewind(
        self, thread: str, to: str | None, *, branch: str = MAIN, expect: str | UnsetType | None = UNSET
    ) -> None:
        """Move the head of a branch to an entry, or before the first (``None``). Removes nothing.

        Raises ``NotFoundError``, and ``ConflictError`` as ``append`` does.
        """
        ...

    # -- search, media ---------------------------------------------------------------------------------------------

    @abstractmethod
    def search(self, query: Query) -> list[Hit]:
        """Find messages, the newest (``sent_at``, then place) first.

        Raises ``StoreError`` for a text without any word.
        """
        ...

    def index(self, *, progress: Progress | None = None) -> int:  # noqa: ARG002 (for stores that have one)
        """Make what was appended since the last time ready for ``search``, which does so too; give how many it was.

        Whoever took in much calls it, so that the first search need not.
        """
        return 0

    @abstractmethod
    def put_blob(self, data: bytes) -> Blob:
        """Keep bytes, once however often they are given; the blob goes into a message as its source."""
        ...

    @abstractmethod
    def get_blob(self, blob: Blob | str) -> bytes:
        """The bytes of a blob. Raises ``NotFoundError``, and ``DamageError`` when they do not agree with their hash."""
        ...

    # -- upkeep ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def verify(self, *, progress: Progress | None = None) -> Verified:
        """Read everything and derive every hash again. Reports damage, raises none, changes nothing."""
        ...

    @abstractmethod
    def gc(self, *, progress: Progress | None = None) -> Freed:
        """Remove from the disk what nothing refers to any more: messages of deleted threads, and unused blobs."""
        ...

    @abstractmethod
    def close(self) -> None:
        """Finish what was begun, and let go of files and connections. Closing twice is allowed."""
        ...

    # -- what every store has ----------------------------------------------------------------------------------------

    def load(self, thread: str) -> Thread:
        """Read a whole thread into memory. Raises as ``read`` does."""
        info = self.info(thread)
        loaded = Thread(info.id)
        loaded.add(self.read(thread, stop=info.length), info.branches)
        return loaded

    def open(self, thread: str, branch: str = MAIN) -> StoredThread:
        """Hold a thread in memory, to read it, append to it and fork it; it is begun where it does not exist.

        Opening what is there writes nothing. Raises ``NotFoundError`` for an unknown branch, else as ``create`` and
        ``read`` do, and ``StoreError`` for what is no text, so that nothing is begun for it.
        """
        check_arguments("open", Store.open, {"thread": thread, "branch": branch}, StoreError)
        try:
            tree = self.load(thread)
        except NotFoundError:
            with suppress(ConflictError):  # another began it just now
                self.create(thread)
            tree = self.load(thread)
        return StoredThread(self, tree).on(branch)

    def __enter__(self) -> Self:
        """Close the store at the end of a ``with`` block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()
