"""``palaver export``: write a thread to a file.

- ``thread`` writes the whole thread or one branch as a thread file, which ``import`` reads back unchanged
  (``store.archive``). ``palaver`` writes the conversation at one position in the canonical form. The name of a wire
  writes a request body, with a receipt as in ``convert``.
- A transcript format writes a session for the program that owns it. A session that was read from such a file and not
  edited is written byte for byte.
- Tools, settings and model are those of the imported request. Where it names no model, a wire gets the one that ``run``
  continues the thread with: the one that was chosen last, else the one that answered last. The result is a new request,
  so a wire completes it where it needs to (``Request.origin``).
- Media in the blob store is written as bytes, except in a thread file, which has a place for blobs.
- Files are written completely or not at all.

Stability: experimental.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Literal

import click
from msgspec import structs

from palaver import transcripts
from palaver.cli import completion, convert, files, progress, stored_model, stores, transcript_io
from palaver.cli.show import stored_request, with_media_bytes
from palaver.cli.source import PALAVER, Source, find_wire, form_name
from palaver.cli.suggestions import Choice
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
@click.argument("thread", metavar="THREAD[@POSITION]", shell_complete=completion.threads)
@click.option("-o", "--output", default=files.STDIO, metavar="OUT", help="Write to a file; .zst compresses a thread.")
@click.option(
    "--as",
    "form",
    callback=form_name,
    default=_THREAD,
    show_default=True,
    metavar="FORM",
    shell_complete=completion.form_names,
    help="thread, palaver, a transcript format, or a wire.",
)
@click.option("-m", "--model", metavar="NAME", help="The model that the request names.")
@click.option(
    "--losses",
    type=Choice(("show", "json", "raise")),
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
    """Write a thread, or the conversation at one position of it, to a file.

    FORM is one of: "thread" (the whole thread or one branch, for "palaver import"), "palaver" (the canonical form), a
    transcript format (a session for its program; an imported session that was not edited is written unchanged), or a
    wire (a request body).
    """
    if form == _THREAD:
        with stores.open_existing(location) as store:
            return _write_thread_file(store, stores.find_address(store, thread), output)
    if form in transcripts.names():
        with stores.open_existing(location) as store:
            return _write_transcript(
                store, stores.find_address(store, thread), form, output, history=history, losses=losses
            )
    wire = None if form == PALAVER else find_wire(form)
    with stores.open_existing(location) as store:
        found = stores.find_address(store, thread)
        request = stored_request(store, found)
    source = Source(request, safe(str(found)))
    return convert.deliver(
        source,
        convert.encode(
            source, wire, model or (None if wire is None or request.model else stored_model.model_id(found))
        ),
        form,
        output,
        losses=losses,
        pretty=pretty,
        place=source.wire,
    )


def _write_transcript(
    store: Store,
    found: stores.Address,
    form: str,
    output: str,
    *,
    history: History | None,
    losses: Literal["show", "json", "raise"],
) -> int:
    """Write a thread as a session of a transcript format."""
    transcript, branch = stored_transcript(store, found)
    made = transcript_io.write_transcripts([transcript], form, output, history=history, branch=branch)
    source = Source(Request(), safe(str(found)))
    return transcript_io.deliver(made, source, form, output, losses=losses, place=source.wire)


def stored_transcript(store: Store, found: stores.Address) -> tuple[Transcript, str]:
    """Return a stored thread with the bytes of its media, and the branch that ends at the address."""
    thread = store.load(found.info.id)
    branch = found.position_or_main
    if branch not in thread.branches:
        thread.fork(branch, at=thread.find(branch))
    return Transcript(_with_blob_bytes(store, thread), found.info.title, found.info.metadata), branch


def _with_blob_bytes(store: Store, thread: Thread) -> Thread:
    """Return a copy of a thread whose messages hold the bytes of their blobs."""
    full = Thread(thread.id)
    entries = (structs.replace(each, message=with_media_bytes(store, each.message)) for each in thread.entries)
    full.add(entries, thread.branches)
    return full


def _write_thread_file(store: Store, found: stores.Address, output: str) -> int:
    if found.position is not None and found.position not in found.info.branches:
        bad_input(str(found), "a thread file holds whole branches; start one there with palaver fork, or use --as")
    quiet = output == files.STDIO and sys.stdout.isatty()
    with files.open_output(output) as out, progress.bar("exporting") as report:
        exported = export_thread(store, found.info.id, out, branch=found.position, progress=None if quiet else report)
    branches = len(found.info.branches) if found.position is None else 1
    about = f"{count(exported.messages, 'message')}, {count(branches, 'branch')}"
    thread = safe(stores.short(found.info.id))
    echo(f"thread {thread}: {about}", err=True)
    if not exported.unreadable:
        return 0
    damaged = count(len(exported.unreadable), "message")
    echo(f"thread {thread}: {damaged} cannot be read; the file has the stored bytes (palaver verify)", err=True)
    return 1
