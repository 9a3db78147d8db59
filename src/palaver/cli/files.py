"""Read and write files, and find the files in folders that a user names.

- ``-`` is standard input or standard output.
- A file is written to a temporary file temporary it and moved into place when complete, so a reader never sees half of
  it and a failure keeps the old one. A pipe or a device is written to directly.
- A folder is searched recursively, sorted by name. Hidden files and folders, special files and files whose first bytes
  are neither JSON nor a recorded stream are skipped and counted. Links to folders are not followed.
- A file that the user names is never skipped.
- ``os.path`` is used because importing ``pathlib`` costs as much as everything else here.

Stability: experimental.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from os import path as paths
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import click

from palaver.cli.terminal import TerminalWriter
from palaver.wires import detect_stream

if TYPE_CHECKING:
    from collections.abc import Generator


STDIO = "-"


def read(path: str) -> bytes:
    """Read a file, or standard input. Raises ``OSError``."""
    if path == STDIO:
        return sys.stdin.buffer.read()
    with open(path, "rb") as file:
        return file.read()


def is_piped() -> bool:
    """Return whether standard input is a pipe, a file or a socket; false for a terminal or a device."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # closed, or no file at all
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def display_name(path: str) -> str:
    """Return a file's name for a message."""
    return "standard input" if path == STDIO else click.format_filename(path)


def write(path: str, data: bytes) -> None:
    """Write a file, or standard output. Raises ``OSError``."""
    with open_output(path) as out:
        out.write(data)


@contextmanager
def open_output(path: str) -> Generator[BinaryIO]:
    """Open a file, or standard output, for writing. Raises ``OSError``."""
    if path == STDIO:
        out = cast("BinaryIO", TerminalWriter()) if sys.stdout.isatty() else sys.stdout.buffer
        yield out
        out.flush()
        return
    place = paths.realpath(path)  # a link stays a link
    if paths.exists(place) and not paths.isfile(place):
        with open(place, "wb") as file:
            yield file
        return
    with _replace_file(place) as file:
        yield file


@contextmanager
def _replace_file(place: str) -> Generator[BinaryIO]:
    folder, name = paths.split(place)
    temporary = paths.join(folder, f".{os.getpid()}.tmp.{name}")  # keeps the file's extension
    try:
        with open(temporary, "wb") as file:
            yield file
        if paths.exists(place):
            os.chmod(temporary, os.stat(place).st_mode & 0o7777)
        os.replace(temporary, place)
    except OSError as error:
        if error.filename in {temporary, None}:
            error.filename = place
        raise
    finally:
        if paths.exists(temporary):
            os.unlink(temporary)


THREAD_FILE: Final = b'{"palaver_thread":'
COMPRESSED: Final = b"\x28\xb5\x2f\xfd"  # RFC 8878, section 3.1.1
LOG: Final = b'\t{"log":'
_JSON: Final = (b"{", b"[")
_HEAD: Final = 4096


class Walk:
    """Finds the files to read. ``skipped`` counts the others; ``failures`` are the folders that could not be read."""

    def __init__(self, named: tuple[str, ...]) -> None:
        """Look at these files and folders."""
        self.skipped = 0
        self.failures: list[OSError] = []
        self._named = named

    def __iter__(self) -> Iterator[str]:
        """Yield the files, sorted by name within each folder."""
        for name in self._named:
            if name == STDIO or not Path(name).is_dir():
                yield name
            else:
                yield from self._walk_folder(name)

    def _walk_folder(self, folder: str) -> Iterator[str]:
        for place, folders, names in os.walk(folder, onerror=self.failures.append):
            self.skipped += sum(each.startswith(".") for each in (*folders, *names))
            folders[:] = sorted(each for each in folders if not each.startswith("."))
            for name in sorted(each for each in names if not each.startswith(".")):
                file = os.path.join(place, name)
                if self._may_be_conversation(file):
                    yield file
                else:
                    self.skipped += 1

    def _may_be_conversation(self, file: str) -> bool:
        try:
            head = first_bytes(file) if Path(file).is_file() else b""
        except OSError:
            return True  # reading it reports the cause
        text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        return text.startswith(_JSON) or head.startswith((COMPRESSED, LOG)) or detect_stream.detect(head) is not None


def first_bytes(file: str) -> bytes:
    """Return the first bytes of a file. Raises ``OSError``."""
    with Path(file).open("rb") as opened:
        return opened.read(_HEAD)
