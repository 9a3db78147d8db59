"""``palaver verify``: check a store, and recover the sound part of a damaged one.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from palaver.cli import progress, rows, stores
from palaver.cli.rows import Form
from palaver.cli.terminal import bad_input, count, echo, safe, size
from palaver.core.errors import DamageError
from palaver.store.location import default_location, open_store, split_location
from palaver.store.sqlite.recover import recover
from palaver.store.sqlite.verify import verify
from palaver.store.store import Damage, Verified

if TYPE_CHECKING:
    from collections.abc import Iterable

_RECOVERABLE = "sqlite"


@click.command(name="verify")
@click.option("--recover", "target", metavar="INTO", help="Copy the sound data of a damaged file into another store.")
@rows.options
@stores.option
def command(location: str | None, target: str | None, *, form: Form | None) -> int:
    """Read everything in a store and recompute every hash.

    Damage is listed and makes the exit code 1. With --recover, the sound data of a damaged SQLite file is copied into
    another store, and what is lost is listed. --json prints one object, --csv a line for each damaged thing.
    """
    if target is not None:
        return _recover(location, target, form)
    found = _verified(location)
    if form == "json":
        stores.print_json([structs.asdict(found) | {"damage": _plain(found.damage)}])
    elif form == "csv":
        rows.write(_plain(found.damage), form)
    else:
        _list(found.damage)
        counts = f"{count(found.threads, 'thread')}, {count(found.entries, 'message')}, {count(found.blobs, 'blob')}"
        wrong = f"{len(found.damage):,} damaged" if found.damage else "no damage"
        echo(f"{counts}, {size(found.size)}: {wrong}")
    return 0 if found.ok else 1


def _verified(location: str | None) -> Verified:
    kind, path = split_location(location or default_location())
    if kind == _RECOVERABLE and stores.exists(location):  # read-only: opening it for writing changes the file
        with progress.bar("verifying") as report:
            return verify(path, progress=report)
    try:
        with stores.open_existing(location) as store, progress.bar("verifying") as report:
            return store.verify(progress=report)
    except DamageError as error:  # it cannot even be opened
        return Verified(damage=(Damage("unreadable", stores.display_name(location), str(error)),))


def _recover(location: str | None, target: str, form: Form | None) -> int:
    kind, path = split_location(location or default_location())
    if kind != _RECOVERABLE:
        bad_input(stores.display_name(location), "only an SQLite file can be recovered")
    if not stores.exists(location):
        bad_input(stores.display_name(location), "there is no such file")
    if split_location(target) == (kind, path):
        raise click.UsageError("--recover needs a store other than the damaged one")
    with open_store(target) as into, progress.bar("recovering") as report:
        saved = recover(path, into, progress=report)
    if not (saved.threads or saved.blobs or saved.lost):
        bad_input(stores.display_name(location), "no store data was found in it")
    if form == "json":
        stores.print_json([structs.asdict(saved) | {"lost": _plain(saved.lost)}])
    elif form == "csv":
        rows.write(_plain(saved.lost), form)
    else:
        _list(saved.lost)
        counts = f"{count(saved.threads, 'thread')}, {count(saved.entries, 'message')}, {count(saved.blobs, 'blob')}"
        lost = f"{len(saved.lost):,} lost or changed" if saved.lost else "nothing was lost"
        echo(f"saved into {stores.display_name(target)}: {counts}; {lost}")
    return 0 if saved.ok else 1


def _plain(damage: Iterable[Damage]) -> list[dict[str, Any]]:
    return [structs.asdict(each) for each in damage]


def _list(damage: Iterable[Damage]) -> None:
    for each in damage:
        echo(safe(str(each)))
