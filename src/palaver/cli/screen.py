"""The terminal that commands draw on.

Rules:

- Width is the terminal's, 80 when there is none; ``COLUMNS`` says otherwise. Colour goes to terminals only, and
  ``NO_COLOR`` turns it off.
- What a message says cannot steer the terminal: control characters are shown as pictures, lone surrogates as ``�``.
- What the terminal's encoding cannot write becomes ``?``.

Stability: experimental.
"""

from __future__ import annotations

import sys
from typing import Final, Never

from rich.console import Console

# C0 and C1 controls, except tab and line break, and the marks that turn the direction of text around.
_PICTURES: Final = (
    {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
    | {0x7F: "␡"}
    | dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000)], "�")
)


class _Console(Console):
    """Leaves it to the command line what happens when the reader of the output goes away."""

    def on_broken_pipe(self) -> Never:
        """Be called inside the handler of the error."""
        raise BrokenPipeError


def console() -> Console:
    """Draw on standard output."""
    if (adapt := getattr(sys.stdout, "reconfigure", None)) is not None:
        adapt(errors="replace")
    return _Console(highlight=False, emoji=False, markup=False, soft_wrap=False)


def safe(text: str) -> str:
    """Make text harmless to a terminal. Line ends of other systems become plain ones."""
    return text.replace("\r\n", "\n").translate(_PICTURES)
