"""Open a store by its location.

Rules:

- ``postgresql://…`` is a PostgreSQL database, ``jsonl:FOLDER`` (and any folder that exists) a folder of JSON Lines,
  ``memory:`` this process; anything else is the path of an SQLite file, with or without ``sqlite:`` before it.
- ``sqlite:///x.db`` is ``x.db`` in the working folder, and ``sqlite:////data/x.db`` is ``/data/x.db``, as in SQLAlchemy
  (https://docs.sqlalchemy.org/en/20/core/engines.html#sqlite). With two slashes it is refused.
- Any other word with a colon (``nope:x``, ``:memory:``) is refused, unless a file of that name exists.
- ``file:PATH`` is an SQLite file by its URI, as SQLite writes them; with ``?mode=ro`` it is open for reading only.
- Without a location, ``PALAVER_STORE`` decides, else the file ``palaver.db`` in the user's data folder is used.
- The module of a kind of store is imported when the first store of that kind is opened.

Stability: experimental.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib import import_module
from typing import Final, Literal, TypedDict, Unpack, cast
from urllib.parse import unquote

import platformdirs

from palaver.core.errors import StoreError, UnavailableError, excerpt
from palaver.core.type_checks import check_arguments
from palaver.store.store import Store

VARIABLE: Final = "PALAVER_STORE"
_FILE: Final = "palaver.db"
_URI: Final = "file:"
_MEMORY: Final = ":memory:"
_KIND: Final = re.compile(r":|[A-Za-z][A-Za-z0-9+.-]+:")
"""The prefix that names a kind of store; a single letter is a drive."""
_KINDS: Final = {
    "postgresql": ("palaver.store.postgres", "PostgresStore"),
    "postgres": ("palaver.store.postgres", "PostgresStore"),
    "jsonl": ("palaver.store.jsonl", "JsonlStore"),
    "memory": ("palaver.store.memory", "MemoryStore"),
    "sqlite": ("palaver.store.sqlite", "SQLiteStore"),
}


class StoreOptions(TypedDict, total=False):
    """Options for opening a store. Each kind takes some of them; times are in seconds."""

    clock: Callable[[], int]
    """Returns Unix milliseconds. SQLite, JSON Lines, memory."""
    sync: Literal["full", "normal", "flush", "fsync"]
    """When a change is on disk: ``full`` or ``normal`` (SQLite), ``flush`` or ``fsync`` (JSON Lines)."""
    read_only: bool
    """Whether an SQLite file is opened for reading only."""
    timeout: float
    """How long to wait for another writer (SQLite, JSON Lines), or for a connection (PostgreSQL)."""
    max_bytes: int
    """The size at which JSON Lines continue in another file."""
    schema: str
    """The schema that holds the tables. PostgreSQL."""
    min_size: int
    """The connections that are kept open. PostgreSQL."""
    max_size: int
    """The largest number of connections. PostgreSQL."""


def default_location() -> str:
    """Return the default location: ``PALAVER_STORE``, else a file in the user's data folder."""
    return os.environ.get(VARIABLE) or _user_file()


def _user_file() -> str:
    return os.path.join(platformdirs.user_data_dir("palaver", appauthor=False), _FILE)  # noqa: PTH118 (pathlib takes longer to load than this module)


def split_location(location: str | os.PathLike[str]) -> tuple[str, str]:
    """Split a location into the kind of store and the rest: the path of a file or folder.

    Raises ``StoreError`` for a kind that does not exist.
    """
    where = os.fspath(location)
    if where.startswith(_URI) and not isinstance(location, os.PathLike):
        return "sqlite", _parse_file_uri(where)[0]
    kind, _, rest = where.partition(":")
    if kind in _KINDS and not isinstance(location, os.PathLike):
        return kind, _sqlite_path(where, rest) if kind == "sqlite" else rest
    if not isinstance(location, os.PathLike) and _KIND.match(where) and not os.path.exists(where):  # noqa: PTH110 (as above)
        known = ", ".join(f"{each}:" for each in _KINDS)
        raise StoreError(f"{excerpt(where)}: unknown kind of store; there are {known} and paths (./{excerpt(where)})")
    return ("jsonl", where) if os.path.isdir(where) else ("sqlite", where)  # noqa: PTH112 (as above)


