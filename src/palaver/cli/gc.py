"""``palaver gc``: let old threads go, and free what nothing refers to.

Rules:

- Without ``--older-than`` no thread is deleted. With it, the threads that would be are listed; only ``--yes`` deletes
  them. A thread that is changed in the meantime stays.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from palaver.cli import progress, stores
from palaver.cli.terminal import count, echo, safe, size, when
from palaver.store.retention import Retention, expired, retain

if TYPE_CHECKING:
    from palaver.store.store import Store


@click.command(name="gc")
@click.option(
    "--older-than", type=click.FloatRange(min=0), metavar="DAYS", help="Delete threads unchanged for so long."
)
@click.option("--keep", type=click.IntRange(min=0), default=0, metavar="N", help="Spare the N that changed last.")
@click.option("--spare-tag", "spare", multiple=True, metavar="TAG", help="Spare those with this tag; may be repeated.")
@click.option("--yes", is_flag=True, help="Delete, and do not only list.")
@stores.option
def command(older_than: float | None, keep: int, spare: tuple[str, ...], location: str | None, *, yes: bool) -> None:
    """Remove from the disk what nothing refers to; with --older-than, old threads before that."""
    if older_than is None and (keep or spare or yes):
        raise click.UsageError("--keep, --spare-tag and --yes go with --older-than")
    with stores.opened(location) as store:
        if older_than is not None and not _expire(
            store, Retention(max_age_days=older_than, keep_newest=keep, spare_tags=spare), yes=yes
        ):
            return
        with progress.bar("freeing") as told:
            freed = store.gc(progress=told)
    what = f"{count(freed.messages, 'message')}, {count(freed.blobs, 'blob')}"
    echo(f"removed {what}; the store is {size(freed.size)} smaller")


def _expire(store: Store, rule: Retention, *, yes: bool) -> bool:
    """Delete threads, or list them; whether to go on."""
    found = expired(store, rule)
    for info in found:
        title = " ".join(safe(info.title or "").split())
        echo(
            f"{safe(stores.short(info.id))}  {when(info.updated_at)}  {count(info.length, 'message')}  {title}".rstrip()
        )
    if not yes:
        echo(f"{count(len(found), 'thread')} would be deleted (--yes)", err=True)
        return False
    echo(f"{count(len(retain(store, rule)), 'thread')} deleted")
    return True
