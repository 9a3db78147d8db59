"""The store contract, and the values that stores take and return.

Every store passes one conformance suite (``palaver.testing.stores``), which tests the docstrings of ``Store``.

Promised:

- *Durability.* When a method that writes has returned, its data survive the death of the process and, with the store's
  default settings, of the machine.
- *Atomicity.* Every reader sees the whole of what one call writes, or nothing, also after a crash.
- *No lost updates.* Appends of several writers to one branch follow each other. With ``expect``, the second one raises
  ``ConflictError``.
- *Fidelity.* Messages read back equal the stamped originals (law 1), with data of newer versions; base64 text, tool
  arguments and ids are identical byte for byte.
- *Retention.* Only ``delete`` removes messages; ``gc`` then removes them from the disk.

Not promised:

- Speed: calls block. Async code uses ``await to_thread(store.append, …)``.
- That a reader sees the write of another process before its ``append`` returned, or an order between threads.
- That a call which raised ``UnavailableError`` wrote nothing: only the answer may be lost. A repeated call with the
  same ``key`` is safe.

A store is safe for use from several OS threads, and, but for ``MemoryStore``, from several processes.

From async code, use ``await to_thread(store.append, "trip", [user("hi")])``.

``to_thread`` takes a function and its arguments, as ``asyncio.to_thread`` does, and works on asyncio and trio.

Rules:

- Values and exceptions pass through unchanged.
- A call that has started finishes. A caller in a cancelled scope waits for it and is cancelled afterwards; a call that
  waits for a thread does not start. ``asyncio.Task.cancel`` (and ``asyncio.timeout``) does not wait: the call
  finishes in the background.
- An event loop runs at most ``MAX_THREADS`` of these calls at once. They do not count against anyio's default limiter,
  so a slow disk does not block other work; there are many, so that a store can group appends into one commit.

Retention: which threads expire, and their deletion:

- Without ``max_age_days`` nothing expires. The other fields only spare threads.
- Age counts from the last change (``updated_at``).
- ``expired`` only reads. ``retain`` deletes what it lists, except threads that changed or vanished since; ``gc``
  removes their messages and blobs from the disk. The check and the deletion are two calls: an append between them is
  deleted with its thread.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, ParamSpec, Protocol, Self, TypeAlias, TypeVar, cast

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync
from msgspec import UNSET, Struct, UnsetType, structs

from palaver.core.errors import ConflictError, NotFoundError, StoreError
from palaver.core.messages import Message, Role
from palaver.core.parts import Blob
from palaver.core.type_checks import check_arguments
from palaver.core.value import short_repr
from palaver.store.stored_thread import StoredThread
from palaver.threads.ids import now_ms
from palaver.threads.thread import MAIN, Entry, Thread

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called from time to time with the amount done, and the total where it is known."""


class ThreadInfo(Struct, frozen=True, kw_only=True):
    """A thread without its messages. Times are Unix milliseconds.

    ``created_at`` is the creation, ``updated_at`` the last append or move of a branch. ``add`` (imports, copies) uses
    the times of the conversation: the first and the last ``sent_at`` of the messages. Title, tags and metadata change
    neither. ``length`` counts the entries of all branches; ``branches`` gives the head of each.
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
        """Return the set fields, shortened."""
        return short_repr(self)


class Appended(Struct, frozen=True):
    """The entries of an append; ``repeated`` if an earlier append with the same key made them."""

    entries: tuple[Entry, ...]
    repeated: bool = False

    @property
    def head(self) -> str | None:
        """The id of the last entry; ``None`` when nothing was appended."""
        return self.entries[-1].id if self.entries else None


class Addition(Struct, frozen=True, kw_only=True):
    """What ``Store.add_all`` adds to one thread: ``entries`` and ``branches`` as ``Store.add`` takes them.

    Title, tags and metadata are those of a thread that is missing; an existing one keeps its own.
    """

    thread: str
    entries: Sequence[Entry]
    branches: Mapping[str, str | None] = {}
    title: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}


class Query(Struct, frozen=True, kw_only=True):
    """A search. All fields that are set must match; without any, every message matches.

    ``text``: words that must all occur, in any order; ``"in quotes"`` is a phrase, ``be*`` a prefix. Case and variants
    are ignored. ``agent`` is the agent that wrote the message or that it was for (what a user said to it), ``tool`` the
    name of a tool that the message calls or answers for, and ``tag`` one tag of the message.
    ``since`` ≤ ``sent_at`` < ``until``, Unix milliseconds. Only the first 250,000 characters of a message are searched.
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
        """Raise ``StoreError`` for a field of another type, an unknown role, and a limit below 0."""
        check_arguments("Query", Query, structs.asdict(self), StoreError)
        if self.limit < 0:
            raise StoreError(f"Query: limit: expected 0 or more, got {self.limit}")


