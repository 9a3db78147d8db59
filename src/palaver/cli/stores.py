"""What the commands over a store share: the store's location, and how a user names a thread or a position in it.

- The store is the one of ``--store``, else of ``PALAVER_STORE``, else a file in the user's data folder. A command that
  only reads never creates a store.
- A thread is named by its id, or by at least 4 characters of the beginning or the end of the id. Lists show the end,
  which is the random part of a UUID.
- A position in a thread is a branch or an entry id, which may be shortened in the same way. ``THREAD@POSITION`` names
  both; an ``@`` may also be part of either name.

Stability: experimental.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from palaver.cli import files
from palaver.cli.suggestions import meant
from palaver.cli.terminal import bad_input, count, echo, safe_json, safe_line
from palaver.core import jsontext
from palaver.core.errors import NotFoundError, excerpt
from palaver.store.location import default_location, open_store, split_location
from palaver.store.records import is_unreadable
from palaver.threads.ids import is_uuid
from palaver.threads.thread import MAIN, RECORD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from palaver.core.messages import Message
    from palaver.store.store import Store, ThreadInfo
    from palaver.threads.thread import Entry

MEMORY: Final = "memory:"
"""The location of a store that lasts as long as the command."""
_MIN_PREFIX: Final = 4
_MAX_ID: Final = 200
"""Most characters of a thread's id (``Store.create``)."""
_SHORT: Final = 8
_SLICE: Final = 256
_MAX_NAMED: Final = 3
_MAX_COMPARED: Final = 500
"""The number of threads whose ids are compared with a name that no thread has."""


def _check_location(_context: click.Context, _option: click.Parameter, location: str | None) -> str | None:
    if location == "":
        raise click.BadParameter("a location cannot be empty")
    return location


option = click.option(
    "--store",
    "location",
    metavar="LOCATION",
    callback=_check_location,
    help="A file, postgresql://…, or jsonl:FOLDER. Default: PALAVER_STORE, else your own palaver.db.",
)
into_option = click.option(
    "--into",
    "--store",
    "location",
    metavar="LOCATION",
    callback=_check_location,
    help="A file, postgresql://…, or jsonl:FOLDER; created when missing.",
)


def display_name(location: str | None) -> str:
    """Return a store's location for a message, without its password."""
    where = location or default_location()
    scheme, slashes, rest = where.partition("://")
    user, at, host = rest.rpartition("@")
    if slashes and at and ":" in user:
        return f"{scheme}://{user.partition(':')[0]}:***@{host}"
    return where


def is_lasting(location: str | None) -> bool:
    """Return whether a store lasts longer than the command."""
    return split_location(location or default_location())[0] != MEMORY.rstrip(":")


def exists(location: str | None) -> bool:
    """Return whether a store exists. A database server counts as existing; it is not asked."""
    kind, rest = split_location(location or default_location())
    return kind not in {"sqlite", "jsonl"} or os.path.exists(rest)  # noqa: PTH110 (pathlib takes longer to load than this module)


def open_existing(location: str | None) -> Store:
    """Open an existing store. Raises ``click.ClickException`` when there is none, else as ``open_store`` does."""
    if not exists(location):
        bad_input(display_name(location), "there is no store; create one with palaver import FILE")
    return open_store(location)


class Address(NamedTuple):
    """A thread, and a position in it: the name of a branch or the id of an entry; ``None`` when none was given."""

    info: ThreadInfo
    position: str | None

    @property
    def position_or_main(self) -> str:
        """The position, else the main branch."""
        return MAIN if self.position is None else self.position

    def __str__(self) -> str:
        """Return the address as a command takes it: ``8d2c41f0@main``."""
        return short(self.info.id) if self.position is None else f"{short(self.info.id)}@{short(self.position)}"


def short(id: str) -> str:
    """Return the end of a UUID, and any other id unchanged."""
    return id[-_SHORT:] if is_uuid(id) else id


def find_thread(store: Store, name: str) -> ThreadInfo:
    """Find a thread by a name that a user typed. Raises ``NotFoundError`` when none or several match."""
    known: list[ThreadInfo] = []
    found = _thread(store, name, known)
    if found is None:
        raise _no_thread(name, known)
    return found


def find_address(store: Store, text: str) -> Address:
    """Find a thread and a position from ``THREAD[@POSITION]``. Raises ``NotFoundError``."""
    known: list[ThreadInfo] = []
    for name, where in _splits(text):
        info = _thread(store, name, known)
        if info is not None:
            return Address(info, None if where is None else find_position(store, info, where))
    raise _no_thread(text, known)


