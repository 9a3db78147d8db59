"""``palaver import``: conversations from files into a store, each once.

Rules:

- What a file is, its first bytes say: a session of an agent, a thread file, a message log, or anything that
  ``convert`` reads. As there,
  nothing is guessed: a file that several wires may have written is refused with their names, and half an answer too.
- A conversation that was imported before adds nothing; one that goes on adds what is new; an edited file becomes a
  branch where it parts (``store.intake``). A thread file keeps its own id (``store.archive``), and so does a log.
- The numbered files of a folder (``1.json``, ``2.json``) are one conversation, where their transcript format stores
  each message in a file of its own (``TranscriptFormat.message_files``).
- The file of a transcript format is read piece by piece (``store.filing``), so that its size does not matter; one
  that has not changed since is not read again. What its transcript format does not foresee is kept, and said.
- A line a file, or one for each conversation. What fails is named on standard error, and the rest goes on; the exit
  code is then 1. What the store cannot do (a full disk, a lost server) ends the command.
- What was imported stays when the command is stopped, at any moment; calling it again goes on.
- The tools, the settings and the model of a request are kept in the metadata of its thread, under ``request``, in the
  canonical form; ``export`` gives them back. A request that goes on changes them.

Stability: experimental.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator, Sequence
from hashlib import file_digest, sha256
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import click
from msgspec import Struct, structs

from palaver import transcripts
from palaver.cli import files, progress, stores
from palaver.cli.files import COMPRESSED, LOG, THREAD_FILE, Walk
from palaver.cli.show import REQUEST
from palaver.cli.source import PALAVER, Group, Source, as_list, grouped, load, message_in, wire_called
from palaver.cli.terminal import count, echo, in_line, safe
from palaver.cli.transcript_io import format_of
from palaver.core import canonical, jsontext
from palaver.core.errors import PalaverError, UnavailableError
from palaver.core.messages import Message
from palaver.core.request import Request
from palaver.store.archive import Imported, copy_thread, import_thread
from palaver.store.import_conversations import ConversationImporter
from palaver.store.import_files import FileImporter, FileState, ImportedConversation, title_of
from palaver.store.jsonl.log_reader import read_log, threads_of
from palaver.store.location import open_store
from palaver.store.memory import MemoryStore
from palaver.store.message_codec import blob_hashes
from palaver.store.store import Progress, Store
from palaver.threads.thread import MAIN
from palaver.transcripts.conversation import with_messages
from palaver.transcripts.detection import SIZE
from palaver.transcripts.file_reader import beginning, steps_of

if TYPE_CHECKING:
    from io import BufferedReader

    from palaver.transcripts import TranscriptFormat, UnknownFields

_logger: Final = logging.getLogger(__name__)
_UNINDEXED: Final = 2_000
"""New messages after which they are indexed while further files wait."""
_FEW: Final = 10
"""From more conversations of one file on, one line says what became of all of them."""
_NOTES: Final = 12


class _Line(Struct, frozen=True):
    """What is said of a conversation that was taken in."""

    thread: str
    messages: int
    new: int
    branches: tuple[str, ...] = ()
    """The branches that were made or moved, where they are not the thread's own."""
    notes: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    """Further threads of which this says the sum."""

    @property
    def more(self) -> int:
        return len(self.threads)


class _Tally:
    """What is said in the end."""

    def __init__(self) -> None:
        self.files = self.failed = self.messages = self.new = 0
        self.threads: set[str] = set()

    def add(self, line: _Line) -> None:
        self.messages += line.messages
        self.new += line.new
        self.threads.update((line.thread, *line.threads))

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
@click.option(
    "--from",
    "spoken",
    metavar="WIRE",
    help="The wire or transcript format of all these files; recognised when not given.",
)
def command(names: tuple[str, ...], location: str | None, spoken: str | None) -> int:
    """Import conversations into a store, each once.

    FILE is what "palaver convert --help" says (a session of an agent, a saved request, ...), a thread file of "palaver
    export", a message log, or a folder of such files. Importing a file again adds nothing; one that goes on adds what
    is new; an edited one becomes a branch.
    """
    if spoken not in {None, PALAVER, *transcripts.names()}:
        wire_called(spoken or "")
    walk, tally = Walk(names), _Tally()
    try:
        with open_store(location) as store, progress.bar("importing") as told:
            found = list(walk)
            taking = _Taking(store, spoken, _Meter(found, told))
            for group in grouped(found, names):
                file_format = taking.message_format(group)
                for each in (group.names,) if file_format else [(name,) for name in group.names]:
                    _take(taking, each, tally, file_format)
                    taking.index(tally.new, _UNINDEXED)
            taking.index(tally.new)
    except KeyboardInterrupt:
        echo(f"stopped; {tally.summary(walk.passed)}; import again to go on", err=True)
        raise
    for failure in walk.failures:
        _failed(f"{safe(files.shown(str(failure.filename)))}: {(failure.strerror or str(failure)).lower()}", tally)
    echo(f"{tally.summary(walk.passed)}; {safe(stores.shown(location))}")
    return 1 if tally.failed else 0


