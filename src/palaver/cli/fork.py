"""``palaver fork``: a new branch of a thread.

Stability: experimental.
"""

from __future__ import annotations

import click

from palaver.cli import stores
from palaver.cli.terminal import count, echo, safe


@click.command(name="fork")
@click.argument("thread", metavar="THREAD[@PLACE]")
@click.argument("name")
@stores.option
def command(thread: str, name: str, location: str | None) -> None:
    """Begin a branch called NAME at a place of a thread; nothing is copied.

    PLACE is a branch or an entry; without it, the branch begins at the end of "main".
    """
    with stores.opened(location) as store:
        found = stores.address(store, thread)
        if found.of in found.info.branches:
            store.fork(found.info.id, name, of=found.of)
        else:
            store.fork(found.info.id, name, at=found.of)
        length = len(store.path(found.info.id, name))
        echo(
            f"thread {safe(stores.short(found.info.id))}: branch {safe(name)} begins behind {count(length, 'message')}"
        )
