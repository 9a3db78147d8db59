"""Conversations written in a dialect, for ``convert`` and ``export``.

Rules:

- A dialect whose files hold several conversations gets all of them in one; any other gets a file each, in the folder
  that ``-o`` names.
- Files that belong beside one (media, what a sub-agent said) are written beside it, so they need ``-o`` too.
- ``--losses raise`` writes nothing when there is a loss.

Stability: experimental.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click
from msgspec import structs

from palaver import dialects
from palaver.cli import files, receipt, spoken
from palaver.cli.failure import bad_input
from palaver.cli.figures import count
from palaver.cli.harmless import echo
from palaver.core.messages import AssistantMessage, Message
from palaver.core.request import Request
from palaver.dialects.conversation import Transcript, transcript_of
from palaver.dialects.drift import losses_of
from palaver.dialects.writing import Written, chosen_history

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.cli.source import Source
    from palaver.dialects.writing import History

history: Final = click.option(
    "--history",
    type=click.Choice(("model", "user", "all")),
    help="What to write of a session: what its model sees, what its user saw, or all.",
)


def transcripts(source: Source, number: int | None, place: str) -> Sequence[Transcript]:
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
    spoken.report(place, source.spoken.drift)
    found = transcripts(source, number, place)
    if len(found) > 1:
        bad_input(place, f"there are {len(found)} conversations; say which with --conversation")
    entries = chosen_history(found[0].thread.path(branch), wanted or "model")
    return structs.replace(
        source,
        value=request_of([entry.message for entry in entries]),
        spoken=None,
        unread=losses_of(source.spoken.drift),
    )


def request_of(messages: Sequence[Message]) -> Request:
    """A request that goes on with a conversation: to the model that answered last."""
    models = (each.model for each in reversed(messages) if isinstance(each, AssistantMessage))
    return Request(messages=tuple(messages), model=next((each for each in models if each is not None), None))


def written(
    chosen: Sequence[Transcript], target: str, output: str, *, history: History | None, branch: str
) -> Mapping[str, Written]:
    """Write conversations in a dialect, each file by its name."""
    dialect = dialects.get(target)
    if len(chosen) == 1 or dialect.many:
        return {output: dialect.write_many(chosen, history=history, branch=branch)}
    if output == files.STANDARD or not (output.endswith(os.sep) or Path(output).is_dir()):
        bad_input(target, f"{len(chosen)} conversations are {len(chosen)} files; name a folder with -o FOLDER/")
    once = (chosen[0], *(structs.replace(each, unread=()) for each in chosen[1:]))
    made = {f"{each.thread.id}{dialect.extension}": each for each in once}
    return {
        str(Path(output) / name): dialect.write(each, history=history, branch=branch) for name, each in made.items()
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
        spoken.report(place, source.spoken.drift)
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
