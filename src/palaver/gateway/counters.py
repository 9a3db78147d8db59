"""Counters of limits, which all processes of a gateway share through its database.

Rules:

- A process does not ask the database for each request. It takes a share of what is left of a limit, with one
  statement, and reserves from that in memory. The next share is taken before this one is used up.
- The database counts a share as used when it is taken. So all processes together never reserve more than the limit,
  also when one is killed: what is left of its share then counts as used until the period ends.
- A share is what the process used in about the last second, at most an eighth of what is left, or what one request
  needs. A share that was not used for ``IDLE`` seconds is given back, as is all at the end. Until then another process
  may refuse what would still be free: at most one and a half shares for each process.
- What an exchange used beyond its reservation is counted later, also beyond the limit. So a limit of tokens or money is
  passed by at most what the exchanges in progress use beyond what was reserved for them.
- A counter whose limit is reached is asked again after ``CLOSED`` seconds.

Stability: experimental.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, final

import anyio

from palaver.core.errors import StoreError
from palaver.gateway.limits import period_of
from palaver.store.store import to_thread

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from palaver.gateway.database import Database, Migrations, Transaction
    from palaver.gateway.limits import ScopedLimit

IDLE: Final = 5.0
CLOSED: Final = 0.25
_QUICK: Final = 0.5
_SLOW: Final = 2.0
"""A share that lasted less or more seconds than these is followed by a greater or a smaller one."""
_LOGGER: Final = logging.getLogger("palaver.gateway")
_KEEP: Final = 7 * 86_400
"""Seconds for which the counters of a period that is over stay in the database."""
_MIGRATIONS: Final[Migrations] = (
    (
        """CREATE TABLE {s}.counters (name TEXT NOT NULL, start BIGINT NOT NULL, ends BIGINT NOT NULL,
        most BIGINT NOT NULL, used BIGINT NOT NULL, share BIGINT NOT NULL, PRIMARY KEY (name, start))""",
        "CREATE INDEX counters_ends ON {s}.counters (ends)",
    ),
)
_TAKE: Final = (
    "INSERT INTO {s}.counters AS c (name, start, ends, most, used, share) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (name, start) DO UPDATE SET most = excluded.most,"
    " share = {share}, used = c.used + {share} WHERE c.used + ? <= ? RETURNING share, used"
).replace(
    "{share}",
    "CASE WHEN (excluded.most - c.used) / 8 >= ? THEN ?"
    " WHEN (excluded.most - c.used) / 8 >= ? THEN (excluded.most - c.used) / 8 ELSE ? END",
)
_GIVE: Final = "UPDATE {s}.counters SET used = used - ? WHERE name = ? AND start = ?"


class _Share(NamedTuple):
    """What the database gave; 0 where the limit is reached. ``used`` counts for all processes."""

    amount: int
    used: int


@final
class Counter:
    """One counter in one period, as this process sees it. ``left`` is what it may still reserve of its share."""

    __slots__ = (
        *("closed", "ends", "left", "lock", "refills", "refused", "scoped"),
        *("size", "start", "taken", "touched", "used", "waits"),
    )

    def __init__(self, scoped: ScopedLimit, start: int, ends: int) -> None:
        """Begin without a share."""
        self.scoped, self.start, self.ends = scoped, start, ends
        self.left = self.used = self.waits = self.refused = 0
        self.size = 1
        self.taken = self.touched = self.closed = 0.0
        self.refills = False
        self.lock = anyio.Lock()

    @property
    def spent(self) -> int:
        """What all processes have used or reserved, without what this one has left of its share."""
        return self.used - self.left


class Charge(NamedTuple):
    """An amount of a counter that an exchange reserves."""

    counter: Counter
    amount: int


class LimitReachedError(Exception):
    """A counter has not as much left as an exchange needs."""

    def __init__(self, charge: Charge) -> None:
        """Keep the charge that was refused."""
        super().__init__(charge.counter.scoped.name)
        self.charge = charge


@final
class Counters:
    """The counters of this process."""

    def __init__(self, database: Database) -> None:
        """Make the table where it is not there. Raises ``StoreError``."""
        self._database = database
        self._known: dict[str, Counter] = {}
        database.migrate("counters", _MIGRATIONS)

    def counter(self, scoped: ScopedLimit, now: float) -> Counter:
        """Return the counter of a limit in the period at a time, in Unix seconds."""
        found = self._known.get(scoped.name)
        if found is None or not found.start <= now < found.ends:
            found = self._known[scoped.name] = Counter(scoped, *period_of(scoped.limit.period, now))
        found.scoped = scoped
        return found

    async def reserve(self, charges: Sequence[Charge], tasks: TaskGroup) -> None:
        """Reserve all of the amounts, or nothing. ``tasks`` takes shares in the background.

        Raises ``LimitReachedError`` and ``StoreError``.
        """
        for each in charges:
            if each.amount > each.counter.scoped.limit.amount:  # nothing is taken for what can never be reserved
                raise LimitReachedError(each)
        while short := [each for each in charges if each.counter.left < each.amount]:
            for each in short:
                await self._wait_for_share(each)
        now = time.monotonic()
        for counter, amount in charges:
            counter.left -= amount
            counter.touched = now
            if counter.left * 2 < counter.size and not counter.refills and now >= counter.closed:
                counter.refills = True
                tasks.start_soon(self._refill, counter)

    async def balance(self, *, all_shares: bool = False) -> None:
        """Give shares back that are not used, and count what was used beyond a share. Raises ``StoreError``."""
        now, clock = time.time(), time.monotonic()
        for name, counter in [*self._known.items()]:
            if counter.ends < now - IDLE:
                del self._known[name]
            elif counter.left < 0 or (counter.left and (all_shares or clock - counter.touched >= IDLE)):
                left, counter.left = counter.left, 0
                counter.used -= left
                try:
                    await to_thread(self._database.run, lambda it, c=counter, n=left: _give(it, c, n))
                except BaseException:
                    counter.left += left
                    counter.used += left
                    raise

    async def forget_old(self) -> None:
        """Delete the counters of periods that are long over. Raises ``StoreError``."""
        until = int(time.time()) - _KEEP
        await to_thread(self._database.run, lambda it: it.rows("DELETE FROM {s}.counters WHERE ends < ?", until))

    async def _wait_for_share(self, charge: Charge) -> None:
        """Take a share with which ``charge`` can be reserved. Raises ``LimitReachedError`` and ``StoreError``."""
        counter, amount = charge
        counter.waits += amount
        try:
            async with counter.lock:
                least = amount - counter.left
                if least <= 0:
                    return
                known = least >= counter.refused and time.monotonic() < counter.closed
                if known or not await self._take(counter, least, counter.waits):
                    raise LimitReachedError(charge)
        finally:
            counter.waits -= amount

    async def _refill(self, counter: Counter) -> None:
        try:
            async with counter.lock:
                if counter.left * 2 < counter.size:
                    await self._take(counter, 1, 1)
        except StoreError as error:
            _LOGGER.warning("no share of a limit can be taken: %s", error)
        finally:
            counter.refills = False

    async def _take(self, counter: Counter, least: int, wanted: int) -> bool:
        """Take a share of at least ``least``. Returns whether there was one. Raises ``StoreError``."""
        now = time.monotonic()
        if now - counter.taken < _QUICK:
            counter.size = min(counter.size * 2, counter.scoped.limit.amount)
        elif now - counter.taken > _SLOW:
            counter.size = max(counter.size // 2, 1)
        limit = counter.scoped.limit.amount
        counter.size = min(max(counter.size, least), max(limit, 1))
        counter.taken = now
        most = min(max(counter.size, wanted), limit)
        share = _Share(0, counter.used)
        with anyio.CancelScope(shield=True):  # what the database gave must not be lost
            share = await to_thread(self._database.run, lambda it: _take(it, counter, least, most))
            counter.left += share.amount
        counter.used = share.used
        if not share.amount:
            counter.closed, counter.refused = time.monotonic() + CLOSED, least
        return share.amount > 0


def _take(transaction: Transaction, counter: Counter, least: int, most: int) -> _Share:
    """Take a share of ``least`` to ``most``, with one statement."""
    limit = counter.scoped.limit.amount
    if least > limit:
        return _Share(0, counter.used)
    first = min(most, max(least, limit // 8))
    row = (counter.scoped.name, counter.start, counter.ends, limit, first, first)
    sizes = (most, most, least, least)
    found = transaction.rows(_TAKE, *row, *sizes, *sizes, least, limit)
    if found:
        return _Share(found[0][0], found[0][1])
    used = transaction.rows(
        "SELECT used FROM {s}.counters WHERE name = ? AND start = ?", counter.scoped.name, counter.start
    )
    return _Share(0, used[0][0] if used else 0)


def _give(transaction: Transaction, counter: Counter, amount: int) -> None:
    transaction.rows(_GIVE, amount, counter.scoped.name, counter.start)
