"""A store of Palaver as the ``SessionStore`` of the Claude Agent SDK (docs/spec/dialects.md#2, *SessionStore*).

Give it to the SDK's options, and every session that runs is mirrored into the store, and resumed from it::

    from claude_agent_sdk import ClaudeAgentOptions, fold_session_summary
    from palaver.transcripts.claude_code.session_store import SummingSessionStore

    options = ClaudeAgentOptions(session_store=SummingSessionStore(store, fold_session_summary))

Rules:

- A key (project, session, file of a sub-agent) is a thread of its own, and an entry a record in it: a message that no
  view shows, with the entry as its bytes. Appended entries are stored when ``append`` returns, in the order of calls.
- An entry with a ``uuid`` that the thread has is skipped, even if another process wrote it meanwhile; entries without
  one are always stored.
- ``conversation`` reads the entries as a session, with whole answers. It reads them again each time: an answer that is
  still growing has no message of its own yet.
- Deleting a session deletes the files of its sub-agents.
- The SDK's own summaries are stored if its function for them is given (``SummingSessionStore``), which defines them. A
  batch that the SDK sends again is added again, so that a summary that a crash left behind catches up. Of two processes
  that write one session at the same time, one may miss what the other added to its summary.

It needs only the methods of ``Threads``, so every store of Palaver will do.

Stability: experimental.
"""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from anyio.to_thread import run_sync
from msgspec import UNSET, Struct, UnsetType, structs

from palaver.core import jsontext
from palaver.core.errors import ConflictError, NotFoundError
from palaver.transcripts import original_bytes
from palaver.transcripts.claude_code import FORMAT
from palaver.transcripts.claude_code.shapes import NAME
from palaver.transcripts.conversation import Conversation, derived_id
from palaver.transcripts.fields import string
from palaver.transcripts.format import Origin
from palaver.transcripts.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from palaver.core.messages import Message
    from palaver.threads.thread import Entry
    from palaver.transcripts.conversation import Transcript

KEY: Final = "session_store"
"""The key of a thread's metadata for the key of the SDK."""

SUMMARY: Final = "session_summary"
_META: Final = "agent_metadata"


class Info(Protocol):
    """The description of a thread."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the thread."""
        ...

    @property
    def updated_at(self) -> int:
        """The time of its last change, Unix milliseconds."""
        ...


class Threads(Protocol):
    """The required methods of a store; ``palaver.store.Store`` has them, and documents each."""

    def create(
        self, id: str | None = None, *, tags: Iterable[str] = (), metadata: Mapping[str, Any] | None = None
    ) -> object:
        """Create a thread. Raises ``ConflictError`` when one with that id exists."""
        ...

    def info(self, thread: str) -> Info:
        """Return the description of a thread. Raises ``NotFoundError``."""
        ...

    def threads(self, *, tag: str | None = None) -> Iterator[Info]:
        """Return the threads with a tag."""
        ...

    def update(self, thread: str, *, metadata: Mapping[str, Any] | UnsetType = UNSET) -> object:
        """Change the metadata of a thread."""
        ...

    def delete(self, thread: str) -> None:
        """Remove a thread. Raises ``NotFoundError``."""
        ...

    def append(self, thread: str, messages: Iterable[Message], *, expect: str | UnsetType | None = UNSET) -> object:
        """Append messages. Raises ``ConflictError`` when the head is not the expected one."""
        ...

    def read(self, thread: str, *, start: int = 0) -> Sequence[Entry]:
        """Return the entries from a place on. Raises ``NotFoundError``."""
        ...


