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
import sys
from os import path as paths

import click

STANDARD = "-"


def read(path: str) -> bytes:
    """Read a file, or standard input. Raises ``OSError``."""
    if path == STANDARD:
        return sys.stdin.buffer.read()
    with open(path, "rb") as file:
        return file.read()


def shown(path: str) -> str:
    """Name a file in a message."""
    return "standard input" if path == STANDARD else click.format_filename(path)


def write(path: str, data: bytes) -> None:
    """Write a file, or standard output. Raises ``OSError``."""
    if path == STANDARD:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    place = paths.realpath(path)  # a link stays a link
    if paths.exists(place) and not paths.isfile(place):
        _fill(place, data)
    else:
        _replace(place, data)


def _fill(place: str, data: bytes) -> None:
    with open(place, "wb") as file:
        file.write(data)


def _replace(place: str, data: bytes) -> None:
    folder, name = paths.split(place)
    beside = paths.join(folder, f".{name}.{os.getpid()}.tmp")
    try:
        _fill(beside, data)
        if paths.exists(place):
            os.chmod(beside, os.stat(place).st_mode & 0o7777)
        os.replace(beside, place)
    except OSError as error:
        error.filename = place
        raise
    finally:
        if paths.exists(beside):
            os.unlink(beside)
