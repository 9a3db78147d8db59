"""Draw the branches of a thread as a tree.

Rules:

- A line is a stretch of messages that nobody parted from: the branches that end there, with their lengths, how many
  messages it has, and what the first of them says. So a tree of ten thousand messages and two branches is three lines.
- An end that no branch names is shown too: what a rewind left behind.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text as Line

from palaver.cli import stores
from palaver.cli.figures import count
from palaver.cli.harmless import safe
from palaver.threads.thread import Thread

_FIRST: Final = 48
_LOOKED_AT: Final = 1_000


def drawn(tree: Thread) -> Iterator[Line]:
    """Draw the stretches of a tree, parents first."""
    names: dict[str, list[str]] = {}
    for name, head in tree.branches.items():
        if head is not None:
            names.setdefault(head, []).append(name)
    roots = tree.children(None)
    waiting = [(root, "", at == len(roots) - 1, len(roots) > 1, 0) for at, root in enumerate(roots)][::-1]
    while waiting:
        first, margin, last, parted, before = waiting.pop()
        end, length = _stretch(tree, first, names)
        children = tree.children(end)
        line = Line(margin + (("└─ " if last else "├─ ") if parted else ""), "dim")
        if end in names:
            line.append(", ".join(map(safe, names[end])), "bold green").append(
                f" ({before + length:,})", "green"
            ).append(" · ", "dim")
        elif not children:
            line.append(f"no branch ({before + length:,})", "yellow").append(" · ", "dim")
        yield _told(line, tree, first, length)
        inner = margin + (("   " if last else "│  ") if parted else "")
        waiting += [
            (child, inner, at == len(children) - 1, len(children) > 1, before + length)
            for at, child in enumerate(children)
        ][::-1]
    for name, head in tree.branches.items():
        if head is None:
            yield Line.assemble((safe(name), "bold green"), (" is empty", "dim"))


def _stretch(tree: Thread, first: str, names: dict[str, list[str]]) -> tuple[str, int]:
    """The last entry of the stretch that begins with an entry, and how many it has."""
    end, length = first, 1
    while len(children := tree.children(end)) == 1 and end not in names:
        end, length = children[0], length + 1
    return end, length


def _told(line: Line, tree: Thread, first: str, length: int) -> Line:
    """Say how long a stretch is, and what its first message says."""
    message = tree.entry(first).message
    text = message.text[:_LOOKED_AT] or ", ".join(f"→ {call.name}" for call in message.tool_calls)
    said = " ".join(safe(text[:_LOOKED_AT]).split())
    said = said if len(said) <= _FIRST else f"{said[: _FIRST - 1]}…"
    line.append(count(length, "message"), "").append(f" from {stores.short(first)}, {message.role}", "dim")
    return line.append(f": {said}" if said else "", "")
