"""One branch of a thread as a run writes it, the log of the run, and the messages to replay to the model.

Rules:

- ``append`` returns when the messages are stored. After a cancellation it is repeated with the same token, so no
  message is lost or stored twice. Another writer's append makes the next one fail with ``ConflictError``.
- ``rebase`` replaces the end of the branch, completely or not at all; the original stays on a branch of its own.
- The log gets every entry of the run, in order. An error of the log stops nothing; it is in ``failures`` (DAS-21).
- ``ReplayView`` is the model's view of a thread. It repairs turns that broke off, and costs what is new.
- ``Depths`` numbers entries by how many ever stood before them, before any compaction: the same in every process.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from inspect import isawaitable
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

from anyio import CancelScope

from palaver.context.rewrite import depth_of
from palaver.core.errors import MessageError, excerpt
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.pairs import REPAIR
from palaver.store.jsonl import LogContext
from palaver.store.store import to_thread
from palaver.store.stored_thread import StoredThread
from palaver.threads.repair import repair
from palaver.threads.thread import MAIN, Entry, ListPrefix, Path, Thread
from palaver.threads.view import ModelView

if TYPE_CHECKING:
    from palaver.store.jsonl.log import LogSink


# --- journal ----------------------------------------------------------------------------------------------------------


AnyThread: TypeAlias = Thread | StoredThread


def check_log(log: object) -> None:
    """Raise ``MessageError`` for a log without a method ``append``."""
    if log is not None and not callable(getattr(log, "append", None)):
        raise MessageError(f"log: {excerpt(repr(log))} has no method append(message, context)")


class Journal:
    """One branch of a thread, as a run writes it. ``run`` and ``agent`` are names for the log."""

    def __init__(
        self, thread: AnyThread, branch: str = MAIN, *, agent: str = "", run: str = "", log: LogSink | None = None
    ) -> None:
        """Write to a thread. The branch of a ``StoredThread`` is its own."""
        self.thread = thread
        self.branch = thread.branch if isinstance(thread, StoredThread) else branch
        self._agent, self._run, self._log = agent, run, log
        self._lock = Lock()
        self._pending: list[Awaitable[object]] = []
        self._done = 0
        self._last: tuple[Entry, ...] = ()
        self._tree = thread.tree if isinstance(thread, StoredThread) else thread
        self._head = self._tree.head(self.branch)
        self.failures: list[Exception] = []
        """Errors of the log that were not reported yet."""
        self._blocks = isinstance(thread, StoredThread) or log is not None
        self.start = len(self.path)
        """How many entries the path had before the run."""
        self.round: int | None = None
        """The number of the current answer, for the log."""
        self.seconds: float | None = None
        """Seconds that the answer took."""

    @property
    def path(self) -> Path:
        """The conversation so far; costs what is new."""
        return self.thread.path() if isinstance(self.thread, StoredThread) else self.thread.path(self.branch)

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries of the thread, on all branches, in the order in which they were appended."""
        return self._tree.entries

    async def append(self, messages: Sequence[Message], token: int) -> tuple[Entry, ...]:
        """Append messages. ``token`` is a number that grows with each append. Raises ``StoreError``."""
        try:
            if self._blocks:
                return await to_thread(self._append, messages, token)
            return self._append(messages, token)
        finally:
            await self._logging_done()

    def _append(self, messages: Sequence[Message], token: int) -> tuple[Entry, ...]:
        with self._lock:
            if token <= self._done:
                return self._last
            self._tree.checked_head(self.branch, self._head)
            if isinstance(self.thread, StoredThread):
                entries = self.thread.append(*messages)
            else:
                entries = self.thread.append(*messages, branch=self.branch)
            self._done, self._last = token, entries
            self._head = entries[-1].id if entries else self._head
            if self._log is not None:
                self._write(self._log, entries)
            return entries

    async def rebase(self, kept: int, messages: Sequence[Message]) -> Path:
        """Keep ``kept`` entries of the path and append other messages behind them. Return the new path.

        The original stays as a branch ``<branch>/before-<n>``. Raises ``StoreError`` and then changes nothing.
        """
        try:
            if self._blocks:
                return await to_thread(self._rebase, kept, messages)
            return self._rebase(kept, messages)
        finally:
            await self._logging_done()

    def _rebase(self, kept: int, messages: Sequence[Message]) -> Path:
        with self._lock:
            self._tree.checked_head(self.branch, self._head)
            path = self.path
            mine = {entry.message.id for entry in path[max(self.start, kept) :]}
            keep = before_name(self._tree, self.branch)
            onto = path[kept - 1].id if kept else None
            if isinstance(self.thread, StoredThread):
                entries = self.thread.rebase(messages, onto=onto, keep=keep)
            else:
                entries = self.thread.rebase(messages, onto=onto, keep=keep, branch=self.branch)
            self._head = entries[-1].id if entries else onto
            if self.start > kept:
                found = [place for place, entry in enumerate(entries) if entry.message.id in mine]
                self.start = kept + (found[0] if found else len(entries))
            if self._log is not None:
                self._write(self._log, entries, keep)
            return self.path

    async def rebased(self, entries: Sequence[Entry], keep: str) -> None:
        """Log entries that replaced the end of the branch; ``keep`` names the branch that has the original."""
        if self._log is not None:
            await to_thread(self._write, self._log, entries, keep)
            await self._logging_done()

    def _write(self, log: LogSink, entries: Sequence[Entry], keep: str | None = None) -> None:
        """Pass entries to the log; ``keep`` names the branch that has the original."""
        for entry in entries:
            try:
                pending = log.append(entry.message, self._logged(entry, keep if entry is entries[0] else None))
            except Exception as error:  # noqa: BLE001 (an error of a log must not stop the run)
                self.failures.append(error)
            else:
                if isawaitable(pending):
                    self._pending.append(pending)

    async def _logging_done(self) -> None:
        """Await what the log returned, in order; also when the run is cancelled, since nobody else awaits it."""
        if not self._pending:
            return
        with CancelScope(shield=True):
            while self._pending:
                try:
                    await self._pending.pop(0)
                except Exception as error:  # noqa: BLE001 (as in `_write`)
                    self.failures.append(error)

    def _logged(self, entry: Entry, keep: str | None) -> LogContext:
        message = entry.message
        answer = message if isinstance(message, AssistantMessage) else None
        return LogContext(
            thread=self.thread.id,
            run=self._run,
            agent=message.agent or self._agent,
            model=None if answer is None else answer.model,
            round=self.round,
            generation_seconds=None if answer is None else self.seconds,
            entry=entry.id,
            parent=entry.parent,
            branch=self.branch,
            kept=keep,
        )


