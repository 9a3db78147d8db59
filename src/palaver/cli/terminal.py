"""Text, tables, numbers and times for the terminal, and errors that end a command.

- Commands write lines with ``echo``, drawings with the consoles below, and data with ``palaver.cli.files``. All of them
  sanitize their text, and nothing else writes to the terminal (a test checks that): control characters become pictures,
  lone surrogates become ``�``, and a character outside the terminal's encoding becomes ``?``.
- Data is written unchanged to a file or a pipe. At a terminal ``TerminalWriter`` escapes it as JSON does.
- The width is the terminal's, ``COLUMNS``, or 80. A narrower terminal than ``NARROWEST`` breaks the lines itself.
- Colours are for terminals only; ``NO_COLOR`` turns them off.
- Rich is imported only when something is drawn: the import takes more time than a conversion.

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
    """Replace control characters in text. CRLF becomes a line feed."""
    return text.replace("\r\n", "\n").translate(_PICTURES)


def safe_line(text: str) -> str:
    """Replace control characters in text that must stay on one line."""
    return safe(text).replace("\n", "␊").replace("\t", "␉")


def safe_json(text: str) -> str:
    """Escape control characters in JSON text. The value stays the same."""
    return text.translate(_ESCAPES)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Write text to standard output or standard error, and flush."""
    print(safe(text), end="\n" if nl else "", file=sys.stderr if err else sys.stdout, flush=True)


class TerminalWriter(io.BufferedIOBase):
    """Writes sanitized data to the terminal at standard output. JSON stays JSON."""

    def __init__(self) -> None:
        """Write UTF-8, which may be split anywhere."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        """Return ``True``."""
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        """Write bytes. Return their number."""
        written = bytes(data)
        sys.stdout.write(safe(safe_json(self._decoder.decode(written))))
        return len(written)

    def flush(self) -> None:
        """Flush standard output."""
        sys.stdout.flush()


class _SafeFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return safe(super().format(record))


def sanitize_logs() -> None:
    """Sanitize log records that Python writes to standard error when no handler is set up."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_SafeFormatter())


def replace_encoding_errors(stream: TextIO) -> None:
    """Let a stream replace characters that its encoding cannot write or read. Call it before the first read."""
    if (adapt := getattr(stream, "reconfigure", None)) is not None:
        adapt(errors="replace")


NARROWEST: Final = 40
_WIDTH: Final = 80


@cache
def _console() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        """Draws sanitized text. A closed pipe raises ``BrokenPipeError``."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            """Render as segments of sanitized text."""
            for segment in super().render(renderable, options):
                text, style, control = segment
                safe_text = text if control else safe(text)
                yield segment if safe_text == text else Segment(safe_text, style)

        def on_broken_pipe(self) -> Never:
            """Raise the error again: Rich calls this in its handler."""
            raise BrokenPipeError

    return SafeConsole


def console() -> Console:
    """Return a console on standard output."""
    replace_encoding_errors(sys.stdout)
    return _with_width(_console()(highlight=False, emoji=False, markup=False, soft_wrap=False))


def errors() -> Console:
    """Return a console on standard error."""
    replace_encoding_errors(sys.stderr)
    return _with_width(_console()(stderr=True, highlight=False, emoji=False, markup=False, soft_wrap=False))


def _with_width(created: Console) -> Console:
    if created.width < NARROWEST:
        created.width = NARROWEST if created.width else _WIDTH
    return created


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
    """Format Unix milliseconds as local time: ``2026-11-20 22:10``."""
    if at is None:
        return ""
    try:
        return datetime.fromtimestamp(at / 1000).astimezone().strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):  # a message may hold any number
        return str(at)


def indent_json(line: bytes, indent: int = 2) -> bytes:
    """Indent one JSON value; an indent of 0 gives a single line. Numbers and text keep their spelling.

    A value that the formatter refuses is returned unchanged.
    """
    try:
        return msgspec.json.format(line, indent=indent)
    except msgspec.DecodeError:  # an escaped lone surrogate
        return line


_AGO: Final = re.compile(r"([0-9]{1,6})([mhdw])")
_MINUTES: Final = {"m": 1, "h": 60, "d": 24 * 60, "w": 7 * 24 * 60}


def parse_time(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """Parse a time option into Unix milliseconds: ``2026-11-20``, ``2026-11-20T14:30``, ``7d`` (m, h, d or w ago)."""
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        return now_ms() - int(ago[1]) * _MINUTES[ago[2]] * 60_000
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"{excerpt(text)!r} is not a time such as 2026-11-20, 2026-11-20T14:30 or 7d"
        ) from None


def bad_input(place: str, cause: object) -> Never:
    """End the command with exit code 1 and one line that names the place and the cause."""
    raise click.ClickException(f"{place}: {cause}")
