"""Sample files of each transcript format: small, written by hand, one folder for each format.

A folder beneath a format's is a session of several files: ``main.*`` is read, the others belong to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from palaver import transcripts
from palaver.transcripts.format import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
WRITTEN_FILES = [each for each in FILES if transcripts.get(each[0]).record_writer is not None]
"""Those of formats that are also written."""


def ids_of(files: Sequence[tuple[str, Path]]) -> list[str]:
    """Return the ids of tests of files."""
    return [f"{name}-{path.parent.name + '/' if path.parent.name != name else ''}{path.name}" for name, path in files]


IDS = ids_of(FILES)


MOST_OR_ALL = [False, pytest.param(True, marks=pytest.mark.long)]
every_pair = pytest.mark.parametrize("all_targets", MOST_OR_ALL, ids=["each-pair-of-formats", "each-file-everywhere"])
"""A test of every file in every other format: `goes_to` says which of them, and the `long` one takes them all."""


def goes_to(name: str, path: Path, target: str, targets: Sequence[str], all_targets: bool) -> bool:
    """Whether a file is tried in another format.

    The files of a format take turns: every format goes to every other once, and each file to some.
    """
    files = [each for of, each in FILES if of == name]
    in_turn = targets.index(target) % len(files) == files.index(path)
    return name != target and (all_targets or in_turn)


def opening(path: Path, lines: int | None) -> bytes:
    """Return the first lines of a session, or all of it."""
    return b"".join(path.read_bytes().splitlines(keepends=True)[:lines])


def origin(path: Path) -> Origin:
    """Return the origin of a file, with the files beside it."""

    def beside(name: str) -> bytes | None:
        found = path.parent / name
        return found.read_bytes() if found.is_file() else None

    return Origin(name=str(path), beside=beside)
