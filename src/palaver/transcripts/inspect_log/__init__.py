"""Inspect's logs: ``.json`` documents, and ``.eval`` archives, of version 2 (docs/spec/dialects.md#11).

Read: each sample is a conversation; its ``messages`` are the final state of the model's view. Events are not messages;
those of models give the usage, time and finish reason of an answer, by the id of its message. Texts and media that are
attachments are inserted into their messages. ``.eval`` archives are read as the document that they represent, with
samples in one member or in many, and are written as that document. ``NaN`` and ``Infinity`` stay in their bytes.

Not represented: markers, branches and compacted messages (the model's view is written), developer messages, malformed
arguments, the order of calls in the text, the usage of each answer but the last (the sample has the sum), ids of a
provider's files. These are carried in the ``metadata`` of the message.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from msgspec import structs

from palaver.core import jsontext
from palaver.core.request import Loss
from palaver.threads.thread import MAIN
from palaver.transcripts.conversation import session_of
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.documents import lead_of
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.inspect_log import archive
from palaver.transcripts.inspect_log.reader import RecordReader
from palaver.transcripts.inspect_log.shapes import NAME
from palaver.transcripts.inspect_log.writer import RecordWriter
from palaver.transcripts.omissions import line_of
from palaver.transcripts.writer import History, OnLoss, Options, Written

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.transcripts.conversation import Transcript
    from palaver.transcripts.writer import WriteState

_SHAPE: Final = re.compile(rb'\s*\{\s*"version"\s*:\s*(\d+)\s*,\s*"status"\s*:\s*"\w+"\s*,\s*"eval"\s*:\s*\{')
_NAMED: Final = re.compile(rb'\s*\{\s*(?=.*"eval"\s*:\s*\{)(?=.*"task"\s*:)"(?:eval|version|status)"', re.DOTALL)
_CLOSING: Final = b"]}"


def detect(head: Head) -> Detection | None:
    """Detect an archive with the members of a log, or a document with ``eval`` and other keys of a log."""
    if head.data.startswith(archive.MAGIC):
        named = any(member in head.data for member in archive.MEMBERS)
        return Detection(1.0 if named else 0.7) if named or head.name.endswith(".eval") else None
    if found := _SHAPE.match(head.data):
        return Detection(1.0, found[1].decode())
    fields = head.fields
    if not fields and _NAMED.match(head.data):  # with NaN
        return Detection(0.9)
    spec: object = fields.get("eval")
    if not isinstance(spec, dict) or not {"plan", "samples", "stats", "results"} & fields.keys():
        return None
    version = fields.get("version")
    certain = {"task", "model"} <= cast("dict[str, object]", spec).keys()
    return Detection(1.0 if certain else 0.7, None if version is None else str(version))


class _Part(NamedTuple):
    """A written sample, the size of the log's own parts in it, and its number among how many."""

    written: Written
    record_writer: RecordWriter
    frame: tuple[int, int]
    place: tuple[int, int] | None

    @property
    def sample(self) -> bytes:
        """The sample alone."""
        body, (before, behind) = self.written.body, self.frame
        alone = body[before : len(body) - behind]
        return alone[len(lead_of(alone)) :]


class Logs(TranscriptFormat, frozen=True, kw_only=True):
    """The transcript format: a log is a document with a list of samples, each of which is split at its messages."""

    def write(
        self,
        transcript: Transcript,
        *,
        losses: OnLoss = "report",
        history: History | None = None,
        branch: str = MAIN,
        carry: bool = True,
    ) -> Written:
        """Write a log of one sample, as ``TranscriptFormat.write`` does."""
        return self.write_many([transcript], losses=losses, history=history, branch=branch, carry=carry)

    def write_many(
        self,
        transcripts: Iterable[Transcript],
        *,
        losses: OnLoss = "report",
        history: History | None = None,
        branch: str = MAIN,
        carry: bool = True,
    ) -> Written:
        """Write a log. All samples that were read from one log are written with that log around them."""
        options = Options(history=history, branch=branch, carry=carry)
        parts = [self._part(each, losses, options) for each in transcripts]
        places = [part.place for part in parts]
        lost = [loss for part in parts for loss in part.written.losses]
        beside = {name: data for part in parts for name, data in part.written.beside.items()}
        unplaced = all(part.place is None and part.record_writer.native for part in parts)
        if unplaced or places == [(0, 0)] or places == [(number, len(parts)) for number in range(len(parts))]:
            return Written(tuple([chunk for part in parts for chunk in part.written.chunks]), tuple(lost), beside)
        first = next((part for part in parts if part.frame[0]), None)
        last = next((part for part in reversed(parts) if part.frame[1]), None)
        head = parts[0].record_writer.opening() if parts and first is None else b""
        tail = _CLOSING
        if first is not None:
            head = first.written.body[: first.frame[0]]
        if last is not None and last is first:  # the part behind belongs to the part before
            tail = last.written.body[-last.frame[1] :]
        if any(part.place is not None for part in parts):
            lost.append(Loss("approximated", "log", "its results and totals belong to other samples, or are missing"))
        return Written((head, b",".join(part.sample for part in parts), tail), tuple(lost), beside)

    def _read_again(self, data: bytes) -> tuple[Transcript, ...]:
        """Read a sample, which may be preceded and followed by others."""
        begun = data.lstrip()
        log = b'{"samples":[' + begun[1:] if begun.startswith(b",") else begun
        return self.read(log if jsontext.is_json(log) else log + _CLOSING)

    def _part(self, transcript: Transcript, losses: OnLoss, options: Options) -> _Part:
        line, dropped = line_of(self.name, transcript, options.branch)
        made: list[RecordWriter] = []

        def rendering(writing: WriteState) -> RecordWriter:
            made.append(RecordWriter(writing, dropped))
            return made[-1]

        file_format = structs.replace(self, record_writer=rendering)
        history, branch, carry = options.history, options.branch, options.carry
        written = TranscriptFormat.write(file_format, line, losses=losses, history=history, branch=branch, carry=carry)
        place: object = session_of(transcript.metadata).more.get("place")
        native = made[0].native and isinstance(place, list)
        number, count = cast("list[int]", place) if native else (0, 0)
        return _Part(written, made[0], made[0].frame, (number, count) if native else None)


FORMAT: Final = Logs(
    name=NAME,
    title="Inspect logs",
    fidelity="bytes",
    detector=detect,
    record_reader=RecordReader,
    record_writer=RecordWriter,
    layout="document",
    many=True,
    history="model",
    extension=".json",
    keeps=(
        "reasoning with proof",
        "usage of each answer, from events",
        "media",
        "tool errors",
        "tools that a provider ran",
        "archives (read; written as documents)",
    ),
    loses=(
        "branches (one log each)",
        "what a compaction hid",
        "events do not become messages",
        "malformed calls (kept beside)",
        "usage of each answer written (summed)",
        "markers",
    ),
)
