"""Appends: those of many callers are one call of the database's function ``append``, each with its own outcome.

Rules:

- ``again`` says that an earlier try may have been done already: it is found by the ids of its entries.
- Appends to one branch keep their order; threads are locked in the order of their names, by whoever sends a group.

Stability: experimental.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, LiteralString, NamedTuple

from msgspec import UNSET, UnsetType

from palaver.core.errors import NotFoundError
from palaver.store import pack
from palaver.store.postgres import batch
from palaver.store.postgres.database import Link, sayable
from palaver.store.postgres.writing import KEEP, SHARED, locked, lost, moved_on
from palaver.store.rows import Prepared, repeats
from palaver.store.store import Appended
from palaver.threads.ids import now_ms
from palaver.threads.thread import Entry

_APPEND: Final[LiteralString] = (
    "select * from {s}.append(%s::json, %s, %s, %s, %s::text[], %s::smallint[], %s::bigint[], %b::bytea, "  # noqa: S608 (of constants)
    f"{batch.KEEP})"
)


class Joining(NamedTuple):
    """An append that is ready to be sent, as often as it takes; ``size`` in bytes."""

    thread: str
    branch: str
    expect: str | UnsetType | None
    key: str | None
    rows: Sequence[Prepared]
    size: int


class Outcome(NamedTuple):
    """What became of an append: what the function ``append`` says of it."""

    kind: str
    entry: str | None
    place: int
    messages: int


BUSY: Final = "busy"


def append(link: Link, joining: Joining, *, again: bool) -> Outcome:
    """Let the messages of one append join, however large they are, whoever holds the thread now."""
    if joining.size <= batch.MOST:
        return join(link, [joining], again=again)[0]
    with link.transaction():
        link.execute(SHARED)
        locked(link, joining.thread)
        for digest in lost(link, joining.rows):
            raise pack.not_there(digest)
        for call in batch.calls(joining.rows):
            link.execute(KEEP, *call)
        return _join(link, [joining], batch.NOTHING, waits=True, again=again)[0]


def join(link: Link, joining: Sequence[Joining], *, again: bool, waits: bool = True) -> list[Outcome]:
    """Let the messages of several appends join in one transaction, which must not be too large for one call.

    Each has its own outcome. Without ``waits`` it is ``BUSY`` where another client holds the thread.
    """
    if not any(row.packed.named for each in joining for row in each.rows):
        return _join_all(link, joining, again=again, waits=waits)
    with link.transaction():
        link.execute(SHARED)
        gone = lost(link, [row for each in joining for row in each.rows])
        outcomes = [_nameless(each, gone) for each in joining]
        sound = [each for each, outcome in zip(joining, outcomes, strict=True) if outcome is None]
        found = iter(_join_all(link, sound, again=again, waits=waits) if sound else ())
        return [next(found) if outcome is None else outcome for outcome in outcomes]


def _nameless(joining: Joining, gone: Collection[bytes]) -> Outcome | None:
    """What became of an append that names a blob which is not there."""
    digest = next((digest for row in joining.rows for digest in row.packed.named if digest in gone), None)
    return None if digest is None else Outcome("no blob", digest.hex(), 0, 0)


def _join_all(link: Link, joining: Sequence[Joining], *, again: bool, waits: bool) -> list[Outcome]:
    return _join(link, joining, batch.calls(row for each in joining for row in each.rows)[0], waits=waits, again=again)


def _join(link: Link, joining: Sequence[Joining], call: batch.Columns, *, waits: bool, again: bool) -> list[Outcome]:
    order = sorted(range(len(joining)), key=lambda at: joining[at][:2])
    rows = [row for at in order for row in joining[at].rows]
    found = link.execute(
        _APPEND,
        json.dumps([_wanted(joining[at]) for at in order]),
        waits,
        again,
        now_ms(),
        batch.array([row.id for row in rows]),
        batch.array([row.stamps for row in rows]),
        batch.array([row.sent_at for row in rows]),
        b"".join([row.packed.body.digest for row in rows]),
        *call,
    ).fetchall()
    outcomes = {at: Outcome(*row) for at, row in zip(order, found, strict=True)}
    return [outcomes[at] for at in range(len(joining))]


def _wanted(joining: Joining) -> dict[str, object]:
    expect = joining.expect
    return {
        "thread": sayable(joining.thread),
        "branch": sayable(joining.branch),
        "expects": expect is not UNSET,
        "expected": sayable(expect) if isinstance(expect, str) else None,
        "key": joining.key,
        "messages": len(joining.rows),
    }


def appended(joining: Joining, outcome: Outcome, earlier: Callable[[int, int], Sequence[Entry]]) -> Appended:
    """What to tell of an append. ``earlier`` reads entries from one place to another."""
    thread, branch, _, key, rows, _ = joining
    match outcome.kind:
        case "joined":
            return Appended(_entries(rows, outcome.entry))
        case "repeated":
            known = earlier(outcome.place, outcome.place + outcome.messages)
            repeats(known, rows, thread, key or "")
            return Appended(tuple(known), repeated=True)
        case "no thread":
            raise NotFoundError(f"no thread {thread!r}")
        case "no branch":
            raise NotFoundError(f"thread {thread}: no branch {branch!r}")
        case "no blob":
            raise pack.not_there(bytes.fromhex(outcome.entry or ""))
        case _:
            raise moved_on(thread, branch, outcome.entry)


def _entries(rows: Iterable[Prepared], parent: str | None) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for row in rows:
        entries.append(row.entry(parent))
        parent = row.id
    return tuple(entries)
