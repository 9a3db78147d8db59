"""The terminal that commands draw on.

Rules:

- Width is the terminal's, 80 when there is none; ``COLUMNS`` says otherwise, unless it is 0. What is narrower than
  ``NARROWEST`` is drawn for that width, and the terminal breaks its lines: so no table cuts a name or shows nothing.
- Colour goes to terminals only, and ``NO_COLOR`` turns it off.
- What is drawn is made harmless as it is drawn, so that only Rich steers the terminal (``palaver.cli.terminal``).
- Rich is imported when something is drawn: it takes more time than a conversion.

Text that cannot steer the terminal, nor end a command. All text of the command line goes through here.

Rules:

- Commands write lines with ``echo``, drawings with the consoles of ``palaver.cli.terminal``, and data with
  ``palaver.cli.files``; what they write is made harmless there, whoever wrote it. Nothing else writes to the terminal
  (a test looks for it).
- Data for programs is left as it is in a file or a pipe; at a terminal ``ToTerminal`` escapes it as JSON does.

- What a message, a name or a file says is shown as it is, but for what would steer the terminal: control characters are
  shown as pictures, lone surrogates as ``�``.
- What the terminal's encoding cannot write becomes ``?``.

Numbers and times for people.

JSON for people.

Times as people type them.

Rules:

- ``2026-11-20`` is the beginning of that day, here; ``2026-11-20T14:30`` a time, here, or where its offset says
  (``+01:00``, ``Z``). ``7d`` is so long ago: minutes (``m``), hours (``h``), days (``d``) or weeks (``w``).

How a command ends early.

Stability: experimental.
"""

from __future__ import annotations

import codecs
import io
import logging
import re
import sys
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Final, Never, TextIO

import click
import msgspec

from palaver.core.errors import excerpt
from palaver.threads.ids import now_ms

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment


# --- harmless ---------------------------------------------------------------------------------------------------------


# C0 and C1 controls, except tab and line break, and the marks that turn the direction of text around.
_PICTURES: Final = (
    {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
    | {0x7F: "␡"}
    | dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000)], "�")
)


# DEL, C1 controls, and the marks that turn the direction of text around: in JSON, they stand in strings only.
_ESCAPES: Final = {
    code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def safe(text: str) -> str:
    """Make text harmless to a terminal. Line ends of other systems become plain ones."""
    return text.replace("\r\n", "\n").translate(_PICTURES)


def in_line(text: str) -> str:
    """Make text harmless that must stay on its line."""
    return safe(text).replace("\n", "␊").replace("\t", "␉")


def safe_json(text: str) -> str:
    """Make JSON harmless to a terminal; it stays the same JSON."""
    return text.translate(_ESCAPES)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Write text to standard output, or standard error, at once."""
    print(safe(text), end="\n" if nl else "", file=sys.stderr if err else sys.stdout, flush=True)


class ToTerminal(io.BufferedIOBase):
    """Writes data to the terminal at standard output: JSON stays JSON, and what else steers is shown as a picture."""

    def __init__(self) -> None:
        """Write UTF-8, which may come cut anywhere."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        """Say that it is written to."""
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        """Write bytes; gives how many were taken, which is all."""
        taken = bytes(data)
        sys.stdout.write(safe(safe_json(self._decoder.decode(taken))))
        return len(taken)

    def flush(self) -> None:
        """Let the terminal have it."""
        sys.stdout.flush()


class _Logged(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return safe(super().format(record))


def harmless_logs() -> None:
    """Make harmless what is logged while nobody has set up a log, which Python writes to standard error."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Logged())


def forgiving(stream: TextIO) -> None:
    """Let a stream replace what its encoding cannot write, or read: before anything is read."""
    if (adapt := getattr(stream, "reconfigure", None)) is not None:
        adapt(errors="replace")


# --- screen -----------------------------------------------------------------------------------------------------------


NARROWEST: Final = 40
_WIDTH: Final = 80


@cache
def _console() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class Harmless(Console):
        """Draws harmless text, and leaves it to the command line what happens when the reader goes away."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            """Draw something as pieces of text, each harmless."""
            for segment in super().render(renderable, options):
                text, style, control = segment
                shown = text if control else safe(text)
                yield segment if shown == text else Segment(shown, style)

        def on_broken_pipe(self) -> Never:
            """Be called inside the handler of the error."""
            raise BrokenPipeError

    return Harmless


def console() -> Console:
    """Draw on standard output."""
    forgiving(sys.stdout)
    return _wide(_console()(highlight=False, emoji=False, markup=False, soft_wrap=False))


def errors() -> Console:
    """Draw on standard error."""
    forgiving(sys.stderr)
    return _wide(_console()(stderr=True, highlight=False, emoji=False, markup=False, soft_wrap=False))


def _wide(made: Console) -> Console:
    if made.width < NARROWEST:
        made.width = NARROWEST if made.width else _WIDTH
    return made


# --- figures ----------------------------------------------------------------------------------------------------------


_KIB: Final = 1024


def count(number: int, thing: str) -> str:
    """``1 message``, ``2,000 messages``."""
    if number != 1:
        thing = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}es" if thing.endswith("ch") else f"{thing}s"
    return f"{number:,} {thing}"


def size(number: int) -> str:
    """``17 B``, ``1.5 KB``, ``2.0 MB``."""
    if number < _KIB:
        return f"{number} B"
    return f"{number / _KIB:.1f} KB" if number < _KIB * _KIB else f"{number / _KIB / _KIB:.1f} MB"


def when(at: int | None) -> str:
    """A time in Unix milliseconds, as the clock on the wall shows it: ``2026-11-20 22:10``."""
    if at is None:
        return ""
    try:
        return datetime.fromtimestamp(at / 1000).astimezone().strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):  # a message may say any number
        return str(at)


# --- pretty -----------------------------------------------------------------------------------------------------------


def indented(line: bytes, indent: int = 2) -> bytes:
    """Indent one JSON value, by 0 for a single line; numbers and text stay as they are written.

    What the formatter refuses stays as it is.
    """
    try:
        return msgspec.json.format(line, indent=indent)
    except msgspec.DecodeError:  # an escaped lone surrogate
        return line


# --- times ------------------------------------------------------------------------------------------------------------


_AGO: Final = re.compile(r"([0-9]{1,6})([mhdw])")
_MINUTES: Final = {"m": 1, "h": 60, "d": 24 * 60, "w": 7 * 24 * 60}


def moment(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """Read a time into Unix milliseconds: a callback of an option."""
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        return now_ms() - int(ago[1]) * _MINUTES[ago[2]] * 60_000
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{excerpt(text)!r} is no time such as 2026-11-20, 2026-11-20T14:30 or 7d") from None


# --- failure ----------------------------------------------------------------------------------------------------------


def bad_input(place: str, cause: object) -> Never:
    """End the command with exit code 1, and one line that names the place and the cause."""
    raise click.ClickException(f"{place}: {cause}")
