"""Text that cannot steer the terminal, nor end a command.

Rules:

- What a message, a name or a file says is shown as it is, but for what would steer the terminal: control characters are
  shown as pictures, lone surrogates as ``�``.
- What the terminal's encoding cannot write becomes ``?``.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final, TextIO

# C0 and C1 controls, except tab and line break, and the marks that turn the direction of text around.
_PICTURES: Final = (
    {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
    | {0x7F: "␡"}
    | dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000)], "�")
)


def safe(text: str) -> str:
    """Make text harmless to a terminal. Line ends of other systems become plain ones."""
    return text.replace("\r\n", "\n").translate(_PICTURES)


def in_line(text: str) -> str:
    """Make text harmless that must stay on its line."""
    return safe(text).replace("\n", "␊").replace("\t", "␉")


def forgiving(stream: TextIO) -> None:
    """Let a stream replace what its encoding cannot write, or read: before anything is read."""
    if (adapt := getattr(stream, "reconfigure", None)) is not None:
        adapt(errors="replace")
