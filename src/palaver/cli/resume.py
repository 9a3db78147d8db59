"""``palaver resume``: put a conversation where another agent looks for its sessions, and print how it goes on.

- The conversation is a thread of the store, or a file in any form that ``convert`` reads. An existing file comes first.
- The program gets a new session of the current folder, with an id of its own: no session that exists is changed, not
  even the one that the conversation was read from. ``session_places`` has the rules of each program.
- The session has the branch at the position, and each of its calls has a result: some programs send a call without one
  as it is, which no provider accepts.
- A program that reads a database only is asked to import the file, by its own command.
- The receipt and the path go to standard error. The command that resumes the session is the only output.

Stability: experimental.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import click
from msgspec import structs

from palaver import transcripts
from palaver.cli import completion, files, stores, transcript_io
from palaver.cli.export import stored_transcript
from palaver.cli.ranges import WholeNumber
from palaver.cli.session_places import PROGRAMS, NewSession, Place, Program, find_program
from palaver.cli.source import form_name, load
from palaver.cli.suggestions import Choice
from palaver.cli.terminal import bad_input, echo, safe
from palaver.threads.ids import now_ms
from palaver.threads.repair import repair
from palaver.threads.thread import MAIN, Entry, Thread
from palaver.threads.view import RECORD
from palaver.transcripts import original_bytes
from palaver.transcripts.conversation import Session, Transcript, derived_id, session_of
from palaver.transcripts.counts import tally
from palaver.transcripts.omissions import branches_left_out, records_left_out

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.transcripts.writer import History, Written

_LONGEST_WAIT: Final = 120
"""Seconds that a program may take to import a session."""


class _Found(NamedTuple):
    """A conversation, its branch, the form that it was read in, and its name for messages."""

    transcript: Transcript
    branch: str
    form: str
    place: str


@click.command(name="resume")
@click.argument(
    "what",
    metavar="FILE|THREAD[@POSITION]",
    type=click.Path(allow_dash=True),
    shell_complete=completion.threads_or_files,
)
@click.option(
    "--in",
    "name",
    type=Choice(tuple(each.name for each in PROGRAMS)),
    required=True,
    help="The program that resumes the conversation.",
)
@click.option(
    "--from",
    "source_format",
    callback=form_name,
    metavar="WIRE",
    shell_complete=completion.form_names,
    help="The file's wire or transcript format. Default: recognised.",
)
@transcript_io.history
@click.option(
    "--conversation", "number", type=WholeNumber(1), metavar="N", help="Which conversation of the file to resume."
)
@click.option(
    "--losses",
    type=Choice(("show", "json", "raise")),
    default="show",
    show_default=True,
    help="How to show the receipt.",
)
@click.option("--dry-run", is_flag=True, help="Show the receipt and the place, and write nothing.")
@stores.option
def command(
    what: str,
    *,
    name: str,
    source_format: str | None,
    history: History | None,
    number: int | None,
    losses: Literal["show", "json", "raise"],
    dry_run: bool,
    location: str | None,
) -> int:
    """Put a conversation where another agent looks for the sessions of this folder, and print how it goes on.

    The agent gets a new session; no other session is changed. Run the printed command in the same folder.
    """
    program = find_program(name)
    found = _from_file(what, source_format, number) if _is_file(what) else _from_store(location, what)
    folder = os.path.realpath(os.curdir)
    at = now_ms()
    session = NewSession(program.new_id(at), folder, at)
    file_format, transcript = transcripts.get(program.file_format), _as_new(found, program, session)
    written = file_format.write(transcript, history=history)
    tallies = (tally(file_format, [transcript], written, history=history),)
    about = transcript_io.summary(found.form, program.name, 1 + len(written.beside), len(written.losses), tallies)
    transcript_io.show_receipt(about, written.losses, tallies, losses)
    if losses == "raise" and not transcript_io.complete(written.losses, tallies):
        echo("nothing was written", err=True)
        return 1
    _deliver(program, session, written, dry_run=dry_run)
    echo(shlex.join(program.resume_command(session.id)))
    return 0


# -- the conversation --------------------------------------------------------------------------------------------------


def _is_file(what: str) -> bool:
    return what == files.STDIO or Path(what).exists()


def _from_file(path: str, source_format: str | None, number: int | None) -> _Found:
    place = files.display_name(path)
    source = load(path, source_format)
    if source.failure is not None:
        bad_input(place, source.failure)
    if source.transcript_file is not None:
        transcript_io.report_unknown(place, source.transcript_file.unknown)
    chosen = transcript_io.chosen_transcripts(source, number, place)
    if len(chosen) > 1:
        bad_input(place, f"there are {len(chosen)} conversations; choose one with --conversation")
    return _Found(chosen[0], MAIN, source.wire, place)


def _from_store(location: str | None, what: str) -> _Found:
    with stores.open_existing(location) as store:
        address = stores.find_address(store, what)
        transcript, branch = stored_transcript(store, address)
    return _Found(transcript, branch, safe(str(address)), safe(str(address)))


def _as_new(found: _Found, program: Program, session: NewSession) -> Transcript:
    """Return the branch of a conversation as a new session, in which each call has its result.

    What the session that it was has besides is unread: other branches, records of the program, repaired pairs.
    """
    old = found.transcript
    path = [entry for entry in old.thread.path(found.branch) if RECORD not in entry.message.tags]
    bare = [original_bytes.bare(entry.message, program.file_format) for entry in path]
    messages, repairs = repair(bare, orphans="keep")  # the results of malformed calls too are the writers'
    named: dict[str | None, str] = {entry.message.id: entry.id for entry in path if entry.message.id is not None}
    thread = Thread(session.id)
    parent: str | None = None
    for place, message in enumerate(messages):
        entry = Entry(named.pop(message.id, derived_id(session.id, place)), parent, message)
        thread.add([entry], {MAIN: entry.id})
        parent = entry.id
    new = Session(
        file_format=program.file_format,
        id=session.id,
        cwd=session.folder,
        model=session_of(old.metadata).model,
        started_at=session.at,
    )
    left_out = [
        *branches_left_out(old.thread, {entry.id for entry in path}, found.branch),
        *records_left_out(old.thread.entries, lambda _: True),
    ]
    return Transcript(thread, old.title, new.metadata(), (*old.unread, *left_out, *repairs))


# -- the program -------------------------------------------------------------------------------------------------------


def _deliver(program: Program, session: NewSession, written: Written, *, dry_run: bool) -> None:
    """Put a session where its program finds it, and say where."""
    if program.place is None:
        _imported(program, written, dry_run=dry_run)
        return
    place = program.place(program.data_folder(os.environ), session)
    outputs = {str(place.path): structs.replace(written, beside={**written.beside, **place.beside})}
    _refuse_existing(place, written.beside)
    if not dry_run:
        transcript_io.write_files(outputs)
    echo(f"{'would be in ' if dry_run else ''}{safe(str(place.path))}", err=True)


def _refuse_existing(place: Place, beside: Iterable[str]) -> None:
    """Raise ``click.ClickException`` when a file is there already."""
    for each in (place.path, *(place.path.parent / name for name in (*beside, *place.beside))):
        if each.exists():
            bad_input(str(each), "there is such a file already")


def _imported(program: Program, written: Written, *, dry_run: bool) -> None:
    """Let a program import a session into its database. Raises ``click.ClickException`` when it does not."""
    if dry_run:
        echo(f"would be imported by {shlex.join(program.import_command('FILE'))}", err=True)
        return
    executable = shutil.which(program.importer[0])
    if executable is None:
        raise click.ClickException(
            f"{program.importer[0]} is not installed, and imports itself; try: {program.package}"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"session{transcripts.get(program.file_format).extension}"
        transcript_io.write_files({str(file): written})
        failure = _failure([executable, *program.import_command(str(file))[1:]])
    if failure is not None:
        raise click.ClickException(f"{program.title} did not import the session: {failure}")
    echo(f"imported by {program.title} into its database", err=True)


def _failure(command: list[str]) -> str | None:
    """Run a command. Return why it failed, or ``None``."""
    try:
        ran = subprocess.run(  # noqa: S603 (the user named the program)
            command,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
            timeout=_LONGEST_WAIT,
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {_LONGEST_WAIT} seconds"
    if not ran.returncode:
        return None
    lines = (ran.stderr.strip() or ran.stdout.strip()).splitlines()
    return lines[-1] if lines else f"exit code {ran.returncode}"
