"""``palaver gc``: delete old threads and free unreferenced data.

Without ``--older-than`` no thread is deleted. With it, the command lists the threads that it would delete; only
``--yes`` deletes them. A thread that changes in the meantime is kept.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from palaver.cli import progress, stores
from palaver.cli.ranges import Number, WholeNumber
from palaver.cli.terminal import count, echo, safe, size, when
from palaver.store.store import Retention, expired, retain

if TYPE_CHECKING:
    from palaver.store.store import Store


@click.command(name="gc")
@click.option("--older-than", type=Number(0), metavar="DAYS", help="Delete threads unchanged for that many days.")
@click.option("--keep", type=WholeNumber(0), default=0, metavar="N", help="Keep the N last changed threads.")
@click.option("--spare-tag", "spare", multiple=True, metavar="TAG", help="Keep threads with this tag; may be repeated.")
@click.option("--yes", is_flag=True, help="Delete the threads instead of listing them.")
@stores.option
def command(older_than: float | None, keep: int, spare: tuple[str, ...], location: str | None, *, yes: bool) -> None:
    """Remove unreferenced data from the disk. With --older-than, delete old threads first."""
    if older_than is None and (keep or spare or yes):
        raise click.UsageError("--keep, --spare-tag and --yes need --older-than")
    with stores.open_existing(location) as store:
        if older_than is not None and not _expire(
            store, Retention(max_age_days=older_than, keep_newest=keep, spare_tags=spare), yes=yes
        ):
            return
        with progress.bar("freeing") as report:
            freed = store.gc(progress=report)
    what = f"{count(freed.messages, 'message')}, {count(freed.blobs, 'blob')}"
    echo(f"removed {what}; the store is {size(freed.size)} smaller")


def _expire(store: Store, rule: Retention, *, yes: bool) -> bool:
    """Delete threads or list them. Return whether to continue with the garbage collection."""
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
