"""What is typed at a prompt, or comes from a pipe, as turns of a conversation.

Rules:

- A line is a turn; one that ends in a backslash goes on in the next.
- At a terminal the arrow keys bring back what was said. A pipe has no prompt.

Stability: experimental.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from palaver.cli.telling import Teller

_MORE: Final = "… "


class Lines:
    """Reads turns; ``typed`` says that somebody types."""

    def __init__(self, teller: Teller, *, typed: bool) -> None:
        """Read from standard input."""
        self._teller, self._typed = teller, typed

    def read(self, prompt: str) -> str:
        """A turn, as it was typed. Raises ``EOFError``, and ``KeyboardInterrupt`` for Ctrl-C."""
        lines = [self._line(prompt)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(self._line(_MORE))
        return "\n".join(lines)

    def _line(self, prompt: str) -> str:
        if self._typed:
            self._teller.rest()
            return input(prompt)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def remember(self, texts: Iterable[str]) -> None:
        """Let the arrow keys bring back what was said before."""
        if not self._typed:
            return
        try:
            import readline
        except ImportError:
            return
        readline.clear_history()
        for text in texts:
            if text.isprintable():
                readline.add_history(text)