def _sqlite_path(where: str, rest: str) -> str:
    """Return the path in a location with ``sqlite:``. Raises ``StoreError`` for one that names no file clearly."""
    path = rest.removeprefix("///") if rest.startswith("//") else rest
    if path.startswith("//") or path in {"", _MEMORY}:
        raise StoreError(
            f"{excerpt(where)}: not the path of a file; sqlite:///x.db is x.db in the working folder, "
            "sqlite:////data/x.db is /data/x.db, and memory: is this process"
        )
    return path


def _parse_file_uri(uri: str) -> tuple[str, bool]:
    """Return the path of an SQLite URI, and whether it is read-only. Raises ``StoreError`` for other parameters."""
    path, _, query = uri.removeprefix(_URI).partition("#")[0].partition("?")
    if path.startswith("//"):
        host, _, path = path[2:].partition("/")
        path = f"/{path}"
        if host not in {"", "localhost"}:
            raise StoreError(f"{uri}: a file on another machine")
    if query not in {"", "mode=ro", "mode=rw", "mode=rwc"}:
        raise StoreError(f"{uri}: only mode=ro, mode=rw and mode=rwc can follow the path")
    return unquote(path), query == "mode=ro"


def open_store(location: str | os.PathLike[str] | None = None, **options: Unpack[StoreOptions]) -> Store:
    """Open the store at a ``location``, and create it if it is missing; ``options`` are those of its kind.

    A location is a path, ``postgresql://…``, ``jsonl:FOLDER`` or ``memory:``; ``None`` is ``PALAVER_STORE``, else the
    user's own file.

    The folder of a location must exist; that of the user's own file is created. Raises ``StoreError`` for a file that
    is not a store, and for an option of another kind or type; ``UnavailableError`` for an unreachable location.
    """
    check_arguments("open_store", open_store, {"location": location}, StoreError)
    where = default_location() if location is None else os.fspath(location)
    kind, rest = split_location(where if location is None else location)
    if (
        kind == "sqlite"
        and where.startswith(_URI)
        and not isinstance(location, os.PathLike)
        and _parse_file_uri(where)[1]
    ):
        options["read_only"] = True
    module, name = _KINDS[kind]
    opened = getattr(import_module(module), name)
    _check_options(kind, opened, options)
    if kind in {"postgresql", "postgres"}:
        return cast("Store", opened(where, **options))
    if kind == "memory":
        return cast("Store", opened(**options))
    if rest == _user_file():
        _make_folder(os.path.dirname(rest))  # noqa: PTH120 (as above)
    else:
        _check_folder(os.path.dirname(os.path.abspath(rest)))  # noqa: PTH100, PTH120 (as above)
    try:
        return cast("Store", opened(rest, **options))
    except OSError as error:
        raise UnavailableError(f"{excerpt(where)}: {(error.strerror or str(error)).lower()}") from None


def _check_options(kind: str, opened: type[Store], options: StoreOptions) -> None:
    """Raise ``StoreError`` for an option that this kind does not take, or that is of the wrong type."""
    known = opened.__init__.__kwdefaults__ or {}
    for name in options:
        if name not in known:
            raise StoreError(f"{name}: a store of the kind {kind!r} has no such option, only {', '.join(known)}")
    check_arguments(f"a store of the kind {kind!r}", opened.__init__, dict(options), StoreError)


def _check_folder(folder: str) -> None:
    """Refuse a given location in a missing folder: a misspelt path creates nothing."""
    if not os.path.isdir(folder):  # noqa: PTH112 (as above)
        raise UnavailableError(f"{folder}: no such folder; create it first")


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder or ".", exist_ok=True)  # noqa: PTH103 (as above)
    except OSError as error:
        raise UnavailableError(f"{folder}: {(error.strerror or str(error)).lower()}") from None
