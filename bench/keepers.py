"""The contenders that keep conversations: how each is opened, given a message, read and closed.

Rules:

- Each gets the same messages, in the form that it keeps itself, made before the clock starts. One append makes one
  message durable by the contender's own means before the next begins; nothing is tuned but what the name says.
- ``raw`` contenders are the limit: they keep bytes that were encoded beforehand, in one table with one index, and
  know no branches, no search, no hashes.
- A checkpointer is given the growing state, as a graph of one channel gives it, without what the graph itself adds.
  Its work grows with the square of the conversation: it gets the first ``most`` messages only, and its row says so.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import conversations
import orjson
import places

from palaver.core import canonical
from palaver.store.location import open_store
from palaver.store.store import Query
from palaver.threads.agent_view import AgentView
from palaver.threads.thread import MAIN, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palaver import Message
    from palaver.threads.thread import Entry

POOL = 16
"""The connections of a pool, the same for all that use one."""

AGENT = "triage"
"""Whose view is taken."""

_BUSY_SECONDS = 600


class Opened(ABC):
    """A contender at work in its place. ``session`` names one conversation."""

    @abstractmethod
    def append(self, session: str, item: Any) -> object:
        """Keep one message; return when it is durable."""

    @abstractmethod
    def fill(self, session: str, items: Sequence[Any]) -> object:
        """Keep many at once; never timed."""

    @abstractmethod
    def read(self, session: str) -> int:
        """Read the whole conversation into objects; give how many messages it has."""

    @abstractmethod
    def last(self, session: str, count: int) -> int:
        """Read no more than the end of the conversation, where it can; give how much that was."""

    def view(self, session: str) -> object:
        """What the model is given next, while the contender stays open."""
        return self.read(session)

    def settle(self) -> None:  # noqa: B027 (most put nothing off)
        """Do what was put off until somebody searches."""

    @abstractmethod
    def close(self) -> None:
        """Finish, and let go of everything."""

    def serial(self, session: str, items: Sequence[Any]) -> list[float]:
        """Append one at a time; give what each took."""
        laps: list[float] = []
        for item in items:
            begun = time.perf_counter()
            self.append(session, item)
            laps.append(time.perf_counter() - begun)
        return laps

    def together(self, sessions: dict[str, Sequence[Any]]) -> list[float]:
        """Append to all sessions at once, each from a thread of its own, one at a time; give what each took."""
        start = threading.Barrier(len(sessions))

        def work(session: str) -> list[float]:
            start.wait()
            return self.serial(session, sessions[session])

        with ThreadPoolExecutor(len(sessions)) as pool:
            return [lap for laps in pool.map(work, sessions) for lap in laps]


@dataclass(frozen=True)
class Keeper:
    """A contender. ``most``: no more messages than that are given to it, one at a time."""

    name: str
    place: Callable[[], Any]
    opened: Callable[[Any], Opened]
    form: Callable[[Sequence[Message]], Sequence[Any]]
    most: int | None = None


def _json(messages: Sequence[Message]) -> list[bytes]:
    return [canonical.encode(message) for message in conversations.unstamped(messages)]


def _items(messages: Sequence[Message]) -> list[Any]:
    return [conversations.to_openai_items(message) for message in messages]


# -- palaver -------------------------------------------------------------------------------------------------------


class Live:
    """A thread that a running agent holds, and what its model sees of it."""

    def __init__(self, thread: Thread, view: Callable[[Sequence[Entry]], Sequence[Message]]) -> None:
        self.thread = thread
        self.view = view


class Palaver(Opened):
    """A store with its default settings. Beginning a thread is part of its first append.

    What was appended joins the thread in memory too, as in an agent that runs: what the model sees next is its view.
    """

    def __init__(self, location: str, **options: Any) -> None:
        self._store = open_store(location, **options)
        self._begun: dict[str, Live] = {}

    def append(self, session: str, item: Message) -> None:
        self.fill(session, [item])

    def fill(self, session: str, items: Sequence[Message]) -> None:
        live = self._begun.get(session)
        if live is None:
            live = self._begun[session] = Live(Thread(session), AgentView(AGENT))
            self._store.create(session)
        appended = self._store.append(session, items)
        live.thread.add(appended.entries, {MAIN: appended.head})

    def read(self, session: str) -> int:
        return len(self._store.load(session).path())

    def last(self, session: str, count: int) -> int:
        return len(self._store.path(session, last=count))

    def view(self, session: str) -> object:
        live = self._begun[session]
        return live.view(live.thread.path())

    def settle(self) -> None:
        self._store.search(Query(text="anything", limit=1))

    def close(self) -> None:
        self._store.close()


def _postgres_store(place: places.Schema) -> Palaver:
    return Palaver(place.database, schema=place.name, max_size=POOL)


# -- raw -----------------------------------------------------------------------------------------------------------


class RawFile(Opened):
    """Lines of one file, each written and synchronised."""

    def __init__(self, place: places.Folder) -> None:
        self._path = place.file
        self._file = os.open(place.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append(self, session: str, item: bytes) -> None:  # noqa: ARG002 (one file, one conversation)
        os.write(self._file, item + b"\n")
        os.fdatasync(self._file)

    def fill(self, session: str, items: Sequence[bytes]) -> None:
        self.append(session, b"\n".join(items))

    def read(self, session: str) -> int:  # noqa: ARG002
        return len([orjson.loads(line) for line in self._path.read_bytes().splitlines()])

    def last(self, session: str, count: int) -> int:
        return min(count, self.read(session))

    def close(self) -> None:
        os.close(self._file)


_TABLE = "create table messages (id integer primary key, session text not null, body blob not null)"
_INDEX = "create index messages_by_session on messages (session, id)"
_INSERT = "insert into messages (session, body) values (?, ?)"
_SELECT = "select body from messages where session = ? order by id"


class RawSqlite(Opened):
    """One table, one commit an append; each OS thread has a connection of its own."""

    synchronous = "full"

    def __init__(self, place: places.Folder) -> None:
        self._path = place.file
        self._mine = threading.local()
        self._all: list[sqlite3.Connection] = []
        if not place.file.exists():
            self._connection.execute("pragma journal_mode = wal")
            self._connection.execute(_TABLE)
            self._connection.execute(_INDEX)

    @property
    def _connection(self) -> sqlite3.Connection:
        if not hasattr(self._mine, "connection"):
            made = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            made.execute(f"pragma synchronous = {self.synchronous}")
            self._mine.connection = made
            self._all.append(made)
        return self._mine.connection

    def append(self, session: str, item: bytes) -> None:
        self._connection.execute(_INSERT, (session, item))

    def fill(self, session: str, items: Sequence[bytes]) -> None:
        self._connection.execute("begin")
        self._connection.executemany(_INSERT, [(session, item) for item in items])
        self._connection.execute("commit")

    def read(self, session: str) -> int:
        return len([orjson.loads(body) for (body,) in self._connection.execute(_SELECT, (session,))])

    def last(self, session: str, count: int) -> int:
        rows = self._connection.execute(f"{_SELECT} desc limit ?", (session, count))
        return len([orjson.loads(body) for (body,) in rows])

    def close(self) -> None:
        for connection in self._all:
            connection.close()


class RawSqliteNormal(RawSqlite):
    """The same, with commits that a crash of the machine may undo."""

    synchronous = "normal"


class RawSqliteShared(RawSqlite):
    """The same as the first, with one connection for all threads behind a lock."""

    def __init__(self, place: places.Folder) -> None:
        self._lock = threading.Lock()
        super().__init__(place)
        self._one = self._connection

    def append(self, session: str, item: bytes) -> None:
        with self._lock:
            self._one.execute(_INSERT, (session, item))


class RawPostgres(Opened):
    """One table, one commit an append, a pool of connections."""

    def __init__(self, place: places.Schema) -> None:
        self._pool = _pool(place)
        with self._pool.connection() as connection:
            connection.execute(
                "create table if not exists messages"
                " (id bigint generated always as identity primary key, session text not null, body bytea not null)"
            )
            connection.execute("create index if not exists messages_by_session on messages (session, id)")

    def append(self, session: str, item: bytes) -> None:
        with self._pool.connection() as connection:
            connection.execute("insert into messages (session, body) values (%s, %b)", (session, item))

    def fill(self, session: str, items: Sequence[bytes]) -> None:
        with self._pool.connection() as connection, connection.cursor() as cursor:
            rows = [(session, item) for item in items]
            cursor.executemany("insert into messages (session, body) values (%s, %b)", rows)

    def read(self, session: str) -> int:
        with self._pool.connection() as connection:
            rows = connection.execute("select body from messages where session = %s order by id", (session,))
            return len([orjson.loads(row["body"]) for row in rows])

    def last(self, session: str, count: int) -> int:
        with self._pool.connection() as connection:
            query = "select body from messages where session = %s order by id desc limit %s"
            return len([orjson.loads(row["body"]) for row in connection.execute(query, (session, count))])

    def close(self) -> None:
        self._pool.close()


def _pool(place: places.Schema) -> Any:
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    given = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool: Any = ConnectionPool(place.conninfo, min_size=1, max_size=POOL, kwargs=given, open=True)
    pool.wait()
    return pool


# -- openai-agents -------------------------------------------------------------------------------------------------


class AgentsSession(Opened):
    """``SQLiteSession``: asynchronous; sessions at once are tasks of one event loop."""

    def __init__(self, place: places.Folder) -> None:
        self._path = place.file
        self._sessions: dict[str, Any] = {}
        self._runner = asyncio.Runner()

    def _session(self, name: str) -> Any:
        from agents import SQLiteSession

        if name not in self._sessions:
            self._sessions[name] = SQLiteSession(name, self._path)
        return self._sessions[name]

    def append(self, session: str, item: list[Any]) -> None:
        self._runner.run(self._session(session).add_items(item))

    def fill(self, session: str, items: Sequence[list[Any]]) -> None:
        self.append(session, [item for each in items for item in each])

    def read(self, session: str) -> int:
        return len(self._runner.run(self._session(session).get_items()))

    def last(self, session: str, count: int) -> int:
        return len(self._runner.run(self._session(session).get_items(count)))

    def serial(self, session: str, items: Sequence[Any]) -> list[float]:
        return self._runner.run(self._serial(session, items))

    def together(self, sessions: dict[str, Sequence[Any]]) -> list[float]:
        async def work() -> list[list[float]]:
            return await asyncio.gather(*(self._serial(*each) for each in sessions.items()))

        return [lap for laps in self._runner.run(work()) for lap in laps]

    async def _serial(self, session: str, items: Sequence[Any]) -> list[float]:
        kept = self._session(session)
        laps: list[float] = []
        for item in items:
            begun = time.perf_counter()
            await kept.add_items(item)
            laps.append(time.perf_counter() - begun)
        return laps

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._runner.close()


# -- langgraph -----------------------------------------------------------------------------------------------------


class Checkpoints(Opened):
    """A checkpointer that is given the growing state, one checkpoint a message."""

    def __init__(self, saver: Any, close: Callable[[], None]) -> None:
        self._saver = saver
        self._close = close
        self._states: dict[str, list[Any]] = {}
        self._configs: dict[str, Any] = {}
        saver.setup()

    def append(self, session: str, item: Any) -> None:
        self.fill(session, [item])

    def fill(self, session: str, items: Sequence[Any]) -> None:
        from langgraph.checkpoint.base.id import uuid6

        state = self._states.setdefault(session, [])
        state.extend(items)
        version = f"{len(state):032}.0"
        checkpoint: Any = {
            "v": 4,
            "id": str(uuid6(clock_seq=len(state))),
            "ts": "2025-01-01T00:00:00+00:00",
            "channel_values": {"messages": state},
            "channel_versions": {"messages": version},
            "versions_seen": {},
            "updated_channels": ["messages"],
        }
        config = self._configs.get(session, {"configurable": {"thread_id": session, "checkpoint_ns": ""}})
        metadata: Any = {"source": "loop", "step": len(state), "parents": {}}
        self._configs[session] = self._saver.put(config, checkpoint, metadata, {"messages": version})

    def read(self, session: str) -> int:
        found = self._saver.get_tuple({"configurable": {"thread_id": session, "checkpoint_ns": ""}})
        return len(found.checkpoint["channel_values"]["messages"])

    def last(self, session: str, count: int) -> int:
        return min(count, self.read(session))

    def close(self) -> None:
        self._close()


def _sqlite_saver(place: places.Folder) -> Checkpoints:
    from langgraph.checkpoint.sqlite import SqliteSaver

    connection = sqlite3.connect(place.file, check_same_thread=False)  # as its from_conn_string does
    return Checkpoints(SqliteSaver(connection), connection.close)


def _postgres_saver(place: places.Schema) -> Checkpoints:
    from langgraph.checkpoint.postgres import PostgresSaver

    pool = _pool(place)
    return Checkpoints(PostgresSaver(pool), pool.close)


MOST = 500

SQLITE = Keeper(
    "palaver, SQLite", places.Folder, lambda place: Palaver(f"sqlite:{place.file}"), conversations.unstamped
)
POSTGRES = Keeper("palaver, PostgreSQL", places.Schema, _postgres_store, conversations.unstamped)
JSONL = Keeper(
    "palaver, JSON Lines", places.Folder, lambda place: Palaver(f"jsonl:{place.path}"), conversations.unstamped
)
FILE = Keeper("raw file, write and fdatasync each", places.Folder, RawFile, _json)
RAW = Keeper("raw sqlite3, WAL, FULL", places.Folder, RawSqlite, _json)
RAW_NORMAL = Keeper("raw sqlite3, WAL, NORMAL", places.Folder, RawSqliteNormal, _json)
RAW_SHARED = Keeper("raw sqlite3, WAL, FULL, one connection", places.Folder, RawSqliteShared, _json)
RAW_POSTGRES = Keeper("raw psycopg", places.Schema, RawPostgres, _json)
AGENTS = Keeper("openai-agents SQLiteSession", places.Folder, AgentsSession, _items)
SAVER = Keeper("langgraph SqliteSaver.put", places.Folder, _sqlite_saver, conversations.to_langchain, MOST)
POSTGRES_SAVER = Keeper("langgraph PostgresSaver.put", places.Schema, _postgres_saver, conversations.to_langchain, MOST)
OURS = {SQLITE, POSTGRES, JSONL}
