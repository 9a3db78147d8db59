"""The files that change in folders, for ``palaver import --watch``.

- Hidden files, and files beneath hidden folders of a watched one, are left out, and so are files that are gone.
- Changes are collected for a moment. A file is settled when nobody has written to it for ``_SETTLED`` seconds.
- A file that the user names is watched by its folder, so that it may be replaced.

Stability: experimental.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Iterator
from pathlib import Path
from time import time
from typing import Final

import click

from palaver.cli import files
from palaver.core.errors import MissingPackageError

_SETTLED: Final = 30
_TICK: Final = 500
"""Milliseconds after which files that wait are looked at again."""
_COLLECT: Final = 1000
"""Most milliseconds that changes are collected."""


def is_settled(name: str) -> bool:
    """Return whether nobody has written to a file for a while; also of a file that is gone."""
    try:
        return time() - Path(name).stat().st_mtime > _SETTLED
    except OSError:  # reading it reports the cause
        return True


def changes(names: Collection[str]) -> Iterator[set[str]]:
    """Watch files and folders from now on; yield what changed, or nothing after a moment without a change.

    Raises ``MissingPackageError``, and ``click.ClickException`` for a name that does not exist.
    """
    try:
        from watchfiles import watch
    except ImportError as error:
        raise MissingPackageError.of("watching files needs watchfiles", "watch", error) from None
    if files.STDIO in names:
        raise click.UsageError("standard input cannot be watched")
    missing = next((name for name in names if not Path(name).exists()), None)
    if missing is not None:
        raise click.ClickException(f"{files.display_name(missing)}: no such file or directory")
    roots = {name: os.path.abspath(name) for name in names}  # noqa: PTH100 (without following links)
    folders = {path if Path(path).is_dir() else str(Path(path).parent) for path in roots.values()}
    found = watch(
        *sorted(folders),
        watch_filter=None,
        debounce=_COLLECT,
        rust_timeout=_TICK,
        yield_on_timeout=True,
        recursive=any(Path(path).is_dir() for path in roots.values()),
        ignore_permission_denied=True,
    )
    next(found)  # it watches now
    return _named(({path for _, path in each} for each in found), roots)


def _named(found: Iterator[set[str]], roots: dict[str, str]) -> Generator[set[str]]:
    """Yield changed files by the names that the user would give them."""
    for paths in found:
        yield {named for path in paths if (named := _name(path, roots)) is not None}


def _name(path: str, roots: dict[str, str]) -> str | None:
    """Return the name of a file beneath a root; ``None`` for a file that is hidden, gone or elsewhere."""
    for name, root in roots.items():
        if path == root:
            return name if Path(path).is_file() else None
        beneath = os.path.relpath(path, root)
        parts = Path(beneath).parts
        if not any(part.startswith(".") for part in parts):  # ".." is elsewhere
            return os.path.join(name, beneath) if Path(path).is_file() else None  # noqa: PTH118 (keeps the spelling)
    return None


def due(found: Iterator[set[str]], waiting: Collection[str]) -> Iterator[list[str]]:
    """Yield the files to read: those that changed, and those of ``waiting`` that are settled."""
    for changed in found:
        ready = sorted(changed | {name for name in waiting if is_settled(name)})
        if ready:
            yield ready
