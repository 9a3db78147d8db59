"""``palaver delete``: remove a thread.

- On a terminal it asks for confirmation; elsewhere it requires ``--yes``.
- Commands no longer find the thread's messages. ``palaver gc`` removes them from the disk.

Stability: experimental.
"""

from __future__ import annotations

import sys

import click

from palaver.cli import completion, stores
from palaver.cli.terminal import count, echo, safe


@click.command(name="delete")
@click.argument("thread", shell_complete=completion.threads)
@click.option("--yes", is_flag=True, help="Delete without confirmation.")
@stores.option
def command(thread: str, location: str | None, *, yes: bool) -> int:
    """Delete a thread with all its branches. "palaver gc" then frees the disk space."""
    with stores.open_existing(location) as store:
        info = stores.find_thread(store, thread)
        title = " ".join(safe(info.title or "").split())
        description = f"thread {safe(stores.short(info.id))} ({count(info.length, 'message')})" + (
            f": {title}" if title else ""
        )
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError("there is no terminal to confirm on; pass --yes")
            if not click.confirm(f"Delete {description}?", err=True):
                echo("nothing was deleted", err=True)
                return 1
        store.delete(info.id)
    echo(f"deleted {description}; palaver gc frees the disk space")
    return 0
