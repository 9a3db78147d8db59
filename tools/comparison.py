"""Counts the code of the comparison page, and writes its table.

A line counts if it is not empty, no comment and no part of an import. Of each job the ```python block is ours; the
```py block is the other one's, and the line before it names whose it is.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).resolve().parents[1] / "docs/explanation/comparison.md"
BEGIN, END = "<!-- jobs -->\n", "<!-- end -->"
NONE = "\N{EN DASH}"
JOB = re.compile(r"^## (\d+\. [^\n]*)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
OURS = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
THEIRS = re.compile(r"^(\S[^\n]*):\n\n```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def count(code: str) -> int:
    """How many lines of `code` are neither empty, nor a comment, nor a part of an import."""
    imports = {
        number
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return sum(
        1
        for number, line in enumerate(code.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#") and number not in imports
    )


def rows(page: str) -> Iterator[tuple[str, int, int | None, str]]:
    """Of each job of `page`: its title, our lines, their lines, and who they are."""
    for title, text in JOB.findall(page):
        (ours,) = OURS.findall(text)
        theirs = THEIRS.findall(text)
        who, code = theirs[0] if theirs else ("none found", None)
        yield title, count(ours), None if code is None else count(code), who


def lines(page: str) -> Iterator[str]:
    """The table, a line for each job."""
    yield "| | ours | theirs | whose |"
    yield "|---|---|---|---|"
    for title, ours, theirs, who in rows(page):
        yield f"| {title} | {ours} | {NONE if theirs is None else theirs} | {who} |"


def main() -> None:
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    table = "".join(f"{line}\n" for line in lines(text))
    PAGE.write_text(f"{before}{BEGIN}{table}{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
