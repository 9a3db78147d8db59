"""Text that cannot steer the terminal, nor end a command. All text of the command line goes through here.

Rules:

- Commands write lines with ``echo``, drawings with the consoles of ``palaver.cli.screen``, and data with
  ``palaver.cli.files``; what they write is made harmless there, whoever wrote it. Nothing else writes to the terminal
  (a test looks for it).
- Data for programs is left as it is in a file or a pipe; at a terminal ``ToTerminal`` escapes it as JSON does.

- What a message, a name or a file says is shown as it is, but for what would steer the terminal: control characters are
  shown as pictures, lone surrogates as ``�``.
- What the terminal's encoding cannot write becomes ``?``.

Stability: experimental.
"""

from __future__ import annotations

import codecs
import io
import logging
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

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
