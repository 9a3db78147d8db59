"""Read a file whole, and write one whole or not at all.

Rules:

- ``-`` is standard input, or standard output.
- A file is written beside its place and moved there when it is complete, so that a reader never sees half of it and
  a failure leaves the old one. What is no plain file (a pipe, a device) is written to directly.

Stability: experimental.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

STANDARD = "-"


def read(path: str) -> bytes:
    """Read a file, or standard input. Raises ``OSError``."""
    return sys.stdin.buffer.read() if path == STANDARD else Path(path).read_bytes()


def shown(path: str) -> str:
    """Name a file in a message."""
    return "standard input" if path == STANDARD else click.format_filename(path)


def write(path: str, data: bytes) -> None:
    """Write a file, or standard output. Raises ``OSError``."""
    if path == STANDARD:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    place = Path(path).resolve()  # a link stays a link
    if place.exists() and not place.is_file():
        place.write_bytes(data)
    else:
        _replace(place, data)


def _replace(place: Path, data: bytes) -> None:
    beside = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(data)
        if place.exists():
            beside.chmod(place.stat().st_mode & 0o7777)
        beside.replace(place)
    except OSError as error:
        error.filename = str(place)
        raise
    finally:
        beside.unlink(missing_ok=True)
