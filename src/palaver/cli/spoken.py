"""Which dialect a file is written in, and the conversations in it.

Rules:

- The dialect is the one that was named, else the one that is recognised by name and first bytes. A file that several
  may have written is refused with their names.
- A file that may as well be the body of a request (``CERTAIN``) is left to the wires, which look closer.

Stability: experimental.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, Final

from msgspec import Struct

from palaver import dialects
from palaver.cli import files
from palaver.cli.failure import bad_input
from palaver.cli.harmless import echo
from palaver.core.errors import PalaverError
from palaver.dialects.conversation import Noted, collected, with_messages
from palaver.dialects.opening import steps_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from palaver.dialects import Dialect, Drift, Step, Transcript

CERTAIN: Final = 0.5
_SHOWN: Final = 12


class Spoken(Struct, frozen=True):
    """The conversations of a file, and what it held that its dialect does not foresee."""

    dialect: str
    transcripts: tuple[Transcript, ...]
    drift: tuple[Drift, ...]


def dialect_of(head: bytes, name: str, named: str | None) -> Dialect | None:
    """The dialect of a file that begins so; ``None`` when it is none, or a wire was named.

    Raises ``click.ClickException`` when it may be several.
    """
    if named is not None:
        return dialects.get(named) if named in dialects.names() else None
    found = [each for each in dialects.detect(head, name) if each.confidence > CERTAIN]
    if not found:
        return None
    if len(found) > 1:
        either = " or ".join(each.dialect for each in found)
        bad_input(files.shown(name), f"this may be of {either}; say which with --from")
    return dialects.get(found[0].dialect)


def read(data: bytes, name: str, named: str | None) -> Spoken | None:
    """Read a file's conversations; ``None`` when it is of no dialect. Raises ``click.ClickException``."""
    dialect = dialect_of(data, name, named)
    if dialect is None:
        return None
    try:
        transcripts, drift = collected(
            with_messages(steps_of(dialect, io.BytesIO(data), "" if name == files.STANDARD else name))
        )
    except (PalaverError, OSError) as error:
        bad_input(files.shown(name), error)
    return Spoken(dialect.name, transcripts, drift)


def steps(dialect: Dialect, file: BinaryIO, name: str, drift: list[Drift]) -> Iterator[Step]:
    """The steps of a file, but for the report, which is put into a list."""
    for step in steps_of(dialect, file, name):
        if isinstance(step, Noted):
            drift.extend(step.drift)
        else:
            yield step


def report(name: str, drift: Iterable[Drift]) -> None:
    """Say on standard error what a file held that its dialect does not foresee."""
    lines = [str(each) for each in drift]
    for line in lines[:_SHOWN]:
        echo(f"{files.shown(name)}: {line}; kept", err=True)
    if len(lines) > _SHOWN:
        echo(f"{files.shown(name)}: {len(lines) - _SHOWN} more of that kind; kept", err=True)
