"""What happens to a store, as values: every change of it is one of these.

Rules:

- A change is complete: applied to a store in the state it was made for, it gives the next state, with no clock and no
  chance in it. So a journal of changes is the store (``jsonl``), and memory is their sum (``memory``).
- What a change may do is checked before it is made. Applying one cannot fail.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from palaver.threads.thread import Entry


class Created(Struct, frozen=True, kw_only=True):
    """A thread begins. ``at`` is Unix milliseconds, here and below."""

    thread: str
    at: int
    title: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}


class Updated(Struct, frozen=True, kw_only=True):
    """What is known of a thread changes; what is unset stays."""

    thread: str
    at: int
    title: str | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET


class Joined(Struct, frozen=True, kw_only=True):
    """Entries join a thread, and heads move: by an append (with its ``key``), a fork or a rewind."""

    thread: str
    at: int
    entries: tuple[Entry, ...] = ()
    branches: Mapping[str, str | None] = {}
    key: str | None = None


class Deleted(Struct, frozen=True, kw_only=True):
    """A thread is gone."""

    thread: str
    at: int


class BlobPut(Struct, frozen=True, kw_only=True):
    """Bytes are kept."""

    data: bytes


class BlobsDropped(Struct, frozen=True, kw_only=True):
    """Blobs that nothing refers to are gone, named by their digests."""

    digests: tuple[bytes, ...]


Change: TypeAlias = Created | Updated | Joined | Deleted | BlobPut | BlobsDropped
"""Any change of a store."""
