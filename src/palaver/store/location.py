"""Open a store by its location.

Rules:

- ``postgresql://…`` is a PostgreSQL database, ``jsonl:FOLDER`` (and any folder that exists) a folder of JSON Lines,
  ``memory:`` this process; anything else is the path of an SQLite file, with or without ``sqlite:`` before it.
- Without a location, ``PALAVER_STORE`` decides, and without that the file ``palaver.db`` in the user's data folder.
- A kind of store is imported when one of it is opened.

Stability: experimental.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

import platformdirs

from palaver.core.errors import UnavailableError

if TYPE_CHECKING:
    from palaver.store.store import Store

VARIABLE: Final = "PALAVER_STORE"
_FILE: Final = "palaver.db"
_KINDS: Final = {
    "postgresql": ("palaver.store.postgres", "PostgresStore"),
    "postgres": ("palaver.store.postgres", "PostgresStore"),
    "jsonl": ("palaver.store.jsonl", "JsonlStore"),
    "memory": ("palaver.store.memory", "MemoryStore"),
    "sqlite": ("palaver.store.sqlite", "SQLiteStore"),
}


def default_location() -> str:
    """Where a store is kept when nobody says where: ``PALAVER_STORE``, else a file in the user's data folder."""
    return os.environ.get(VARIABLE) or os.path.join(platformdirs.user_data_dir("palaver", appauthor=False), _FILE)  # noqa: PTH118 (pathlib takes longer to load than this module)


def parted(location: str | os.PathLike[str]) -> tuple[str, str]:
    """The kind of store that a location names, and what stands behind it: the path of a file or folder."""
    where = os.fspath(location)
    kind, _, rest = where.partition(":")
    if kind in _KINDS and not isinstance(location, os.PathLike):
        return kind, rest
    return ("jsonl", where) if os.path.isdir(where) else ("sqlite", where)  # noqa: PTH112 (as above)


def open_store(location: str | os.PathLike[str] | None = None, **options: Any) -> Store:
    """Open the store at a location, and begin it where there is none; options are those of its class.

    The folder that a location lies in must be there; that of the default location is made.
    Raises ``StoreError`` for what is there and is no store, and ``UnavailableError`` for what cannot be reached.
    """
    where = default_location() if location is None else os.fspath(location)
    kind, rest = parted(where if location is None else location)
    module, name = _KINDS[kind]
    opened = getattr(import_module(module), name)
    if kind in {"postgresql", "postgres"}:
        return cast("Store", opened(where, **options))
    if kind == "memory":
        return cast("Store", opened(**options))
    if location is None and not os.environ.get(VARIABLE):
        _make_folder(os.path.dirname(rest))  # noqa: PTH120 (as above)
    else:
        _check_folder(os.path.dirname(os.path.abspath(rest)))  # noqa: PTH100, PTH120 (as above)
    return cast("Store", opened(rest, **options))


def _check_folder(folder: str) -> None:
    """A location that somebody names is in a folder that is there: what is misspelt makes none."""
    if not os.path.isdir(folder):  # noqa: PTH112 (as above)
        raise UnavailableError(f"{folder}: there is no such folder; make it first")


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder or ".", exist_ok=True)  # noqa: PTH103 (as above)
    except OSError as error:
        raise UnavailableError(f"{folder}: {(error.strerror or str(error)).lower()}") from None
