"""Read a file whole, and write one whole or not at all.

Rules:

- ``-`` is standard input, or standard output.
- A file is written beside its place and moved there when it is complete, so that a reader never sees half of it and
  a failure leaves the old one. What is no plain file (a pipe, a device) is written to directly.
- ``os.path`` does it: ``pathlib`` costs as much to import as everything else here.

Which files a command is given: those that are named, and those in folders that are named.

Rules:

- Of a folder, all that lies beneath is looked at, by name. Hidden files and folders are passed over, and so is what is
  no plain file and what cannot be a conversation by its first bytes: neither JSON nor a recorded stream. They are
  counted. Links to folders are not followed.
- A file that is named is never passed over.

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

from palaver.cli.terminal import ToTerminal
from palaver.wires import detect_stream

if TYPE_CHECKING:
    from collections.abc import Generator


# --- files ------------------------------------------------------------------------------------------------------------


STANDARD = "-"


def read(path: str) -> bytes:
    """Read a file, or standard input. Raises ``OSError``."""
    if path == STANDARD:
        return sys.stdin.buffer.read()
    with open(path, "rb") as file:
        return file.read()


def is_piped() -> bool:
    """Say whether something was piped or redirected into standard input; a terminal and a device are neither."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # closed, or no file at all
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def shown(path: str) -> str:
    """Name a file in a message."""
    return "standard input" if path == STANDARD else click.format_filename(path)


def write(path: str, data: bytes) -> None:
    """Write a file, or standard output. Raises ``OSError``."""
    with writing(path) as out:
        out.write(data)


@contextmanager
def writing(path: str) -> Generator[BinaryIO]:
    """Write a file piece by piece, or standard output. Raises ``OSError``."""
    if path == STANDARD:
        out = cast("BinaryIO", ToTerminal()) if sys.stdout.isatty() else sys.stdout.buffer
        yield out
        out.flush()
        return
    place = paths.realpath(path)  # a link stays a link
    if paths.exists(place) and not paths.isfile(place):
        with open(place, "wb") as file:
            yield file
        return
    with _replacing(place) as file:
        yield file


@contextmanager
def _replacing(place: str) -> Generator[BinaryIO]:
    folder, name = paths.split(place)
    beside = paths.join(folder, f".{os.getpid()}.tmp.{name}")  # its ending still says what kind of file it is
    try:
        with open(beside, "wb") as file:
            yield file
        if paths.exists(place):
            os.chmod(beside, os.stat(place).st_mode & 0o7777)
        os.replace(beside, place)
    except OSError as error:
        if error.filename in {beside, None}:
            error.filename = place
        raise
    finally:
        if paths.exists(beside):
            os.unlink(beside)


# --- walking ----------------------------------------------------------------------------------------------------------


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
            if name == STANDARD or not Path(name).is_dir():
                yield name
            else:
                yield from self._inside(name)

    def _inside(self, folder: str) -> Iterator[str]:
        for place, folders, names in os.walk(folder, onerror=self.failures.append):
            self.passed += sum(each.startswith(".") for each in (*folders, *names))
            folders[:] = sorted(each for each in folders if not each.startswith("."))
            for name in sorted(each for each in names if not each.startswith(".")):
                file = os.path.join(place, name)
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
