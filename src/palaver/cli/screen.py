"""The terminal that commands draw on.

Rules:

- Width is the terminal's, 80 when there is none; ``COLUMNS`` says otherwise. Colour goes to terminals only, and
  ``NO_COLOR`` turns it off.
- What a message says cannot steer the terminal: control characters are shown as pictures, lone surrogates as ``�``.
- What the terminal's encoding cannot write becomes ``?``.

Stability: experimental.
"""

from __future__ import annotations

import io
import sys
from typing import Final

from rich.console import Console

# C0 and C1 controls, except tab and line break, and the marks that turn the direction of text around.
_PICTURES: Final = (
    {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
    | {0x7F: "␡"}
    | dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000)], "�")
)


def console() -> Console:
    """Draw on standard output."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(highlight=False, emoji=False, markup=False, soft_wrap=False)


def safe(text: str) -> str:
    """Make text harmless to a terminal. Line ends of other systems become plain ones."""
    return text.replace("\r\n", "\n").translate(_PICTURES)
