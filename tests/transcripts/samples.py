"""Sample files of each transcript format: small, written by hand, one folder for each format.

A folder beneath a format's is a session of several files: ``main.*`` is read, the others belong to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from palaver import transcripts
from palaver.transcripts.format import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parent / "files"


def all_files() -> Iterator[tuple[str, Path]]:
    """Yield every transcript format with every file of its folder."""
    for name in transcripts.names():
        for path in sorted((FOLDER / name).glob("*")):
            if path.is_file():
                yield name, path
            elif found := sorted([*path.glob("main.*"), *path.glob("agent-*.jsonl")]):
                yield name, found[0]


FILES = list(all_files())
IDS = [f"{name}-{path.parent.name + '/' if path.parent.name != name else ''}{path.name}" for name, path in FILES]


def opening(path: Path, lines: int | None) -> bytes:
    """Return the first lines of a session, or all of it."""
    return b"".join(path.read_bytes().splitlines(keepends=True)[:lines])


def origin(path: Path) -> Origin:
    """Return the origin of a file, with the files beside it."""

    def beside(name: str) -> bytes | None:
        found = path.parent / name
        return found.read_bytes() if found.is_file() else None

    return Origin(name=str(path), beside=beside)
