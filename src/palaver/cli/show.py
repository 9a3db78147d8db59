"""``palaver show``: a conversation in the terminal, from a file or from a store.

- A transcript shows its main branch, including the messages that a compaction hides from models. Unknown fields are
  reported on standard error. A message that a compaction copied is shown once, at its first place.
- An existing file comes first. Any other name is looked up in the store, as ``THREAD``, ``THREAD@BRANCH`` or
  ``THREAD@ENTRY``. A thread shows all messages, including those that its markers hide from models, and no
  records.
- ``--events`` lists the events of a recorded stream, one line each: name, part number, and content as JSON.

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

from palaver.cli import completion, files, render, stores
from palaver.cli.ranges import WholeNumber
from palaver.cli.source import form_name, load, load_stream
from palaver.cli.terminal import bad_input, console, count, echo, safe
from palaver.cli.transcript_io import report_unknown
from palaver.core import canonical, jsontext
from palaver.core.errors import DecodeError, NotFoundError
from palaver.core.events import Delta, Failed, Start, Update
from palaver.core.parts import Blob, Media
from palaver.core.request import Request
from palaver.threads.thread import MAIN, usage_once
from palaver.threads.view import without_copies
from palaver.transcripts.writer import chosen_history

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from palaver.cli.stores import Address
    from palaver.cli.transcript_io import TranscriptFile
    from palaver.core.events import Event
    from palaver.core.messages import Message
    from palaver.store.store import Store, ThreadInfo


REQUEST: Final = "request"
"""The metadata key of a thread that holds the request without its messages."""


def stored_request(store: Store, found: Address) -> Request:
    """Return the conversation at a position as a request, with the imported settings and the bytes of its media."""
    messages = tuple([with_media_bytes(store, entry.message) for entry in stores.message_entries(store, found)])
    return request_without_messages(found).replace(messages=messages)


def request_without_messages(found: Address) -> Request:
    """Return the imported request of a thread, without its messages. Raises ``click.ClickException``."""
    stored = found.info.metadata.get(REQUEST)
    if isinstance(stored, Mapping) and "palaver" in stored:
        try:
            return canonical.load_conversation(jsontext.encode(cast("Mapping[str, Any]", stored)))
        except DecodeError as error:
            bad_input(str(found), f"the metadata {REQUEST!r} of the thread: {error}")
    return Request()


def with_media_bytes(store: Store, message: Message) -> Message:
    """Return a message with the bytes of its blobs, as far as the store has them."""
    if not any(isinstance(part, Media) and isinstance(part.source, Blob) for part in message.content):
        return message
    return structs.replace(message, content=tuple([_with_bytes(store, part) for part in message.content]))


def _with_bytes(store: Store, part: Any) -> Any:
    if not (isinstance(part, Media) and isinstance(part.source, Blob)):
        return part
    try:
        data = store.get_blob(part.source)
    except NotFoundError:  # not in this store; the receipt of a wire says that it is dropped
        return part
    return part.replace(source=type(part).from_bytes(data).source)


_STYLES: Final = {"start": "bold", "finish": "bold", "failed": "bold red", "part_start": "blue", "part_end": "blue"}
_NAME: Final = 16
_INDEX: Final = 3
_MAX_DETAILS: Final = 1000
"""The number of characters of an event that are shown at most."""


def print_events(events: Iterable[Event], out: Console) -> str | None:
    """Print events as they come. Return the reason when the last one is a failure."""
    failed = None
    for event in events:
        name = str(type(event).__struct_config__.tag)
        index = getattr(event, "index", "")
        line = Line(f"{name:<{_NAME}}{index!s:>{_INDEX}}", _STYLES.get(name, ""))
        if values := _details(event):
            line.append(f"  {safe(values)}", "dim")
        out.print(line, no_wrap=True, overflow="ellipsis")
        if isinstance(event, Failed):
            failed = f"{event.kind}: {event.reason}"
    return failed


def _details(event: Event) -> str:
    """Return an event's content, without its name and index."""
    if isinstance(event, Delta):
        return jsontext.encode(event.text[:_MAX_DETAILS]).decode()
    fields = cast("dict[str, Any]", jsontext.value(canonical.encode(event)))
    values = [each for key, each in fields.items() if key not in {"event", "index"}]
    if isinstance(event, (Start, Update)):
        values = [event.response.model, event.response.id, *values]
    pieces = [each if isinstance(each, str) else jsontext.encode(each).decode() for each in values if each is not None]
    return " · ".join(pieces)[:_MAX_DETAILS]


_MAX_CONVERSATIONS: Final = 20
"""The number of conversations of one file that are shown at most."""
_MAX_BRANCHES: Final = 6


