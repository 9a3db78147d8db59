"""The receipt of a conversion, as a table or as JSON.

- Losses of the same kind, thing and reason are one row, with their number and the first places.
- A terminal shows a drawn table; any other output gets aligned text, which is faster.
- JSON is an array with one loss on each line, never grouped; ``[]`` without losses.

Stability: experimental.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from palaver.cli.terminal import echo, errors, safe_json, safe_line
from palaver.core import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.cli.tables import Listing
    from palaver.core.request import Loss, LossKind

_PLACES: Final = 3
_HEADER: Final = ("became", "what", "count", "where", "why")
_STYLES: Final[dict[LossKind, str]] = {"dropped": "red", "converted": "yellow", "approximated": "cyan"}


class Row(Struct, frozen=True):
    """Equal losses and their places."""

    kind: LossKind
    what: str
    why: str
    places: tuple[str, ...]

    @property
    def where(self) -> str:
        """The first places."""
        more = len(self.places) - _PLACES
        return ", ".join(self.places[:_PLACES]) + (f" and {more} more" if more > 0 else "")

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text cells."""
        return (self.kind, safe_line(self.what), str(len(self.places)), safe_line(self.where), safe_line(self.why))


def group_losses(losses: Iterable[Loss]) -> list[Row]:
    """Group equal losses, in the order of their first place."""
    places: dict[tuple[LossKind, str, str], list[str]] = {}
    for loss in losses:
        places.setdefault((loss.kind, loss.what, loss.why), []).append(loss.where)
    return [Row(*key, tuple(where)) for key, where in places.items()]


def as_text(losses: Iterable[Loss]) -> str:
    """Return the rows as text, aligned under a header. The reasons are long and come last."""
    rows = [_HEADER, *(row.cells for row in group_losses(losses))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1] = 0
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"  {line.rstrip()}\n" for line in lines)


def as_table(losses: Iterable[Loss]) -> Listing:
    """Return the rows as a drawn table."""
    from rich.text import Text

    from palaver.cli.tables import Column, Listing

    listing = Listing(
        *[
            Column(name, "right" if name == "count" else "left", "fold" if name == "why" else "whole")
            for name in _HEADER
        ]
    )
    for row in group_losses(losses):
        kind, what, count, where, why = row.cells
        listing.add(Text(kind, _STYLES[row.kind]), what, count, where.replace(", ", "\n"), why)
    return listing


def as_json(losses: Sequence[Loss]) -> str:
    """Return the losses as a JSON array. ``where`` is the place in words, ``message`` and ``part`` are its indexes."""
    items = [jsontext.encode(_plain(loss)).decode() for loss in losses]
    return safe_json("[" + ",\n ".join(items) + "]\n")


def _plain(loss: Loss) -> dict[str, object]:
    place = {"message": loss.message, "part": loss.part}
    return {"kind": loss.kind, "what": loss.what, "why": loss.why, "where": loss.where, **place}


def show(losses: Sequence[Loss]) -> None:
    """Show losses on standard error: a table on a terminal, else text."""
    if not losses:
        return
    if not sys.stderr.isatty():
        echo(as_text(losses), nl=False, err=True)
        return
    errors().print(as_table(losses), crop=False)
