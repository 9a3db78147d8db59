"""The schema of an SQLite store: tables, migrations, connections, and how values are written in columns.

Rules:

- A migration and its record are one transaction. ``user_version`` is the newest migration. A file with a greater one,
  or with tables and another ``application_id``, is refused and not changed.
- ``entries`` is keyed by thread and place, in reading order. ``bodies`` and ``blobs`` hold each content once. Seals are
  those of ``message_codec``; a row that no seal or hash covers has a ``mark``, a checksum of its values.
- ``moves`` records each move of a head other than an append; it only grows.
- No two tables have rows of the same shape, so ``recover`` can identify a row by its columns.
- ``messages`` and ``conversations`` are views for readers of the file; they are ``NULL`` where a body is not JSON.
- ``words`` is a contentless FTS5 index, up to the body that ``states.indexed`` names.

Stability: experimental.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

from palaver.core.errors import DamageError, StoreError
from palaver.threads.ids import now_ms

# --- schema -----------------------------------------------------------------------------------------------------------


Sync: TypeAlias = Literal["full", "normal"]

APPLICATION: Final = 0x50414C56  # "PALV"
PAGE: Final = 8192
"""Bodies of 3 KB, compressed or not, leave the least of a page of this size empty."""
INDEXED: Final = "indexed"
UNCLEAN: Final = "unclean"
_CHECKPOINT_PAGES: Final = (100, 1000)
_WRITER_CACHE_KIB: Final = 16_384
_LOG_BYTES: Final = 64 << 20
_RETRY_SECONDS: Final = 0.01

_FIRST: Final = """
CREATE TABLE threads (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  length INTEGER NOT NULL, mark BLOB NOT NULL);
CREATE TABLE abouts (thread INTEGER PRIMARY KEY, data BLOB NOT NULL, mark BLOB NOT NULL);
CREATE TABLE branches (thread INTEGER, name TEXT, head INTEGER, mark BLOB NOT NULL, PRIMARY KEY (thread, name))
  WITHOUT ROWID;
CREATE TABLE moves (
  thread INTEGER, number INTEGER, at INTEGER NOT NULL, branch TEXT NOT NULL, head INTEGER, mark BLOB NOT NULL,
  PRIMARY KEY (thread, number)) WITHOUT ROWID;
CREATE TABLE keys (
  thread INTEGER, key TEXT, first INTEGER NOT NULL, count INTEGER NOT NULL, mark BLOB NOT NULL,
  PRIMARY KEY (thread, key)) WITHOUT ROWID;
CREATE TABLE entries (
  thread INTEGER, place INTEGER, id BLOB NOT NULL, parent INTEGER, stamps INTEGER NOT NULL, sent_at INTEGER,
  body INTEGER NOT NULL, seal BLOB NOT NULL, PRIMARY KEY (thread, place)) WITHOUT ROWID;
