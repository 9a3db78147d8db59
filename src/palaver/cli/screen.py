"""The terminal that commands draw on.

Rules:

- Width is the terminal's, 80 when there is none; ``COLUMNS`` says otherwise. Colour goes to terminals only, and
  ``NO_COLOR`` turns it off.

Stability: experimental.
"""

from __future__ import annotations

import sys
from typing import Never

from rich.console import Console

from palaver.cli.harmless import forgiving


class _Console(Console):
    """Leaves it to the command line what happens when the reader of the output goes away."""

    def on_broken_pipe(self) -> Never:
        """Be called inside the handler of the error."""
        raise BrokenPipeError


def console() -> Console:
    """Draw on standard output."""
    forgiving(sys.stdout)
    return _Console(highlight=False, emoji=False, markup=False, soft_wrap=False)
