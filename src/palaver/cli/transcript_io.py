"""Which transcript format a file is written in, and the conversations in it.

Rules:

- The transcript format is the one that was named, else the one that is recognised by name and first bytes. A file
  that several may have written is refused with their names.
- A file that may as well be the body of a request (``CERTAIN``) is left to the wires, which look closer.

Conversations written in a transcript format, for ``convert`` and ``export``.

Rules:

- A transcript format whose files hold several conversations gets all of them in one; any other gets a file each, in
  the folder that ``-o`` names.
- Files that belong beside one (media, what a sub-agent said) are written beside it, so they need ``-o`` too.
- ``--losses raise`` writes nothing when there is a loss.

Stability: experimental.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal

import click
from msgspec import Struct, structs

from palaver import transcripts
from palaver.cli import files, receipt
from palaver.cli.terminal import bad_input, count, echo
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message
from palaver.core.request import Request
from palaver.transcripts.conversation import Noted, Transcript, collected, transcript_of, with_messages
from palaver.transcripts.file_reader import steps_of
from palaver.transcripts.unknown_fields import losses_of
from palaver.transcripts.writer import Written, chosen_history

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from palaver.cli.source import Source
    from palaver.transcripts import Step, TranscriptFormat, UnknownFields
    from palaver.transcripts.writer import History


# --- spoken -----------------------------------------------------------------------------------------------------------


CERTAIN: Final = 0.5
_SHOWN: Final = 12


class Spoken(Struct, frozen=True):
    """The conversations of a file, and what it held that its transcript format does not foresee."""

    file_format: str
    transcripts: tuple[Transcript, ...]
    unknown: tuple[UnknownFields, ...]


def format_of(head: bytes, name: str, named: str | None) -> TranscriptFormat | None:
    """The transcript format of a file that begins so; ``None`` when it is none, or a wire was named.

    Raises ``click.ClickException`` when it may be several.
    """
    if named is not None:
        return transcripts.get(named) if named in transcripts.names() else None
    found = [each for each in transcripts.detect(head, name) if each.confidence > CERTAIN]
    if not found:
        return None
    if len(found) > 1:
        either = " or ".join(each.file_format for each in found)
        bad_input(files.shown(name), f"this may be of {either}; say which with --from")
    return transcripts.get(found[0].file_format)


def read(data: bytes, name: str, named: str | None) -> Spoken | None:
    """Read a file's conversations; ``None`` when it is of no transcript format. Raises ``click.ClickException``."""
    file_format = format_of(data, name, named)
    if file_format is None:
        return None
    try:
        transcripts, unknown = collected(
            with_messages(steps_of(file_format, io.BytesIO(data), "" if name == files.STANDARD else name))
        )
    except (PalaverError, OSError) as error:
        bad_input(files.shown(name), error)
    return Spoken(file_format.name, transcripts, unknown)


def steps(file_format: TranscriptFormat, file: BinaryIO, name: str, unknown: list[UnknownFields]) -> Iterator[Step]:
    """The steps of a file, but for the report, which is put into a list."""
    for step in steps_of(file_format, file, name):
        if isinstance(step, Noted):
            unknown.extend(step.unknown)
        else:
            yield step


def report(name: str, unknown: Iterable[UnknownFields]) -> None:
    """Say on standard error what a file held that its transcript format does not foresee."""
    lines = [str(each) for each in unknown]
    for line in lines[:_SHOWN]:
        echo(f"{files.shown(name)}: {line}; kept", err=True)
    if len(lines) > _SHOWN:
        echo(f"{files.shown(name)}: {len(lines) - _SHOWN} more of that kind; kept", err=True)


# --- respeaking -------------------------------------------------------------------------------------------------------


history: Final = click.option(
    "--history",
    type=click.Choice(("model", "user", "all")),
    help="What to write of a session: what its model sees, what its user saw, or all.",
)


def chosen_transcripts(source: Source, number: int | None, place: str) -> Sequence[Transcript]:
    """The conversations of a source. Raises ``click.ClickException`` for a number that there is not."""
    if source.spoken is None:
        value = source.value
        messages = value.messages if isinstance(value, Request) else (value.message,)
        return (transcript_of(messages),)
    found = source.spoken.transcripts
    if number is None:
        return found
    if number > len(found):
        bad_input(place, f"there is no conversation {number}; there are {len(found)}")
    return found[number - 1 : number]


def for_wire(source: Source, number: int | None, branch: str, wanted: History | None, place: str) -> Source:
    """A source with the one conversation that a wire can be told. Raises ``click.ClickException`` for more of them."""
    if source.spoken is None:
        return source
    report(place, source.spoken.unknown)
    found = chosen_transcripts(source, number, place)
    if len(found) > 1:
        bad_input(place, f"there are {len(found)} conversations; say which with --conversation")
    entries = chosen_history(found[0].thread.path(branch), wanted or "model")
    return structs.replace(
        source,
        value=request_of([entry.message for entry in entries]),
        spoken=None,
        unread=losses_of(source.spoken.unknown),
    )


def request_of(messages: Sequence[Message]) -> Request:
    """A request that goes on with a conversation: to the model that answered last."""
    models = (each.model for each in reversed(messages) if isinstance(each, AssistantMessage))
    return Request(messages=tuple(messages), model=next((each for each in models if each is not None), None))


def written(
    chosen: Sequence[Transcript], target: str, output: str, *, history: History | None, branch: str
) -> Mapping[str, Written]:
    """Write conversations in a transcript format, each file by its name."""
    file_format = transcripts.get(target)
    if len(chosen) == 1 or file_format.many:
        return {output: file_format.write_many(chosen, history=history, branch=branch)}
    if output == files.STANDARD or not (output.endswith(os.sep) or Path(output).is_dir()):
        bad_input(target, f"{len(chosen)} conversations are {len(chosen)} files; name a folder with -o FOLDER/")
    once = (chosen[0], *(structs.replace(each, unread=()) for each in chosen[1:]))
    made = {f"{each.thread.id}{file_format.extension}": each for each in once}
    return {
        str(Path(output) / name): file_format.write(each, history=history, branch=branch) for name, each in made.items()
    }


def deliver(
    made: Mapping[str, Written],
    source: Source,
    target: str,
    output: str,
    *,
    losses: Literal["show", "json", "raise"],
    place: str,
) -> int:
    """Write the files, and show the receipt; give the exit code."""
    if source.spoken is not None:
        report(place, source.spoken.unknown)
    lost = tuple([loss for each in made.values() for loss in each.losses])
    about = f"{source.wire} → {target}: {count(len(made), 'file')}, " + (
        count(len(lost), "thing") + f" not carried as {'it was' if len(lost) == 1 else 'they were'}"
        if lost
        else "nothing lost"
    )
    if losses == "raise" and lost:
        echo(f"{about}; nothing was written", err=True)
        receipt.show(lost)
        return 1
    if output == files.STANDARD and (beside := [name for each in made.values() for name in each.beside]):
        bad_input(target, f"{count(len(beside), 'file')} belong beside this one; name it with -o")
    for name, each in made.items():
        if name != files.STANDARD:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
        for relative, data in each.beside.items():
            besides = Path(name).parent / relative
            besides.parent.mkdir(parents=True, exist_ok=True)
            files.write(str(besides), data)
        with files.writing(name) as out:
            for chunk in each.chunks:
                out.write(chunk)
    if losses == "json":
        echo(receipt.as_json(lost), nl=False, err=True)
    else:
        echo(about, err=True)
        receipt.show(lost)
    return 0