CREATE UNIQUE INDEX entries_id ON entries (thread, id);
CREATE INDEX entries_body ON entries (body);
CREATE TABLE bodies (
  id INTEGER PRIMARY KEY, digest BLOB NOT NULL, encoding INTEGER NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX bodies_digest ON bodies (digest);
CREATE TABLE blobs (
  id INTEGER PRIMARY KEY, encoding INTEGER NOT NULL, digest BLOB NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX blobs_digest ON blobs (digest);
CREATE TABLE uses (body INTEGER, blob BLOB, PRIMARY KEY (body, blob)) WITHOUT ROWID;
CREATE INDEX uses_blob ON uses (blob);
CREATE TABLE states (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (text, labels, content='', columnsize=0, tokenize='ascii')
"""
_ID: Final = """CASE length({0}) WHEN 16 THEN lower(substr(hex({0}), 1, 8) || '-' || substr(hex({0}), 9, 4) || '-' ||
  substr(hex({0}), 13, 4) || '-' || substr(hex({0}), 17, 4) || '-' || substr(hex({0}), 21))
  ELSE CAST(substr({0}, 18) AS TEXT) END"""
# A text cannot hold lone surrogates and NUL: readers refuse all rows when one has such an escape, or cut the text
# off. So `\ud800` stays as it is written, and NUL is U+FFFD. `\\` goes first: what follows it is not an escape.
_TEXTS: Final = (
    r"replace(replace(replace(replace({0}, '\\', '\u005c'), '\ud', '\\ud'), '\uD', '\\uD'), '\u0000', '\ufffd')"
)
_LIST: Final = "CASE json_type(body, '$.content') WHEN 'array' THEN body END"
_PART: Final = "CASE part.type WHEN 'object' THEN part.value END"
_VIEWS: Final = f"""
DROP VIEW IF EXISTS messages;
DROP VIEW IF EXISTS conversations;
CREATE VIEW messages AS
  SELECT thread, place, id, parent, sent_at, json_extract(body, '$.role') AS role,
    json_extract(body, '$.agent') AS agent,
    json_extract(body, '$.model') AS model,
    (SELECT group_concat(json_extract({_PART}, '$.text'), char(10)) FROM json_each({_LIST}, '$.content') AS part
     WHERE json_extract({_PART}, '$.type') = 'text') AS text, json
  FROM (SELECT *, {_TEXTS.format("json")} AS body
    FROM (SELECT t.id AS thread, e.place AS place, {_ID.format("e.id")} AS id, {_ID.format("p.id")} AS parent,
        e.sent_at AS sent_at,
        CASE WHEN b.encoding = 0 AND json_valid(CAST(b.data AS TEXT)) THEN CAST(b.data AS TEXT) END AS json
      FROM entries e JOIN threads t ON t.number = e.thread LEFT JOIN bodies b ON b.id = e.body
      LEFT JOIN entries p ON p.thread = e.thread AND p.place = e.parent));
CREATE VIEW conversations AS
  SELECT t.id AS thread,
    CASE WHEN json_valid(CAST(a.data AS TEXT))
      THEN json_extract({_TEXTS.format("CAST(a.data AS TEXT)")}, '$.title') END AS title,
    t.created_at AS created_at, t.updated_at AS updated_at, t.length AS length
  FROM threads t LEFT JOIN abouts a ON a.thread = t.number
"""  # noqa: S608 (constants)
MIGRATIONS: Final[tuple[tuple[int, str, str], ...]] = (
    (1, "threads, entries, bodies, blobs, words", _FIRST),
    (3, "views of messages and conversations", _VIEWS),  # 2 were views that failed on one odd body
)
"""Number, name, and statements, separated by semicolons."""

NEWEST: Final = MIGRATIONS[-1][0]


def connect(path: str, *, timeout: float, sync: Sync = "full") -> sqlite3.Connection:
    """Open a file for writing, and migrate it to the newest schema. Raises ``StoreError`` for a foreign file."""
    db = _connected(path, timeout)
    try:
        version = _checked(db, path)
        _pragmas(
            db,
            page_size=PAGE,
            synchronous=sync,
            secure_delete=1,
            cache_size=-_WRITER_CACHE_KIB,
            journal_size_limit=_LOG_BYTES,
        )
        _write_ahead(db, timeout)
        if version < NEWEST:
            _migrate(db, path)
        pace_checkpoints(db)
    except BaseException:
        db.close()
        raise
    return db


def pace_checkpoints(db: sqlite3.Connection) -> None:
    """Checkpoint the log when it has as many pages as the file, within bounds.

    So a small store is not kept in its log alone.
    """
    least, most = _CHECKPOINT_PAGES
    _pragmas(db, wal_autocheckpoint=min(max(pragma(db, "page_count"), least), most))


def connect_reader(path: str, *, timeout: float) -> sqlite3.Connection:
    """Open a file for reading. When it is the last to close, the log is not written into the file.

    If SQLite cannot create its files in a read-only folder, the store is read without them. If the log then has
    commits, SQLite's error is raised.
    """
    db = _connected(f"{Path(path).as_uri()}?mode=ro", timeout, uri=True)
    if writable(path) or has_commits(path):
        return db
    try:
        db.execute("SELECT 1 FROM sqlite_master").close()
    except sqlite3.OperationalError as error:
        db.close()
        if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
            raise
        return _connected(f"{Path(path).as_uri()}?immutable=1", timeout, uri=True)
    return db


def checked_reader(path: str, *, timeout: float) -> None:
    """Refuse a file that is not a readable store. Raises ``StoreError``."""
    with closing(connect_reader(path, timeout=timeout)) as db:
        if not _checked(db, path):
            raise StoreError(f"{path}: there is no store in it yet, and it is open for reading only")


@contextmanager
def writers_blocked(path: str, *, timeout: float) -> Generator[bool]:
    """Block all other writers, without a change; ``False`` when one of them writes for longer than ``timeout``.

    A file that SQLite cannot lock, or that this process may not write, is not blocked.
    """
    with ExitStack() as stack:
        try:
            if writable(path) and os.stat(path).st_size:  # noqa: PTH116 (beside an empty file, SQLite deletes the log)
                # The reader is closed last: a writer that closes last checkpoints the log, up to its damage.
                for mode, statement in (("ro", "SELECT 1 FROM sqlite_master"), ("rw", "BEGIN IMMEDIATE")):
                    db = _connected(f"{Path(path).as_uri()}?mode={mode}", timeout, uri=True)
                    stack.enter_context(closing(db))
                    db.execute(statement).close()
        except sqlite3.Error as error:
            alone = getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY
        except OSError:
            alone = True
        else:
            alone = True
        yield alone


def writable(path: str) -> bool:
    """Return whether this process may write an existing file, and the files that SQLite puts beside it."""
    return os.access(path, os.W_OK) and os.access(Path(path).parent, os.W_OK)


def has_commits(path: str) -> bool:
    """Return whether the log has commits that the file lacks."""
    try:
        return os.stat(f"{path}-wal").st_size > 0  # noqa: PTH116 (no path has been made of it)
    except OSError:
        return False


def _connected(path: str, timeout: float, *, uri: bool = False) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout, isolation_level=None, check_same_thread=False, uri=uri)
    _pragmas(db, trusted_schema=0, cell_size_check=1)
    return db


def _pragmas(db: sqlite3.Connection, **values: Any) -> None:
    for name, value in values.items():
        db.execute(f"PRAGMA {name} = {value}").close()


def pragma(db: sqlite3.Connection, name: str) -> Any:
    """Return the value of a pragma."""
    return db.execute(f"PRAGMA {name}").fetchone()[0]


def _checked(db: sqlite3.Connection, path: str) -> int:
    """Return the schema's version; 0 for an empty file. Reads one snapshot: another process may be creating it."""
    begun = not db.in_transaction
    if begun:
        db.execute("BEGIN")
    try:
        application, version = pragma(db, "application_id"), pragma(db, "user_version")
        tables = db.execute("SELECT 1 FROM sqlite_master").fetchone()
    finally:
        if begun:
            db.execute("ROLLBACK")
    if application == APPLICATION:
        if version > NEWEST:
            raise StoreError(
                f"{path}: written by a newer version of Palaver (schema {version}; this version knows {NEWEST})"
            )
        return int(version)
    if application or version or tables:
        raise StoreError(f"{path}: a database, but not one of Palaver's")
    return 0


def _write_ahead(db: sqlite3.Connection, timeout: float) -> None:
    """Switch the file to a write-ahead log; SQLite itself does not wait for that lock."""
    end = time.monotonic() + timeout
    while True:
        try:
            db.execute("PRAGMA journal_mode = wal").close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(_RETRY_SECONDS)


def _migrate(db: sqlite3.Connection, path: str) -> None:
    for number, name, statements in MIGRATIONS:
        db.execute("BEGIN IMMEDIATE")
        try:
            if _checked(db, path) < number:
                db.execute("CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT, at INTEGER)")
                for statement in statements.split(";"):
                    db.execute(statement)
                db.execute("INSERT INTO migrations VALUES (?, ?, ?)", (number, name, now_ms()))
                _pragmas(db, application_id=APPLICATION, user_version=number)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


# --- columns ----------------------------------------------------------------------------------------------------------


T = TypeVar("T", int, bytes)

_UUID: Final = 16
_is_uuid: Final = re.compile(
    "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
).fullmatch  # one call, as every append checks
_TEXT: Final = bytes(_UUID + 1)  # before an id that is not a UUID: so its length is never that of one


def id_bytes(id: str) -> bytes:
    """Return a UUID as its 16 bytes, any other id as its text."""
    return bytes.fromhex(id.replace("-", "")) if _is_uuid(id) else _TEXT + id.encode("utf-8", "surrogatepass")


def id_text(data: bytes) -> str:
    """Return the id that ``id_bytes`` wrote."""
    if type(data) is not bytes:
        return repr(data)  # another program wrote it: its seal will not match
    if len(data) != _UUID:
        try:
            return data[len(_TEXT) :].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return repr(data)  # damaged: its seal will not match
    digits = data.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def id_ranges(prefix: str) -> list[tuple[bytes, bytes]]:
    """Return the ranges of the ids that begin with a text, from and up to."""
    text = id_bytes("\x01")[:-1] + prefix.encode("utf-8", "surrogatepass")
    ranges = [(text, text + b"\xff")]
    low, high = (prefix + pattern[len(prefix) :] for pattern in ("00000000-0000-0000-0000-000000000000",
                                                                 "ffffffff-ffff-ffff-ffff-ffffffffffff"))  # fmt: skip
    if _is_uuid(low):
        ranges.append((id_bytes(low), id_bytes(high)))
    return ranges


def typed(value: object, kind: type[T], place: str) -> T:
    """Return a value that no mark covers. Raises ``DamageError`` for a value of another type."""
    if not isinstance(value, kind):
        raise DamageError(f"{place}: altered: a column has a value of another type")
    return value


def row_mark(*values: bytes | str | int | None) -> bytes:
    """Return an eight-byte checksum of the values of a row."""
    return blake2b(repr(values).encode(), digest_size=8).digest()
