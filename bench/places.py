"""Where a contender keeps: a folder, or a schema of a PostgreSQL database; both are new for each run.

Rules:

- Size is what lies on the disk when the contender has closed: the bytes of all its files, or of its tables with their
  indexes and TOAST. Bytes written are those that the kernel counts for this process (``/proc/self/io``), or the
  write-ahead log of the server, which counts for all its clients and does not count the pages of the tables.
- A folder lies where ``TMPDIR`` says. On a file system in memory nothing that is synchronised costs anything, so the
  first rows of the table show what one append and ``fdatasync`` of a plain file takes.
- The database is named by ``PALAVER_BENCH_POSTGRES``; without it, and without a server, the rows are skipped.
"""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from uuid import uuid4

from measure import Skipped

DATABASE = "postgresql://postgres@127.0.0.1:5432/test"
_CONNECT_SECONDS = 3


class CallContext(ABC):
    """A new place to keep in."""

    @abstractmethod
    def size(self) -> int:
        """The bytes that are kept."""

    @abstractmethod
    def written(self) -> int | None:
        """The bytes written until now, since whenever; ``None`` where nobody counts them."""

    @abstractmethod
    def drop(self) -> None:
        """Remove everything."""


class Folder(CallContext):
    """A folder of its own."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="palaver-bench-", ignore_cleanup_errors=True)
        self.path = Path(self._folder.name)
        self.file = self.path / "kept.db"

    def size(self) -> int:
        return sum(each.stat().st_size for each in self.path.rglob("*") if each.is_file())

    def written(self) -> int | None:
        try:
            counted = Path("/proc/self/io").read_text(encoding="ascii")
        except OSError:
            return None
        return next(int(line.split()[1]) for line in counted.splitlines() if line.startswith("write_bytes"))

    def drop(self) -> None:
        self._folder.cleanup()


class Schema(CallContext):
    """A schema of its own."""

    def __init__(self) -> None:
        server()
        self.name = f"palaver_bench_{uuid4().hex[:12]}"
        self.database = _database()
        self.conninfo = f"{self.database}{'&' if '?' in self.database else '?'}options=-csearch_path%3D{self.name}"
        _ask(f"create schema {self.name}")

    def size(self) -> int:
        return int(
            _ask(
                "select coalesce(sum(pg_total_relation_size(oid)), 0) from pg_class"
                " where relkind = 'r' and relnamespace = %s::regnamespace",
                self.name,
            )
        )

    def written(self) -> int | None:
        return int(_ask("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    def drop(self) -> None:
        _ask(f"drop schema {self.name} cascade")


def _database() -> str:
    return os.environ.get("PALAVER_BENCH_POSTGRES", DATABASE)


@cache
def server() -> str:
    """The version of the server, and what makes its commits cheap. Raises ``Skipped`` where there is none."""
    import psycopg

    try:
        version = _ask("show server_version").split()[0]
        off = [name for name in ("fsync", "synchronous_commit") if _ask(f"show {name}") == "off"]
    except psycopg.OperationalError as error:
        raise Skipped("no server") from error
    return " ".join((version, *(f"({name} is off)" for name in off)))


def _ask(statement: str, *values: str) -> str:
    """Run one statement and give the first value of its answer."""
    import psycopg

    with psycopg.connect(_database(), autocommit=True, connect_timeout=_CONNECT_SECONDS) as connection:
        answer = connection.execute(statement, values or None)
        return str(answer.fetchone()[0]) if answer.description else ""
