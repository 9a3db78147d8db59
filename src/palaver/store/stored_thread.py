"""A stored thread in memory: an application's handle of its conversation.

Rules:

- ``append`` writes to the store first, and then to the thread in memory, which never shows an unacknowledged message.
- A handle expects to be the only writer of its branch. When another has written, ``append`` raises ``ConflictError``
  and writes nothing; ``refresh`` loads the new entries, and the caller appends again or forks.
- Handles of several branches share one thread in memory, so a fork copies nothing.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from palaver.core import notebook
from palaver.core.messages import Message
from palaver.core.prompt_input import as_messages
from palaver.core.type_checks import check_arguments
from palaver.threads.ids import now_ms
from palaver.threads.thread import MAIN, Entry, Path, Thread

if TYPE_CHECKING:
    from palaver.store.store import Store


class StoredThread:
    """A handle for one branch of a stored thread. ``tree`` is the thread in memory."""

    __slots__ = ("_seen", "_store", "branch", "tree")

    def __init__(self, store: Store, tree: Thread, branch: str = MAIN, *, seen: list[int] | None = None) -> None:
        """Make a handle of ``branch`` of a thread that was loaded from ``store``.

        ``seen`` has one number, which all handles of ``tree`` share: how many entries were read. ``None`` makes a new
        one, of the entries of the tree.
        """
        self._store = store
        self._seen = [len(tree)] if seen is None else seen  # places read so far, for all handles of the tree
        self.tree = tree
        self.branch = branch

    @property
    def store(self) -> Store:
        """The store of the thread."""
        return self._store

    @property
    def id(self) -> str:
        """The id of the thread."""
        return self.tree.id

    @property
    def head(self) -> str | None:
        """The head of this branch in memory."""
        return self.tree.head(self.branch)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of this branch, oldest first, without records. Costs its length; views of ``path()`` do not."""
        return self.path().messages

    def path(self) -> Path:
        """Return the conversation of this branch; costs what is new."""
        return self.tree.path(self.branch)

    def append(self, *messages: Message | str, key: str | None = None) -> tuple[Entry, ...]:
        """Append stamped ``messages``; return their entries when they are durable. A text is a user message.

        A ``key`` that was used before adds nothing, and returns the entries of the first call. Raises as
        ``Store.append`` does, ``ConflictError`` when the branch has moved on.
        """
        appended = self._store.append(self.id, as_messages(messages), branch=self.branch, expect=self.head, key=key)
        if appended.repeated:
            self.refresh()
        elif appended.entries:
            self.tree.add(appended.entries, {self.branch: appended.head})
        return appended.entries

    def fork(self, name: str, *, at: str | UnsetType | None = UNSET) -> StoredThread:
        """Create the branch ``name`` and return its handle. Raises as ``Store.fork`` does.

        It begins at the entry ``at`` (``None``: before the first), without it at this head.
        """
        check_arguments("fork", StoredThread.fork, {"name": name, "at": at})
        place = self.head if at is UNSET else at
        self._store.fork(self.id, name, at=place)
        self.tree.fork(name, at=place)
        return self.on(name)

    def on(self, branch: str) -> StoredThread:
        """Return the handle of ``branch``. Raises ``NotFoundError``."""
        self.tree.head(branch)
        return StoredThread(self._store, self.tree, branch, seen=self._seen)

    def rewind(self, to: str | None) -> None:
        """Move this head back to the entry ``to``, or before the first (``None``). Removes nothing.

        Raises as ``Store.rewind`` does, ``ConflictError`` when the branch has moved on.
        """
        check_arguments("rewind", StoredThread.rewind, {"to": to})
        self._store.rewind(self.id, to, branch=self.branch, expect=self.head)
        self.tree.rewind(to, branch=self.branch)

    def rebase(self, messages: Iterable[Message], *, onto: str | None, keep: str) -> tuple[Entry, ...]:
        """Move the branch behind the entry ``onto`` (``None``: to the beginning), and append ``messages`` there.

        The new branch ``keep`` has the earlier state of the branch; the new entries are returned.

        The head moves last, atomically: if the process dies before, the branch is unchanged. Removes nothing. Raises as
        ``fork`` and ``rewind`` do, ``ConflictError`` when the branch has moved on.
        """
        head = self.head
        entries = self.tree.new_entries(messages, onto, now_ms())
        self._store.fork(self.id, keep, at=head)
        self.tree.fork(keep, at=head)
        self._store.add(self.id, entries)
        self.tree.add(entries)
        self.rewind(entries[-1].id if entries else onto)
        return entries

    def refresh(self) -> int:
        """Load what others wrote; return the number of new entries."""
        info = self._store.info(self.id)
        new = self.tree.add(self._store.read(self.id, start=self._seen[0], stop=info.length), info.branches)
        self._seen[0] = info.length
        return new

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Show this branch in a notebook."""
        return notebook.bundle(self, notebook.thread_html(self.id, self.tree.branches, self.path().messages))

    def __repr__(self) -> str:
        """Return the size, not the text."""
        return f"StoredThread({self.id!r}, branch={self.branch!r}, {len(self.tree)} entries)"
