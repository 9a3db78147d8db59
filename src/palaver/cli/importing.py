"""``palaver import``: conversations from files into a store, each once.

Rules:

- What a file is, its first bytes say: a thread file, a message log, or anything that ``convert`` reads. As there,
  nothing is guessed: a file that several wires may have written is refused with their names, and half an answer too.
- A conversation that was imported before adds nothing; one that goes on adds what is new; an edited file becomes a
  branch where it parts (``store.intake``). A thread file keeps its own id (``store.archive``), and so does a log.
- A line a file. What fails is named on standard error, and the rest goes on; the exit code is then 1. What the store
  cannot do (a full disk, a lost server) ends the command.
- What was imported stays when the command is stopped, at any moment; calling it again goes on.
- The tools, the settings and the model of a request are kept in the metadata of its thread, under ``request``, in the
  canonical form; ``export`` gives them back. A request that goes on changes them.

Stability: experimental.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO, cast

import click
from msgspec import Struct

from palaver import wires
from palaver.cli import files, progress, stores
from palaver.cli.figures import count
from palaver.cli.harmless import in_line, safe
from palaver.cli.kept_request import REQUEST
from palaver.cli.source import PALAVER, Source, load
from palaver.cli.walking import COMPRESSED, LOG, THREAD_FILE, Walk, begins
from palaver.core import canonical, jsontext
from palaver.core.errors import PalaverError, UnavailableError, excerpt
from palaver.core.messages import Message, UserMessage
from palaver.core.request import Request
from palaver.store.archive import Imported, copy_thread, import_thread
from palaver.store.intake import Intake
from palaver.store.jsonl.log_reader import read_log, threads_of
from palaver.store.location import open_store
from palaver.store.memory import MemoryStore
from palaver.store.store import Store
from palaver.threads.thread import MAIN

if TYPE_CHECKING:
    from io import BufferedReader

_TITLE: Final = 80


class _Line(Struct, frozen=True):
    """What is said of a conversation that was taken in."""

    thread: str
    messages: int
    new: int
    branch: str = MAIN
    notes: tuple[str, ...] = ()


class _Tally:
    """What is said in the end."""

    def __init__(self) -> None:
        self.files = self.failed = self.messages = self.new = 0
        self.threads: set[str] = set()

    def add(self, line: _Line) -> None:
        self.messages += line.messages
        self.new += line.new
        self.threads.add(line.thread)

    def summary(self, passed: int) -> str:
        """Say it on one line."""
        about = f"{count(self.messages, 'message')}, {self.new:,} new, in {count(len(self.threads), 'thread')}"
        pieces = [f"{count(self.files, 'file')}: {about}"]
        if self.failed:
            pieces.append(f"{self.failed:,} failed")
        if passed:
            pieces.append(f"{passed:,} passed over (hidden, or neither JSON nor a stream)")
        return "; ".join(pieces)


@click.command(name="import")
@click.argument("names", metavar="FILE...", nargs=-1, required=True, type=click.Path(allow_dash=True))
@stores.into
@click.option("--from", "spoken", metavar="WIRE", help="The wire of all these files; recognised when not given.")
def command(names: tuple[str, ...], location: str | None, spoken: str | None) -> int:
    """Import conversations into a store, each once.

    FILE is what "palaver convert --help" says, a thread file of "palaver export", a message log, or a folder of such
    files. Importing a file again adds nothing; one that goes on adds what is new; an edited one becomes a branch.
    """
    if spoken not in {None, PALAVER}:
        wires.get(spoken or "")
    walk, tally = Walk(names), _Tally()
    try:
        with open_store(location) as store, progress.bar("importing") as told:
            taking = _Taking(store, spoken)
            found = list(walk)
            for place, name in enumerate(found):
                _take(taking, name, tally)
                if told is not None:
                    told(place + 1, len(found))
    except KeyboardInterrupt:
        click.echo(f"stopped; {tally.summary(walk.passed)}; import again to go on", err=True)
        raise
    for failure in walk.failures:
        _failed(f"{safe(files.shown(str(failure.filename)))}: {(failure.strerror or str(failure)).lower()}", tally)
    _say(f"{tally.summary(walk.passed)}; {safe(stores.shown(location))}")
    return 1 if tally.failed else 0


def _take(taking: _Taking, name: str, tally: _Tally) -> None:
    shown = in_line(files.shown(name))
    tally.files += 1
    try:
        for line in taking.take(name):
            tally.add(line)
            where = "" if line.branch == MAIN else f", branch {safe(line.branch)}"
            thread = safe(stores.short(line.thread))
            _say(f"{shown}: {count(line.messages, 'message')}, {line.new:,} new, thread {thread}{where}")
            for note in line.notes:
                _say(f"{shown}: {in_line(note)}", sys.stderr)
    except (UnavailableError, BrokenPipeError):
        raise
    except click.ClickException as error:
        _failed(safe(error.format_message()), tally)
    except PalaverError as error:
        _failed(safe(f"{shown}: {error}"), tally)
    except OSError as error:
        _failed(f"{shown}: {(error.strerror or str(error)).lower()}", tally)


def _failed(said: str, tally: _Tally) -> None:
    tally.failed += 1
    _say(f"palaver: {' '.join(said.split())}", sys.stderr)


def _say(line: str, where: TextIO | None = None) -> None:
    """Print a line at once; ``click.echo`` would write it into the progress bar."""
    print(line, file=where, flush=True)


class _Taking:
    """Takes files into a store, one after the other."""

    def __init__(self, store: Store, spoken: str | None) -> None:
        self._store = store
        self._spoken = spoken
        self._intake: Intake | None = None

    def take(self, name: str) -> Iterator[_Line]:
        """Take a file in, whatever it is; give a line for each conversation."""
        head = _waiting() if name == files.STANDARD else begins(name)
        if head.startswith((THREAD_FILE, COMPRESSED)):
            self._intake = None  # what it knows is no longer all there is
            yield self._thread_file(name)
        elif head.startswith(LOG) and name != files.STANDARD:
            self._intake = None
            yield from self._log(name)
        else:
            yield from self._conversations(name)

    def _thread_file(self, name: str) -> _Line:
        if name == files.STANDARD:
            return _told(import_thread(self._store, sys.stdin.buffer))
        with Path(name).open("rb") as file:
            return _told(import_thread(self._store, file))

    def _log(self, name: str) -> Iterator[_Line]:
        reader = read_log(name)
        rebuilt = threads_of(reader)
        notes = tuple(str(each) for each in (*reader.damage, *rebuilt.damage))
        for thread in rebuilt.threads.values():
            held = MemoryStore()
            held.add(thread.id, thread.entries, branches=thread.branches)
            yield _told(copy_thread(held, self._store, thread.id), notes)
            notes = ()
        if notes:
            raise click.ClickException(f"{files.shown(name)}: {notes[0]}")

    def _conversations(self, name: str) -> Iterator[_Line]:
        source = load(name, self._spoken)
        if source.failure is not None:
            raise click.ClickException(f"{files.shown(name)}: {source.failure}")
        told = source.notes
        for messages in _conversations(source):
            if not messages:
                raise click.ClickException(f"{files.shown(name)}: there is no message in it")
            yield self._conversation(messages, source, name, told)
            told = ()

    def _conversation(self, messages: Sequence[Message], source: Source, name: str, notes: tuple[str, ...]) -> _Line:
        if self._intake is None:
            self._intake = Intake(self._store)
        request = _without_messages(source)
        taken = self._intake.take(
            messages,
            source=None if name == files.STANDARD else str(Path(name).absolute()),
            title=_title(messages),
            metadata={} if request is None else {REQUEST: request},
        )
        if taken.new and taken.known and taken.branch == MAIN and request is not None:
            metadata = self._store.info(taken.thread).metadata
            if metadata.get(REQUEST) != request:
                self._store.update(taken.thread, metadata={**metadata, REQUEST: request})
        return _Line(taken.thread, len(messages), taken.new, taken.branch, notes)


def _waiting() -> bytes:
    """The first bytes of standard input, which stay there."""
    return cast("BufferedReader", sys.stdin.buffer).peek(len(THREAD_FILE))


def _conversations(source: Source) -> Iterator[Sequence[Message]]:
    """A request is one conversation; a response is one for each of its choices."""
    if isinstance(source.value, Request):
        yield source.value.messages
    else:
        for message in (source.value.message, *source.value.alternatives):
            yield (message,)


def _without_messages(source: Source) -> object:
    """A request without its messages, as JSON; ``None`` when nothing is left."""
    if not isinstance(source.value, Request):
        return None
    bare = source.value.replace(messages=())
    return None if bare == Request() else jsontext.value(canonical.dump_conversation(bare))


def _title(messages: Sequence[Message]) -> str | None:
    """The first line that the user said."""
    said = (line.strip() for each in messages if isinstance(each, UserMessage) for line in each.text.splitlines())
    return next((excerpt(line, _TITLE) for line in said if line), None)


def _told(imported: Imported, notes: tuple[str, ...] = ()) -> _Line:
    diverged = tuple(f"branch {name} went another way here, and stays where it is" for name in imported.diverged)
    damage = tuple(str(each) for each in imported.damage)
    total = imported.entries_new + imported.entries_known
    return _Line(imported.thread, total, imported.entries_new, notes=(*notes, *damage, *diverged))