class Hit(Struct, frozen=True):
    """A message found by ``search``: its thread, its entry, and an excerpt around the match."""

    thread: str
    entry: Entry
    excerpt: str

    def __repr__(self) -> str:
        """Return the set fields, shortened."""
        return short_repr(self)


DamageKind: TypeAlias = Literal["torn", "altered", "missing", "unreadable"]


class Damage(Struct, frozen=True):
    """One defect of a store.

    ``kind``: ``torn`` (its end is missing), ``altered`` (its hash does not match), ``missing`` (something that is
    referred to does not exist) or ``unreadable``. ``place`` names table and row, or file and offset in bytes.
    """

    kind: DamageKind
    place: str
    reason: str
    thread: str | None = None
    entry: str | None = None

    def __str__(self) -> str:
        """``entries 17: altered (its hash does not match), thread trip``."""
        whose = "" if self.thread is None else f", thread {self.thread}"
        return f"{self.place}: {self.kind} ({self.reason}){whose}"


class Verified(Struct, frozen=True):
    """The counts and the damage that ``verify`` found. Sizes are in bytes."""

    threads: int = 0
    entries: int = 0
    blobs: int = 0
    size: int = 0
    damage: tuple[Damage, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no damage."""
        return not self.damage


class Freed(Struct, frozen=True):
    """What ``gc`` removed; ``size`` is the bytes freed on disk."""

    messages: int = 0
    blobs: int = 0
    size: int = 0


def check_given(method: str, **given: object) -> None:
    """Raise ``StoreError`` for arguments of a store method that have another type; for stores."""
    check_arguments(method, getattr(Store, method), given, StoreError)


def as_query(query: object) -> Query:
    """Return ``query`` as a ``Query``; a string becomes its text. For stores. Raises ``StoreError``."""
    check_given("search", query=query)
    return Query(text=query) if isinstance(query, str) else cast("Query", query)


class Store(Protocol):
    """Stores threads, as the module promises. Every method may raise ``UnavailableError``.

    ``thread`` is the id of a thread, ``branch`` the name of a branch, ``branches`` the heads by name; ``title``,
    ``tags`` and ``metadata`` describe a thread for people and applications. ``expect`` is the head that the caller
    knows. ``limit`` is the most results, ``data`` are bytes, and ``progress`` is called with the amount done and the
    total.
    """

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
        """Create a thread with the ``id``; without one, it gets a UUID version 7.

        Raises ``ConflictError`` when the id exists, and ``StoreError`` for an id that is empty, longer than
        200 characters, or holds control characters or lone surrogates. An id is never a path.
        """
        ...

    @abstractmethod
    def info(self, thread: str) -> ThreadInfo:
        """Return the title, tags, metadata, times and heads of a thread. Raises ``NotFoundError``."""
        ...

    @abstractmethod
    def threads(self, *, tag: str | None = None, limit: int | None = None) -> Iterator[ThreadInfo]:
        """Iterate over the threads, the most recently updated first; with ``tag``, over those that have it.

        Holds no lock between items. The order of threads updated in the same millisecond is not promised.
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
        """Change the fields that are given. Raises ``NotFoundError``."""
        ...

    @abstractmethod
    def delete(self, thread: str) -> None:
        """Remove a thread with its entries, keys and index entries.

        ``gc`` then removes messages and blobs that no other thread uses from the disk. Raises ``NotFoundError``.
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
        """Append ``messages``, stamped, to ``branch``, all or none; return when they are durable.

        ``expect`` is the head that the caller knows (``None``: an empty branch). ``key`` makes the call idempotent: a
        second call with the same key in the same thread adds nothing and returns the entries of the first. Raises
        ``ConflictError`` for another head, and for a known key with other messages; ``NotFoundError`` for an unknown
        thread or branch, and for a missing blob that a message names (``gc`` removes blobs that no message names).
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
        """Add existing ``entries``, parents first, and set heads, all or none; return the number of new ones.

        Known entries are skipped, so a copy can be repeated. A missing thread is created. Raises ``StoreError`` when a
        parent or a head is missing, or a known entry has another message or parent, and ``NotFoundError`` when a new
        entry names a missing blob. ``absent`` are hashes of blobs known to be lost: entries that name them are added,
        and ``verify`` reports them.
        """
        ...

    @abstractmethod
    def add_all(self, additions: Iterable[Addition]) -> int:
        """Add ``additions``, in order, to several threads; return the number of new entries.

        It costs less than ``add`` for each. Each addition is added whole or not at all.
        Raises as ``create`` and ``add`` do; then some may have been added.
        """
        ...

    @abstractmethod
    def read(self, thread: str, *, start: int = 0, stop: int | None = None) -> Sequence[Entry]:
        """Return the entries of all branches in the order of appends, from place ``start`` (from 0) to ``stop``.

        Places never change, so ``read(thread, start=n)`` returns what was added after the first ``n`` entries. Raises
        ``NotFoundError``, and ``DamageError`` for data that cannot be read back.
        """
        ...

    @abstractmethod
    def path(self, thread: str, of: str = MAIN, *, last: int | None = None) -> Sequence[Entry]:
        """Return the conversation up to the head of a branch or to an entry, oldest first; only its ``last`` entries.

        ``of`` is a branch, an entry's id, or a prefix of one. Raises as ``read`` does.
        """
        ...

    # -- branches --------------------------------------------------------------------------------------------------

    @abstractmethod
    def fork(self, thread: str, name: str, *, of: str = MAIN, at: str | UnsetType | None = UNSET) -> str | None:
        """Create the branch ``name`` at the entry ``at`` (``None``: before the first), else at the head of ``of``.

        Copies no message; returns the head. Raises ``ConflictError`` for a name that is taken, ``NotFoundError`` for an
        unknown place, ``StoreError`` for a name that no thread id could have.
        """
        ...

    @abstractmethod
    def rewind(
        self, thread: str, to: str | None, *, branch: str = MAIN, expect: str | UnsetType | None = UNSET
    ) -> None:
        """Move the head of ``branch`` to the entry ``to``, or before the first (``None``). Removes nothing.

        Raises ``NotFoundError``, and ``ConflictError`` as ``append`` does.
        """
        ...

    # -- search, media ---------------------------------------------------------------------------------------------

    @abstractmethod
    def search(self, query: Query | str) -> list[Hit]:
        """Return matching messages, the newest (``sent_at``, then place) first.

        ``query`` is a ``Query``, or its text. Raises ``StoreError`` for a text without any word.
        """
        ...

    def index(self, *, progress: Progress | None = None) -> int:  # noqa: ARG002 (for stores that have one)
        """Index messages appended since the last call; return their number.

        ``search`` does so too; call it after a large import, so that the first search is fast.
        """
        return 0

    @abstractmethod
    def put_blob(self, data: bytes) -> Blob:
        """Store bytes once, and return the blob, which a message takes as the source of media."""
        ...

    @abstractmethod
    def get_blob(self, blob: Blob | str) -> bytes:
        """Return the bytes of ``blob``, a blob or its hash.

        Raises ``NotFoundError``, and ``DamageError`` when the hash of the bytes differs.
        """
        ...

    # -- upkeep ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def verify(self, *, progress: Progress | None = None) -> Verified:
        """Read everything and derive every hash again. Returns damage instead of raising it; changes nothing."""
        ...

    @abstractmethod
    def gc(self, *, progress: Progress | None = None) -> Freed:
        """Remove messages of deleted threads and unused blobs from the disk."""
        ...

    @abstractmethod
    def close(self) -> None:
        """Finish pending writes, and close files and connections. Closing twice is allowed."""
        ...

    # -- what every store has ----------------------------------------------------------------------------------------

    def load(self, thread: str) -> Thread:
        """Read a whole thread into memory. Raises as ``read`` does."""
        info = self.info(thread)
        loaded = Thread(info.id)
        loaded.add(self.read(thread, stop=info.length), info.branches)
        return loaded

    def open(self, thread: str, branch: str = MAIN) -> StoredThread:
        """Load a thread into memory, to read it, append to it and fork it; a missing thread is created.

        Opening an existing thread writes nothing. Raises ``NotFoundError`` for an unknown branch, else as ``create``
        and ``read`` do, and ``StoreError`` for arguments that are not strings, before anything is created.
        """
        check_arguments("open", Store.open, {"thread": thread, "branch": branch}, StoreError)
        try:
            tree = self.load(thread)
        except NotFoundError:
            with suppress(ConflictError):  # another caller created it just now
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


# -- to thread -------------------------------------------------------------------------------------


MAX_THREADS: Final = 256

_P = ParamSpec("_P")
_T = TypeVar("_T")
_limiter: Final = RunVar[CapacityLimiter]("palaver.store.store")


async def to_thread(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function that blocks, such as a method of a store, without blocking the event loop."""
    return await run_sync(partial(function, *args, **kwargs), limiter=_current_limiter())


def _current_limiter() -> CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(MAX_THREADS)
        _limiter.set(limiter)
        return limiter


# -- retention -------------------------------------------------------------------------------------


_DAY: Final = 24 * 60 * 60 * 1000


class Retention(Struct, frozen=True, kw_only=True):
    """Threads expire when they have not changed for more than ``max_age_days``; with ``None``, never.

    The ``keep_newest`` threads that changed last are spared, and those with one of ``spare_tags``.
    """

    max_age_days: float | None = None
    keep_newest: int = 0
    spare_tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse negative numbers, so that a slip deletes nothing."""
        if self.max_age_days is not None and not self.max_age_days >= 0:  # NaN is refused too
            raise StoreError(f"max_age_days is {self.max_age_days}; it cannot be below zero")
        if self.keep_newest < 0:
            raise StoreError(f"keep_newest is {self.keep_newest}; it cannot be below zero")


def expired(store: Store, rule: Retention, now: int | None = None) -> list[ThreadInfo]:
    """Return the threads that expire at a time (Unix milliseconds, else now), the most recently updated first."""
    if rule.max_age_days is None:
        return []
    limit = (now_ms() if now is None else now) - rule.max_age_days * _DAY
    spared = set(rule.spare_tags)
    return [
        info
        for place, info in enumerate(store.threads())
        if place >= rule.keep_newest and info.updated_at < limit and spared.isdisjoint(info.tags)
    ]


def retain(store: Store, rule: Retention, now: int | None = None) -> list[str]:
    """Delete the threads that expire; return their ids."""
    deleted: list[str] = []
    for info in expired(store, rule, now):
        try:
            if store.info(info.id) == info:
                store.delete(info.id)
                deleted.append(info.id)
        except NotFoundError:  # another caller deleted it first
            continue
    return deleted
