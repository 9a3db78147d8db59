"""Messages as parameters of the database functions.

Rules:

- One parameter for each column, so any number of rows is one call with one statement text. Bytes are concatenated, with
  their lengths in an array: the driver is much slower with lists.
- Each body or blob appears once. What exceeds ``MAX_BYTES`` is split into several calls.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from palaver.store import message_codec
from palaver.store.records import Prepared

Columns: TypeAlias = tuple[bytes | str, ...]

MAX_BYTES: Final = 64 << 20
PLACEHOLDERS: Final = (
    "%b::bytea, %s::smallint[], %s::bigint[], %s::integer[], %b::bytea, "
    "%b::bytea, %s::smallint[], %s::bigint[], %s::integer[], %b::bytea, %s::integer[], %b::bytea"
)
"""The parameters of ``keep`` without its last, and the last of ``append``."""


def calls(rows: Iterable[Prepared], blobs: Iterable[message_codec.StoredBytes] = ()) -> list[Columns]:
    """Return the columns that store messages and their media, for as many calls of ``keep`` as needed; at least one."""
    media = {blob.digest: blob for blob in blobs}
    bodies: dict[bytes, message_codec.Packed] = {}
    for row in rows:
        media.update((blob.digest, blob) for blob in row.packed.media)
        bodies[row.packed.body.digest] = row.packed
    filled: list[tuple[list[message_codec.StoredBytes], list[message_codec.Packed]]] = [([], [])]
    room = MAX_BYTES
    ordered: list[message_codec.StoredBytes | message_codec.Packed] = [media[digest] for digest in sorted(media)]
    ordered += [bodies[digest] for digest in sorted(bodies)]
    for item in ordered:
        size = len(item.data) if isinstance(item, message_codec.StoredBytes) else len(item.body.data)
        if size > room and room < MAX_BYTES:
            filled.append(([], []))
            room = MAX_BYTES
        room -= size
        if isinstance(item, message_codec.StoredBytes):
            filled[-1][0].append(item)
        else:
            filled[-1][1].append(item)
    return [(*_columns(blobs), *_bodies(bodies)) for blobs, bodies in filled]


def size(rows: Iterable[Prepared]) -> int:
    """Return the bytes of messages and their media."""
    return sum([len(row.packed.body.data) + sum([len(blob.data) for blob in row.packed.media]) for row in rows])


def _bodies(packed: Sequence[message_codec.Packed]) -> Columns:
    return (
        *_columns([each.body for each in packed]),
        array([len(each.uses) for each in packed]),
        b"".join([digest for each in packed for digest in each.uses]),
    )


def _columns(kept: Sequence[message_codec.StoredBytes]) -> Columns:
    return (
        b"".join([k.digest for k in kept]),
        array([k.encoding for k in kept]),
        array([k.size for k in kept]),
        array([len(k.data) for k in kept]),
        b"".join([k.data for k in kept]),
    )


def array(values: Iterable[int | str | None]) -> str:
    """Return numbers, or ids that are UUIDs, as the text of an array."""
    return "{%s}" % ",".join(["null" if value is None else str(value) for value in values])  # noqa: UP031 (braces)


EMPTY: Final = (*_columns(()), *_bodies(()))
"""The columns without messages and media."""
