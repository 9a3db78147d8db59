"""``palaver show``: a conversation in the terminal, from a file or from a store.

Rules:

- Of a session of an agent the main branch is shown, also what a compaction hides from models; what its dialect does not
  foresee is said on standard error.
- What a compaction kept is shown once, where it was said.
- A file that exists wins; anything else is looked up in the store, as ``THREAD``, ``THREAD@BRANCH`` or
  ``THREAD@ENTRY``. Of a thread all is shown, also what its markers hide from models.

Stability: experimental.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from palaver.cli import branches, files, happened, render, stores
from palaver.cli.failure import bad_input
from palaver.cli.figures import count
from palaver.cli.harmless import echo, safe
from palaver.cli.screen import console
from palaver.cli.source import load, load_stream
from palaver.cli.spoken import report
from palaver.core.errors import NotFoundError
from palaver.dialects.writing import chosen_history
from palaver.threads.accounting import usage_once
from palaver.threads.copies import unrepeated
from palaver.threads.thread import MAIN

if TYPE_CHECKING:
    from rich.console import Console

    from palaver.cli.spoken import Spoken
    from palaver.store.store import Store, ThreadInfo

_SHOWN: Final = 20
"""So many conversations of one file are shown."""
_NAMED: Final = 6


@click.command(name="show")
@click.argument("what", metavar="FILE|THREAD[@PLACE]", type=click.Path(allow_dash=True))
@click.option("--from", "spoken", metavar="WIRE", help="The file's own wire or dialect; recognised when not given.")
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
            for line in (heading, *branches.drawn(loaded)):
                out.print(line, overflow="fold")
            return
        messages = [entry.message for entry in unrepeated(store.path(found.info.id, found.of, last=last))]
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
    """Show the conversations of a dialect's file, the main branch of each."""
    for transcript in found.transcripts[:_SHOWN]:
        thread = transcript.thread
        messages = [entry.message for entry in unrepeated(chosen_history(thread.path(), "all"))]
        others = [name for name in thread.branches if name != MAIN]
        tokens = usage_once(entry.message for entry in thread.entries).total
        title = " ".join(safe(transcript.title or "").split())
        about = [
            found.dialect,
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
    report(file, found.drift)


def _file(out: Console, file: str, spoken: str | None, view: render.View, *, events: bool) -> None:
    if events:
        failed = happened.listed(load_stream(file, spoken).events(), out)
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
