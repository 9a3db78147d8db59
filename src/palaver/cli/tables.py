"""Tables for people: one look, and what a narrow terminal gets in place of them.

- A cell is whole, unless its column is ``"fold"`` (breaks its lines) or ``"cut"`` (ends in ``…``); these keep at least
  ``_LEAST`` cells, or what they need.
- When a table is too wide, its optional columns are left out, the last first. When that is not enough, each row becomes
  a line with its first cell, and a line with the others. So a name that is typed again is never cut or broken.
- With ``note``, a line below a table names the columns that were left out.
- Print a listing with ``crop=False``: a long name is left to the terminal, which breaks it without a line break.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

_LEAST: Final = 16
_EDGES: Final = 2
_INDENT: Final = 2
YES: Final = "✓"
NO: Final = "·"
"""Cells that say whether something holds; a block names what holds and leaves out what does not."""


class Column(NamedTuple):
    """A column: its heading, its side, what a narrow terminal does to its cells, and whether it may be left out."""

    name: str
    justify: Literal["left", "center", "right"] = "left"
    narrow: Literal["whole", "fold", "cut"] = "whole"
    optional: bool = False


def table(padding: int = 1) -> Table:
    """Return an empty table with the look of all tables; ``padding`` is the space after a column."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, padding, 0, 0))


class Listing:
    """Rows under columns. It draws itself as a table where there is room, else as a block for each row."""

    def __init__(self, *columns: Column, padding: int = 1, note: str = "") -> None:
        """Start without rows. ``padding`` is the space after a column; ``note`` says where left out ones are seen."""
        self._columns = columns
        self._padding = padding
        self._note = note
        self._rows: list[tuple[Text, ...]] = []

    def add(self, *cells: str | Text) -> None:
        """Add a row, with a cell for each column."""
        self._rows.append(tuple([each if isinstance(each, Text) else Text(each) for each in cells]))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the rows in the width that there is."""
        shown = list(range(len(self._columns)))
        while self._width(shown) > options.max_width:
            optional = [place for place in shown if self._columns[place].optional]
            if not optional:
                yield from self._blocks()
                return
            shown.remove(optional[-1])
        yield self._table(shown)
        hidden = [each.name for place, each in enumerate(self._columns) if place not in shown]
        if self._note and hidden:
            yield Text(f"{', '.join(hidden)}: {self._note}", "dim")

    def _width(self, shown: Sequence[int]) -> int:
        """Return the least width of a table of these columns."""
        cells = sum(self._cell_width(place) for place in shown)
        return cells + (len(shown) - 1) * (self._padding + 1) + _EDGES

    def _cell_width(self, place: int) -> int:
        column = self._columns[place]
        heading = Text(column.name).cell_len
        most = max([heading, *(_widest(row[place]) for row in self._rows)])
        return most if column.narrow == "whole" else min(most, max(_LEAST, heading))

    def _table(self, shown: Sequence[int]) -> Table:
        drawn = table(self._padding)
        for place in shown:
            column = self._columns[place]
            drawn.add_column(
                column.name,
                justify=column.justify,
                no_wrap=column.narrow == "whole",
                overflow="fold",
                min_width=self._cell_width(place),
            )
        for row in self._rows:
            drawn.add_row(*(self._cell(row, place) for place in shown))
        return drawn

    def _cell(self, row: Sequence[Text], place: int) -> Text:
        cell = row[place].copy()
        if self._columns[place].narrow == "cut":
            cell.no_wrap, cell.overflow = True, "ellipsis"
        return cell

    def _blocks(self) -> RenderResult:
        for first, *others in self._rows:
            line = first.copy()
            line.no_wrap, line.overflow = True, "ignore"
            yield line
            cells = [
                _labelled(column, cell)
                for column, cell in zip(self._columns[1:], others, strict=True)
                if cell.plain not in {"", NO}
            ]
            yield Padding(Text(" · ", "dim").join(cells), (0, 0, 0, _INDENT), expand=False)


def _labelled(column: Column, cell: Text) -> Text:
    if cell.plain == YES:
        return Text(column.name)
    return cell if column.narrow != "whole" else Text.assemble((f"{column.name} ", "dim"), cell)


def _widest(cell: Text) -> int:
    return max((Text(line).cell_len for line in cell.plain.split("\n")), default=0)