def before_name(tree: Thread, branch: str) -> str:
    """Return a free name for the original of a branch: the next number, found in logarithmic time."""
    last, free = 0, 1
    while f"{branch}/before-{free}" in tree.branches:
        last, free = free, free * 2
    while free - last > 1:
        middle = (last + free) // 2
        if f"{branch}/before-{middle}" in tree.branches:
            last = middle
        else:
            free = middle
    return f"{branch}/before-{free}"


# --- replay view ------------------------------------------------------------------------------------------------------


class ReplayView:
    """The messages for the model. Call it with each new path of one conversation."""

    def __init__(self) -> None:
        """Start with an empty view."""
        self._view = ModelView()
        self._visible: ListPrefix[Message] | None = None
        self._own: list[Message] | None = None
        self._awaits = False  # whether the list ends in placeholders for missing results

    def __call__(self, path: Sequence[Entry]) -> Sequence[Message]:
        """Return the messages at the end of a path; immutable."""
        visible = self._view(path)
        assert isinstance(visible, ListPrefix)  # noqa: S101 (it is, without ``keep``)
        before, self._visible = self._visible, visible
        new = visible[len(before) :] if before is not None and visible.continues(before) else None
        # A repair adds placeholder results for open calls; they are replaced when the real results come.
        if new is None or any(map(_broke_off, new)) or (self._awaits and _answers(new)):
            repaired = repair(visible).messages
            self._own = None if repaired is visible else list(repaired)
            self._awaits = self._own is not None and _ends_in_repair(self._own)
        elif self._own is not None and new:
            self._own += new
            self._awaits = self._awaits and not any(isinstance(each, AssistantMessage) for each in new)
        return visible if self._own is None else ListPrefix(self._own)


def _broke_off(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and message.finish_reason == "error"


def _answers(new: Sequence[Message]) -> bool:
    """Whether a result comes before the next answer."""
    for message in new:
        if isinstance(message, ToolMessage | AssistantMessage):
            return isinstance(message, ToolMessage)
    return False


def _ends_in_repair(messages: Sequence[Message]) -> bool:
    """Whether a placeholder result of a repair stands behind the last answer."""
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            return False
        if isinstance(message, ToolMessage) and message.source == REPAIR:
            return True
    return False


# --- depths -----------------------------------------------------------------------------------------------------------


class Depths:
    """The depths of entries of one path."""

    __slots__ = ("_last", "_offset", "_read")

    def __init__(self) -> None:
        """Start before the first entry."""
        self._read, self._offset = 0, 0
        self._last: str | None = None

    def at(self, path: Sequence[Entry], place: int) -> int:
        """Return the depth of an index of a path that has no compaction behind it."""
        if self._read and (self._read > len(path) or path[self._read - 1].id != self._last):
            self._read, self._offset = 0, 0
        for at in range(self._read, len(path)):
            known = depth_of(path[at].message)
            if known is not None:
                self._offset = known - at
        self._read = len(path)
        self._last = path[-1].id if path else None
        return place + self._offset
