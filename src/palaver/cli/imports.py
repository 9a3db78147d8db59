"""``palaver import``: import conversations from files into a store without duplicates.

- A folder is searched recursively, sorted by name. Hidden files and folders, special files and files whose first bytes
  are neither JSON nor a recorded stream are skipped and counted. Links to folders are not followed. A file that the
  user names is never skipped.
- The first bytes of a file show what it is: a transcript, a thread file, a message log, or anything that ``convert``
  reads. A file that fits several wires is refused with their names, and so is a stream that failed.
- Importing a conversation again adds nothing. A longer one adds the new messages; an edited one becomes a branch
  (``store.import_conversations``). A thread file or a log keeps its thread id (``store.archive``).
- Numbered files of a folder (``1.json``, ``2.json``) are one conversation, when their transcript format stores each
  message in a file of its own.
- A transcript is read piece by piece (``store.import_files``), so its size does not matter. An unchanged file is not
  read again. Unknown fields are kept and reported.
- A failed file is named on standard error, the other files are imported, and the exit code is 1. A failure of the store
  ends the command. What was imported stays when the command is stopped; running it again continues.
- ``--watch`` goes on with the files that change (``folder_watch``). A file that was written lately is read up to its
  last whole message (``transcripts.live_file``); one of whose format this is not known waits until it is settled.
- The tools, settings and model of a request are kept in the thread's metadata under ``request``, for ``export``.

Stability: experimental.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from hashlib import file_digest, sha256
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import click
from msgspec import Struct, structs

from palaver import transcripts
from palaver.cli import completion, files, folder_watch, progress, stores
from palaver.cli.folder_walk import Meter, Walk
from palaver.cli.session_places import is_session, session_folders
from palaver.cli.show import REQUEST
from palaver.cli.source import (
    PALAVER,
    Group,
    Source,
    find_wire,
    form_name,
    group_files,
    join_messages,
    load,
    read_message,
)
from palaver.cli.terminal import count, echo, safe, safe_line
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
from palaver.store.store import Store
from palaver.threads.thread import MAIN
from palaver.transcripts.conversation import with_messages
from palaver.transcripts.detection import SIZE
from palaver.transcripts.file_reader import beginning, steps_of
from palaver.transcripts.live_file import LiveFile
from palaver.wires import detect_stream

if TYPE_CHECKING:
    from io import BufferedReader

    from palaver.transcripts import TranscriptFormat, UnknownFields

_logger: Final = logging.getLogger(__name__)
_INDEX_AFTER: Final = 2_000
"""The number of new messages after which they are indexed, between two files."""
_MAX_LINES: Final = 10
"""A file with more conversations gets one line for all of them."""
_MAX_NOTES: Final = 12
_THREAD_FILE: Final = b'{"palaver_thread":'
_COMPRESSED: Final = b"\x28\xb5\x2f\xfd"  # RFC 8878, section 3.1.1
_LOG: Final = b'\t{"log":'
_JSON: Final = (b"{", b"[")
_HEAD: Final = 4096


class _ImportLine(Struct, frozen=True):
    """The output line of an imported conversation."""

    thread: str
    messages: int
    new: int
    branches: tuple[str, ...] = ()
    """The branches that were created or moved, besides main."""
    notes: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    """Further threads that the numbers include."""

    @property
    def more(self) -> int:
        return len(self.threads)


class _Summary:
    """The totals, printed at the end."""

    def __init__(self) -> None:
        self.files = self.failed = self.messages = self.new = 0
        self.threads: set[str] = set()
        self.failures: set[str] = set()

    def add(self, line: _ImportLine) -> None:
        self.messages += line.messages
        self.new += line.new
        self.threads.update((line.thread, *line.threads))

    def text(self, skipped: int) -> str:
        """Return the totals on one line."""
        about = f"{count(self.messages, 'message')}, {self.new:,} new, in {count(len(self.threads), 'thread')}"
        pieces = [f"{count(self.files, 'file')}: {about}"]
        if self.failed:
            pieces.append(f"{self.failed:,} failed")
        if skipped:
            pieces.append(f"{skipped:,} skipped (hidden, or neither JSON nor a stream)")
        return "; ".join(pieces)


def _is_session_file(file: str) -> bool:
    """Whether a file is named as sessions of agents are, and looks like one to read."""
    return is_session(Path(file).name) and _may_be_conversation(file)


def _may_be_conversation(file: str) -> bool:
    try:
        head = b""
        if Path(file).is_file():
            with Path(file).open("rb") as opened:
                head = opened.read(_HEAD)
    except OSError:
        return True  # reading it reports the cause
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text.startswith(_JSON) or head.startswith((_COMPRESSED, _LOG)) or detect_stream.detect(head) is not None


@click.command(name="import")
@click.argument("names", metavar="FILE...", nargs=-1, type=click.Path(allow_dash=True))
@stores.into_option
@click.option(
    "--from",
    "source_format",
    callback=form_name,
    metavar="WIRE",
    shell_complete=completion.form_names,
    help="The wire or transcript format of all files. Default: recognised.",
)
@click.option("--watch", is_flag=True, help="Go on with files that change. Without FILE: the sessions of known agents.")
def command(names: tuple[str, ...], location: str | None, source_format: str | None, *, watch: bool) -> int:
    """Import conversations into a store without duplicates.

    FILE is any file that "palaver convert --help" lists (a session of an agent, a saved request, ...), a thread file of
    "palaver export", a message log, or a folder of such files. Importing a file again adds nothing. A longer file adds
    its new messages; an edited one becomes a branch.

    With --watch the store follows the files while agents write them, until Ctrl-C. It gets no half message.
    """
    is_named = bool(names)
    names = names or (_session_folders() if watch else ())
    if not names:
        raise click.UsageError("Missing argument 'FILE...'.")
    if source_format not in {None, PALAVER, *transcripts.names()}:
        find_wire(source_format or "")
    wanted = _may_be_conversation if is_named else _is_session_file
    walk, summary = Walk(names, wanted), _Summary()
    try:
        with ExitStack() as stack:
            changes = (
                folder_watch.changes(names) if watch else None
            )  # before the files are listed, so that none is missed
            found = list(walk)
            importer = _Importer(lambda: stack.enter_context(open_store(location)), source_format, live=watch)
            if stores.exists(location):
                importer.open()
            with progress.bar("importing") as report:
                importer.meter = Meter(found, report)
                _import_all(importer, group_files(found, names), summary)
            _report_failures(walk, summary)
            if changes is not None:
                echo(f"{summary.text(walk.skipped)}; {safe(stores.display_name(location))}")
                echo(f"watching {', '.join(safe_line(files.display_name(name)) for name in names)}; Ctrl-C ends it")
                for changed in folder_watch.due(changes, importer.waiting):
                    _import_all(importer, _changed_groups(filter(wanted, changed)), summary)
    except KeyboardInterrupt:
        done = f"{count(summary.new, 'new message')} in {count(len(summary.threads), 'thread')}"
        echo(f"stopped; {done if watch else summary.text(walk.skipped)}; import again to continue", err=True)
        raise
    echo(f"{summary.text(walk.skipped)}; {safe(stores.display_name(location))}")
    return 1 if summary.failed else 0


def _session_folders() -> tuple[str, ...]:
    """Return the folders where known agents keep sessions. Raises ``click.ClickException`` when there is none."""
    found = tuple(map(str, session_folders(os.environ)))
    if not found:
        raise click.ClickException("no known agent has sessions here; name a folder")
    return found


def _import_all(importer: _Importer, groups: Iterable[Group], summary: _Summary) -> None:
    for group in groups:
        file_format = importer.message_format(group)
        for each in (group.names,) if file_format else [(name,) for name in group.names]:
            _import(importer, each, summary, file_format)
            importer.index(summary.new, _INDEX_AFTER)
    importer.index(summary.new)


def _changed_groups(changed: Iterable[str]) -> Iterator[Group]:
    """Yield the groups of files that changed: a numbered file belongs to all of its folder."""
    for group in group_files(changed, ()):
        folder = Path(group.names[0]).parent
        try:
            whole = map(str, folder.iterdir()) if group.numbered else group.names
            yield from (each for each in group_files(sorted(whole), ()) if each.numbered == group.numbered)
        except OSError:
            continue  # the folder is gone


def _report_failures(walk: Walk, summary: _Summary) -> None:
    for failure in walk.failures:
        _failed(
            f"{safe(files.display_name(str(failure.filename)))}: {(failure.strerror or str(failure)).lower()}", summary
        )


def _import(importer: _Importer, names: Sequence[str], summary: _Summary, file_format: TranscriptFormat | None) -> None:
    """Import a file, or with ``file_format`` the files of one conversation."""
    shown = safe_line(files.display_name(names[0] if file_format is None else str(Path(names[0]).parent)))
    summary.files += len(names)
    try:
        for line in (
            importer.take(names[0]) if file_format is None else importer.take_messages(names, file_format, summary)
        ):
            summary.add(line)
            if importer.live and not line.new and not line.branches:
                continue
            branches = ", ".join(map(safe, line.branches))
            where = f", {'branch' if len(line.branches) == 1 else 'branches'} {branches}" if branches else ""
            thread = safe(stores.short(line.thread))
            about = f"thread {thread}{where}" if line.more == 0 else count(line.more, "thread")
            echo(f"{shown}: {count(line.messages, 'message')}, {line.new:,} new, {about}")
            for note in importer.fresh_notes(names[0], line.notes):
                echo(f"{shown}: {safe_line(note)}", err=True)
    except (UnavailableError, BrokenPipeError):
        raise
    except FileNotFoundError as error:
        if not importer.live:
            _failed(f"{shown}: {(error.strerror or str(error)).lower()}", summary)
    except click.ClickException as error:
        _failed(safe(error.format_message()), summary)
    except PalaverError as error:
        _failed(safe(f"{shown}: {error}"), summary)
    except OSError as error:
        _failed(f"{shown}: {(error.strerror or str(error)).lower()}", summary)
    except Exception as error:  # one bad file never stops a folder
        _logger.debug("%s", shown, exc_info=True)
        _failed(safe(f"{shown}: cannot be read: {type(error).__name__}: {error}; this is a bug in palaver"), summary)
    finally:
        for each in names:
            importer.meter.finish(each)


def _failed(message: str, summary: _Summary) -> None:
    """Report a failure, once: a watched file fails at each change."""
    if message in summary.failures:
        return
    summary.failures.add(message)
    summary.failed += 1
    echo(f"palaver: {' '.join(message.split())}", err=True)


def _state(path: Path) -> FileState:
    stat = path.stat()
    return FileState(str(path), stat.st_size, stat.st_mtime_ns, time_ns())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


class _Importer:
    """Imports files into a store, one after the other."""

    def __init__(self, open_store: Callable[[], Store], source_format: str | None, *, live: bool = False) -> None:
        """Open the store when ``open`` is called, or when the first file can be read: files that fail create none.

        With ``live``, files may be written meanwhile; ``waiting`` are those that must be read again when they settle.
        """
        self.live = live
        self.waiting: set[str] = set()
        self._noted: set[tuple[str, str]] = set()
        self._open_store = open_store
        self._opened: Store | None = None
        self._source_format = source_format
        self._intake: ConversationImporter | None = None
        self._filing: FileImporter | None = None
        self.meter = Meter((), None)
        self._indexed = 0

    def open(self) -> Store:
        """Open the store, once."""
        if self._opened is None:
            self._opened = self._open_store()
        return self._opened

    @property
    def _store(self) -> Store:
        return self.open()

    def index(self, new: int, least: int = 1) -> None:
        """Index the new messages when there are at least ``least`` since the last time, so that no search waits."""
        if new - self._indexed >= least:
            self._store.index()
            self._indexed = new

    def fresh_notes(self, name: str, notes: Iterable[str]) -> list[str]:
        """Return the notes that were not shown for this file before."""
        fresh = [note for note in notes if not self.live or (name, note) not in self._noted]
        self._noted.update((name, note) for note in fresh)
        return fresh

    def take(self, name: str) -> Iterator[_ImportLine]:
        """Import a file of any kind. Yield a line for each conversation."""
        self.waiting.discard(name)
        if self.live and name != files.STDIO and not folder_watch.is_settled(name):
            yield from self._take_unsettled(name)
        else:
            yield from self._take(name)

    def _take_unsettled(self, name: str) -> Iterator[_ImportLine]:
        """Import the part of a transcript that is final; the rest, and any other file, waits until it is settled."""
        self.waiting.add(name)
        try:
            head = beginning(name)
            file_format = None if self._source_format == PALAVER else format_of(head, name, self._source_format)
        except (click.ClickException, PalaverError):
            return  # it may be recognised when there is more of it
        if file_format is not None and file_format.layout == "lines" and b"\n" in head:
            yield from self._format(name, file_format, settled=False)

    def _take(self, name: str) -> Iterator[_ImportLine]:
        if (lines := self._unchanged(name)) is not None:
            yield from lines
            return
        head = _peek_stdin() if name == files.STDIO else beginning(name)
        file_format = None if self._source_format == PALAVER else format_of(head, name, self._source_format)
        if file_format is not None:
            yield from self._format(name, file_format)
        elif head.startswith((_THREAD_FILE, _COMPRESSED)):
            self._intake = None  # its index of the store is out of date
            yield self._thread_file(name)
        elif head.startswith(_LOG) and name != files.STDIO:
            self._intake = None
            yield from self._log(name)
        else:
            yield from self._conversations(name)

    def message_format(self, group: Group) -> TranscriptFormat | None:
        """Return the transcript format of a folder's numbered files, when it stores each message in its own file."""
        if not group.numbered or self._source_format == PALAVER:
            return None
        first = group.names[0]
        try:
            file_format = format_of(beginning(first), first, self._source_format)
            fits = file_format is not None and file_format.message_files and read_message(first) is not None
        except (OSError, PalaverError, click.ClickException):
            return None  # reading the file reports the cause
        return file_format if fits else None

    def take_messages(
        self, names: Sequence[str], file_format: TranscriptFormat, summary: _Summary
    ) -> Iterator[_ImportLine]:
        """Import a conversation whose messages are files. A file without a message is reported and left out."""
        messages: list[bytes] = []
        for name in names:
            message = read_message(name)
            if message is None:
                _failed(safe(f"{files.display_name(name)}: not a message; the rest of the folder is read"), summary)
            else:
                messages.append(message)
        if self._filing is None:
            self._filing = FileImporter(self._store)
        folder = str(Path(names[0]).absolute().parent)
        yield from self._filed(self._filing, file_format, io.BytesIO(join_messages(messages)), folder, None)

    def _unchanged(self, name: str) -> Iterator[_ImportLine] | None:
        """Return the lines of a file that has not changed since it was imported; ``None`` when it must be read."""
        if name == files.STDIO or self._source_format is not None or not Path(name).is_file():
            return None
        if self._opened is None:  # nothing has been imported
            return None
        if self._filing is None:
            self._filing = FileImporter(self._store)
        path = Path(name).absolute()
        same = self._filing.unchanged(_state(path), lambda: _digest(path))
        return None if same is None else _merged([_ImportLine(each.thread, each.messages, 0) for each in same])

    def _format(self, name: str, file_format: TranscriptFormat, *, settled: bool = True) -> Iterator[_ImportLine]:
        """Import the conversations of a transcript while reading it."""
        if self._filing is None:
            self._filing = FileImporter(self._store)
        if name == files.STDIO:
            yield from self._filed(self._filing, file_format, sys.stdin.buffer, "", None)
            return
        path = Path(name).absolute()
        with path.open("rb") as file:
            state = _state(path)
            if self.live and file_format.layout == "lines":
                yield from self._filed(self._filing, file_format, file, str(path), state, settled=settled)
            else:
                yield from self._filed(self._filing, file_format, file, str(path), state)

    def _filed(
        self,
        filing: FileImporter,
        file_format: TranscriptFormat,
        file: BinaryIO,
        name: str,
        state: FileState | None,
        *,
        settled: bool | None = None,
    ) -> Iterator[_ImportLine]:
        """Import an open file; with ``settled``, as one that may be written meanwhile."""
        digest = sha256()

        def on_read(piece: bytes) -> None:
            digest.update(piece)
            self.meter.read(len(piece))

        lines: list[_ImportLine] = []
        unknown: tuple[UnknownFields, ...] = ()
        live = LiveFile(file, settled=bool(settled), on_piece=on_read)
        if settled is None:
            steps = with_messages(steps_of(file_format, file, name, on_piece=on_read))
        else:
            steps = live.steps(file_format, name)
        for each in filing.add(steps, state, digest.hexdigest, lambda: live.is_whole):
            if isinstance(each, ImportedConversation):
                branches = (each.branch, *each.more_branches) if each.branch else ()
                lines.append(_ImportLine(each.thread, each.messages, each.new, branches))
            else:
                unknown = each
        if not lines and settled is not None and not live.is_whole:
            return
        if not lines:
            raise click.ClickException(f"{files.display_name(name)}: there is no conversation in it")
        notes = [f"{each}; kept" for each in unknown[:_MAX_NOTES]]
        if len(unknown) > _MAX_NOTES:
            notes.append(f"{len(unknown) - _MAX_NOTES} more unknown fields; kept")
        yield from _merged([structs.replace(lines[0], notes=tuple(notes)), *lines[1:]])

    def _thread_file(self, name: str) -> _ImportLine:
        if name == files.STDIO:
            return _line_of(import_thread(self._store, sys.stdin.buffer))
        with Path(name).open("rb") as file:
            return _line_of(import_thread(self._store, file))

    def _log(self, name: str) -> Iterator[_ImportLine]:
        reader = read_log(name)
        rebuilt = threads_of(reader)
        notes = tuple(str(each) for each in (*reader.damage, *rebuilt.damage))
        for thread in rebuilt.threads.values():
            rebuilt_store = MemoryStore()
            rebuilt_store.add(thread.id, thread.entries, branches=thread.branches, absent=blob_hashes(thread.entries))
            yield _line_of(copy_thread(rebuilt_store, self._store, thread.id), notes)
            notes = ()
        if notes:
            raise click.ClickException(f"{files.display_name(name)}: {notes[0]}")

    def _conversations(self, name: str) -> Iterator[_ImportLine]:
        source = load(name, self._source_format)
        if source.failure is not None:
            raise click.ClickException(f"{files.display_name(name)}: {source.failure}")
        notes = source.notes
        for messages in _conversations(source):
            if not messages:
                raise click.ClickException(f"{files.display_name(name)}: there are no messages in it")
            yield self._conversation(messages, source, name, notes)
            notes = ()

    def _conversation(
        self, messages: Sequence[Message], source: Source, name: str, notes: tuple[str, ...]
    ) -> _ImportLine:
        if self._intake is None:
            self._intake = ConversationImporter(self._store)
        request = _request_metadata(source)
        taken = self._intake.add(
            messages,
            source=None if name == files.STDIO else str(Path(name).absolute()),
            title=title_of(messages),
            metadata={} if request is None else {REQUEST: request},
        )
        if taken.new and taken.known and taken.branch == MAIN and request is not None:
            metadata = self._store.info(taken.thread).metadata
            if metadata.get(REQUEST) != request:
                self._store.update(taken.thread, metadata={**metadata, REQUEST: request})
        branches = () if taken.branch == MAIN else (taken.branch,)
        return _ImportLine(taken.thread, len(messages), taken.new, branches, notes)


