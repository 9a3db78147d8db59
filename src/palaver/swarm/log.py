"""The thread of one client, as a swarm writes it.

Rules:

- One append at a time, in the order of asking; ``append`` returns when the messages are kept. What was begun is
  finished, also when the caller is cancelled.
- Whoever shares a thread in this process shares its log: ``open_log`` gives the one that somebody holds already, where
  no other process wrote to the thread since.
- ``pushed`` is told every message that joined, records left out, one by one and in order.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

import anyio

from palaver.agent.journal import AnyThread, Journal
from palaver.core.errors import NotFoundError, StoreError
from palaver.core.messages import Message
from palaver.store.in_thread import in_thread
from palaver.store.store import Store
from palaver.store.stored import StoredThread
from palaver.threads.thread import Entry, Path
from palaver.threads.view import RECORD

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
    def messages(self) -> tuple[Message, ...]:
        """What was said, markers included, records left out. Costs the length of the thread."""
        return tuple([each.message for each in self.path if RECORD not in each.message.tags])

    async def is_current(self) -> bool:
        """Whether nobody else wrote to the thread since. Raises ``StoreError``."""
        if not isinstance(self.thread, StoredThread):
            return True
        async with self._lock:
            try:
                last = await in_thread(self.thread.store.path, self.id, last=1)
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


async def open_log(store: Store, thread: str) -> Log:
    """Open the log of a thread; the thread is begun where it does not exist. Raises ``StoreError``."""
    known = _OPEN.setdefault(store, WeakValueDictionary())
    held = log = known.get(thread)
    if log is None or not await log.is_current():
        log = Log(await in_thread(store.open, thread))
        if known.get(thread) is held:
            known[thread] = log
        else:  # somebody was quicker
            log = known.setdefault(thread, log)
    return log
