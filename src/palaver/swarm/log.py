"""The thread of one client, as a swarm writes it, and the values that it stores there.

Rules:

- Appends run one at a time, in the order of the calls; ``append`` returns when the messages are stored. A started
  append finishes, even when the caller is cancelled.
- All users of a thread in this process share its log: ``open_log`` returns an open one, if no other process has
  written to the thread since.
- ``pushed`` is called with each new message, without records, in order.

Named values that a swarm stores in threads: the active agent, states, items of a storage, bans (ADR 17: a runtime's
state is a record in its thread):

- A value has a ``kind`` (``navigation``, ``state``, ``storage:notes``, ``bans``) and a ``name``; the last record with
  both wins, a record without a value removes it, and one without a name removes all of its kind. So a value is stored,
  forked, exported and deleted with its thread, in one append.
- Values are JSON. Any other value raises ``SwarmError``, and nothing is changed.
- ``Records`` of a client are in the client's own thread, which one process at a time writes, though two swarms of it
  may. ``SharedRecords`` are in a thread that any process may write to. ``refresh`` reads what others wrote.
- Reading costs only new entries; a write costs one append; opening costs the length of the thread, once.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

import anyio
import msgspec

from palaver.core.errors import NotFoundError, StoreError, SwarmError
from palaver.core.messages import Message, SystemMessage
from palaver.store.memory import MemoryStore
from palaver.store.store import Store, to_thread
from palaver.store.stored_thread import StoredThread
from palaver.threads.thread import Entry, Path
from palaver.threads.view import RECORD
from palaver.turn.journal import AnyThread, Journal

# --- log --------------------------------------------------------------------------------------------------------------


_OPEN: Final[WeakKeyDictionary[Store, WeakValueDictionary[str, Log]]] = WeakKeyDictionary()


class Log:
    """The only writer of a client's thread. Raises ``StoreError`` as its store does."""

    __slots__ = ("__weakref__", "_journal", "_kept", "_lock", "_token", "thread")

    def __init__(self, thread: AnyThread) -> None:
        """Write to a thread, on its main branch."""
        self.thread = thread
        self._journal = Journal(thread)
        self._kept = isinstance(thread, StoredThread)
        self._lock = anyio.Lock()
        self._token = 0

    @property
    def id(self) -> str:
        """The id of the thread."""
        return self.thread.id

    @property
    def path(self) -> Path:
        """All entries, records included; costs only new ones."""
        return self._journal.path

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries of the thread, on all branches, in the order of appends."""
        return self._journal.entries

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, markers included, without records. Costs the length of the thread."""
        return tuple([each.message for each in self.path if RECORD not in each.message.tags])

    async def is_current(self) -> bool:
        """Return whether no other writer has changed the thread since. Raises ``StoreError``."""
        if not isinstance(self.thread, StoredThread):
            return True
        async with self._lock:
            try:
                last = await to_thread(self.thread.store.path, self.id, last=1)
            except NotFoundError:
                return False
            return (last[-1].id if last else None) == self.thread.head

    async def _append(self, messages: Sequence[Message]) -> tuple[Sequence[Entry], BaseException | None]:
        """Return the new entries, and a cancellation that arrived meanwhile: asyncio's own passes a shield."""
        if not self._kept:
            self._token += 1
            return await self._journal.append(messages, self._token), None
        cancelled: BaseException | None = None
        with anyio.CancelScope(shield=True):
            async with self._lock:
                self._token += 1
                while True:
                    try:
                        return await self._journal.append(messages, self._token), cancelled
                    except anyio.get_cancelled_exc_class() as error:
                        cancelled = cancelled or error
                    except StoreError:
                        if cancelled is None:
                            raise
                        break
        return (), cancelled

    async def append(self, messages: Sequence[Message], pushed: Callable[[Message], None] | None = None) -> None:
        """Append messages, all or none, and call ``pushed`` with each."""
        entries, cancelled = await self._append(messages)
        if pushed is not None:
            for entry in entries:
                if RECORD not in entry.message.tags:
                    pushed(entry.message)
        if cancelled is not None:
            raise cancelled

    async def rebase(self, kept: int, messages: Sequence[Message], seen: Collection[str | None]) -> None:
        """Replace the thread behind ``kept`` entries of its path by other messages.

        Later entries stay in place, unless their messages are among those that were ``seen`` (by id): so records, and
        messages for other agents only, are not lost. The earlier path is the branch ``main/before-<n>``. Raises
        ``StoreError``; then nothing was changed.
        """
        with anyio.CancelScope(shield=True):
            if not self._kept:
                await self._journal.rebase(kept, _with_unseen(self.path, kept, messages, seen))
                return
            async with self._lock:
                await self._journal.rebase(kept, _with_unseen(self.path, kept, messages, seen))


def _with_unseen(
    path: Sequence[Entry], kept: int, messages: Sequence[Message], seen: Collection[str | None]
) -> Sequence[Message]:
    """Return ``messages`` together with the unseen ones of a path, each before the message that followed it."""
    places = {message.id: place for place, message in enumerate(messages)}
    made: list[Message] = []
    done = 0
    for entry in path[kept:]:
        place = places.get(entry.message.id)
        if place is None:
            if entry.message.id not in seen:
                made.append(entry.message)
        elif place >= done:
            made += messages[done : place + 1]
            done = place + 1
    return (*made, *messages[done:])


async def open_log(store: Store, thread: str) -> Log:
    """Open the log of a thread, which is created if it is missing. Raises ``StoreError``."""
    known = _OPEN.setdefault(store, WeakValueDictionary())
    held = log = known.get(thread)
    if log is None or not await log.is_current():
        log = Log(await to_thread(store.open, thread))
        if known.get(thread) is held:
            known[thread] = log
        else:  # another caller was faster
            log = known.setdefault(thread, log)
    return log


