"""``palaver show``: a conversation in the terminal, from a file or from a store.

Rules:

- Of a session of an agent the main branch is shown, also what a compaction hides from models; what its transcript
  format does not foresee is said on standard error.
- What a compaction kept is shown once, where it was said.
- A file that exists wins; anything else is looked up in the store, as ``THREAD``, ``THREAD@BRANCH`` or
  ``THREAD@ENTRY``. Of a thread all is shown, also what its markers hide from models.

The conversation at a place of a thread, with the tools, settings and model that it was imported with.

List the events of a stream, one line an event.

Rules:

- A line is the event's name, the number of its part, and what it says, shortened to the width of the terminal.
- Text is quoted as JSON, so that blanks and line ends are seen.

Stability: experimental.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click
from msgspec import structs
from rich.text import Text, Text as Line

from palaver.cli import files, render, stores
from palaver.cli.source import load, load_stream
from palaver.cli.terminal import bad_input, console, count, echo, safe
from palaver.cli.transcript_io import report
from palaver.core import canonical, jsontext
from palaver.core.errors import DecodeError, NotFoundError
from palaver.core.events import Delta, Failed, Start, Update
from palaver.core.parts import Blob, Media
from palaver.core.request import Request
from palaver.threads.accounting import usage_once
from palaver.threads.copies import without_copies
from palaver.threads.thread import MAIN
from palaver.transcripts.writer import chosen_history

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from palaver.cli.stores import Address
    from palaver.cli.transcript_io import Spoken
    from palaver.core.events import Event
    from palaver.core.messages import Message
    from palaver.store.store import Store, ThreadInfo


# --- kept request -----------------------------------------------------------------------------------------------------


REQUEST: Final = "request"
"""The key of a thread's metadata that holds the request without its messages."""


def kept_request(store: Store, found: Address) -> Request:
    """The conversation at a place, with what it was imported with, and the bytes of its media."""
    messages = tuple([whole_media(store, entry.message) for entry in store.path(found.info.id, found.of)])
    return bare_request(found).replace(messages=messages)


def bare_request(found: Address) -> Request:
    """What a thread was imported with: a request without messages. Raises ``click.ClickException``."""
    kept = found.info.metadata.get(REQUEST)
    if isinstance(kept, Mapping) and "palaver" in kept:
        try:
            return canonical.load_conversation(jsontext.encode(cast("Mapping[str, Any]", kept)))
        except DecodeError as error:
            bad_input(str(found), f"the metadata {REQUEST!r} of the thread: {error}")
    return Request()


def whole_media(store: Store, message: Message) -> Message:
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


# --- happened ---------------------------------------------------------------------------------------------------------


_STYLES: Final = {"start": "bold", "finish": "bold", "failed": "bold red", "part_start": "blue", "part_end": "blue"}
_NAME: Final = 16
_INDEX: Final = 3
_LONGEST: Final = 1000
"""Characters that are looked at before they are shortened to a line."""


def listed(events: Iterable[Event], out: Console) -> str | None:
    """Print events as they come; give the reason when the last is a failure."""
    failed = None
    for event in events:
        name = str(type(event).__struct_config__.tag)
        index = getattr(event, "index", "")
        line = Line(f"{name:<{_NAME}}{index!s:>{_INDEX}}", _STYLES.get(name, ""))
        if said := _said(event):
            line.append(f"  {safe(said)}", "dim")
        out.print(line, no_wrap=True, overflow="ellipsis")
        if isinstance(event, Failed):
            failed = f"{event.kind}: {event.reason}"
    return failed


def _said(event: Event) -> str:
    """What an event says beside its name and index."""
    if isinstance(event, Delta):
        return jsontext.encode(event.text[:_LONGEST]).decode()
    fields = cast("dict[str, Any]", jsontext.value(canonical.encode(event)))
    said = [each for key, each in fields.items() if key not in {"event", "index"}]
    if isinstance(event, (Start, Update)):
        said = [event.response.model, event.response.id, *said]
    pieces = [each if isinstance(each, str) else jsontext.encode(each).decode() for each in said if each is not None]
    return " · ".join(pieces)[:_LONGEST]


# --- show -------------------------------------------------------------------------------------------------------------


_SHOWN: Final = 20
"""So many conversations of one file are shown."""
_NAMED: Final = 6