class _Key(Struct, frozen=True):
    """A key of the SDK."""

    project: str
    session: str
    subpath: str | None = None

    @property
    def thread(self) -> str:
        """The id of its thread."""
        return derived_id(NAME, KEY, self.project, self.session, self.subpath or "")

    @property
    def tag(self) -> str:
        """The tag of all threads of its project."""
        return f"{NAME}/{derived_id(NAME, KEY, self.project)}"

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of its thread."""
        stored = {"project_key": self.project, "session_id": self.session}
        return {KEY: stored if self.subpath is None else {**stored, "subpath": self.subpath}}


class _Seen:
    """The known state of a thread: how much of it was read, its head, and the entries it has."""

    def __init__(self) -> None:
        self.places = 0
        self.head: str | None = None
        self.uuids: set[str] = set()


class SessionStore:
    """Stores the sessions of the SDK in a store. Its methods are those that the SDK calls."""

    def __init__(self, store: Threads) -> None:
        """Use a store; it is not closed here."""
        self._store = store
        self._seen: dict[str, _Seen] = {}
        self._lock = Lock()

    # -- what the SDK calls --------------------------------------------------------------------------------------------

    async def append(self, key: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> None:
        """Append entries."""
        await run_sync(partial(self._append, _key(key), entries))

    async def load(self, key: Mapping[str, Any]) -> list[Any] | None:
        """Return every entry of a key; ``None`` for one that was never written."""
        return await run_sync(partial(self._load, _key(key)))

    async def list_sessions(self, project_key: str) -> list[Any]:
        """Return the sessions of a project, each with the time of its last change."""
        return await run_sync(partial(self._sessions, project_key))

    async def delete(self, key: Mapping[str, Any]) -> None:
        """Remove a session with its sub-agents, or the one file that the key names. A missing one is ignored."""
        await run_sync(partial(self._delete, _key(key)))

    async def list_subkeys(self, key: Mapping[str, Any]) -> list[str]:
        """Return the files of a session beside its own."""
        return await run_sync(partial(self._subkeys, _key(key)))

    # -- what it adds --------------------------------------------------------------------------------------------------

    async def conversation(self, key: Mapping[str, Any]) -> Transcript | None:
        """Return the conversation of a key's entries; ``None`` for one that was never written."""
        return await run_sync(partial(self._conversation, _key(key)))

    # -- the store -----------------------------------------------------------------------------------------------------

    def _append(self, key: _Key, entries: Sequence[Mapping[str, Any]]) -> None:
        if not entries:
            return
        with self._lock:
            known_messages = self._known(key)
            if known_messages is None:
                self._begin(key)
                known_messages = self._known(key) or _Seen()
            while fresh := _fresh(entries, known_messages.uuids):
                try:
                    self._store.append(
                        key.thread, _messages(key.thread, fresh, known_messages.places), expect=known_messages.head
                    )
                except ConflictError:  # another process wrote; its entries are read, and the rest follows
                    known_messages = self._known(key) or _Seen()
                    continue
                break
            self._known(key)
            self._appended(key, entries)

    def _appended(self, key: _Key, entries: Sequence[Mapping[str, Any]]) -> None:
        """Called when entries were stored, under the lock of this process."""

    def _begin(self, key: _Key) -> None:
        try:
            self._store.create(key.thread, tags=(key.tag,), metadata=key.metadata)
        except ConflictError:
            return  # another process was faster

    def _known(self, key: _Key) -> _Seen | None:
        """Return the state of a key's thread, after reading new entries; ``None`` without a thread."""
        known_messages = self._seen.setdefault(key.thread, _Seen())
        try:
            new = self._store.read(key.thread, start=known_messages.places)
        except NotFoundError:
            del self._seen[key.thread]
            return None
        for entry in new:
            known_messages.places += 1
            known_messages.head = entry.id
            for raw in _raws(entry):
                if (uuid := string(jsontext.fields(raw), "uuid")) is not None:
                    known_messages.uuids.add(uuid)
        return known_messages

    def _load(self, key: _Key) -> list[Any] | None:
        try:
            entries = self._store.read(key.thread)
        except NotFoundError:
            return None
        return [jsontext.value(raw) for entry in entries for raw in _raws(entry)] or None

    def _project(self, project: str) -> Iterator[tuple[_Key, Info]]:
        for info in self._store.threads(tag=_Key(project, "").tag):
            stored = info.metadata.get(KEY)
            if isinstance(stored, dict):
                yield _key(cast("dict[str, Any]", stored)), info

    def _sessions(self, project: str) -> list[Any]:
        return [
            {"session_id": key.session, "mtime": info.updated_at}
            for key, info in self._project(project)
            if key.subpath is None
        ]

    def _subkeys(self, key: _Key) -> list[str]:
        return [
            each.subpath
            for each, _ in self._project(key.project)
            if each.session == key.session and each.subpath is not None
        ]

    def _delete(self, key: _Key) -> None:
        with self._lock:
            whole = key.subpath is None
            for each in [each for each, _ in self._project(key.project) if each.session == key.session]:
                if whole or each.subpath == key.subpath:
                    self._seen.pop(each.thread, None)
                    try:
                        self._store.delete(each.thread)
                    except NotFoundError:
                        continue  # another writer was faster

    def _conversation(self, key: _Key) -> Transcript | None:
        entries = self._load(key)
        if entries is None:
            return None
        meta = [each for each in entries if each.get("type") == _META]
        lines = [jsontext.encode(each) + b"\n" for each in entries if each.get("type") != _META]
        name = f"{key.session}.jsonl" if key.subpath is None else f"{key.session}/{key.subpath}.jsonl"
        beside = {f"{name.rpartition('/')[2][:-6]}.meta.json": jsontext.encode(meta[-1])} if meta else {}
        found = FORMAT.read(b"".join(lines), Origin(name=name, beside=beside.get))
        return found[0] if found else None


