"""``palaver threads``: list the threads of a store.

A thread without a title is shown with the beginning of its first prompt.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

from palaver.cli import rows, stores
from palaver.cli.ranges import WholeNumber
from palaver.cli.rows import Form
from palaver.cli.tables import Column, Listing
from palaver.cli.terminal import console, count, echo, safe, when
from palaver.core.errors import PalaverError, excerpt
from palaver.core.messages import UserMessage
from palaver.store.store import Query
from palaver.threads.thread import RECORD

if TYPE_CHECKING:
    from palaver.store.store import Store, ThreadInfo


_NAMES: Final = ("id", "title", "tags", "created_at", "updated_at", "messages", "length", "branches")


@click.command(name="threads")
@click.option("--tag", metavar="TAG", help="Only threads with this tag.")
@click.option(
    "-n", "--limit", type=WholeNumber(1), default=50, show_default=True, metavar="N", help="At most N threads."
)
@rows.options
@stores.option
def command(tag: str | None, limit: int, location: str | None, *, form: Form | None) -> None:
    """List the threads of a store, the last changed first."""
    with stores.open_existing(location) as store:
        found = list(store.threads(tag=tag, limit=limit + 1))
        infos, more = found[:limit], len(found) > limit
        messages = [_messages(store, info) for info in infos]
        titles = [info.title or _first_prompt(store, info) for info in infos] if form is None else []
    if form is not None:
        rows.write([_plain(info, number) for info, number in zip(infos, messages, strict=True)], form, _NAMES)
    elif infos:
        _draw(infos, messages, titles)
    else:
        which = "no thread" if tag is None else f"no thread with the tag {tag!r}"
        echo(f"{which} in {stores.display_name(location)}; palaver import FILE adds some", err=True)
    if more:
        echo(f"only the {count(limit, 'thread')} that changed last; there are more (--limit)", err=True)


def _messages(store: Store, info: ThreadInfo) -> int:
    """Return the number of messages on all branches of a thread, without records, which are entries too."""
    try:
        return info.length - len(store.search(Query(tag=RECORD, thread=info.id, limit=info.length)))
    except PalaverError:  # a store that cannot be searched is listed all the same
        return info.length


def _first_prompt(store: Store, info: ThreadInfo) -> str:
    """Return the beginning of the first message of the user; ``""`` when there is none."""
    try:
        entries = stores.message_entries(store, stores.Address(info, None))
    except PalaverError:  # a thread that is damaged is listed all the same
        return ""
    return excerpt(next((each.message.text for each in entries if isinstance(each.message, UserMessage)), ""))


def _plain(info: ThreadInfo, messages: int) -> dict[str, Any]:
    return {
        "id": info.id,
        "title": info.title,
        "tags": info.tags,
        "created_at": info.created_at,
        "updated_at": info.updated_at,
        "messages": messages,
        "length": info.length,
        "branches": dict(info.branches),
    }


def _draw(infos: list[ThreadInfo], messages: list[int], titles: list[str]) -> None:
    listing = Listing(
        Column("thread"),
        Column("changed"),
        Column("messages", "right"),
        Column("branches", "right"),
        Column("title", narrow="cut"),
    )
    for info, number, name in zip(infos, messages, titles, strict=True):
        title = Text(" ".join(safe(name).split()))
        title.append("".join(f" #{safe(tag)}" for tag in info.tags), "dim")
        listing.add(
            Text(safe(stores.short(info.id)), "bold"),
            Text(when(info.updated_at), "dim"),
            f"{number:,}",
            str(len(info.branches)),
            title,
        )
    console().print(listing, crop=False)
