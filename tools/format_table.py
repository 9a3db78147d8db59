"""Writes the table of transcript formats into its page, from the rows of their modules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from palaver import transcripts
from palaver.cli.formats import FIDELITY

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).resolve().parents[1] / "docs/reference/transcripts.md"
BEGIN, END = "<!-- transcript formats -->\n", "<!-- end -->"


def lines() -> Iterator[str]:
    """The table, a line for each transcript format."""
    yield "| transcript format | what it is | read, then written | branches | resumes | keeps | loses |"
    yield "|---|---|---|---|---|---|---|"
    for row in map(transcripts.get, transcripts.names()):
        cells = (
            f"`{row.name}`",
            row.title,
            FIDELITY[row.fidelity],
            "yes" if row.tree else "",
            "yes" if row.resumes else "",
            "; ".join(row.keeps),
            "; ".join(row.loses),
        )
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    table = "".join(f"{line}\n" for line in lines())
    PAGE.write_text(f"{before}{BEGIN}{table}{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