@click.command(name="show")
@click.argument(
    "what",
    metavar="FILE|THREAD[@POSITION]",
    type=click.Path(allow_dash=True),
    shell_complete=completion.threads_or_files,
)
@click.option(
    "--from",
    "source_format",
    callback=form_name,
    metavar="WIRE",
    shell_complete=completion.form_names,
    help="The file's wire or transcript format. Default: recognised.",
)
@click.option("--reasoning", is_flag=True, help="Show the reasoning completely.")
@click.option("--full", is_flag=True, help="Show everything completely.")
@click.option("--events", is_flag=True, help="List the events of a recorded stream, one on each line.")
@click.option("--last", type=WholeNumber(1), metavar="N", help="Only the last N messages of a thread.")
@click.option("--branches", "tree", is_flag=True, help="Draw the branches of a thread.")
@stores.option
def command(
    what: str,
    source_format: str | None,
    location: str | None,
    *,
    reasoning: bool,
    full: bool,
    events: bool,
    last: int | None,
    tree: bool,
) -> None:
    """Show the conversation in FILE or in a thread of the store.

    FILE is any file that "palaver convert --help" lists. THREAD is the id of a thread, or its beginning or end;
    POSITION is a branch or an entry id. For a recorded stream that failed, the partial answer is shown, the failure
    goes to standard error, and the exit code is 1.
    """
    out = console()
    view = render.View(reasoning=reasoning, full=full)
    if (
        not tree
        and last is None
        and (what == files.STDIO or os.path.lexists(what) or source_format is not None or events)
    ):
        _show_file(out, what, source_format, view, events=events)
    else:
        _show_thread(out, what, location, view, last=last, tree=tree)


def _show_thread(
    out: Console, what: str, location: str | None, view: render.View, *, last: int | None, tree: bool
) -> None:
    if not tree and not stores.exists(location):
        bad_input(
            safe(files.display_name(what)), f"no such file, and there is no store at {stores.display_name(location)}"
        )
    with stores.open_existing(location) as store:
        found = _address(store, what)
        if tree:
            loaded = store.load(found.info.id)
            stores.warn_of_damage(found.info.id, loaded.entries, location)
            heading = _heading(
                found.info,
                count(sum(stores.is_message(entry.message) for entry in loaded.entries), "message"),
                count(len(loaded.branches), "branch"),
            )
            for line in (heading, *render.branches(loaded)):
                out.print(line, soft_wrap=True)
            return
        entries = stores.message_entries(store, found, last)
        stores.warn_of_damage(found.info.id, entries, location)
        messages = [entry.message for entry in without_copies(entries)]
    heading = _heading(found.info, safe(stores.short(found.position_or_main)), count(len(messages), "message"))
    out.print(heading, soft_wrap=True)
    for block in render.messages(messages, view):
        out.print(block)
    out.print(Text())


def _address(store: Store, what: str) -> stores.Address:
    """Find a thread. When the name looks like a path, the error also says that there is no such file."""
    try:
        return stores.find_address(store, what)
    except NotFoundError:
        if not (Path(what).suffix or os.sep in what):
            raise
        bad_input(safe(files.display_name(what)), "no such file, and no thread has that name")


def _heading(info: ThreadInfo, *about: str) -> Text:
    title = " ".join(safe(info.title or "").split())
    return Text(" · ".join(each for each in (f"thread {safe(stores.short(info.id))}", *about, title) if each), "bold")


def _show_transcript(out: Console, file: str, found: TranscriptFile, view: render.View) -> None:
    """Show the conversations of a transcript, the main branch of each."""
    for transcript in found.transcripts[:_MAX_CONVERSATIONS]:
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
            f"also: {', '.join(map(safe, others[:_MAX_BRANCHES]))}" if others else "",
        ]
        out.print(Text(" · ".join(each for each in about if each), "bold"), soft_wrap=True)
        for block in render.messages(messages, view):
            out.print(block)
        out.print(Text())
    if len(found.transcripts) > _MAX_CONVERSATIONS:
        left = count(len(found.transcripts) - _MAX_CONVERSATIONS, "conversation")
        echo(f"{files.display_name(file)}: {left} more; palaver import reads all of them", err=True)
    report_unknown(file, found.unknown)


def _show_file(out: Console, file: str, source_format: str | None, view: render.View, *, events: bool) -> None:
    if events:
        failed = print_events(load_stream(file, source_format).events(), out)
        if failed is not None:
            bad_input(files.display_name(file), failed)
        return
    source = load(file, source_format, guess=True)
    if source.transcript_file is not None:
        _show_transcript(out, file, source.transcript_file, view)
        return
    for block in render.conversation(source.value, source.wire, view):
        out.print(block)
    notes = list(source.notes)
    if source.alternatives:
        notes.append(f"read as {source.wire}; it may also be {', '.join(source.alternatives)} (--from)")
    for note in notes:
        echo(f"{files.display_name(file)}: {note}", err=True)
    out.print(Text())
    if source.failure is not None:
        bad_input(files.display_name(file), source.failure)