def _take(taking: _Taking, names: Sequence[str], tally: _Tally, file_format: TranscriptFormat | None) -> None:
    """Take in a file, or with ``file_format`` the files of one conversation."""
    shown = in_line(files.shown(names[0] if file_format is None else str(Path(names[0]).parent)))
    tally.files += len(names)
    try:
        for line in taking.take(names[0]) if file_format is None else taking.take_messages(names, file_format, tally):
            tally.add(line)
            branches = ", ".join(map(safe, line.branches))
            where = f", {'branch' if len(line.branches) == 1 else 'branches'} {branches}" if branches else ""
            thread = safe(stores.short(line.thread))
            about = f"thread {thread}{where}" if line.more == 0 else count(line.more, "thread")
            echo(f"{shown}: {count(line.messages, 'message')}, {line.new:,} new, {about}")
            for note in line.notes:
                echo(f"{shown}: {in_line(note)}", err=True)
    except (UnavailableError, BrokenPipeError):
        raise
    except click.ClickException as error:
        _failed(safe(error.format_message()), tally)
    except PalaverError as error:
        _failed(safe(f"{shown}: {error}"), tally)
    except OSError as error:
        _failed(f"{shown}: {(error.strerror or str(error)).lower()}", tally)
    except Exception as error:  # one bad file never stops a folder
        _logger.debug("%s", shown, exc_info=True)
        _failed(safe(f"{shown}: cannot be read: {type(error).__name__}: {error}; this is a fault of palaver"), tally)
    finally:
        for each in names:
            taking.meter.passed(each)


def _failed(said: str, tally: _Tally) -> None:
    tally.failed += 1
    echo(f"palaver: {' '.join(said.split())}", err=True)


class _Meter:
    """Tells how many bytes of how many were read."""

    def __init__(self, names: Sequence[str], told: Progress | None) -> None:
        self._told = told
        self._sizes = {} if told is None else {name: _size(name) for name in names}
        self._total = sum(self._sizes.values())
        self._done = self._within = 0

    def read(self, size: int) -> None:
        """So many bytes more of the file that is being read."""
        self._within += size
        if self._told is not None:
            self._told(self._done + self._within, self._total)

    def passed(self, name: str) -> None:
        """A file is done."""
        self._done, self._within = self._done + self._sizes.get(name, 0), 0
        self.read(0)


def _size(name: str) -> int:
    try:
        return Path(name).stat().st_size
    except OSError:
        return 0


def _state(path: Path) -> FileState:
    stat = path.stat()
    return FileState(str(path), stat.st_size, stat.st_mtime_ns, time_ns())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


