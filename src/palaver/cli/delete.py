"""``palaver delete``: remove a thread.

Rules:

- It asks, on a terminal; elsewhere it wants ``--yes``.
- What the thread said is found by no command any more. Its messages leave the disk with ``palaver gc``.

Stability: experimental.
"""

from __future__ import annotations

import sys

import click

from palaver.cli import stores
from palaver.cli.terminal import count, echo, safe


@click.command(name="delete")
@click.argument("thread")
@click.option("--yes", is_flag=True, help="Do not ask.")
@stores.option
def command(thread: str, location: str | None, *, yes: bool) -> int:
    """Delete a thread with all its branches; "palaver gc" then frees the disk."""
    with stores.opened(location) as store:
        info = stores.thread(store, thread)
        title = " ".join(safe(info.title or "").split())
        told = f"thread {safe(stores.short(info.id))} ({count(info.length, 'message')})" + (
            f": {title}" if title else ""
        )
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError("without a terminal to ask on, --yes must say so")
            if not click.confirm(f"Delete {told}?", err=True):
                echo("nothing was deleted", err=True)
                return 1
        store.delete(info.id)
    echo(f"deleted {told}; palaver gc removes it from the disk")
    return 0
