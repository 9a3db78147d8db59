"""The database of a gateway: its keys, what they used, and the index of its log; SQLite, or PostgreSQL.

Rules:

- Statements are the SQL that both databases share: ``?`` stands for a value, ``{s}.`` for the schema, and types are
  ``TEXT``, ``BIGINT``, ``DOUBLE PRECISION`` and ``BYTEA`` (SQLite takes these names, too). ``INSERT … ON CONFLICT`` and
  ``RETURNING`` are in both.
- Work is a function of a ``Transaction``: all of it happens, or nothing. In SQLite it has the database for itself. In
  PostgreSQL others work at the same time (READ COMMITTED): what must not be lost is one statement, such as
  ``UPDATE … SET used = used + ? RETURNING used``. Work may run again after a lost connection.
- Every part of the gateway has its own tables, made by its ``migrations``: lists of statements that only grow. Each is
  run once.
- Calls block; async code uses ``await to_thread(database.run, work)`` (``palaver.store.store.to_thread``).

Stability: experimental.
"""

from __future__ import annotations

import sqlite3
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, cast, final

import platformdirs

from palaver.core.errors import StoreError, UnavailableError

if TYPE_CHECKING:
    from typing import LiteralString

    from palaver.store.postgres.database import Database as Pool, Link

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]
Migrations: TypeAlias = "Sequence[Sequence[LiteralString]]"

SCHEMA: Final = "palaver_gateway"
_TIMEOUT: Final = 10.0
"""Seconds to wait for another writer, or for a connection."""
_POSTGRES: Final = ("postgresql://", "postgres://")
_VERSIONS: Final = "CREATE TABLE IF NOT EXISTS {s}.migrations (part TEXT PRIMARY KEY, version BIGINT NOT NULL)"
_LOCKED: Final = 0x67617465
"""The advisory lock that one process holds while it migrates."""


class Transaction(Protocol):
    """Statements that happen together."""

    @abstractmethod
    def rows(self, statement: LiteralString, *values: object) -> list[Row]:
        """Run a statement, and return the rows that it gives. Raises ``StoreError``."""
        ...


class Database(Protocol):
    """An open database. It is safe for use from several threads, and from several processes."""

    @abstractmethod
    def run(self, work: Callable[[Transaction], T], /) -> T:
        """Do ``work`` in one transaction, and return what it returns. Raises its errors, and ``StoreError``."""
        ...

    @abstractmethod
    def migrate(self, part: str, migrations: Migrations) -> None:
        """Bring the tables of a ``part`` up to date. Raises ``StoreError``, also when a newer version made them."""
        ...

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""
        ...


def default_location() -> str:
    """Return the path of the database where the configuration names none: a file in the user's data folder."""
    return str(Path(platformdirs.user_data_dir("palaver", appauthor=False)) / "gateway.db")


def open_database(location: str, *, schema: str = SCHEMA) -> Database:
    """Open the database at a ``location``: the path of an SQLite file, or ``postgresql://…``.

    In PostgreSQL, ``schema`` holds the tables.

    Raises ``StoreError``.
    """
    if location.startswith(_POSTGRES):
        return PostgresDatabase(location, schema)
    if "://" in location:
        raise StoreError(f"{location.partition('://')[0]}://…: a database is a path of SQLite, or postgresql://…")
    return SQLiteDatabase(location)


def _upgrade(transaction: Transaction, part: str, migrations: Migrations) -> None:
    found = transaction.rows("SELECT version FROM {s}.migrations WHERE part = ?", part)
    version: int = found[0][0] if found else 0
    if version > len(migrations):
        raise StoreError(f"the tables of {part} were made by a newer version of Palaver")
    for statements in migrations[version:]:
        for each in statements:
            transaction.rows(each)
    transaction.rows(
        "INSERT INTO {s}.migrations VALUES (?, ?) ON CONFLICT (part) DO UPDATE SET version = excluded.version",
        part,
        len(migrations),
    )


@final
class SQLiteDatabase(Database):
    """A file of SQLite, for the gateways of one machine."""

    def __init__(self, path: str) -> None:
        """Open the file, and make it, readable only for its owner. Raises ``StoreError``."""
        self._path = path
        self._lock = threading.Lock()
        try:
            if path != ":memory:":
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).touch(mode=0o600)
            self._db = sqlite3.connect(path, timeout=_TIMEOUT, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
        except (OSError, sqlite3.Error) as error:
            raise UnavailableError(f"{path}: {error}") from None

    def run(self, work: Callable[[Transaction], T], /) -> T:
        """Do ``work`` in one transaction."""
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    done = work(_SQLiteTransaction(self._db))
                except BaseException:
                    self._db.rollback()
                    raise
                self._db.commit()
            except (sqlite3.Error, OverflowError) as error:
                raise UnavailableError(f"{self._path}: {error}") from error
            return done

    def migrate(self, part: str, migrations: Migrations) -> None:
        """Bring the tables of a ``part`` up to date."""

        def work(transaction: Transaction) -> None:
            transaction.rows(_VERSIONS)
            _upgrade(transaction, part, migrations)

        self.run(work)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()


@final
class _SQLiteTransaction(Transaction):
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def rows(self, statement: LiteralString, *values: object) -> list[Row]:
        """Run a statement."""
        return self._db.execute(statement.replace("{s}.", ""), cast("Sequence[Any]", values)).fetchall()


@final
class PostgresDatabase(Database):
    """A schema of PostgreSQL, for gateways on several machines."""

    def __init__(self, url: str, schema: str = SCHEMA) -> None:
        """Open connections. Raises ``UnavailableError``, and ``MissingPackageError`` without psycopg."""
        from palaver.store.postgres.database import Database as Pool  # noqa: PLC0415 (needs an extra)

        self._pool: Pool = Pool(url, schema, min_size=1, max_size=8, timeout=_TIMEOUT)

    def run(self, work: Callable[[Transaction], T], /) -> T:
        """Do ``work`` in one transaction."""

        def within(link: Link, _: bool) -> T:  # noqa: FBT001 (the pool's own signature)
            with link.transaction():
                return work(_PostgresTransaction(link))

        return self._pool.run(within)

    def migrate(self, part: str, migrations: Migrations) -> None:
        """Bring the tables of a ``part`` up to date."""

        def work(transaction: Transaction) -> None:
            transaction.rows("SELECT pg_advisory_xact_lock(?)", _LOCKED)
            transaction.rows("CREATE SCHEMA IF NOT EXISTS {s}")
            transaction.rows(_VERSIONS)
            _upgrade(transaction, part, migrations)

        self.run(work)

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()


@final
class _PostgresTransaction(Transaction):
    def __init__(self, link: Link) -> None:
        self._link = link

    def rows(self, statement: LiteralString, *values: object) -> list[Row]:
        """Run a statement."""
        cursor = self._link.execute(statement.replace("?", "%s"), *values)
        return cursor.fetchall() if cursor.description is not None else []
