"""``palaver fork``: start a new branch of a thread.

Stability: experimental.
"""

from __future__ import annotations

import click

from palaver.cli import completion, stores
from palaver.cli.terminal import count, echo, safe


@click.command(name="fork")
@click.argument("thread", metavar="THREAD[@POSITION]", shell_complete=completion.threads)
@click.argument("name")
@stores.option
def command(thread: str, name: str, location: str | None) -> None:
    """Start a branch called NAME at a position of a thread. Nothing is copied.

    POSITION is a branch or an entry. Default: the end of "main".
    """
    with stores.open_existing(location) as store:
        found = stores.find_address(store, thread)
        if found.position_or_main in found.info.branches:
            store.fork(found.info.id, name, of=found.position_or_main)
        else:
            store.fork(found.info.id, name, at=found.position_or_main)
        length = len(stores.message_entries(store, stores.Address(found.info, name)))
        echo(f"thread {safe(stores.short(found.info.id))}: branch {safe(name)} starts after {count(length, 'message')}")
