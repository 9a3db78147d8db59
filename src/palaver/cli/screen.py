"""The terminal that commands draw on.

Rules:

- Width is the terminal's, 80 when there is none; ``COLUMNS`` says otherwise, unless it is 0. What is narrower than
  ``NARROWEST`` is drawn for that width, and the terminal breaks its lines: so no table cuts a name or shows nothing.
- Colour goes to terminals only, and ``NO_COLOR`` turns it off.
- What is drawn is made harmless as it is drawn, so that only Rich steers the terminal (``palaver.cli.harmless``).
- Rich is imported when something is drawn: it takes more time than a conversion.

Stability: experimental.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Final, Never

from palaver.cli.harmless import forgiving, safe

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

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
