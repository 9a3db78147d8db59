"""Changes of a store as JSON, and which of them still apply after damage.

Rules:

- A change is an object: ``change`` names its class, and the fields of the class follow, without defaults. Bytes are
  base64, digests hex, and an entry has ``id``, ``parent`` and ``message`` in the canonical form.
- An unknown change or field raises ``DecodeError``: the state cannot be derived without it.
- A damaged field is left out. An entry whose message cannot be read keeps its place as a record
  (``records.unreadable``).
- A change applies only to the state that it was made for. After damage, ``applicable`` returns the changes that still
  apply and reports the rest. A lost entry that others follow becomes a record with the damaged bytes, behind
  the parent that these bytes name, else behind the last entry of its branch.

Stability: experimental.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import NODEFAULT, UNSET, Raw, UnsetType
from msgspec.structs import fields as fields_of

from palaver.core import canonical, jsontext
from palaver.core.errors import DecodeError
from palaver.store.records import (
    BlobAdded,
    BlobsRemoved,
    Change,
    EntriesAdded,
    ThreadCreated,
    ThreadDeleted,
    ThreadUpdated,
    unreadable,
)
from palaver.store.store import Damage
from palaver.threads.thread import Entry, Thread

_SOURCE: Final = "journal"
_CLASSES: Final[Mapping[str, type[Change]]] = {
    "created": ThreadCreated,
    "updated": ThreadUpdated,
    "joined": EntriesAdded,
    "deleted": ThreadDeleted,
    "blob": BlobAdded,
    "dropped": BlobsRemoved,
}
_NAMES: Final[Mapping[type[Change], str]] = {cls: name for name, cls in _CLASSES.items()}


# -- writing -------------------------------------------------------------------------------------------------------


def encode(changes: Iterable[Change]) -> bytes:
    """Return changes as a JSON array. Raises ``EncodeError`` for a value that JSON cannot express."""
    return b"[" + b",".join([b"{" + b",".join(_pairs(change)) + b"}" for change in changes]) + b"]"


def _pairs(change: Change) -> Iterator[bytes]:
    yield b'"change":"%b"' % _NAMES[type(change)].encode()
    for field in fields_of(type(change)):
        item = getattr(change, field.name)
        default = field.default_factory() if callable(field.default_factory) else field.default
        if default is NODEFAULT or item != default:
            yield b'"%b":%b' % (field.name.encode(), _WRITERS.get(field.name, jsontext.encode)(item))


def _entries(entries: tuple[Entry, ...]) -> bytes:
    written = [
        b'{"id":%b,"parent":%b,"message":%b}'
        % (jsontext.encode(entry.id), jsontext.encode(entry.parent), canonical.encode(entry.message))
        for entry in entries
    ]
    return b"[" + b",".join(written) + b"]"


_WRITERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "entries": _entries,
    "data": lambda data: b'"' + binascii.b2a_base64(data, newline=False) + b'"',
    "digests": lambda digests: jsontext.encode([digest.hex() for digest in digests]),
}


# -- reading -------------------------------------------------------------------------------------------------------


def decode(text: bytes | Raw, place: str = "") -> tuple[list[Change], list[Damage]]:
    """Read changes, and report unreadable ones; ``place`` is where they are.

    Raises ``DecodeError``, source ``journal``, for changes of a newer version, and for anything but a list.
    """
    changes: list[Change] = []
    damage: list[Damage] = []
    try:
        for index, item in enumerate(jsontext.items(text)):
            if jsontext.kind(item) != "an object":
                damage.append(Damage("unreadable", place, f"[{index}]: no change but {jsontext.kind(item)}"))
                continue
            try:
                change = _change(jsontext.fields(item), place, damage)
            except DecodeError as error:
                raise error.within(f"[{index}]") from None
            changes += [] if change is None else [change]
    except DecodeError as error:
        error.source = _SOURCE
        raise
    return changes, damage


def _change(table: jsontext.Fields, place: str, damage: list[Damage]) -> Change | None:
    """Read one change; ``None`` when a required field is not readable."""
    table = dict(table)
    kind = table.pop("change", jsontext.NULL)
    if jsontext.kind(kind) != "a string":
        damage.append(Damage("unreadable", place, "a change without a name", _thread(table)))
        return None
    name = _text(kind)
    if name not in _CLASSES:
        raise DecodeError(f"unknown change {name!r:.40}", path="change")
    cls = _CLASSES[name]
    thread = _thread(table)
    values: dict[str, Any] = {}
    for key, text in table.items():
        if key not in cls.__struct_fields__:
            raise DecodeError("not known to this version", path=key)
        try:
            values[key] = _entries_of(text, place, thread, damage) if key == "entries" else _READERS[key](text)
        except DecodeError as error:
            damage.append(Damage("unreadable", place, str(error.within(key)), thread))
    try:
        return cls(**values)
    except TypeError as error:
        damage.append(Damage("unreadable", place, f"a change {name!r}: {error}", thread))
        return None


def _thread(table: jsontext.Fields) -> str | None:
    """Return the thread of a change, for reports."""
    try:
        return _optional_text(table.get("thread", jsontext.NULL))
    except DecodeError:
        return None


def _entries_of(text: Raw, place: str, thread: str | None, damage: list[Damage]) -> tuple[Entry, ...]:
    """Read entries. An entry with an unreadable message keeps its place; one without a message is left out."""
    found: list[Entry] = []
    for index, table in enumerate(jsontext.rows(text)):
        try:
            found.append(_entry(table, place, thread, damage))
        except DecodeError as error:
            damage.append(Damage("unreadable", place, str(error.within(f"entries[{index}]")), thread))
    return tuple(found)


def _text(text: Raw) -> str:
    return jsontext.text(text)


def _optional_text(text: Raw) -> str | None:
    return None if jsontext.is_null(text) else _text(text)


def _integer(text: Raw) -> int:
    number = jsontext.value(text)
    if type(number) is not int:
        raise DecodeError(f"expected a whole number, got {jsontext.kind(text)}")
    return number


def _metadata(text: Raw) -> Mapping[str, Any]:
    jsontext.fields(text)  # an object
    return dict(jsontext.view(text))


def _entry(table: jsontext.Fields, place: str, thread: str | None, damage: list[Damage]) -> Entry:
    if table.keys() != {"id", "parent", "message"}:
        raise DecodeError("an entry has id, parent and message")
    name, parent = _text(table["id"]), _optional_text(table["parent"])
    try:
        message = canonical.decode(table["message"])
    except DecodeError as error:
        damage.append(Damage("unreadable", place, f"not a message: {error}", thread, name))
        message = unreadable(bytes(table["message"]), f"{place}: {error}", id=name)
    return Entry(name, parent, message)


def _bytes(text: Raw) -> bytes:
    try:
        return binascii.a2b_base64(_text(text), strict_mode=True)
    except ValueError as error:
        raise DecodeError(f"not base64: {error}") from None


def _digest(text: Raw) -> bytes:
    try:
        return bytes.fromhex(_text(text))
    except ValueError as error:
        raise DecodeError(f"not a digest: {error}") from None


_READERS: Final[Mapping[str, Callable[[Raw], Any]]] = {
    "thread": _text,
    "at": _integer,
    "title": _optional_text,
    "tags": lambda text: tuple(map(_text, jsontext.items(text))),
    "metadata": _metadata,
    "branches": lambda text: {name: _optional_text(head) for name, head in jsontext.fields(text).items()},
    "key": _optional_text,
    "data": _bytes,
    "digests": lambda text: tuple(map(_digest, jsontext.items(text))),
}


# -- after damage --------------------------------------------------------------------------------------------------


class LostBytes(NamedTuple):
    """A damaged stretch of a file: where it is, and its bytes."""

    place: str
    data: bytes


class LostLines:
    """The damaged stretches of all files, for many searches, mostly in the order of the stretches."""

    def __init__(self, stretches: Sequence[LostBytes] = ()) -> None:
        """Start without having searched any of them."""
        self._stretches = stretches
        self._last = 0
        self._left = _SEARCHED
        self._shown: set[str] = set()

    def find(self, entry: str) -> LostBytes | None:
        """Return the stretch that contains an entry. The next one is always searched, others while that is cheap."""
        token, count = jsontext.encode(entry), len(self._stretches)
        for step in range(count):
            at = (self._last + step) % count
            found = self._stretches[at]
            if step >= _NEAR_STRETCHES:
                self._left -= len(found.data) + _LOOK_COST
                if self._left < 0:
                    return None
            if token in found.data:
                self._last = at
                return found
        return None

    def bytes_of(self, stretch: LostBytes) -> bytes:
        """Return the bytes of a stretch, once: the first of several entries in it gets them."""
        if stretch.place in self._shown:
            return b""
        self._shown.add(stretch.place)
        return stretch.data


_NEAR_STRETCHES: Final = 2
_SEARCHED: Final = 1 << 30
"""The most bytes to search for entries that are neither in the last stretch nor behind it."""
_LOOK_COST: Final = 256
"""The cost of searching a short stretch, in bytes."""


def applicable(
    change: Change, tree: Thread | None, place: str, lost: LostLines | None = None
) -> tuple[list[Change], list[Damage]]:
    """Return what of a change applies, when ``tree`` is what is left of its thread; and what does not.

    ``lost`` are damaged stretches, which may contain the missing entries.
    """
    lost = lost or LostLines()
    match change:
        case ThreadCreated() | BlobAdded() | BlobsRemoved():
            return [change], []
        case EntriesAdded():
            return _applicable_entries(change, tree, place, lost)
        case ThreadUpdated() | ThreadDeleted():
            if tree is not None:
                return [change], []
            return [], [Damage("missing", place, "the thread that this changes is missing", change.thread)]


def _applicable_entries(
    change: EntriesAdded, tree: Thread | None, place: str, lost: LostLines
) -> tuple[list[Change], list[Damage]]:
    made: list[Change] = []
    damage: list[Damage] = []
    if tree is None:
        made.append(ThreadCreated(thread=change.thread, at=change.at))
        damage.append(Damage("missing", place, "the beginning of the thread is missing", change.thread))
    tree = Thread(change.thread) if tree is None else tree
    entries: dict[str, Entry] = {}
    for entry in change.entries:
        if entry.id in tree and tree.entry(entry.id) != entry:
            reason = "it already exists, with another message or parent"
            damage.append(Damage("altered", place, reason, change.thread, entry.id))
        elif entry.parent is None or entry.parent in tree or entry.parent in entries:
            entries[entry.id] = entry
        else:
            reason = f"its parent {entry.parent} is missing"
            damage.append(Damage("missing", place, reason, change.thread, entry.id))
            _stand_in(entry.parent, change, tree, entries, place, lost, damage)
            entries[entry.id] = entry
    heads: dict[str, str | None] = {}
    for name, head in change.branches.items():
        if head is not None and head not in tree and head not in entries:
            damage.append(Damage("missing", place, f"the head of branch {name!r} is missing", change.thread, head))
            _stand_in(head, change, tree, entries, place, lost, damage)
        heads[name] = head
    joined = EntriesAdded(
        thread=change.thread, at=change.at, entries=tuple(entries.values()), branches=heads, key=change.key
    )
    return [*made, joined], damage


_CHAIN: Final = 300
"""The most entries of one damaged line that are followed back."""


def _stand_in(  # noqa: PLR0917 (what is known of the change, and what is made of it)
    entry: str,
    change: EntriesAdded,
    tree: Thread,
    entries: dict[str, Entry],
    place: str,
    lost: LostLines,
    damage: list[Damage],
) -> None:
    """Replace a lost entry by a record, and also the lost entries before it."""
    chain: list[tuple[str, LostBytes | None]] = []
    parent: str | None = entry
    while parent is not None and parent not in tree and parent not in entries and len(chain) < _CHAIN:
        found = lost.find(parent)
        chain.append((parent, found))
        named = UNSET if found is None else _parent_in(found, parent)
        if isinstance(named, UnsetType):
            parent = _last_of(change, tree)
            break
        parent = named
    if parent is not None and parent not in tree and parent not in entries:
        parent = _last_of(change, tree)
    for name, found in reversed(chain):
        where = place if found is None else found.place
        reason = "its line is missing" if found is None else "its line was altered"
        data = b"" if found is None else lost.bytes_of(found)
        damage.append(Damage("unreadable", where, f"{reason}; a record stands for it", change.thread, name))
        entries[name] = Entry(name, parent, unreadable(data, f"{where}: {reason}", id=name))
        parent = name


def _parent_in(stretch: LostBytes, entry: str) -> str | UnsetType | None:
    """Return the parent that a damaged stretch names for an entry; unset when it cannot be read."""
    token = re.escape(jsontext.encode(entry))
    named = re.search(rb'"id":%b,"parent":(null|"(?:[^"\\]|\\.)*")' % token, stretch.data)
    try:
        return UNSET if named is None else _optional_text(Raw(jsontext.source(named[1])))
    except DecodeError:
        return UNSET


def _last_of(change: EntriesAdded, tree: Thread) -> str | None:
    """Return the last existing entry of the branch that a change moves; of a new branch, the last one added."""
    heads = [tree.branches[name] for name in change.branches if tree.branches.get(name) is not None]
    last = tree.entries[-1].id if len(tree) else None
    return heads[0] if heads else last
