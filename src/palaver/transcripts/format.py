"""The definition of a transcript format: a name, a list of what it keeps and loses, and three functions.

Rules:

- A transcript format is a value found by name in the table of ``palaver.transcripts``; nothing registers itself. Its
  module defines ``FORMAT``, and documents at its head what the format cannot represent.
- Reading does no I/O: ``reader()`` takes bytes in pieces and yields steps; ``read`` does it in one call. Any bytes give
  steps: unknown contents are kept and reported (law 6, ``unknown``).
- Writing (``writer``) reproduces what was read, byte for byte if the format's ``fidelity`` is ``bytes``.

Fidelity (docs/spec/dialects.md#0): ``bytes``, an unedited file is the same file; ``semantic``, the same JSON values;
``text``, roles, text and tool names; ``write`` or ``read``, it is only written or read. ``resumes``: the program that
owns the format can continue a file that we wrote.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from palaver.core import jsontext
from palaver.core.errors import DecodeError, EncodeError
from palaver.core.type_checks import check_arguments
from palaver.stream.partial_json import PartialJSON
from palaver.threads.thread import MAIN
from palaver.transcripts import assembly
from palaver.transcripts.conversation import Noted, Step, Transcript, collected
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.documents import fields_of
from palaver.transcripts.record import LONGEST, Lines, Record
from palaver.transcripts.unknown_fields import UnknownFields, Watch
from palaver.transcripts.writer import History, Layout, OnLoss, Options, RecordWriter, WriteState, Written

_BOM: Final = b"\xef\xbb\xbf"
_LARGEST: Final = 2 * LONGEST

Fidelity: TypeAlias = Literal["bytes", "semantic", "text", "write", "read"]


class Origin(Struct, frozen=True):
    """The origin of a file: ``name`` is its path, if any.

    ``beside`` returns the bytes of a file by its path relative to the folder of this one, ``None`` when it is missing.
    """

    name: str = ""
    beside: Callable[[str], bytes | None] = lambda _: None


class RecordReader(Protocol):
    """Reads the records of one file, in order. A document is one record: the whole of it, ``at`` 0."""

    def record(self, record: Record, /) -> Iterable[Step]:
        """Read the next record."""
        ...

    def end(self) -> Iterable[Step]:
        """Return the last steps; every open conversation ends here at the latest."""
        ...


@runtime_checkable
class Expecting(Protocol):
    """An additional method of a ``RecordReader`` for formats with lines that are not objects (an event stream)."""

    def expects(self, record: Record, /) -> bool:
        """Return whether a line without fields is part of the format: then it is not reported."""
        ...


class TranscriptFormat(Struct, frozen=True, kw_only=True):
    """A file format. ``keeps`` and ``loses`` are for people and for the table in the docs.

    ``data`` are the bytes of a file, or its first ones, and ``name`` is its name; ``origin`` is the origin of a file.
    ``transcripts`` are written together, each with its ``branch``; ``losses`` says what to do about losses, and
    ``carry`` keeps beside the messages what the format cannot represent. ``history`` is the part of a conversation from
    elsewhere that is written, ``tree`` whether the format holds branches, ``many`` whether a file holds several
    conversations. ``record_reader`` is ``None`` for a write-only format, ``record_writer`` for a read-only one.
    ``extension`` is that of its files; with ``message_files``, each message may be a file of its own, ``1.json``,
    ``2.json`` and so on, in a folder for each conversation. ``rules`` raises ``DecodeError`` for a file that breaks the
    types of the format, if these are known.
    """

    name: str
    title: str
    fidelity: Fidelity
    detector: Callable[[Head], Detection | None]
    record_reader: Callable[[Origin, Watch], RecordReader] | None
    record_writer: Callable[[WriteState], RecordWriter] | None
    layout: Layout = "lines"
    tree: bool = False
    many: bool = False
    resumes: bool = False
    history: History = "model"
    extension: str = ".jsonl"
    message_files: bool = False
    rules: Callable[[bytes], None] | None = None
    keeps: tuple[str, ...] = ()
    loses: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Show the name."""
        return f"TranscriptFormat({self.name!r})"

    # -- in ------------------------------------------------------------------------------------------------------------

    def detect(self, data: bytes, name: str = "") -> Detection | None:
        """Return whether the beginning of a file may be of this transcript format. Never raises."""
        return self.detector(Head(data, name))

    def reader(self, origin: Origin | None = None) -> Reader:
        """Return a reader of a file. Raises ``DecodeError`` for a write-only transcript format."""
        if self.record_reader is None:
            raise DecodeError("this transcript format is only written", source=self.name)
        watch = Watch()
        return Reader(self.layout, self.record_reader(origin or Origin(), watch), watch)

    def read(self, data: bytes, origin: Origin | None = None, *, strict: bool = False) -> tuple[Transcript, ...]:
        """Read a whole file: its conversations, in the order in which they begin. Raises as ``reader`` does.

        ``strict`` raises ``DecodeError`` with the path of the first value that is missing or of the wrong type, and for
        a transcript format without ``rules``. Otherwise such values are kept as they are.
        """
        if strict:
            if self.rules is None:
                raise DecodeError("this transcript format has no rules to check a file against", source=self.name)
            self.rules(data)
        return self.read_with_unknown(data, origin)[0]

    def read_with_unknown(
        self, data: bytes, origin: Origin | None = None
    ) -> tuple[tuple[Transcript, ...], tuple[UnknownFields, ...]]:
        """Read a whole file, with the report of contents that the transcript format does not expect."""
        check_arguments(self.name, TranscriptFormat.read, {"data": data})
        reader = self.reader(origin)
        return collected(step for steps in (reader.feed(data), reader.finish()) for step in steps)

    # -- out -----------------------------------------------------------------------------------------------------------

    def write(
        self,
        transcript: Transcript,
        *,
        losses: OnLoss = "report",
        history: History | None = None,
        branch: str = MAIN,
        carry: bool = True,
    ) -> Written:
        """Write ``transcript``: ``history`` of it, from ``branch``; ``carry`` keeps what the format cannot represent.

        Raises ``EncodeError`` for a read-only transcript format, ``NotFoundError`` for an unknown branch, ``LossError``
        when ``losses="raise"`` and there is one, and ``MessageError`` for an argument of the wrong type.
        """
        check_arguments(self.name, TranscriptFormat.write, {"transcript": transcript, "losses": losses})
        if self.record_writer is None:
            raise EncodeError(f"{self.name} is only read")
        return assembly.write(
            self.name,
            transcript,
            self.record_writer,
            Options(history=history, branch=branch, carry=carry),
            layout=self.layout,
            tree=self.tree,
            history=self.history,
            losses=losses,
            reread=None if self.record_reader is None else self._read_again,
        )

    def write_many(
        self,
        transcripts: Iterable[Transcript],
        *,
        losses: OnLoss = "report",
        history: History | None = None,
        branch: str = MAIN,
        carry: bool = True,
    ) -> Written:
        """Write several conversations into one file, if the transcript format has such files (``many``).

        Conversations that were read from one file, and not edited, give the same file. Raises ``EncodeError`` when a
        file of the transcript format holds only one conversation, else as ``write`` does.
        """
        check_arguments(self.name, TranscriptFormat.write_many, {"losses": losses})
        given = list(transcripts)
        if len(given) == 1:
            return self.write(given[0], losses=losses, history=history, branch=branch, carry=carry)
        if not self.many:
            raise EncodeError(f"a {self.name} file has one conversation, not {len(given)}")
        if self.record_writer is None:
            raise EncodeError(f"{self.name} is only read")
        return assembly.write_many(
            self.name,
            given,
            self.record_writer,
            Options(history=history, branch=branch, carry=carry),
            layout=self.layout,
            tree=self.tree,
            history=self.history,
            losses=losses,
            reread=None if self.record_reader is None else self._read_again,
        )

    def _read_again(self, data: bytes) -> tuple[Transcript, ...]:
        """Read a written file of some conversations again, to see the contents of the edited ones."""
        return self.read(data)


