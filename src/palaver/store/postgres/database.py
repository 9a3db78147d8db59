"""Connections to PostgreSQL: the pool, retries after a lost connection, and the meaning of server errors.

Only this module imports psycopg.

Rules:

- Connections autocommit: a statement is a transaction, outside ``Link.transaction``.
- Work is a function of a ``Link`` and of whether it was tried before. After a lost connection or a deadlock it is run
  again from its start, for up to ``timeout`` seconds since the first loss. So work must detect an earlier try.
- A driver error becomes one ``StoreError`` by its SQLSTATE (PostgreSQL documentation, appendix A):
  ``UnavailableError`` for what the machine cannot do now, ``DamageError`` for corrupted data. Its text is the server's
  first line, without the detail, which may quote rows.

Stability: experimental.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, LiteralString, TypeAlias, TypeVar
from zlib import crc32

from palaver.core.errors import DamageError, MissingPackageError, StoreError, UnavailableError, excerpt
from palaver.store.records import checked_name

# --- driver -----------------------------------------------------------------------------------------------------------


try:
    import psycopg
    import psycopg_pool
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as error:
    raise MissingPackageError.of("a store in PostgreSQL needs psycopg", "postgres", error) from None

__all__ = ["conninfo_to_dict", "make_conninfo", "psycopg", "psycopg_pool", "sql"]


# --- database ---------------------------------------------------------------------------------------------------------


T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]

_LOCKS: Final = 0x70616C61  # the first half of each of our advisory locks
_WORD_LOCKS: Final = 0x70616C62  # and of the one for words
_UNUSED_NAME: Final = "\x7f"  # no name holds a control character
_RETRY_SECONDS: Final = 0.05
_ATTEMPT: Final = 1.0  # the pool waits longer after each attempt, so it is asked again instead
_MAX_ERROR_TEXT: Final = 200

# SQLSTATE, by its first characters. After a lost connection, work is tried again.
_LOST: Final = ("08", "57P01", "57P02", "57P03", "57P05", "25P03", "40001", "40P01", "53300")
_ERRORS: Final[Mapping[str, type[StoreError]]] = {
    "08": UnavailableError,  # connection exceptions
    "25006": UnavailableError,  # a read-only server, such as a standby
    "25P": UnavailableError,  # idle for too long
    "40": UnavailableError,  # deadlocks and the like, after retries
    "53": UnavailableError,  # disk full, out of memory, too many connections
    "55P03": UnavailableError,  # lock_timeout
    "57": UnavailableError,  # statement_timeout, shutdown
    "58": UnavailableError,  # errors of input and output
    "XX001": DamageError,  # data corrupted
    "XX002": DamageError,  # index corrupted
}


class Link:
    """A connection, with values for ``{s}`` (the schema), ``{lock}`` and ``{words}`` (its locks) in statements."""

    __slots__ = ("_connection", "_written", "lock", "quoted", "schema", "words")

    def __init__(self, connection: psycopg.Connection, schema: str, written: dict[str, bytes]) -> None:
        """Use a connection. ``written`` caches statements for links of one schema."""
        self._connection = connection
        self._written = written
        self.schema = schema
        self.quoted = sql.Identifier(schema).as_string(None)
        second = crc32(schema.encode()) - (1 << 31)
        self.lock = f"{_LOCKS}, {second}"
        self.words = f"{_WORD_LOCKS}, {second}"

    def _sql(self, text: LiteralString) -> bytes:
        written = self._written.get(text)
        if written is None:
            name = self.quoted.replace("%", "%%")
            locks = text.replace("{lock}", self.lock).replace("{words}", self.words)
            written = self._written[text] = locks.replace("{s}", name).encode()
        return written

    def execute(self, text: LiteralString, *values: object) -> psycopg.Cursor[Row]:
        """Run a statement."""
        return self._connection.execute(self._sql(text), _encodable_values(values), binary=True)

    def script(self, text: LiteralString) -> None:
        """Run statements that take no values and return no rows."""
        self._connection.execute(text.replace("{s}", self.quoted).replace("{lock}", self.lock).encode())

    @contextmanager
    def warnings(self) -> Generator[list[str]]:
        """Collect the server's warnings in the block."""
        found: list[str] = []

        def note(said: psycopg.errors.Diagnostic) -> None:
            if said.severity_nonlocalized == "WARNING":
                found.append(said.message_primary or "")

        self._connection.add_notice_handler(note)
        try:
            yield found
        finally:
            self._connection.remove_notice_handler(note)

    def rows(self, text: LiteralString, *values: object) -> list[Row]:
        """Run a query, and return all its rows; it is planned again, since their number depends on the values."""
        return self._connection.execute(
            self._sql(text), _encodable_values(values), binary=True, prepare=False
        ).fetchall()

    def row(self, text: LiteralString, *values: object) -> Row | None:
        """Run a statement, and return its first row."""
        return self.execute(text, *values).fetchone()

    def value(self, text: LiteralString, *values: object) -> Any:
        """Run a statement, and return the first value of its first row; ``None`` when there is no row."""
        row = self.row(text, *values)
        return None if row is None else row[0]

    @contextmanager
    def stream(self, text: LiteralString, *values: object, at_once: int = 1000) -> Generator[Iterator[Row]]:
        """Run a query whose rows arrive ``at_once`` at a time, within a transaction."""
        with self._connection.cursor(f"palaver_{time.monotonic_ns()}", binary=True) as cursor:
            cursor.itersize = at_once
            cursor.execute(self._sql(text), _encodable_values(values))
            yield iter(cursor)

    def transaction(self) -> AbstractContextManager[object]:
        """Run the statements of the block in one transaction."""
        return self._connection.transaction()


