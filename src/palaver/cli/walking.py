"""Which files a command is given: those that are named, and those in folders that are named.

Rules:

- Of a folder, all that lies beneath is looked at, by name. Hidden files and folders are passed over, and so is what is
  no plain file and what cannot be a conversation by its first bytes: neither JSON nor a recorded stream. They are
  counted. Links to folders are not followed.
- A file that is named is never passed over.

Stability: experimental.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from palaver.cli import files
from palaver.wires import detect_stream

THREAD_FILE: Final = b'{"palaver_thread":'
COMPRESSED: Final = b"\x28\xb5\x2f\xfd"  # RFC 8878, section 3.1.1
LOG: Final = b'\t{"log":'
_JSON: Final = (b"{", b"[")
_HEAD: Final = 4096


class Walk:
    """The files to look at, once; ``passed`` counts what was passed over, ``failures`` says what could not be read."""

    def __init__(self, named: tuple[str, ...]) -> None:
        """Look at these files and folders."""
        self.passed = 0
        self.failures: list[OSError] = []
        self._named = named

    def __iter__(self) -> Iterator[str]:
        """The files, in the order of their names."""
        for name in self._named:
            if name == files.STANDARD or not Path(name).is_dir():
                yield name
            else:
                yield from self._inside(name)

    def _inside(self, folder: str) -> Iterator[str]:
        for place, folders, names in os.walk(folder, onerror=self.failures.append):
            self.passed += sum(each.startswith(".") for each in (*folders, *names))
            folders[:] = sorted(each for each in folders if not each.startswith("."))
            for name in sorted(each for each in names if not each.startswith(".")):
                file = os.path.join(place, name)  # noqa: PTH118 (a name is given back as it was typed)
                if self._may_be(file):
                    yield file
                else:
                    self.passed += 1

    def _may_be(self, file: str) -> bool:
        try:
            head = begins(file) if Path(file).is_file() else b""
        except OSError:
            return True  # whoever reads it says why it cannot be read
        said = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        return said.startswith(_JSON) or head.startswith((COMPRESSED, LOG)) or detect_stream.detect(head) is not None


def begins(file: str) -> bytes:
    """The first bytes of a file. Raises ``OSError``."""
    with Path(file).open("rb") as opened:
        return opened.read(_HEAD)
