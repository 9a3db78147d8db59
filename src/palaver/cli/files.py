"""Read a whole file, and write a whole file or nothing.

- ``-`` is standard input or standard output.
- A file is written to a temporary file beside it, which is moved into place when it is complete. A reader never sees
  half of a file, and a failure keeps the old one. A pipe or a device is written to directly.
- ``os.path`` is used because importing ``pathlib`` costs as much as everything else here.

Stability: experimental.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import contextmanager
from os import path as paths
from typing import TYPE_CHECKING, BinaryIO, cast

import click

from palaver.cli.terminal import TerminalWriter

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
