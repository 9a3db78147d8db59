"""Read and write conversations in transcript formats.

- The format of a file is the one that the user named, else the one that its name and first bytes show. A file that fits
  several formats is refused with their names. A file that may also be a request body (``CERTAIN``) is left to the
  wires.
- A format whose files hold several conversations gets all of them in one file. Any other gets one file for each, in the
  folder of ``-o``.
- Files that belong beside the output (media, sub-agents) are written beside it, so they need ``-o`` too.
- ``--losses raise`` writes nothing when there is a loss.
- What was written is read again, and the receipt has the counts of both sides. Nothing is lost when they are equal and
  nothing is on the list.

Stability: experimental.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal

import click
from msgspec import Struct, structs

from palaver import transcripts
from palaver.cli import files, receipt
from palaver.cli.suggestions import Choice
from palaver.cli.terminal import bad_input, count, echo
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message
from palaver.core.request import Request
from palaver.transcripts.conversation import Noted, Transcript, collected, transcript_of, with_messages
from palaver.transcripts.counts import Tally, tally, total
from palaver.transcripts.file_reader import steps_of
from palaver.transcripts.unknown_fields import losses_of
from palaver.transcripts.writer import Written, chosen_history

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from palaver.cli.source import Source
    from palaver.core.request import Loss
    from palaver.transcripts import Step, TranscriptFormat, UnknownFields
    from palaver.transcripts.writer import History


CERTAIN: Final = 0.5
_MAX_REPORTED: Final = 12


class Made(Struct, frozen=True):
    """The files of a conversion by name, and the counts of each."""

    outputs: Mapping[str, Written]
    tallies: tuple[Tally, ...]

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The receipts of all files."""
        return tuple([loss for each in self.outputs.values() for loss in each.losses])


class TranscriptFile(Struct, frozen=True):
    """The conversations of a file, and its fields that its transcript format does not know."""

    file_format: str
    transcripts: tuple[Transcript, ...]
    unknown: tuple[UnknownFields, ...]


def format_of(head: bytes, name: str, requested: str | None) -> TranscriptFormat | None:
    """Return the transcript format of a file with these first bytes; ``None`` for no format, or when a wire was named.

    Raises ``click.ClickException`` when several formats fit.
    """
    if requested is not None:
        return transcripts.get(requested) if requested in transcripts.names() else None
    chosen = [each for each in transcripts.detect(head, name) if each.confidence > CERTAIN]
    if not chosen:
        return None
    if len(chosen) > 1:
        either = " or ".join(each.file_format for each in chosen)
        bad_input(files.display_name(name), f"this may be {either}; choose one with --from")
    return transcripts.get(chosen[0].file_format)


def read(data: bytes, name: str, requested: str | None) -> TranscriptFile | None:
    """Read a file's conversations; ``None`` when it is in no transcript format. Raises ``click.ClickException``."""
    file_format = format_of(data, name, requested)
    if file_format is None:
        return None
    try:
        conversations, unknown = collected(
            with_messages(steps_of(file_format, io.BytesIO(data), "" if name == files.STDIO else name))
        )
    except (PalaverError, OSError) as error:
        bad_input(files.display_name(name), error)
    return TranscriptFile(file_format.name, conversations, unknown)


def steps(file_format: TranscriptFormat, file: BinaryIO, name: str, unknown: list[UnknownFields]) -> Iterator[Step]:
    """Yield the steps of a file. Unknown fields are added to ``unknown`` instead."""
    for step in steps_of(file_format, file, name):
        if isinstance(step, Noted):
            unknown.extend(step.unknown)
        else:
            yield step


def report_unknown(name: str, unknown: Iterable[UnknownFields]) -> None:
    """Print the unknown fields of a file on standard error."""
    lines = [str(each) for each in unknown]
    for line in lines[:_MAX_REPORTED]:
        echo(f"{files.display_name(name)}: {line}; kept", err=True)
    if len(lines) > _MAX_REPORTED:
        echo(f"{files.display_name(name)}: {len(lines) - _MAX_REPORTED} more unknown fields; kept", err=True)


history: Final = click.option(
    "--history",
    type=Choice(("model", "user", "all")),
    help="Which messages of a session to write: those that its model sees, those that its user saw, or all.",
)


def chosen_transcripts(source: Source, number: int | None, place: str) -> Sequence[Transcript]:
    """Return the conversations of a source. Raises ``click.ClickException`` for a number out of range."""
    if source.transcript_file is None:
        value = source.value
        messages = value.messages if isinstance(value, Request) else (value.message,)
        return (transcript_of(messages),)
    chosen = source.transcript_file.transcripts
    if number is None:
        return chosen
    if number > len(chosen):
        bad_input(place, f"there is no conversation {number}; there are {len(chosen)}")
    return chosen[number - 1 : number]


