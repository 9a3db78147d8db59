"""``palaver export``: a thread as a file.

Rules:

- ``thread`` is the whole thread, or one branch of it, as a file that ``import`` takes back as it was
  (``store.archive``). ``palaver`` is the conversation at one place in the canonical form; the name of a wire makes it a
  request body, with a receipt as ``convert`` shows it.
- A transcript format gives a session of the program whose format it is; what was read from such a file, and not
  edited, is written as it was.
- Tools, settings and model are those that the conversation was imported with. It is no longer the request that a wire
  once read, so it is made whole where the wire wants that (``Request.origin``).
- Media that the store keeps under their hash go out as bytes, except in a thread file, which has a place for them.
- Files are written whole or not at all.

Stability: experimental.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Literal

import click
from msgspec import structs

from palaver import transcripts
from palaver.cli import convert, files, progress, stores, transcript_io
from palaver.cli.show import kept_request, whole_media
from palaver.cli.source import PALAVER, Source, wire_called
from palaver.cli.terminal import bad_input, count, echo, safe
from palaver.core.request import Request
from palaver.store.archive import export_thread
from palaver.threads.thread import Thread
from palaver.transcripts.conversation import Transcript

if TYPE_CHECKING:
    from palaver.store.store import Store
    from palaver.transcripts.writer import History

_THREAD: Final = "thread"


@click.command(name="export")
@click.argument("thread", metavar="THREAD[@PLACE]")
@click.option(
    "-o", "--output", default=files.STANDARD, metavar="OUT", help="Write to a file; .zst compresses a thread."
)
@click.option(
    "--as",
    "form",
    default=_THREAD,
    show_default=True,
    metavar="FORM",
    help="thread, palaver, a transcript format, or a wire.",
)
@click.option("--model", metavar="NAME", help="The model that a request is to name.")
@click.option(
    "--losses",
    type=click.Choice(("show", "json", "raise")),
    default="show",
    show_default=True,
    help="How to show the receipt of a wire.",
)
@transcript_io.history
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
    history: History | None,
    location: str | None,
) -> int:
    """Write a thread, or the conversation at one place of it, to a file.

    FORM is "thread" (all of it, or one branch, as "palaver import" takes it back), "palaver" (the canonical form), a
    transcript format, which makes a session that its program reads (one that was imported and not changed is the same
    file), or a wire, which makes a request body.
    """
    if form == _THREAD:
        with stores.opened(location) as store:
            _whole(store, stores.address(store, thread), output)
        return 0
    if form in transcripts.names():
        with stores.opened(location) as store:
            return _respoken(store, stores.address(store, thread), form, output, history=history, losses=losses)
    wire = None if form == PALAVER else wire_called(form)
    with stores.opened(location) as store:
        found = stores.address(store, thread)
        request = kept_request(store, found)
    source = Source(request, safe(str(found)))
    return convert.deliver(
        source, convert.encode(source, wire, model), form, output, losses=losses, pretty=pretty, place=source.wire
    )


def _respoken(
    store: Store,
    found: stores.Address,
    form: str,
    output: str,
    *,
    history: History | None,
    losses: Literal["show", "json", "raise"],
) -> int:
    """Write a thread as a session of a transcript format."""
    thread = store.load(found.info.id)
    branch = found.of
    if branch not in thread.branches:
        thread.fork(branch, at=thread.find(branch))
    transcript = Transcript(_with_media(store, thread), found.info.title, found.info.metadata)
    made = transcript_io.written([transcript], form, output, history=history, branch=branch)
    source = Source(Request(), safe(str(found)))
    return transcript_io.deliver(made, source, form, output, losses=losses, place=source.wire)


def _with_media(store: Store, thread: Thread) -> Thread:
    """A thread with the bytes of blobs in its messages."""
    full = Thread(thread.id)
    entries = (structs.replace(each, message=whole_media(store, each.message)) for each in thread.entries)
    full.add(entries, thread.branches)
    return full


def _whole(store: Store, found: stores.Address, output: str) -> None:
    if found.place is not None and found.place not in found.info.branches:
        bad_input(str(found), "a thread file holds whole branches; begin one there with palaver fork, or use --as")
    quiet = output == files.STANDARD and sys.stdout.isatty()
    with files.writing(output) as out, progress.bar("exporting") as told:
        entries = export_thread(store, found.info.id, out, branch=found.place, progress=None if quiet else told)
    branches = len(found.info.branches) if found.place is None else 1
    about = f"{count(entries, 'message')}, {count(branches, 'branch')}"
    echo(f"thread {safe(stores.short(found.info.id))}: {about}", err=True)