# --- records ----------------------------------------------------------------------------------------------------------


SOURCE: Final = "swarm"
"""The ``source`` of a record of a value."""


class Values(Protocol):
    """The interface of named values."""

    @abstractmethod
    def get(self, kind: str, name: str, default: Any = None) -> Any:
        """Return the value, or ``default`` without one."""
        ...

    @abstractmethod
    def all(self, kind: str) -> Mapping[str, Any]:
        """Return all values of a kind, by name, in the order of their first storing."""
        ...

    @abstractmethod
    async def put(self, kind: str, name: str, value: Any) -> None:
        """Store a value; it is durable when this has returned. Raises ``SwarmError``, ``StoreError``."""
        ...

    @abstractmethod
    async def remove(self, kind: str, name: str) -> None:
        """Remove a value, if it exists."""
        ...

    @abstractmethod
    async def remove_all(self, kind: str) -> None:
        """Remove all values of a kind, all or none of them."""
        ...

    @abstractmethod
    async def refresh(self) -> None:
        """Read what others wrote."""
        ...


def record(kind: str, name: str, value: Any) -> SystemMessage:
    """Return the message that stores a value. Raises ``SwarmError`` when it is not JSON."""
    return _record({"kind": kind, "name": name, "value": _checked(kind, name, value)})


def _record(payload: dict[str, Any]) -> SystemMessage:
    return SystemMessage(source=SOURCE, tags=(RECORD,), mode="tool").replace(payload=payload)


def _checked(kind: str, name: str, value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise SwarmError(f"{kind} {name!r}: the value is not JSON: {error}") from error


def kept_by(message: Message) -> tuple[str, str, Any] | None:
    """Return the kind, the name and the value of a record; ``None`` for any other message."""
    if message.source != SOURCE or RECORD not in message.tags:
        return None
    told: Mapping[str, Any] = message.payload or {}
    return (str(told.get("kind")), str(told.get("name")), told["value"]) if "value" in told else None


class _Table:
    """The values of records, by kind and name."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, Any]] = {}

    def read(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if message.source == SOURCE and RECORD in message.tags:
                told: Mapping[str, Any] = message.payload or {}
                values = self._kinds.setdefault(str(told.get("kind")), {})
                if "name" not in told:
                    values.clear()
                elif "value" in told:
                    values[str(told.get("name"))] = told["value"]
                else:
                    values.pop(str(told.get("name")), None)

    def get(self, kind: str, name: str, default: Any = None) -> Any:
        return self._kinds.get(kind, {}).get(name, default)

    def all(self, kind: str) -> Mapping[str, Any]:
        return dict(self._kinds.get(kind, {}))


class Records(_Table, Values):
    """Values in a thread that only this process writes: a client's."""

    def __init__(self, log: Log) -> None:
        """Read the values of the thread."""
        super().__init__()
        self._log, self._seen = log, 0
        self._last: str | None = None
        self._follow()

    async def put(self, kind: str, name: str, value: Any) -> None:
        """Store a value, in one append."""
        await self._keep(record(kind, name, value))

    async def remove(self, kind: str, name: str) -> None:
        """Remove a value, in one append."""
        if name in self.all(kind):
            await self._keep(_record({"kind": kind, "name": name}))

    async def remove_all(self, kind: str) -> None:
        """Remove all values of a kind, in one append, if there are any."""
        if self.all(kind):
            await self._keep(_record({"kind": kind}))

    async def _keep(self, message: Message) -> None:
        try:
            await self._log.append([message])
        finally:
            self._follow()

    def _follow(self) -> None:
        """Read new entries of the thread; all of them after a compaction replaced some."""
        path = self._log.path
        if self._seen and (self._seen > len(path) or path[self._seen - 1].id != self._last):
            self._kinds.clear()
            self._seen = 0
        new = path[self._seen :]
        if new:
            self._seen += len(new)
            self._last = new[-1].id
        self.read(entry.message for entry in new)

    async def refresh(self) -> None:
        """Read what another swarm of this process wrote."""
        self._follow()


class SharedRecords(_Table, Values):
    """Values in a thread that any process may write to. ``load`` makes one."""

    def __init__(self, store: Store, thread: str) -> None:
        """Start without values."""
        super().__init__()
        self._store, self._thread, self._seen = store, thread, 0
        self._blocks = not isinstance(store, MemoryStore)
        self._lock = anyio.Lock()

    @classmethod
    async def load(cls, store: Store, thread: str) -> SharedRecords:
        """Read a thread, which is created if it is missing. Raises ``StoreError``."""
        made = cls(store, thread)
        await made._call(store.open, thread)
        await made.refresh()
        return made

    async def _call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        if self._blocks:
            return await to_thread(function, *args, **kwargs)
        return function(*args, **kwargs)

    async def put(self, kind: str, name: str, value: Any) -> None:
        """Store a value, in one append."""
        await self._keep(record(kind, name, value))

    async def remove(self, kind: str, name: str) -> None:
        """Remove a value, in one append."""
        await self._keep(_record({"kind": kind, "name": name}))

    async def remove_all(self, kind: str) -> None:
        """Remove all values of a kind, in one append."""
        await self._keep(_record({"kind": kind}))

    async def _keep(self, message: Message) -> None:
        with anyio.CancelScope(shield=True):
            await self._call(self._store.append, self._thread, [message])
            await self.refresh()

    async def refresh(self) -> None:
        """Read the new entries of the thread."""
        async with self._lock:
            new: Sequence[Entry] = await self._call(self._store.read, self._thread, start=self._seen)
            self._seen += len(new)
            self.read(entry.message for entry in new)