def for_wire(source: Source, number: int | None, branch: str, wanted: History | None, place: str) -> Source:
    """Return a source with one conversation for a wire. Raises ``click.ClickException`` when there are several."""
    if source.transcript_file is None:
        return source
    report_unknown(place, source.transcript_file.unknown)
    chosen = chosen_transcripts(source, number, place)
    if len(chosen) > 1:
        bad_input(place, f"there are {len(chosen)} conversations; choose one with --conversation")
    entries = chosen_history(chosen[0].thread.path(branch), wanted or "model")
    return structs.replace(
        source,
        value=request_of([entry.message for entry in entries]),
        transcript_file=None,
        unread=losses_of(source.transcript_file.unknown),
    )


def request_of(messages: Sequence[Message]) -> Request:
    """Return a request that continues a conversation with the model that answered last."""
    return Request(messages=tuple(messages), model=answered_model(messages))


def answered_model(messages: Sequence[Message]) -> str | None:
    """Return the model that answered last; ``None`` where no answer names one."""
    return next((each.model for each in reversed(messages) if isinstance(each, AssistantMessage) and each.model), None)


def write_transcripts(
    chosen: Sequence[Transcript], target: str, output: str, *, history: History | None, branch: str
) -> Made:
    """Encode conversations in a transcript format, and count what is in each file."""
    file_format = transcripts.get(target)
    if len(chosen) == 1 or file_format.many:
        written = file_format.write_many(chosen, history=history, branch=branch)
        return Made({output: written}, (tally(file_format, chosen, written, history=history, branch=branch),))
    if output == files.STDIO or not (output.endswith(os.sep) or Path(output).is_dir()):
        bad_input(target, f"{len(chosen)} conversations are {len(chosen)} files; name a folder with -o FOLDER/")
    once = (chosen[0], *(structs.replace(each, unread=()) for each in chosen[1:]))
    outputs = {f"{each.thread.id}{file_format.extension}": each for each in once}
    made = {
        str(Path(output) / name): file_format.write(each, history=history, branch=branch)
        for name, each in outputs.items()
    }
    counted = [
        tally(file_format, [each], written, history=history, branch=branch)
        for each, written in zip(outputs.values(), made.values(), strict=True)
    ]
    return Made(made, tuple(counted))


def deliver(
    made: Made,
    source: Source,
    target: str,
    output: str,
    *,
    losses: Literal["show", "json", "raise"],
    place: str,
) -> int:
    """Write the files and show the receipt. Return the exit code."""
    if source.transcript_file is not None:
        report_unknown(place, source.transcript_file.unknown)
    about = summary(source.wire, target, len(made.outputs), len(made.losses), made.tallies)
    if losses == "raise" and not complete(made.losses, made.tallies):
        echo(f"{about}; nothing was written", err=True)
        show_counts(made.tallies)
        receipt.show(made.losses)
        return 1
    if output == files.STDIO and (beside := [name for each in made.outputs.values() for name in each.beside]):
        bad_input(target, f"{count(len(beside), 'file')} belong beside this one; name it with -o")
    write_files(made.outputs)
    show_receipt(about, made.losses, made.tallies, losses)
    return 0


def complete(lost: Sequence[Loss], tallies: Sequence[Tally]) -> bool:
    """Return whether nothing was lost: nothing is on the list, and the counts of every file are equal."""
    return not lost and all(each.equal for each in tallies)


def summary(source: str, target: str, written: int, lost: int, tallies: Sequence[Tally]) -> str:
    """Return one line that says what was converted into what."""
    left = f"{count(lost, 'thing')} not carried as {'it was' if lost == 1 else 'they were'}"
    if not lost:
        left = "nothing lost" if complete((), tallies) else "the counts differ"
    return f"{source} → {target}: {count(written, 'file')}, {left}"


def show_counts(tallies: Sequence[Tally]) -> None:
    """Show the counts before and after on standard error."""
    echo(f"  {total(tallies)}", err=True)


def show_receipt(
    about: str, lost: Sequence[Loss], tallies: Sequence[Tally], losses: Literal["show", "json", "raise"]
) -> None:
    """Show what was lost on standard error, under a line about it and the counts, or as JSON."""
    if losses == "json":
        echo(receipt.as_json(lost), nl=False, err=True)
    else:
        echo(about, err=True)
        show_counts(tallies)
        receipt.show(lost)


def write_files(outputs: Mapping[str, Written]) -> None:
    """Write files by their names, and those that belong beside them."""
    for name, each in outputs.items():
        if name != files.STDIO:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
        for relative, data in each.beside.items():
            besides = Path(name).parent / relative
            besides.parent.mkdir(parents=True, exist_ok=True)
            files.write(str(besides), data)
        with files.open_output(name) as out:
            for chunk in each.chunks:
                out.write(chunk)