def has_position(store: Store, text: str) -> bool:
    """Return whether ``text`` names a thread, an ``@`` and a position, be the position there or not."""
    return any(where is not None and _thread(store, name, []) is not None for name, where in _splits(text))


def _no_thread(name: str, known: Sequence[ThreadInfo]) -> NotFoundError:
    ids = [each for info in known[:_MAX_COMPARED] for each in (info.id, short(info.id))]
    hint = meant(name, ids) or "; palaver threads lists them"
    return NotFoundError(f"no thread is named {excerpt(name)!r}{hint}")


def last_thread(store: Store) -> str:
    """Return the id of the thread that changed last. Raises ``NotFoundError`` when there is none."""
    for info in store.threads(limit=1):
        return info.id
    raise NotFoundError("there is no thread to continue")


def find_position(store: Store, info: ThreadInfo, name: str) -> str:
    """Find a branch or an entry of a thread by a name that a user typed. Raises ``NotFoundError``."""
    if name in info.branches:
        return name
    with suppress(NotFoundError):
        return store.path(info.id, name, last=1)[-1].id
    found = [each for each in _entries(store, info) if _matches(each, name)]
    if len(found) == 1:
        return found[0]
    why = _ambiguous("entries", found) if found else f"no branch or entry has that name{meant(name, info.branches)}"
    raise NotFoundError(f"thread {short(info.id)}: {excerpt(name)!r}: {why}")


def is_message(message: Message) -> bool:
    """Whether an entry holds a message. A record holds none, unless it stands for a message that cannot be read."""
    return RECORD not in message.tags or is_unreadable(message)


def warn_of_damage(id: str, entries: Iterable[Entry], location: str | None) -> None:
    """Print a line when messages of a thread, among ``entries``, cannot be read."""
    damaged = sum(is_unreadable(entry.message) for entry in entries)
    if damaged:
        where = "" if location is None else f" --store {display_name(location)}"
        lost = f"{count(damaged, 'message')} cannot be read, and no model is sent what was there"
        echo(f"palaver: thread {safe_line(short(id))}: {lost}; see palaver verify{safe_line(where)}", err=True)


def message_entries(store: Store, found: Address, last: int | None = None) -> Sequence[Entry]:
    """Return the entries at a position that hold messages, oldest first: all, or the ``last`` ones."""
    wanted = last
    while True:
        path = store.path(found.info.id, found.position_or_main, last=wanted)
        entries = [entry for entry in path if is_message(entry.message)]
        if last is None or wanted is None or len(path) < wanted:
            return entries if last is None else entries[-last:]
        if len(entries) >= last:
            return entries[-last:]
        wanted *= 2


def _splits(text: str) -> Iterator[tuple[str, str | None]]:
    yield text, None
    at = text.rfind("@")
    while at > 0:
        if at <= _MAX_ID:
            yield text[:at], text[at + 1 :]
        at = text.rfind("@", 0, at)


def _thread(store: Store, name: str, known: list[ThreadInfo]) -> ThreadInfo | None:
    """Find a thread; fill ``known`` with all threads when they are needed."""
    with suppress(NotFoundError):
        return store.info(name)
    if not known:
        known += store.threads()
    found = [info for info in known if _matches(info.id, name)]
    if len(found) > 1:
        raise NotFoundError(f"{name!r}: {_ambiguous('threads', [info.id for info in found])}")
    return found[0] if found else None


def _matches(id: str, name: str) -> bool:
    return len(name) >= _MIN_PREFIX and (id.startswith(name) or id.endswith(name))


def _ambiguous(things: str, ids: list[str]) -> str:
    more = f", and {len(ids) - _MAX_NAMED} more" if len(ids) > _MAX_NAMED else ""
    return f"several {things} match: {', '.join(ids[:_MAX_NAMED])}{more}"


def _entries(store: Store, info: ThreadInfo) -> Iterator[str]:
    for start in range(0, info.length, _SLICE):
        yield from (entry.id for entry in store.read(info.id, start=start, stop=min(start + _SLICE, info.length)))


def print_json(items: Iterable[Any]) -> None:
    """Print one JSON value on each line, with terminal control characters escaped."""
    for item in items:
        files.write(files.STDIO, safe_json(jsontext.encode(item).decode()).encode() + b"\n")
