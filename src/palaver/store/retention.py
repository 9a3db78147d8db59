"""Retention: which threads expire, and their deletion.

Rules:

- Without ``max_age_days`` nothing expires. The other fields only spare threads.
- Age counts from the last change (``updated_at``).
- ``expired`` only reads. ``retain`` deletes what it lists, except threads that changed or vanished since; ``gc``
  removes their messages and blobs from the disk. The check and the deletion are two calls: an append between them is
  deleted with its thread.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from palaver.core.errors import NotFoundError, StoreError
from palaver.store.store import Store, ThreadInfo
from palaver.threads.ids import now_ms

_DAY: Final = 24 * 60 * 60 * 1000


class Retention(Struct, frozen=True, kw_only=True):
    """Threads expire when they were not changed for more than ``max_age_days``; ``None``: never.

    The ``keep_newest`` threads that were changed last are spared, and those with one of ``spare_tags``.
    """

    max_age_days: float | None = None
    keep_newest: int = 0
    spare_tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse numbers below zero, so that a slip deletes nothing."""
        if self.max_age_days is not None and not self.max_age_days >= 0:  # NaN is not, either
            raise StoreError(f"max_age_days is {self.max_age_days}; it cannot be below zero")
        if self.keep_newest < 0:
            raise StoreError(f"keep_newest is {self.keep_newest}; it cannot be below zero")


def expired(store: Store, rule: Retention, now: int | None = None) -> list[ThreadInfo]:
    """The threads that a rule lets go at a time (Unix milliseconds, else now), those that went on last first."""
    if rule.max_age_days is None:
        return []
    limit = (now_ms() if now is None else now) - rule.max_age_days * _DAY
    spared = set(rule.spare_tags)
    return [
        info
        for place, info in enumerate(store.threads())
        if place >= rule.keep_newest and info.updated_at < limit and spared.isdisjoint(info.tags)
    ]


def retain(store: Store, rule: Retention, now: int | None = None) -> list[str]:
    """Delete the threads that a rule lets go; give their ids."""
    deleted: list[str] = []
    for info in expired(store, rule, now):
        try:
            if store.info(info.id) == info:
                store.delete(info.id)
                deleted.append(info.id)
        except NotFoundError:  # somebody else was quicker
            continue
    return deleted
