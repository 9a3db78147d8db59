"""Take fenced code blocks out of Markdown: ``-x`` and ``--extract-last`` of ``palaver run`` and ``palaver logs``.

A fence is at least three backticks or tildes at the beginning of a line, indented by at most three spaces; it is closed
by a fence of the same character that is not shorter, or by the end of the text.

Source: https://spec.commonmark.org/0.31.2/#fenced-code-blocks

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from palaver.cli import exclusive

Which: TypeAlias = Literal["first", "last"]

_OPEN: Final = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)")


options: Final = exclusive.flags(
    "extract",
    {
        "first": (("-x", "--extract"), "Print only the first fenced code block of the answer."),
        "last": (("--extract-last",), "Print only the last one."),
    },
)
"""Adds ``-x`` and ``--extract-last`` to a command, which gets ``extract``: a ``Which`` or ``None``."""


def code_block(text: str, which: Which) -> str | None:
    """Return the first or the last code block of ``text``; ``None`` where there is none."""
    blocks = code_blocks(text)
    return blocks[0 if which == "first" else -1] if blocks else None


def code_blocks(text: str) -> list[str]:
    """Return the contents of the fenced code blocks of ``text``, in order, each ending in a line break."""
    found: list[str] = []
    lines: list[str] = []
    fence, indent = "", 0
    for line in text.split("\n"):
        opened = _OPEN.fullmatch(line)
        if fence:
            if opened and opened[2][0] == fence[0] and len(opened[2]) >= len(fence) and not opened[3].strip():
                found.append("".join(f"{each}\n" for each in lines))
                fence = ""
            else:
                strip = min(indent, len(line) - len(line.lstrip(" ")))
                lines.append(line[strip:])
        elif opened and not (opened[2][0] == "`" and "`" in opened[3]):
            fence, indent, lines = opened[2], len(opened[1]), []
    if fence:
        found.append("".join(f"{each}\n" for each in lines))
    return found
