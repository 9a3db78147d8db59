"""The thread of one client, as a swarm writes it.

Rules:

- One append at a time, in the order of asking; ``append`` returns when the messages are kept. What was begun is
  finished, also when the caller is cancelled.
- Whoever shares a thread in this process shares its log: ``open_log`` gives the one that somebody holds already, where
  no other process wrote to the thread since.
- ``pushed`` is told every message that joined, records left out, one by one and in order.

Named values that a swarm keeps in threads: the active agent, states, items of a storage, bans (ADR 17: what a runtime
must remember is a record in its thread):

- A value has a ``kind`` (``navigation``, ``state``, ``storage:notes``, ``bans``) and a ``name``; the last record of
  both wins, a record without a value removes it, and one without a name removes all of its kind. So a value is kept,
  forked, exported and deleted with its thread, in one append.
- Values are JSON. What cannot be written raises ``SwarmError``, and nothing is changed.
- ``Records`` of a client stand in the client's own thread, which one process at a time writes, though two swarms of it
  may. ``SharedRecords`` stand in a thread that any process may write to. ``refresh`` takes in what others wrote.
- Reading costs what is new; a write costs one append; opening costs the length of the thread, once.

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
    """The one place where a client's thread grows. Raises ``StoreError`` as its store does."""

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
        """All of it, records included; costs what is new."""
        return self._journal.path

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries of the thread, on all branches, in the order in which they joined."""
        return self._journal.entries

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was said, markers included, records left out. Costs the length of the thread."""
        return tuple([each.message for each in self.path if RECORD not in each.message.tags])

    async def is_current(self) -> bool:
        """Whether nobody else wrote to the thread since. Raises ``StoreError``."""
        if not isinstance(self.thread, StoredThread):
            return True
        async with self._lock:
            try:
                last = await to_thread(self.thread.store.path, self.id, last=1)
            except NotFoundError:
                return False
            return (last[-1].id if last else None) == self.thread.head

    async def _append(self, messages: Sequence[Message]) -> tuple[Sequence[Entry], BaseException | None]:
        """What joined, and the cancellation that came meanwhile: asyncio's own goes past a shield."""
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
        """Let messages join, all or none, and tell ``pushed`` of each."""
        entries, cancelled = await self._append(messages)
        if pushed is not None:
            for entry in entries:
                if RECORD not in entry.message.tags:
                    pushed(entry.message)
        if cancelled is not None:
            raise cancelled

    async def rebase(self, kept: int, messages: Sequence[Message], seen: Collection[str | None]) -> None:
        """Let the thread go on behind ``kept`` entries of its path with other messages.

        Entries behind them stay in their places, unless their messages are among those that were ``seen`` (by id): so
        records, and what other agents keep to themselves, are not lost. What the thread was is a branch,
        ``main/before-<n>``. Raises ``StoreError``; then nothing was changed.
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
    """Return ``messages``, with what of a path nobody saw among them, each before what stood behind it."""
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
    """Open the log of a thread; the thread is begun where it does not exist. Raises ``StoreError``."""
    known = _OPEN.setdefault(store, WeakValueDictionary())
    held = log = known.get(thread)
    if log is None or not await log.is_current():
        log = Log(await to_thread(store.open, thread))
        if known.get(thread) is held:
            known[thread] = log
        else:  # somebody was quicker
            log = known.setdefault(thread, log)
    return log


# --- records ----------------------------------------------------------------------------------------------------------


SOURCE: Final = "swarm"
"""The ``source`` of such a record."""


class Values(Protocol):
    """Named values, as everything that keeps some asks for them."""

    @abstractmethod
    def get(self, kind: str, name: str, default: Any = None) -> Any:
        """The value, or ``default`` where there is none."""
        ...

    @abstractmethod
    def all(self, kind: str) -> Mapping[str, Any]:
        """All values of a kind, by name, in the order in which they were first kept."""
        ...

    @abstractmethod
    async def put(self, kind: str, name: str, value: Any) -> None:
        """Keep a value; when this has returned, it is kept. Raises ``SwarmError``, ``StoreError``."""
        ...

    @abstractmethod
    async def remove(self, kind: str, name: str) -> None:
        """Remove a value, if it is there."""
        ...

    @abstractmethod
    async def remove_all(self, kind: str) -> None:
        """Remove all values of a kind, all or none of them."""
        ...

    @abstractmethod
    async def refresh(self) -> None:
        """Take in what others wrote."""
        ...


def record(kind: str, name: str, value: Any) -> SystemMessage:
    """The message that keeps a value. Raises ``SwarmError`` when it is not JSON."""
    return _record({"kind": kind, "name": name, "value": _checked(kind, name, value)})


def _record(payload: dict[str, Any]) -> SystemMessage:
    return SystemMessage(source=SOURCE, tags=(RECORD,), mode="tool").replace(payload=payload)


def _checked(kind: str, name: str, value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise SwarmError(f"{kind} {name!r}: the value is not JSON: {error}") from error


def kept_by(message: Message) -> tuple[str, str, Any] | None:
    """The kind, the name and the value that a message keeps; ``None`` for one that keeps none."""
    if message.source != SOURCE or RECORD not in message.tags:
        return None
    told: Mapping[str, Any] = message.payload or {}
    return (str(told.get("kind")), str(told.get("name")), told["value"]) if "value" in told else None


class _Table:
    """What records say, by kind and name."""

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
    """Values in a thread that this process alone writes: a client's."""

    def __init__(self, log: Log) -> None:
        """Read what the thread holds."""
        super().__init__()
        self._log, self._seen = log, 0
        self._last: str | None = None
        self._follow()

    async def put(self, kind: str, name: str, value: Any) -> None:
        """Keep a value, in one append."""
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
        """Read what joined the thread since; all of it where a compaction replaced what was read."""
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
        """Know nothing yet."""
        super().__init__()
        self._store, self._thread, self._seen = store, thread, 0
        self._blocks = not isinstance(store, MemoryStore)
        self._lock = anyio.Lock()

    @classmethod
    async def load(cls, store: Store, thread: str) -> SharedRecords:
        """Read a thread; it is begun where it does not exist. Raises ``StoreError``."""
        made = cls(store, thread)
        await made._call(store.open, thread)
        await made.refresh()
        return made

    async def _call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        if self._blocks:
            return await to_thread(function, *args, **kwargs)
        return function(*args, **kwargs)

    async def put(self, kind: str, name: str, value: Any) -> None:
        """Keep a value, in one append."""
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
        """Read what joined the thread since."""
        async with self._lock:
            new: Sequence[Entry] = await self._call(self._store.read, self._thread, start=self._seen)
            self._seen += len(new)
            self.read(entry.message for entry in new)
