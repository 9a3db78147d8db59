"""Read a file whole, and write one whole or not at all.

Rules:

- ``-`` is standard input, or standard output.
- A file is written beside its place and moved there when it is complete, so that a reader never sees half of it and
  a failure leaves the old one. What is no plain file (a pipe, a device) is written to directly.
- ``os.path`` does it: ``pathlib`` costs as much to import as everything else here.

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

from palaver.cli.harmless import ToTerminal

if TYPE_CHECKING:
    from collections.abc import Generator

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
