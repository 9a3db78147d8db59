"""The files of folders, in order, and the progress of reading them.

- A folder is searched recursively, sorted by name. Hidden files and folders are skipped and counted, and links to
  folders are not followed. A file or folder that the user names is never skipped.

Stability: experimental.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from palaver.cli import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from palaver.store.store import Progress


class Walk:
    """Finds the files to read. ``skipped`` counts the others; ``failures`` are the folders that could not be read."""

    def __init__(self, named: Sequence[str], wanted: Callable[[str], bool]) -> None:
        """Look at these files and folders. ``wanted`` decides which files of a folder are read."""
        self.skipped = 0
        self.failures: list[OSError] = []
        self._named = named
        self._wanted = wanted

    def __iter__(self) -> Iterator[str]:
        """Yield the files, sorted by name within each folder."""
        for name in self._named:
            if name == files.STDIO or not Path(name).is_dir():
                yield name
            else:
                yield from self._walk_folder(name)

    def _walk_folder(self, folder: str) -> Iterator[str]:
        for place, folders, names in os.walk(folder, onerror=self.failures.append):
            self.skipped += sum(each.startswith(".") for each in (*folders, *names))
            folders[:] = sorted(each for each in folders if not each.startswith("."))
            for name in sorted(each for each in names if not each.startswith(".")):
                file = os.path.join(place, name)  # noqa: PTH118 (keeps the spelling that the user typed)
                if self._wanted(file):
                    yield file
                else:
                    self.skipped += 1


class Meter:
    """Reports the number of bytes read, of the total."""

    def __init__(self, names: Sequence[str], report: Progress | None) -> None:
        self._report = report
        self._sizes = {} if report is None else {name: _size(name) for name in names}
        self._total = sum(self._sizes.values())
        self._done = self._within = 0

    def read(self, size: int) -> None:
        """Count bytes of the current file."""
        self._within += size
        if self._report is not None:
            self._report(self._done + self._within, self._total)

    def finish(self, name: str) -> None:
        """Count a file as read."""
        self._done, self._within = self._done + self._sizes.get(name, 0), 0
        self.read(0)


def _size(name: str) -> int:
    try:
        return Path(name).stat().st_size
    except OSError:
        return 0
