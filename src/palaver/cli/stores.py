"""What the commands over a store share: where it is, which thread is meant, and which place in it.

Rules:

- The store is the one that ``--store`` names, else ``PALAVER_STORE``, else a file in the user's data folder.
- A command that reads begins no store: where there is none, it says how to import.
- A thread is meant by its id, or by the beginning or the end of it, 4 characters or more, if no other one is like that.
  The end of a UUID is its random part, so that is what people are shown.
- A place in a thread is a branch, or an entry, which is meant as a thread is. ``THREAD@PLACE`` is both; an ``@`` may
  also stand in the name of either.

Stability: experimental.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from palaver.cli import files
from palaver.cli.terminal import bad_input, safe_json
from palaver.core import jsontext
from palaver.core.errors import NotFoundError, excerpt
from palaver.store.location import default_location, open_store, split_location
from palaver.threads.ids import is_uuid
from palaver.threads.thread import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from palaver.store.store import Store, ThreadInfo

_LEAST: Final = 4
_LONGEST: Final = 200
"""Characters of a thread's id (``Store.create``)."""
_SHORT: Final = 8
_SLICE: Final = 256
_NAMED: Final = 3


def _given(_context: click.Context, _option: click.Parameter, location: str | None) -> str | None:
    if location == "":
        raise click.BadParameter("a location cannot be empty")
    return location


option = click.option(
    "--store",
    "location",
    metavar="LOCATION",
    callback=_given,
    help="A file, postgresql://…, or jsonl:FOLDER; else PALAVER_STORE, else your own palaver.db.",
)
into = click.option(
    "--into",
    "--store",
    "location",
    metavar="LOCATION",
    callback=_given,
    help="The store, which is begun where there is none: a file, postgresql://…, or jsonl:FOLDER.",
)


# -- the store -----------------------------------------------------------------------------------------------------


def shown(location: str | None) -> str:
    """Name a store in a message, without a password."""
    where = location or default_location()
    scheme, slashes, rest = where.partition("://")
    user, at, host = rest.rpartition("@")
    if slashes and at and ":" in user:
        return f"{scheme}://{user.partition(':')[0]}:***@{host}"
    return where


def is_there(location: str | None) -> bool:
    """Whether there is a store, as far as the disk says."""
    kind, rest = split_location(location or default_location())
    return kind not in {"sqlite", "jsonl"} or os.path.exists(rest)  # noqa: PTH110 (pathlib takes longer to load than this module)


def opened(location: str | None) -> Store:
    """Open a store that is there. Raises ``click.ClickException`` when none is, else as ``open_store`` does."""
    if not is_there(location):
        bad_input(shown(location), "there is no store; begin one with palaver import FILE")
    return open_store(location)


# -- threads and places --------------------------------------------------------------------------------------------


class Address(NamedTuple):
    """A thread, and a place in it: the name of a branch, or the id of an entry. ``None`` where none was given."""

    info: ThreadInfo
    place: str | None

    @property
    def of(self) -> str:
        """The place, else the main branch."""
        return MAIN if self.place is None else self.place

    def __str__(self) -> str:
        """Write it as a command takes it: ``8d2c41f0@main``."""
        return short(self.info.id) if self.place is None else f"{short(self.info.id)}@{short(self.place)}"


def short(id: str) -> str:
    """The end of a UUID; any other id as it is."""
    return id[-_SHORT:] if is_uuid(id) else id


def thread(store: Store, name: str) -> ThreadInfo:
    """Find the thread that is meant. Raises ``NotFoundError`` when there is none, or more than one."""
    found = _thread(store, name, [])
    if found is None:
        raise NotFoundError(f"no thread goes by {excerpt(name)!r}; palaver threads lists them")
    return found


def address(store: Store, text: str) -> Address:
    """Find the thread and the place that are meant. Raises ``NotFoundError``."""
    known: list[ThreadInfo] = []
    for name, where in _splits(text):
        info = _thread(store, name, known)
        if info is not None:
            return Address(info, None if where is None else place(store, info, where))
    raise NotFoundError(f"no thread goes by {excerpt(text)!r}; palaver threads lists them")


def place(store: Store, info: ThreadInfo, name: str) -> str:
    """Find the branch or entry of a thread that is meant. Raises ``NotFoundError``."""
    if name in info.branches:
        return name
    with suppress(NotFoundError):
        return store.path(info.id, name, last=1)[-1].id
    found = [each for each in _entries(store, info) if _is_like(each, name)]
    if len(found) == 1:
        return found[0]
    why = _several("entries", found) if found else "no branch and no entry goes by that name"
    raise NotFoundError(f"thread {short(info.id)}: {excerpt(name)!r}: {why}")


def _splits(text: str) -> Iterator[tuple[str, str | None]]:
    yield text, None
    at = text.rfind("@")
    while at > 0:
        if at <= _LONGEST:
            yield text[:at], text[at + 1 :]
        at = text.rfind("@", 0, at)


def _thread(store: Store, name: str, known: list[ThreadInfo]) -> ThreadInfo | None:
    """Find a thread; ``known`` is filled with all there are when they are needed."""
    with suppress(NotFoundError):
        return store.info(name)
    if not known:
        known += store.threads()
    found = [info for info in known if _is_like(info.id, name)]
    if len(found) > 1:
        raise NotFoundError(f"{name!r}: {_several('threads', [info.id for info in found])}")
    return found[0] if found else None


def _is_like(id: str, name: str) -> bool:
    return len(name) >= _LEAST and (id.startswith(name) or id.endswith(name))


def _several(things: str, ids: list[str]) -> str:
    more = f", and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"several {things} are like that: {', '.join(ids[:_NAMED])}{more}"


def _entries(store: Store, info: ThreadInfo) -> Iterator[str]:
    for start in range(0, info.length, _SLICE):
        yield from (entry.id for entry in store.read(info.id, start=start, stop=min(start + _SLICE, info.length)))


# -- JSON ----------------------------------------------------------------------------------------------------------


def say_json(items: Iterable[Any]) -> None:
    """Print a JSON value on each line, in which nothing can steer a terminal."""
    for item in items:
        files.write(files.STANDARD, safe_json(jsontext.encode(item).decode()).encode() + b"\n")