class Database:
    """A pool of connections to one database, and the schema in it."""

    def __init__(self, conninfo: str, schema: str, *, min_size: int, max_size: int, timeout: float) -> None:
        """Open the pool. Raises ``UnavailableError`` when there is no server."""
        self.schema = checked_name(schema, "schema's name")
        self.timeout = timeout
        self._written: dict[str, bytes] = {}
        settings: dict[str, Any] = {"autocommit": True, "client_encoding": "utf8"}
        try:
            self.place = _place(conninfo)
            psycopg.connect(conninfo, **settings).close()  # reports errors at once, in the driver's words
            self._pool = psycopg_pool.ConnectionPool(
                conninfo,
                min_size=min_size,
                max_size=max_size,
                kwargs=settings,
                open=False,
                name=f"palaver {schema}",
                reconnect_timeout=_ATTEMPT,
            )
        except psycopg.Error as error:
            raise store_error(error) from error
        self._pool.open()

    def run(self, work: Callable[[Link, bool], T]) -> T:
        """Do work, again when its connection is lost. Raises its errors, and ``StoreError``."""
        again = False
        until: float | None = None
        while True:
            try:
                with self._pool.connection(timeout=min(_ATTEMPT, self.timeout)) as connection:
                    tried, again = again, True
                    return work(Link(connection, self.schema, self._written), tried)
            except psycopg.Error as error:
                now = time.monotonic()
                until = now + self.timeout if until is None else until
                if not is_lost(error) or now >= until:
                    raise store_error(error) from error
            time.sleep(_RETRY_SECONDS)

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()


def _encodable_values(values: tuple[object, ...]) -> list[object]:
    return [encodable(value) if isinstance(value, str) else value for value in values]


def encodable(name: str) -> str:
    """Return a text that PostgreSQL can store; any other name is replaced by one that nothing has."""
    return name if is_encodable(name) else _UNUSED_NAME


def is_encodable(value: str) -> bool:
    """Return whether PostgreSQL can store a text: it has neither NUL nor lone surrogates."""
    return "\0" not in value and (value.isascii() or not any("\ud800" <= c < "\ue000" for c in value))


def is_lost(error: BaseException | None) -> bool:
    """Return whether the connection is lost, or the server aborted the work to resolve a conflict."""
    if not isinstance(error, psycopg.Error) or isinstance(error, psycopg_pool.PoolClosed):
        return False
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_LOST)


def store_error(error: psycopg.Error) -> StoreError:
    """Return our error for an error of the driver."""
    said = excerpt((error.diag.message_primary or str(error)).strip(), _MAX_ERROR_TEXT)
    if isinstance(error, psycopg_pool.PoolClosed):
        return StoreError("the store is closed")
    if isinstance(error, psycopg_pool.PoolTimeout):
        return UnavailableError(
            "PostgreSQL: timed out while connecting: the server does not answer, or all connections are in use"
        )
    state = error.sqlstate
    if state is None:
        kind = UnavailableError if isinstance(error, psycopg.OperationalError) else StoreError
        return kind(f"PostgreSQL: {said}")
    for length in (5, 3, 2):
        found = _ERRORS.get(state[:length])
        if found is not None:
            return found(f"PostgreSQL: {said} ({state})")
    return StoreError(f"PostgreSQL: {said} ({state})")


def _place(conninfo: str) -> str:
    """Return where a database is, without its password."""
    parts = conninfo_to_dict(conninfo)
    return " ".join(f"{name}={parts[name]}" for name in ("host", "port", "user", "dbname") if name in parts)