@click.command(name="show")
@click.argument("what", metavar="FILE|THREAD[@PLACE]", type=click.Path(allow_dash=True))
@click.option(
    "--from", "spoken", metavar="WIRE", help="The file's own wire or transcript format; recognised when not given."
)
@click.option("--reasoning", is_flag=True, help="Unfold the reasoning.")
@click.option("--full", is_flag=True, help="Unfold everything.")
@click.option("--events", is_flag=True, help="List what happened in a recorded stream, one line an event.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Of a thread, only the last N messages.")
@click.option("--branches", "tree", is_flag=True, help="Draw the branches of a thread.")
@stores.option
def command(
    what: str,
    spoken: str | None,
    location: str | None,
    *,
    reasoning: bool,
    full: bool,
    events: bool,
    last: int | None,
    tree: bool,
) -> None:
    """Show the conversation in FILE, or in a thread of the store.

    What FILE may be is said by "palaver convert --help". THREAD is the id of a thread, or the beginning or end of one;
    PLACE a branch, or an entry in the same way. Of a recorded stream that failed, what came is shown; the failure is
    said on standard error, and the exit code is 1.
    """
    out = console()
    view = render.View(reasoning=reasoning, full=full)
    if not tree and last is None and (what == files.STANDARD or os.path.lexists(what) or spoken is not None or events):
        _file(out, what, spoken, view, events=events)
    else:
        _thread(out, what, location, view, last=last, tree=tree)


def _thread(out: Console, what: str, location: str | None, view: render.View, *, last: int | None, tree: bool) -> None:
    if not tree and not stores.is_there(location):
        bad_input(safe(files.shown(what)), f"no such file, and there is no store at {stores.shown(location)}")
    with stores.opened(location) as store:
        found = _address(store, what)
        if tree:
            loaded = store.load(found.info.id)
            heading = _heading(found.info, count(len(loaded), "message"), count(len(loaded.branches), "branch"))
            for line in (heading, *render.drawn(loaded)):
                out.print(line, overflow="fold")
            return
        messages = [entry.message for entry in without_copies(store.path(found.info.id, found.of, last=last))]
    heading = _heading(found.info, safe(stores.short(found.of)), count(len(messages), "message"))
    out.print(heading, overflow="fold")
    for drawn in render.spoken(messages, view):
        out.print(drawn)
    out.print(Text())


def _address(store: Store, what: str) -> stores.Address:
    """The thread that is meant. Of what looks like a path it is said that there is no such file either."""
    try:
        return stores.address(store, what)
    except NotFoundError:
        if not (Path(what).suffix or os.sep in what):
            raise
        bad_input(safe(files.shown(what)), "no such file, and no thread goes by that name")


def _heading(info: ThreadInfo, *about: str) -> Text:
    title = " ".join(safe(info.title or "").split())
    return Text(" · ".join(each for each in (f"thread {safe(stores.short(info.id))}", *about, title) if each), "bold")


def _spoken(out: Console, file: str, found: Spoken, view: render.View) -> None:
    """Show the conversations of a format's file, the main branch of each."""
    for transcript in found.transcripts[:_SHOWN]:
        thread = transcript.thread
        messages = [entry.message for entry in without_copies(chosen_history(thread.path(), "all"))]
        others = [name for name in thread.branches if name != MAIN]
        tokens = usage_once(entry.message for entry in thread.entries).total
        title = " ".join(safe(transcript.title or "").split())
        about = [
            found.file_format,
            count(len(messages), "message"),
            count(tokens, "token") if tokens else "",
            title,
            f"also: {', '.join(map(safe, others[:_NAMED]))}" if others else "",
        ]
        out.print(Text(" · ".join(each for each in about if each), "bold"), overflow="fold")
        for drawn in render.spoken(messages, view):
            out.print(drawn)
        out.print(Text())
    if len(found.transcripts) > _SHOWN:
        left = count(len(found.transcripts) - _SHOWN, "conversation")
        echo(f"{files.shown(file)}: {left} more; palaver import keeps them all", err=True)
    report(file, found.unknown)


def _file(out: Console, file: str, spoken: str | None, view: render.View, *, events: bool) -> None:
    if events:
        failed = listed(load_stream(file, spoken).events(), out)
        if failed is not None:
            bad_input(files.shown(file), failed)
        return
    source = load(file, spoken, guess=True)
    if source.spoken is not None:
        _spoken(out, file, source.spoken, view)
        return
    for drawn in render.conversation(source.value, source.wire, view):
        out.print(drawn)
    notes = list(source.notes)
    if source.maybe:
        notes.append(f"read as {source.wire}; it may also be of {', '.join(source.maybe)} (--from)")
    for note in notes:
        echo(f"{files.shown(file)}: {note}", err=True)
    out.print(Text())
    if source.failure is not None:
        bad_input(files.shown(file), source.failure)