class SummingSessionStore(SessionStore):
    """A store that also stores the SDK's summaries; ``fold`` is its ``fold_session_summary``."""

    def __init__(self, store: Threads, fold: Callable[..., Any]) -> None:
        """Use a store, and the function that adds entries to a summary."""
        super().__init__(store)
        self._fold = fold

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """Return the summaries of a project's sessions."""
        return await run_sync(partial(self._summaries, project_key))

    def _appended(self, key: _Key, entries: Sequence[Mapping[str, Any]]) -> None:
        if key.subpath is not None:
            return
        info = self._store.info(key.thread)
        before = info.metadata.get(SUMMARY)
        folded = self._fold(before, {"project_key": key.project, "session_id": key.session}, list(entries))
        self._store.update(key.thread, metadata={**info.metadata, SUMMARY: folded})

    def _summaries(self, project: str) -> list[Any]:
        return [
            {**info.metadata[SUMMARY], "mtime": info.updated_at}
            for key, info in self._project(project)
            if key.subpath is None and SUMMARY in info.metadata
        ]


def _key(key: Mapping[str, Any]) -> _Key:
    return _Key(str(key["project_key"]), str(key["session_id"]), key.get("subpath"))


def _fresh(entries: Sequence[Mapping[str, Any]], known: set[str]) -> list[Mapping[str, Any]]:
    """Return the new entries; of two with one ``uuid``, the first."""
    fresh: list[Mapping[str, Any]] = []
    taken = set(known)
    for entry in entries:
        uuid = entry.get("uuid")
        if isinstance(uuid, str):
            if uuid in taken:
                continue
            taken.add(uuid)
        fresh.append(entry)
    return fresh


def _messages(thread: str, entries: Sequence[Mapping[str, Any]], start: int) -> list[Message]:
    """Return entries as records; ``start`` is the number of the first."""
    conversation = Conversation(NAME, thread)
    records = (Record(at, at + 1, jsontext.encode(entry) + b"\n") for at, entry in enumerate(entries, start))
    return [structs.replace(step.entry.message, id=None) for record in records for step in conversation.record(record)]


def _raws(entry: Entry) -> Iterator[bytes]:
    """Yield the entries of the SDK that a message keeps, as JSON text."""
    for piece in original_bytes.records_of(NAME, [entry.message]) or ():
        yield piece.raw
