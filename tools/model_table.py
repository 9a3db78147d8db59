"""Writes the table of known models into its page, from the rows of the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from palaver.models.catalogue import Catalogue, ModelCard

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/models.md"
BEGIN, END = "<!-- CATALOGUE -->\n", "<!-- end of the catalogue -->"


def lines() -> Iterator[str]:
    """The table, a line for each row that has a window or a price."""
    rows = Catalogue.read((ROOT / "src/palaver/models/catalogue.toml").read_text("utf-8")).cards
    yield "| model | window | output | $ in | $ out | $ cached | sees | | source |"
    yield "|---|--:|--:|--:|--:|--:|---|---|---|"
    for row in rows:
        if row.window is not None or row.prices is not None:
            yield f"| {' | '.join(_cells(row))} |"


def _cells(row: ModelCard) -> Iterator[str]:
    yield f"`{row.providers[0]}/{row.prefix}`"
    for size in (row.window, row.max_output):
        yield "" if size is None else f"{size:,}"
    for name in ("input", "output", "cache_read"):
        price = None if row.prices is None else getattr(row.prices, name)
        more = "" if row.prices is None or row.prices.long is None else f" ({getattr(row.prices.long, name):g})"
        yield "" if price is None else f"{price:g}{more}"
    yield "?" if row.media is None else ", ".join(sorted(row.media))
    yield ", ".join(name for name in ("tools", "reasoning") if getattr(row, name))
    yield f"[{row.checked}]({row.source})"


def main() -> None:
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    table = "".join(f"{line}\n" for line in lines())
    PAGE.write_text(f"{before}{BEGIN}{table}{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
