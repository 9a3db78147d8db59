"""Rows and changes: what every store writes, in any medium.

Rules:

- ``prepare`` does everything that costs time (JSON, hashes, compression) in the caller's thread, before any lock is
  taken. Parent, place and seal depend on the head; the store adds them under its lock.
- Places count from 0 in each thread, in the order of appends, without gaps. The parent of a row is a place.
- ``decode_entry`` checks the address of a message. An entry whose message cannot be read keeps its place: a record
  (``unreadable``) holds the reason and the stored bytes, and no view shows it or sends it to a model.
- A ``Change`` is complete: applied to the state it was made for, it gives the next state, without clock or randomness.
  It is checked before it is made, so applying it cannot fail. ``jsonl`` writes changes; ``memory`` holds their sum.

Stability: experimental.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias, cast

from msgspec import UNSET, Struct, UnsetType

from palaver.core import jsontext
from palaver.core.changes import MessageChanges
from palaver.core.errors import ConflictError, DamageError, DecodeError, MessageError, StoreError
from palaver.core.messages import Message, SystemMessage
from palaver.core.value import json_text
from palaver.store import message_codec
from palaver.threads.ids import now_ms, uuid7
from palaver.threads.thread import Entry, stamped, verified
from palaver.threads.view import RECORD

# --- unreadable -------------------------------------------------------------------------------------------------------


UNREADABLE: Final = "unreadable"
"""The ``source`` of a record for an unreadable message."""


def unreadable(data: bytes, reason: str, *, id: str | None = None, sent_at: int | None = None) -> Message:
    """Return the record that stands for stored bytes. ``id`` and ``sent_at`` are those of the entry, if known."""
    try:
        stored = {"text": data.decode()}
    except UnicodeDecodeError:
        stored = {"base64": binascii.b2a_base64(data, newline=False).decode()}
    payload = json_text({"reason": reason, **stored}, "payload")
    return SystemMessage(source=UNREADABLE, tags=(RECORD,), mode="tool", id=id, sent_at=sent_at, payload_json=payload)


def is_unreadable(message: Message) -> bool:
    """Return whether a message stands for one that cannot be decoded."""
    return isinstance(message, SystemMessage) and message.source == UNREADABLE and RECORD in message.tags


# --- rows -------------------------------------------------------------------------------------------------------------


_MAX_NAME: Final = 200
_UNNAMEABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_MAX_TIME: Final = (1 << 63) - 1


class Prepared(NamedTuple):
    """An entry that is ready to be stored, except for its place. ``sent_at`` is as a column can store it."""

    id: str
    message: Message
    stamps: int
    sent_at: int | None
    packed: message_codec.Packed

    def entry(self, parent: str | None) -> Entry:
        """Return the entry, behind its parent."""
        return Entry(self.id, parent, self.message)


def prepare(messages: Iterable[Message], now: Callable[[], int] = now_ms) -> list[Prepared]:
    """Prepare messages to be added: stamped with new ids and one time.

    Raises ``MessageError`` for an invalid message, and ``EncodeError`` for one that could not be read back.
    """
    time = now()
    rows: list[Prepared] = []
    for message in verified(messages):
        entry = uuid7()
        joined = stamped(message, entry, time)
        packed = message_codec.pack(message)
        stamps = message_codec.stamps_for(message) | packed.marks
        rows.append(Prepared(entry, joined, stamps, message_codec.int64_or_none(joined.sent_at), packed))
    return rows


def prepare_entry(entry: Entry) -> Prepared:
    """Prepare an existing entry to be stored as it is. Raises as ``prepare`` does."""
    checked_entry(entry)
    message, stamps = message_codec.unstamped(entry)
    packed = message_codec.pack(message)
    return Prepared(
        entry.id, entry.message, stamps | packed.marks, message_codec.int64_or_none(entry.message.sent_at), packed
    )


def check_same_messages(earlier: Sequence[Entry], rows: Sequence[Prepared], thread: str, key: str) -> None:
    """Check that a repeated key comes with the same messages. Raises ``ConflictError``.

    Raises ``DamageError`` when one of them cannot be read any more.
    """
    for entry in earlier:
        if is_unreadable(entry.message):
            raise DamageError(f"thread {thread}: entry {entry.id}: {entry.message.payload['reason']}")
    same = len(earlier) == len(rows) and all(
        message_codec.pack(_unstamped(entry, row)).body.digest == row.packed.body.digest
        for entry, row in zip(earlier, rows, strict=True)
    )
    if not same:
        raise ConflictError(f"thread {thread}: the key {key!r} was used for other messages")


def _unstamped(entry: Entry, row: Prepared) -> Message:
    """Return the message of an earlier entry, without the stamps that the new one got too."""
    changes: MessageChanges = {}
    if row.stamps & message_codec.STAMPED_ID:
        changes["id"] = None
    if row.stamps & message_codec.STAMPED_TIME:
        changes["sent_at"] = None
    return entry.message.replace(**changes) if changes else entry.message


def decode_entry(  # noqa: PLR0917 (one argument a column)
    id: str,
    parent: str | None,
    stamps: int,
    sent_at: int | None,
    body: message_codec.StoredBytes,
    blob: Callable[[bytes], bytes],
    place: str,
    *,
    strict: bool = False,
) -> Entry:
    """Read an entry; an altered or undecodable message becomes a record (``unreadable``).

    ``strict``: raises ``DamageError``, naming the place, for an altered message.
    """
    text = body.data
    try:
        text = message_codec.decompress(body.digest, body.encoding, body.data, place)
        return Entry(id, parent, message_codec.unpack(text, id, stamps, sent_at, blob))
    except DecodeError as error:
        return Entry(id, parent, unreadable(text, f"{place}: {error}", id=id, sent_at=sent_at))
    except DamageError as error:  # of the body, or of its extracted media
        if strict:
            raise
        return Entry(id, parent, unreadable(text, str(error), id=id, sent_at=sent_at))


def time_range(messages: Iterable[Message], now: int) -> tuple[int, int]:
    """Return the first and the last time at which messages were sent; twice now when none has a time.

    A time before 1970 or in the future does not count.
    """
    times = [each.sent_at for each in messages if each.sent_at is not None and 0 < each.sent_at <= now]
    return (min(times), max(times)) if times else (now, now)


def clamp_time(time: int | None) -> int | None:
    """Return the bound of a search in the range that a column can be compared with."""
    return None if time is None else max(-_MAX_TIME, min(time, _MAX_TIME))


def checked_name(name: str, what: str) -> str:
    """Return a name; refuse one that cannot name a thread, branch or key in every store. Raises ``StoreError``."""
    given = cast("object", name)
    if not isinstance(given, str):
        raise StoreError(f"the {what} is not a string but {type(given).__name__}")
    if not name:
        raise StoreError(f"the {what} is empty")
    if len(name) > _MAX_NAME:
        raise StoreError(f"the {what} is longer than {_MAX_NAME} characters")
    if _UNNAMEABLE.search(name):
        raise StoreError(f"the {what} holds control characters or lone surrogates: {name!r}")
    return name


def checked_title(title: str | UnsetType | None) -> str | UnsetType | None:
    """Return a title; refuse other types. Raises ``StoreError``."""
    given = cast("object", title)
    if not isinstance(given, (str, UnsetType, NoneType)):
        raise StoreError(f"title: expected a string or None, got {type(given).__name__}")
    return title


def _type_name(item: object) -> str:
    return type(item).__name__


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return a copy of the tags of a thread. Raises ``StoreError`` for values that are not strings."""
    given = cast("object", tags)
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise StoreError(f"tags: expected several strings, got {_type_name(tags)}")
    found = tuple(tags)
    for index, tag in enumerate(cast("tuple[object, ...]", found)):
        if not isinstance(tag, str):
            raise StoreError(f"tags[{index}]: expected a string, got {type(tag).__name__}")
    return found


