"""Check the transcripts of folders: recognised, the same bytes, converted, and counted. The work of ``verify``.

- A file is checked after the other, and only one is in memory.
- A file is recognised when exactly one transcript format is likely. Several likely ones are a fault that names them. No
  likely one is no fault: the file is no transcript, or it may be a request body too.
- The bytes of a file that was read and written unedited are the same, where its format promises that.
- Each conversation is written in two other formats. That is well when nothing raises, and the counts of what is read
  back are equal, or the receipt names those that differ.

Stability: experimental.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct, structs

from palaver import transcripts
from palaver.agent.usage import usage_of
from palaver.cli import files
from palaver.cli.folder_walk import Meter, Walk
from palaver.cli.tables import NO, Column, Listing
from palaver.cli.terminal import count
from palaver.cli.transcript_io import CERTAIN
from palaver.core.errors import PalaverError
from palaver.core.usage import Usage
from palaver.transcripts.conversation import collected, with_messages
from palaver.transcripts.counts import Counts, counts_of_entries, tally, unnamed
from palaver.transcripts.file_reader import beginning, plain, steps_of

if TYPE_CHECKING:
    from palaver.store.store import Progress
    from palaver.transcripts import Transcript, TranscriptFormat

_logger: Final = logging.getLogger(__name__)
_TARGETS: Final = ("codex", "openai_messages", "claude_code")
"""The formats that a conversation is written in: the first two of them that are not its own."""
_CONVERSIONS: Final = 2
_MAX_FAULTS: Final = 200
_COUNTERS: Final = ("input", "cache_read", "cache_write", "output", "reasoning")


class Fault(Struct, frozen=True):
    """What is wrong with a file."""

    file: str
    format: str | None
    reason: str

    def __str__(self) -> str:
        """The file, its format and the reason."""
        return f"{self.file}{'' if self.format is None else f' ({self.format})'}: {self.reason}"


class FormatRow(Struct, frozen=True):
    """What was found in the files of a format. ``same_bytes`` is ``None`` when the format does not promise them.

    ``confidence`` is the lowest with which a file was recognised; ``unread`` is how many contents are in no message.
    """

    format: str
    files: int = 0
    recognised: int = 0
    confidence: float | None = None
    same_bytes: int | None = None
    conversions: int = 0
    converted: int = 0
    conversations: int = 0
    unread: int = 0
    faults: int = 0
    counts: Counts = Counts()
    usage: Usage = Usage()

    def __add__(self, other: FormatRow) -> FormatRow:
        """Return the row of the files of both."""
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        known = [each.confidence for each in (self, other) if each.confidence is not None]
        same = [each.same_bytes for each in (self, other) if each.same_bytes is not None]
        return FormatRow(
            format=self.format,
            confidence=min(known, default=None),
            same_bytes=sum(same) if same else None,
            **sums,
        )

    def plain(self) -> dict[str, Any]:
        """Return the row with its counts and its usage as fields of their own."""
        fields = structs.asdict(self)
        counts, usage = structs.asdict(fields.pop("counts")), fields.pop("usage")
        faults = fields.pop("faults")
        return {**fields, **counts, **{name: getattr(usage, name) for name in _COUNTERS}, "faults": faults}


_SUMMED: Final = (
    "files",
    "recognised",
    "conversions",
    "converted",
    "conversations",
    "unread",
    "faults",
    "counts",
    "usage",
)


class Checked(Struct):
    """The rows by format, the faults, and how many files are no transcripts. Not every fault is in ``listed``."""

    rows: dict[str, FormatRow]
    listed: list[Fault]
    faults: int = 0
    other: int = 0
    skipped: int = 0

    def add(self, row: FormatRow, faults: Sequence[Fault]) -> None:
        """Add a file."""
        row = structs.replace(row, faults=len(faults))
        before = self.rows.get(row.format)
        self.rows[row.format] = row if before is None else before + row
        self.add_faults(faults)

    def add_faults(self, faults: Sequence[Fault]) -> None:
        """Count faults, and list the first of all."""
        self.faults += len(faults)
        self.listed.extend(faults[: max(0, _MAX_FAULTS - len(self.listed))])


def check(named: Sequence[str], report: Progress | None) -> Checked:
    """Check every file in folders, or named files."""
    walk, checked = Walk(named, lambda file: Path(file).is_file()), Checked({}, [])
    found = list(walk)
    meter = Meter(found, report)
    for name in found:
        _check_file(name, checked)
        meter.finish(name)
    checked.add_faults([Fault(files.display_name(str(each.filename)), None, _cause(each)) for each in walk.failures])
    checked.skipped = walk.skipped
    return checked


def _check_file(name: str, checked: Checked) -> None:
    place = files.display_name(name)
    try:
        likely = [each for each in transcripts.detect(beginning(name), name) if each.confidence > CERTAIN]
    except (OSError, PalaverError) as error:
        checked.add_faults([Fault(place, None, _cause(error))])
        return
    if not likely:
        checked.other += 1
        return
    first = likely[0]
    promised = transcripts.get(first.file_format).fidelity == "bytes"
    row = FormatRow(first.file_format, files=1, confidence=first.confidence, same_bytes=0 if promised else None)
    if len(likely) > 1:
        either = " or ".join(f"{each.file_format} ({each.confidence:g})" for each in likely)
        checked.add(row, [Fault(place, first.file_format, f"not recognised: this may be {either}")])
        return
    file_format, reasons = transcripts.get(first.file_format), list[str]()
    row = _guarded("cannot be read", lambda: _check_contents(name, file_format, row, reasons), reasons) or row
    row = structs.replace(row, recognised=1)
    checked.add(row, [Fault(place, file_format.name, each) for each in reasons])


def _check_contents(name: str, file_format: TranscriptFormat, row: FormatRow, reasons: list[str]) -> FormatRow:
    """Read a file and write it. Return its row; what is wrong is added to ``reasons``."""
    data = plain(name)
    found, unknown = collected(with_messages(steps_of(file_format, io.BytesIO(data), name)))
    targets = [each for each in _TARGETS if each != file_format.name][:_CONVERSIONS]
    wrong = [why for target in targets if (why := _wrong_conversion(found, target)) is not None]
    same = _same_bytes(file_format, found, data, reasons) if file_format.fidelity == "bytes" else None
    reasons.extend(wrong)
    return structs.replace(
        row,
        same_bytes=same,
        conversions=len(targets),
        converted=len(targets) - len(wrong),
        conversations=len(found),
        unread=sum(each.count for each in unknown if each.kind in _UNREAD),
        counts=sum((counts_of_entries(each.thread.entries) for each in found), Counts()),
        usage=usage_of(*(each.thread for each in found)).total,
    )


_UNREAD: Final = frozenset(("unread", "type", "garbage", "torn"))


def _same_bytes(file_format: TranscriptFormat, found: Sequence[Transcript], data: bytes, reasons: list[str]) -> int:
    body = _guarded("cannot be written unedited", lambda: file_format.write_many(found).body, reasons)
    if body is not None and body != data:
        reasons.append(f"not the same bytes: {_first_difference(data, body)}")
    return int(body == data)


def _wrong_conversion(found: Sequence[Transcript], target: str) -> str | None:
    """Return what is wrong with the conversations in another format; ``None`` when nothing is."""
    for number, each in enumerate(found, 1):
        reasons: list[str] = []
        differing = _guarded("", partial(_differing, each, target), reasons)
        if reasons or differing:
            which = "" if len(found) == 1 else f"conversation {number} "
            return f"{which}to {target}: {differing or reasons[0].removeprefix(': ')}"
    return None


def _differing(transcript: Transcript, target: str) -> str | None:
    """Return the counts that differ and that the receipt does not name."""
    file_format = transcripts.get(target)
    written = file_format.write(transcript)
    counted = tally(file_format, [transcript], written)
    silent = unnamed(counted, written.losses)
    return f"not on the receipt: {', '.join(map(counted.pair, silent))}" if silent else None


def _guarded(what: str, work: Callable[[], Any], reasons: list[str]) -> Any:
    """Return the result of a piece of work; ``None`` when it failed, with the reason added."""
    try:
        return work()
    except (click.ClickException, PalaverError, OSError) as error:
        reasons.append(f"{what}: {_cause(error)}")
    except Exception as error:  # one bad file never stops a folder
        _logger.debug("%s", what, exc_info=True)
        reasons.append(f"{what}: {type(error).__name__}: {error}; this is a bug in palaver")
    return None


def _cause(error: Exception) -> str:
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else " ".join(str(error).split())


def _first_difference(given: bytes, written: bytes) -> str:
    at = next((place for place, (one, other) in enumerate(zip(given, written, strict=False)) if one != other), None)
    place = min(len(given), len(written)) if at is None else at
    return f"{len(given):,} read, {len(written):,} written, the first difference at byte {place:,}"


_COLUMNS: Final = (
    Column("format"),
    Column("files", "right"),
    Column("recognised", "right"),
    Column("same bytes", "right"),
    Column("conversions", "right"),
    Column("messages", "right", optional=True),
    Column("tokens", "right", optional=True),
    Column("unread", "right", optional=True),
    Column("faults", "right"),
)


def listing(found: Sequence[FormatRow]) -> Listing:
    """Return the rows as a table."""
    made = Listing(*_COLUMNS, padding=2)
    for row in found:
        numbers = (row.counts.messages, row.usage.total, row.unread, row.faults)
        same = NO if row.same_bytes is None else f"{row.same_bytes:,}"
        done = f"{row.converted:,} of {row.conversions:,}"
        made.add(row.format, f"{row.files:,}", f"{row.recognised:,}", same, done, *(f"{each:,}" for each in numbers))
    return made


def summary(found: Checked) -> str:
    """Return the totals on one line."""
    every = sum(row.files for row in found.rows.values())
    pieces = [f"{count(every, 'transcript')} in {count(len(found.rows), 'format')}"]
    pieces.extend([f"{found.other:,} other"] if found.other else [])
    pieces.extend([f"{found.skipped:,} skipped (hidden, or no file)"] if found.skipped else [])
    return f"{', '.join(pieces)}; {count(found.faults, 'fault') if found.faults else 'no fault'}"
