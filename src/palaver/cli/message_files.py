"""Conversations that are stored as one file for each message: the numbered files of one folder.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from msgspec import Struct

from palaver.cli import files
from palaver.core import jsontext
from palaver.core.errors import DecodeError

_NUMBERED: Final = re.compile(r"[0-9]{1,18}\.json")


class Group(Struct, frozen=True):
    """Files in the order in which they are read; ``numbered``: they may be the messages of one conversation."""

    names: tuple[str, ...]
    numbered: bool = False

    @property
    def folder(self) -> str:
        """The folder that they stand in."""
        return str(Path(self.names[0]).parent)


def grouped(names: Iterable[str], named: Iterable[str]) -> Iterator[Group]:
    """The numbered files of each folder together, in the order of their numbers; every other file alone.

    ``named`` are the files that were named themselves; each of them stands alone.
    """
    alone = frozenset(named)
    for folder, found in groupby(names, key=lambda name: None if name in alone else _folder_of(name)):
        if folder is None:
            yield from (Group((name,)) for name in found)
        else:
            yield Group(tuple(sorted(found, key=lambda name: int(Path(name).stem))), numbered=True)


def _folder_of(name: str) -> str | None:
    """The folder of a numbered file; ``None`` for any other file."""
    path = Path(name)
    return str(path.parent) if _NUMBERED.fullmatch(path.name) else None


def message_in(name: str) -> bytes | None:
    """The JSON object that a file holds; ``None`` when it holds anything else. Raises ``OSError``."""
    data = files.read(name).removeprefix(b"\xef\xbb\xbf").strip()
    try:
        return data if isinstance(jsontext.value(data), dict) else None
    except (DecodeError, ValueError):
        return None


def as_list(messages: Iterable[bytes]) -> bytes:
    """Several messages as one document."""
    return b"[" + b",\n".join(messages) + b"]"