class _Taking:
    """Takes files into a store, one after the other."""

    def __init__(self, store: Store, spoken: str | None, meter: _Meter) -> None:
        self._store = store
        self._spoken = spoken
        self._intake: ConversationImporter | None = None
        self._filing: FileImporter | None = None
        self.meter = meter
        self._indexed = 0

    def index(self, new: int, least: int = 1) -> None:
        """Make new messages ready for search, when there are so many since the last time: no search waits for it."""
        if new - self._indexed >= least:
            self._store.index()
            self._indexed = new

    def take(self, name: str) -> Iterator[_Line]:
        """Take a file in, whatever it is; give a line for each conversation."""
        if (lines := self._unchanged(name)) is not None:
            yield from lines
            return
        head = _waiting() if name == files.STANDARD else beginning(name)
        file_format = None if self._spoken == PALAVER else format_of(head, name, self._spoken)
        if file_format is not None:
            yield from self._format(name, file_format)
        elif head.startswith((THREAD_FILE, COMPRESSED)):
            self._intake = None  # what it knows is no longer all there is
            yield self._thread_file(name)
        elif head.startswith(LOG) and name != files.STANDARD:
            self._intake = None
            yield from self._log(name)
        else:
            yield from self._conversations(name)

    def message_format(self, group: Group) -> TranscriptFormat | None:
        """The transcript format of the numbered files of a folder, when it stores each message in one."""
        if not group.numbered or self._spoken == PALAVER:
            return None
        first = group.names[0]
        try:
            file_format = format_of(beginning(first), first, self._spoken)
            fits = file_format is not None and file_format.message_files and message_in(first) is not None
        except (OSError, PalaverError, click.ClickException):
            return None  # whoever reads the file says what is wrong with it
        return file_format if fits else None

    def take_messages(self, names: Sequence[str], file_format: TranscriptFormat, tally: _Tally) -> Iterator[_Line]:
        """Take in a conversation whose messages are files; a file that is no message is named and left out."""
        messages: list[bytes] = []
        for name in names:
            message = message_in(name)
            if message is None:
                _failed(safe(f"{files.shown(name)}: this is no message; the rest of the folder is read"), tally)
            else:
                messages.append(message)
        if self._filing is None:
            self._filing = FileImporter(self._store)
        folder = str(Path(names[0]).absolute().parent)
        yield from self._filed(self._filing, file_format, io.BytesIO(as_list(messages)), folder, None)

    def _unchanged(self, name: str) -> Iterator[_Line] | None:
        """What is known of a file that was read before and has not changed; its first bytes need not be looked at."""
        if name == files.STANDARD or self._spoken is not None or not Path(name).is_file():
            return None
        if self._filing is None:
            self._filing = FileImporter(self._store)
        path = Path(name).absolute()
        same = self._filing.unchanged(_state(path), lambda: _digest(path))
        return None if same is None else _limited([_Line(each.thread, each.messages, 0) for each in same])

    def _format(self, name: str, file_format: TranscriptFormat) -> Iterator[_Line]:
        """Take in the conversations of a format's file, as they are read."""
        if self._filing is None:
            self._filing = FileImporter(self._store)
        if name == files.STANDARD:
            yield from self._filed(self._filing, file_format, sys.stdin.buffer, "", None)
            return
        path = Path(name).absolute()
        with path.open("rb") as file:
            yield from self._filed(self._filing, file_format, file, str(path), _state(path))

    def _filed(
        self, filing: FileImporter, file_format: TranscriptFormat, file: BinaryIO, name: str, state: FileState | None
    ) -> Iterator[_Line]:
        digest = sha256()

        def told(piece: bytes) -> None:
            digest.update(piece)
            self.meter.read(len(piece))

        lines: list[_Line] = []
        unknown: tuple[UnknownFields, ...] = ()
        taken = filing.add(with_messages(steps_of(file_format, file, name, told=told)), state, digest.hexdigest)
        for each in taken:
            if isinstance(each, ImportedConversation):
                branches = (each.branch, *each.more_branches) if each.branch else ()
                lines.append(_Line(each.thread, each.messages, each.new, branches))
            else:
                unknown = each
        if not lines:
            raise click.ClickException(f"{files.shown(name)}: there is no conversation in it")
        notes = [f"{each}; kept" for each in unknown[:_NOTES]]
        if len(unknown) > _NOTES:
            notes.append(f"{len(unknown) - _NOTES} more of that kind; kept")
        yield from _limited([structs.replace(lines[0], notes=tuple(notes)), *lines[1:]])

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
            held.add(thread.id, thread.entries, branches=thread.branches, absent=blob_hashes(thread.entries))
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
            self._intake = ConversationImporter(self._store)
        request = _without_messages(source)
        taken = self._intake.add(
            messages,
            source=None if name == files.STANDARD else str(Path(name).absolute()),
            title=title_of(messages),
            metadata={} if request is None else {REQUEST: request},
        )
        if taken.new and taken.known and taken.branch == MAIN and request is not None:
            metadata = self._store.info(taken.thread).metadata
            if metadata.get(REQUEST) != request:
                self._store.update(taken.thread, metadata={**metadata, REQUEST: request})
        branches = () if taken.branch == MAIN else (taken.branch,)
        return _Line(taken.thread, len(messages), taken.new, branches, notes)


def _limited(lines: Sequence[_Line]) -> Iterator[_Line]:
    """A line for each conversation, or one for all of a file that holds many."""
    if len(lines) <= _FEW:
        yield from lines
        return
    notes = tuple([note for line in lines for note in line.notes])
    threads = tuple([line.thread for line in lines])
    yield _Line(
        lines[0].thread,
        sum(line.messages for line in lines),
        sum(line.new for line in lines),
        branches=tuple(dict.fromkeys(branch for line in lines for branch in line.branches)),
        notes=notes,
        threads=threads,
    )


def _waiting() -> bytes:
    """The first bytes of standard input, which stay there."""
    return cast("BufferedReader", sys.stdin.buffer).peek(SIZE)


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


def _told(imported: Imported, notes: tuple[str, ...] = ()) -> _Line:
    diverged = tuple(f"branch {name} went another way here, and stays where it is" for name in imported.diverged)
    damage = tuple(str(each) for each in imported.damage)
    total = imported.entries_new + imported.entries_known
    return _Line(imported.thread, total, imported.entries_new, notes=(*notes, *damage, *diverged))