def _merged(lines: Sequence[_ImportLine]) -> Iterator[_ImportLine]:
    """Yield a line for each conversation, or one for all of them when there are many."""
    if len(lines) <= _MAX_LINES:
        yield from lines
        return
    notes = tuple([note for line in lines for note in line.notes])
    threads = tuple([line.thread for line in lines])
    yield _ImportLine(
        lines[0].thread,
        sum(line.messages for line in lines),
        sum(line.new for line in lines),
        branches=tuple(dict.fromkeys(branch for line in lines for branch in line.branches)),
        notes=notes,
        threads=threads,
    )


def _peek_stdin() -> bytes:
    """Return the first bytes of standard input without consuming them."""
    return cast("BufferedReader", sys.stdin.buffer).peek(SIZE)


def _conversations(source: Source) -> Iterator[Sequence[Message]]:
    """Yield the conversation of a request, or one for each choice of a response."""
    if isinstance(source.value, Request):
        yield source.value.messages
    else:
        for message in (source.value.message, *source.value.alternatives):
            yield (message,)


def _request_metadata(source: Source) -> object:
    """Return a request without its messages, as JSON; ``None`` when it has nothing else."""
    if not isinstance(source.value, Request):
        return None
    bare = source.value.replace(messages=())
    return None if bare == Request() else jsontext.value(canonical.dump_conversation(bare))


def _line_of(imported: Imported, notes: tuple[str, ...] = ()) -> _ImportLine:
    diverged = tuple(f"branch {name} differs here and is unchanged" for name in imported.diverged)
    damage = tuple(str(each) for each in imported.damage)
    total = imported.entries_new + imported.entries_known
    return _ImportLine(imported.thread, total, imported.entries_new, notes=(*notes, *damage, *diverged))
