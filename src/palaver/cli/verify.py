"""``palaver verify``: check a store, recover the sound part of a damaged one, or check folders of transcripts.

Stability: experimental.
"""

from __future__ import annotations

import click
from msgspec import structs

from palaver.cli import progress, rows, stores
from palaver.cli.rows import Form
from palaver.cli.terminal import bad_input, console, count, echo, safe, safe_line, size
from palaver.core.errors import DamageError
from palaver.store.location import default_location, open_store, split_location
from palaver.store.sqlite.recover import Recovered, recover
from palaver.store.sqlite.verify import verify
from palaver.store.store import Damage, Verified

_RECOVERABLE = "sqlite"
_MAX_FAULTS = 50


@click.command(name="verify")
@click.option("--recover", "target", metavar="INTO", help="Copy the sound data of a damaged file into another store.")
@click.option(
    "--transcripts",
    "folders",
    metavar="FOLDER",
    multiple=True,
    type=click.Path(exists=True),
    help="Check the transcripts in a folder, or one file, in place of a store.",
)
@rows.options
@stores.option
def command(location: str | None, target: str | None, folders: tuple[str, ...], *, form: Form | None) -> int:
    """Read everything in a store and recompute every hash.

    Damage is listed and makes the exit code 1. With --recover, the sound data of a damaged SQLite file is copied into
    another store, and what is lost is listed. --json prints one object, --csv a line for each damaged thing.

    With --transcripts, each file of a folder is recognised, read, written again, and converted to two other formats
    with equal counts, or a receipt that names what differs. A row for each format is printed, and each fault.
    """
    if folders:
        if target is not None or location is not None:
            raise click.UsageError("--transcripts checks files; --recover and --store belong to a store")
        return _check_transcripts(folders, form)
    if target is not None:
        return _recover(location, target, form)
    found = _verified(location)
    wrong = f"{len(found.damage):,} damaged" if found.damage else "no damage"
    _report(found, f"{_counts(found)}, {size(found.size)}: {wrong}", form)
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
    lost = f"{len(saved.lost):,} lost or changed" if saved.lost else "nothing was lost"
    _report(saved, f"saved into {stores.display_name(target)}: {_counts(saved)}; {lost}", form)
    return 0 if saved.ok else 1


def _report(found: Verified | Recovered, summary: str, form: Form | None) -> None:
    """Print what was found: a row for each damaged thing, and the summary of all."""
    listed, damage = ("damage", found.damage) if isinstance(found, Verified) else ("lost", found.lost)
    plain = [structs.asdict(each) for each in damage]
    if form == "json":
        stores.print_json([structs.asdict(found) | {listed: plain}])
    elif form == "csv":
        rows.write(plain, form, Damage.__struct_fields__)
    else:
        for each in damage:
            echo(safe(str(each)))
        echo(summary)


def _check_transcripts(folders: tuple[str, ...], form: Form | None) -> int:
    """Print a row for each format, and the faults. Return the exit code."""
    from palaver.cli import transcript_check

    with progress.bar("verifying") as report:
        found = transcript_check.check(folders, report)
    lines = [found.rows[name] for name in sorted(found.rows)]
    plain = [row.plain() for row in lines]
    if form == "json":
        faults = [structs.asdict(each) for each in found.listed]
        total = {"other": found.other, "skipped": found.skipped, "faults": found.faults}
        stores.print_json([{"formats": plain, **total, "listed": faults}])
    elif form == "csv":
        rows.write(plain, form, [*transcript_check.FormatRow("").plain()])
    else:
        if lines:
            console().print(transcript_check.listing(lines), crop=False)
        for each in found.listed[:_MAX_FAULTS]:
            echo(safe_line(str(each)))
        if (more := found.faults - _MAX_FAULTS) > 0:
            echo(f"and {count(more, 'fault')} more")
        echo(transcript_check.summary(found))
    return 1 if found.faults else 0


def _counts(found: Verified | Recovered) -> str:
    return f"{count(found.threads, 'thread')}, {count(found.entries, 'message')}, {count(found.blobs, 'blob')}"