class Reader:
    """Reads one file: ``feed`` bytes in any pieces, then ``finish``."""

    def __init__(self, layout: Layout, reading: RecordReader, watch: Watch) -> None:
        """Start before the first byte.

        ``layout`` is ``"lines"`` (a record is a line), ``"document"`` (the whole file is one) or ``"either"`` (the
        first line decides). ``reading`` makes steps of the records, and ``watch`` counts what the format does not
        expect.
        """
        self._lines = Lines()
        self._framing: Layout = layout
        self._whole: list[bytes] = []
        self._size = 0
        self._reading = reading
        self._expects = reading.expects if isinstance(reading, Expecting) else _nothing
        self._watch = watch

    def feed(self, data: bytes) -> Iterator[Step]:
        """Yield the steps of the records that end within ``data``."""
        if self._framing != "lines":
            self._whole.append(data)
            self._size += len(data)
            if self._size > _LARGEST:
                raise DecodeError(f"a document of more than {_LARGEST:,} bytes")
            if self._framing == "document" or b"\n" not in data:
                return
            begun = b"".join(self._whole)
            self._whole = [begun]
            if (line := _first_line(begun)) is None:
                return
            if not _is_record(line):
                self._framing = "document"
                return
            self._whole.clear()
            self._framing, data = "lines", begun
        for record in self._lines.feed(data):
            yield from self._take(record)

    def finish(self) -> Iterator[Step]:
        """Yield the remaining steps, and the report."""
        whole = b"".join(self._whole)
        self._whole.clear()
        if self._framing == "either" and _is_record(whole):
            self._framing = "lines"
            yield from self.feed(whole)
        if self._framing != "lines":
            document = Record(0, 1, whole, fields_of(whole) or None)
            yield from self._watch.during(lambda: self._reading.record(document), None)
        for record in self._lines.finish():
            yield from self._take(record)
        yield from self._watch.during(self._reading.end, None)
        if report := self._watch.report:
            yield Noted(report)

    def _take(self, record: Record) -> Iterable[Step]:
        if record.flaw is not None and record.flaw != "blank" and not self._expects(record):
            self._watch.note(record.flaw, "", record.line)
        if record.glued:
            self._watch.note("glued", "", record.line)
        return self._watch.during(lambda: self._reading.record(record), record.line)


def _nothing(_: Record) -> bool:
    return False


def _first_line(data: bytes) -> bytes | None:
    """Return the first line that is not blank, if it is complete."""
    body = data.removeprefix(_BOM).lstrip()
    return body.partition(b"\n")[0] if b"\n" in body else None


def _is_record(line: bytes) -> bool:
    """Return whether a file with this first line has lines: it is not a list, and not an object over several lines."""
    body = line.removeprefix(_BOM).strip()
    if body.startswith(b"[") or not body.startswith(b"{"):
        return not body.startswith(b"[")
    if jsontext.is_json(body):
        return True
    reading = PartialJSON()
    reading.feed(body.decode("utf-8", "replace"))
    return reading.error is not None or reading.complete
