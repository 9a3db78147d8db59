"""What keys, teams and models used, for people: sums for each hour, of all processes of a gateway.

Rules:

- Sums are added up in memory and written each second, and at the end. A process that is killed loses those of its last
  second. Limits do not depend on them (``palaver.gateway.counters``).
- Costs are in billionths of a USD. ``unpriced`` counts the exchanges whose cost is not known.

Stability: experimental.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple, final

from msgspec import Struct

from palaver.gateway.limits import USD

if TYPE_CHECKING:
    from palaver.gateway.database import Database, Migrations, Transaction
    from palaver.gateway.record import Record
    from palaver.gateway.spending import Amounts

_HOUR: Final = 3_600_000
_MIGRATIONS: Final[Migrations] = (
    (
        """CREATE TABLE {s}.usage (hour BIGINT NOT NULL, key_id TEXT NOT NULL, name TEXT NOT NULL, team TEXT NOT NULL,
        model TEXT NOT NULL, requests BIGINT NOT NULL, input BIGINT NOT NULL, output BIGINT NOT NULL,
        cost BIGINT NOT NULL, unpriced BIGINT NOT NULL, PRIMARY KEY (hour, key_id, team, model))""",
    ),
)
_ADD: Final = (
    "INSERT INTO {s}.usage AS u (hour, key_id, name, team, model, requests, input, output, cost, unpriced)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (hour, key_id, team, model) DO UPDATE SET"
    " name = excluded.name, requests = u.requests + excluded.requests, input = u.input + excluded.input,"
    " output = u.output + excluded.output, cost = u.cost + excluded.cost, unpriced = u.unpriced + excluded.unpriced"
)
_LONGEST: Final = 200


class _Place(NamedTuple):
    hour: int
    key_id: str
    name: str
    team: str
    model: str


class UsageSum(Struct, frozen=True, kw_only=True):
    """What one key used of one model. ``key`` and ``team`` are empty for exchanges without."""

    key: str
    team: str
    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    cost: float
    """In USD."""
    unpriced: int


@final
class UsageLedger:
    """The sums in a database."""

    def __init__(self, database: Database) -> None:
        """Make the table where it is not there. Raises ``StoreError``."""
        self._database = database
        self._lock = threading.Lock()
        self._sums: dict[_Place, tuple[int, ...]] = {}
        database.migrate("usage", _MIGRATIONS)

    def add(self, record: Record, amounts: Amounts) -> None:
        """Add what an exchange used; it is written later."""
        key_id, name, team = "", "", ""
        if record.caller is not None:
            key_id, name, team = record.caller.key_id, record.caller.name, record.caller.team or ""
        model = (record.model or record.request.model)[:_LONGEST]
        place = _Place(record.at - record.at % _HOUR, key_id, name, team, model)
        added = (amounts.requests, amounts.input, amounts.output, amounts.cost or 0, int(amounts.cost is None))
        with self._lock:
            self._sums[place] = _plus(self._sums.get(place), added)

    def write(self) -> None:
        """Write what was added. Raises ``StoreError``, and then keeps it for the next time."""
        with self._lock:
            sums, self._sums = self._sums, {}
        if not sums:
            return

        def work(transaction: Transaction) -> None:
            for place, amounts in sorted(sums.items()):  # in one order, so that no two processes wait for each other
                transaction.rows(_ADD, *place, *amounts)

        try:
            self._database.run(work)
        except BaseException:
            with self._lock:
                for place, amounts in sums.items():
                    self._sums[place] = _plus(self._sums.get(place), amounts)
            raise

    def sums(
        self, *, key: str | None = None, team: str | None = None, model: str | None = None, since: int = 0
    ) -> tuple[UsageSum, ...]:
        """Return the sums since an hour, given in Unix milliseconds, the greatest cost first. Raises ``StoreError``."""
        found = self._database.run(
            lambda it: it.rows(
                "SELECT MAX(name), team, model, CAST(SUM(requests) AS BIGINT), CAST(SUM(input) AS BIGINT),"
                " CAST(SUM(output) AS BIGINT), CAST(SUM(cost) AS BIGINT), CAST(SUM(unpriced) AS BIGINT)"
                " FROM {s}.usage WHERE hour >= ? GROUP BY key_id, team, model ORDER BY 7 DESC, 1, 2, 3",
                since - since % _HOUR,
            )
        )
        every = [
            UsageSum(
                key=row[0],
                team=row[1],
                model=row[2],
                requests=row[3],
                input_tokens=row[4],
                output_tokens=row[5],
                cost=row[6] / USD,
                unpriced=row[7],
            )
            for row in found
        ]
        wanted = (("key", key), ("team", team), ("model", model))
        return tuple([each for each in every if all(of is None or getattr(each, name) == of for name, of in wanted)])


def _plus(one: tuple[int, ...] | None, other: tuple[int, ...]) -> tuple[int, ...]:
    return other if one is None else tuple([a + b for a, b in zip(one, other, strict=True)])