def checked_entry(entry: Entry) -> Entry:
    """Refuse an entry that could not be read back. Raises ``StoreError``, and ``MessageError`` for its message."""
    for name, kinds in (("id", str), ("parent", (str, NoneType))):
        found: object = getattr(entry, name, UNSET)
        if not isinstance(found, kinds):
            raise StoreError(f"{name} of an entry: expected a string, got {type(found).__name__}")
    verified([entry.message])
    return entry


def frozen_metadata(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a copy of JSON values. Raises ``StoreError`` for a value that JSON cannot express."""
    given = cast("object", metadata)
    if not isinstance(given, Mapping):
        raise StoreError(f"metadata: expected a mapping, got {type(given).__name__}")
    try:
        return dict(jsontext.view(jsontext.checked(dict(metadata), "metadata")))
    except MessageError as error:
        raise StoreError(str(error)) from None


# --- changes ----------------------------------------------------------------------------------------------------------


class ThreadCreated(Struct, frozen=True, kw_only=True):
    """A thread is created. ``at`` is Unix milliseconds, here and below."""

    thread: str
    at: int
    title: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}


class ThreadUpdated(Struct, frozen=True, kw_only=True):
    """The details of a thread change; unset fields stay."""

    thread: str
    at: int
    title: str | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET


class EntriesAdded(Struct, frozen=True, kw_only=True):
    """Entries are added to a thread, and heads move: by an append (with its ``key``), a fork or a rewind."""

    thread: str
    at: int
    entries: tuple[Entry, ...] = ()
    branches: Mapping[str, str | None] = {}
    key: str | None = None


class ThreadDeleted(Struct, frozen=True, kw_only=True):
    """A thread is deleted."""

    thread: str
    at: int


class BlobAdded(Struct, frozen=True, kw_only=True):
    """Bytes are stored."""

    data: bytes


class BlobsRemoved(Struct, frozen=True, kw_only=True):
    """Unused blobs are removed, named by their digests."""

    digests: tuple[bytes, ...]


Change: TypeAlias = ThreadCreated | ThreadUpdated | EntriesAdded | ThreadDeleted | BlobAdded | BlobsRemoved
"""Any change of a store."""
