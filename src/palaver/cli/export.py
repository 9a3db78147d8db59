"""``palaver export``: a thread as a file.

Rules:

- ``thread`` is the whole thread, or one branch of it, as a file that ``import`` takes back as it was
  (``store.archive``). ``palaver`` is the conversation at one place in the canonical form; the name of a wire makes it a
  request body, with a receipt as ``convert`` shows it.
- Tools, settings and model are those that the conversation was imported with. It is no longer the request that a wire
  once read, so it is made whole where the wire wants that (``Request.origin``).
- Media that the store keeps under their hash go out as bytes, except in a thread file, which has a place for them.
- Files are written whole or not at all.

Stability: experimental.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import click
from msgspec import structs

from palaver import wires
from palaver.cli import convert, files, progress, stores
from palaver.cli.failure import bad_input
from palaver.cli.figures import count
from palaver.cli.harmless import safe
from palaver.cli.source import PALAVER, Source
from palaver.core import canonical, jsontext
from palaver.core.errors import DecodeError, NotFoundError
from palaver.core.parts import Blob, Media
from palaver.core.request import Request
from palaver.store.archive import export_thread

if TYPE_CHECKING:
    from palaver.core.messages import Message
    from palaver.store.store import Store

_THREAD: Final = "thread"
_REQUEST: Final = "request"


@click.command(name="export")
@click.argument("thread", metavar="THREAD[@PLACE]")
@click.option(
    "-o", "--output", default=files.STANDARD, metavar="OUT", help="Write to a file; .zst compresses a thread."
)
@click.option("--as", "form", default=_THREAD, show_default=True, metavar="FORM", help="thread, palaver, or a wire.")
@click.option("--model", metavar="NAME", help="The model that a request is to name.")
@click.option(
    "--losses",
    type=click.Choice(("show", "json", "raise")),
    default="show",
    show_default=True,
    help="How to show the receipt of a wire.",
)
@click.option("--pretty", is_flag=True, help="Indent the JSON of a wire, as on a terminal.")
@stores.option
def command(
    thread: str,
    *,
    output: str,
    form: str,
    model: str | None,
    losses: Literal["show", "json", "raise"],
    pretty: bool,
    location: str | None,
) -> int:
    """Write a thread, or the conversation at one place of it, to a file.

    FORM is "thread" (all of it, or one branch, as "palaver import" takes it back), "palaver" (the canonical form), or a
    wire, which makes a request body.
    """
    if form == _THREAD:
        with stores.opened(location) as store:
            _whole(store, stores.address(store, thread), output)
        return 0
    wire = None if form == PALAVER else wires.get(form)
    with stores.opened(location) as store:
        found = stores.address(store, thread)
        request = _request(store, found)
    source = Source(request, safe(str(found)))
    return convert.deliver(
        source, convert.encode(source, wire, model), form, output, losses=losses, pretty=pretty, place=source.wire
    )


def _whole(store: Store, found: stores.Address, output: str) -> None:
    if found.place is not None and found.place not in found.info.branches:
        bad_input(str(found), "a thread file holds whole branches; begin one there with palaver fork, or use --as")
    quiet = output == files.STANDARD and sys.stdout.isatty()
    with files.writing(output) as out, progress.bar("exporting") as told:
        entries = export_thread(store, found.info.id, out, branch=found.place, progress=None if quiet else told)
    branches = len(found.info.branches) if found.place is None else 1
    about = f"{count(entries, 'message')}, {count(branches, 'branch')}"
    click.echo(f"thread {safe(stores.short(found.info.id))}: {about}", err=True)


def _request(store: Store, found: stores.Address) -> Request:
    """The conversation at a place, with what it was imported with."""
    messages = tuple([_whole_media(store, entry.message) for entry in store.path(found.info.id, found.of)])
    kept = found.info.metadata.get(_REQUEST)
    bare = Request()
    if isinstance(kept, Mapping) and "palaver" in kept:
        try:
            bare = canonical.load_conversation(jsontext.encode(cast("Mapping[str, Any]", kept)))
        except DecodeError as error:
            bad_input(str(found), f"the metadata {_REQUEST!r} of the thread: {error}")
    return bare.replace(messages=messages)


def _whole_media(store: Store, message: Message) -> Message:
    """Put the bytes of blobs into a message, as far as the store has them."""
    if not any(isinstance(part, Media) and isinstance(part.source, Blob) for part in message.content):
        return message
    return structs.replace(message, content=tuple([_whole_part(store, part) for part in message.content]))


def _whole_part(store: Store, part: Any) -> Any:
    if not (isinstance(part, Media) and isinstance(part.source, Blob)):
        return part
    try:
        data = store.get_blob(part.source)
    except NotFoundError:  # it refers to nothing in this store; the receipt of a wire says that it is dropped
        return part
    return part.replace(source=type(part).from_bytes(data).source)
