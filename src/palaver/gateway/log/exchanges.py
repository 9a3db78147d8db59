"""The table of exchanges: figures, receipt, and the bytes of both sides, in the gateway's database.

Rules:

- The bytes are kept as their difference from the exchange before it in the same conversation, or from the last one of
  the same client for the same model (``delta``). Every ``_FULL``-th is whole. ``Exchanges.read`` returns the very
  bytes.
- An exchange is one row, written once: writing it again changes nothing.
- An exchange that others build on can be deleted: those are written anew first.

Stability: experimental.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct, structs

from palaver.core.errors import DamageError, NotFoundError
from palaver.gateway.log import conversations
from palaver.gateway.log.bodies import (
    NOTHING,
    Bodies,
    PackedExchange,
    Receipt,
    WholeExchange,
    bodies_of,
    decode,
    decode_receipt,
    encode_receipt,
    pack,
    receipt_of,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import LiteralString

    from palaver.gateway.database import Database, Migrations, Row, Transaction
    from palaver.gateway.log.conversations import Placed
    from palaver.gateway.log.logged import Figures, LoggedExchange

Group: TypeAlias = Literal["model", "name", "api", "key", "team", "outcome", "day"]
BodyName: TypeAlias = Literal["request", "sent", "received", "returned"]

_MIGRATIONS: Final[Migrations] = (
    (
        """CREATE TABLE {s}.log_exchanges (
            id TEXT PRIMARY KEY, at BIGINT NOT NULL, api TEXT NOT NULL, asked TEXT NOT NULL, model TEXT, caller TEXT,
            team TEXT, status BIGINT NOT NULL, outcome TEXT NOT NULL, seconds DOUBLE PRECISION, input BIGINT,
            output BIGINT, cache_read BIGINT, cache_write BIGINT, reasoning BIGINT, cost DOUBLE PRECISION,
            losses BIGINT NOT NULL, error TEXT, thread TEXT, entry TEXT, depth BIGINT NOT NULL, base TEXT, bodies BYTEA
        )""",
        "CREATE INDEX log_exchanges_at ON {s}.log_exchanges (at)",
        "CREATE INDEX log_exchanges_thread ON {s}.log_exchanges (thread, at)",
        "CREATE INDEX log_exchanges_client ON {s}.log_exchanges (asked, api, at)",
        "CREATE INDEX log_exchanges_base ON {s}.log_exchanges (base)",
    ),
    *conversations.MIGRATIONS,
    ("ALTER TABLE {s}.log_exchanges ADD COLUMN estimated BIGINT NOT NULL DEFAULT 0",),
)
_INSERT: Final = """INSERT INTO {s}.log_exchanges
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"""
_SELECT: Final = """SELECT id, at, api, asked, model, caller, team, status, outcome, seconds, input, output, cache_read,
    cache_write, reasoning, cost, losses, error, thread, entry, estimated FROM {s}.log_exchanges """
_LAST_OF_CLIENT: Final = """SELECT id FROM {s}.log_exchanges WHERE asked = ? AND api = ? AND COALESCE(caller, '') = ?
    ORDER BY at DESC LIMIT 1"""
_LAST_OF_THREAD: Final = "SELECT id FROM {s}.log_exchanges WHERE thread = ? ORDER BY at DESC LIMIT 1"
_BUILT_ON_OLD: Final = """SELECT id FROM {s}.log_exchanges
    WHERE at >= ? AND base IN (SELECT id FROM {s}.log_exchanges WHERE at < ?)"""
_DELETE: Final = "DELETE FROM {s}.log_exchanges WHERE at < ? RETURNING id"
_DELETE_LINKS: Final = """DELETE FROM {s}.log_links
    WHERE thread NOT IN (SELECT thread FROM {s}.log_exchanges WHERE thread IS NOT NULL)"""
_GROUPS: Final[dict[Group, LiteralString]] = {
    "model": "COALESCE(model, '')",
    "name": "asked",
    "api": "api",
    "key": "COALESCE(caller, '')",
    "team": "COALESCE(team, '')",
    "outcome": "outcome",
    "day": "CAST(at / 86400000 AS BIGINT)",
}
"""What exchanges are summed up by, and its expression."""
_SUMS: Final[
    LiteralString
] = """, COUNT(*), SUM(CASE WHEN outcome = 'answered' THEN 1 ELSE 0 END), COALESCE(SUM(input), 0),
    COALESCE(SUM(output), 0), COALESCE(SUM(cache_read), 0), COALESCE(SUM(cache_write), 0), COALESCE(SUM(reasoning), 0),
    SUM(cost), SUM(losses), AVG(seconds) FROM {s}.log_exchanges WHERE at >= ? GROUP BY 1 ORDER BY 1"""
_FULL: Final = 64
"""The number of differences that are read at most for one exchange."""
_CACHED: Final = 32 << 20
"""Bytes of bodies that are kept in memory to make differences from."""
_MIN_ID: Final = 4
"""The fewest letters that name an exchange."""


class ExchangeSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An exchange without its bytes. Times are Unix milliseconds, durations seconds, the cost USD.

    ``losses`` counts the receipt. ``thread`` and ``entry`` say where its answer is in the store. ``estimated``: the
    provider said nothing of tokens, and they and the cost are estimates.
    """

    id: str
    at: int
    api: str
    asked: str
    model: str | None = None
    caller: str | None = None
    team: str | None = None
    status: int
    outcome: str
    seconds: float | None = None
    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cost: float | None = None
    losses: int = 0
    error: str | None = None
    thread: str | None = None
    entry: str | None = None
    estimated: bool = False


class ExchangeSums(Struct, frozen=True, kw_only=True):
    """Exchanges summed up. ``group`` is a model, a name, …, or a day as ``2030-01-31``, in UTC.

    ``cost`` is USD, ``None`` where no price is known, and ``seconds`` the mean of an exchange.
    """

    group: str
    exchanges: int
    answered: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    cost: float | None
    losses: int
    seconds: float | None


class StoredExchange(NamedTuple):
    """An exchange whole. ``bodies`` is ``None`` where the log keeps none."""

    summary: ExchangeSummary
    receipt: Receipt
    bodies: Bodies | None


class Exchanges:
    """The exchanges in a database."""

    def __init__(self, database: Database) -> None:
        """Make the tables where they are missing. Raises ``StoreError``."""
        self._database = database
        self._recent: OrderedDict[str, WholeExchange] = OrderedDict()
        self._size = 0
        database.migrate("log", _MIGRATIONS)

    def known(self, ids: Sequence[str]) -> set[str]:
        """Return which exchanges are there."""
        query: Final = "SELECT id FROM {s}.log_exchanges WHERE id = ?"
        found = self._database.run(lambda it: [row for each in ids for row in it.rows(query, each)])
        return {row[0] for row in found}

    def add(self, several: Sequence[tuple[LoggedExchange, Figures, Placed]]) -> None:
        """Add exchanges, and the links of their histories, in one transaction. Raises ``StoreError``."""
        try:
            rows = [(self._row(*each), each[2]) for each in several]
            self._database.run(lambda it: _write(it, rows))
        except BaseException:
            self._forget()  # what was not written must be nobody's base
            raise

    def _row(self, exchange: LoggedExchange, counted: Figures, placed: Placed) -> Row:
        """Return the row of an exchange, which later ones may then build on."""
        *amounts, is_estimate = structs.astuple(counted)
        receipt = encode_receipt(receipt_of(exchange))
        bodies = bodies_of(exchange)
        base = self._base(exchange, placed.thread)
        made = WholeExchange(exchange.id, base.depth + 1, receipt, bodies)
        self._remember(exchange, placed.thread, made)
        return (
            *(exchange.id, exchange.at, exchange.api, exchange.asked, exchange.model, exchange.caller, exchange.team),
            *(exchange.status, exchange.outcome, exchange.seconds, *amounts),
            *(len(exchange.losses), exchange.error, placed.thread, placed.entry),
            *(
                made.depth,
                base.id or None,
                pack(made, base, empty=exchange.amount != "bodies", translated=exchange.translated),
                int(is_estimate),
            ),
        )

    def read(self, id: str) -> StoredExchange:
        """Return an exchange; a part of its id will do. Raises ``NotFoundError``, ``DamageError``."""
        summary = self.find(id)
        whole, packed = self._whole(summary.id)
        bodies = None if packed.request is None else whole.bodies
        return StoredExchange(summary, decode_receipt(whole.receipt), bodies)

    def find(self, id: str) -> ExchangeSummary:
        """Return an exchange without its bytes. Raises ``NotFoundError`` when none or several have that id."""
        rows = self._database.run(lambda it: it.rows(_SELECT + "WHERE id = ?", id))
        if not rows and len(id) >= _MIN_ID and id.replace("-", "").isalnum():
            similar: Final = _SELECT + "WHERE id LIKE ? LIMIT 2"
            rows = self._database.run(lambda it: it.rows(similar, f"%{id}%"))
        if len(rows) != 1:
            raise NotFoundError(f"{'several exchanges are' if rows else 'no exchange is'} named {id!r}")
        return _summary(rows[0])

    def recent(self, limit: int = 20, *, thread: str | None = None) -> list[ExchangeSummary]:
        """Return exchanges, the newest first; with ``thread``, those of a thread, of whose id a part will do."""
        order: Final = "ORDER BY at DESC, id DESC LIMIT ?"
        if thread is None:
            found = self._database.run(lambda it: it.rows(_SELECT + order, limit))
        else:
            found = self._database.run(
                lambda it: it.rows(_SELECT + "WHERE thread LIKE ? " + order, f"%{thread}%", limit)
            )
        return [_summary(each) for each in found]

    def sums(self, by: Group, *, since: int = 0) -> list[ExchangeSums]:
        """Return the exchanges since a time, summed up ``by`` something."""
        query = "SELECT " + _GROUPS[by] + _SUMS
        found = self._database.run(lambda it: it.rows(query, since))
        names = ExchangeSums.__struct_fields__[1:]
        return [
            ExchangeSums(
                group=_day(group) if by == "day" else group,
                **{name: _plain(value) for name, value in zip(names, values, strict=True)},
            )
            for group, *values in found
        ]

    def delete_before(self, time: int) -> int:
        """Delete the exchanges that began before a time; return their number."""
        for row in self._database.run(lambda it: it.rows(_BUILT_ON_OLD, time, time)):
            self._rewrite(row[0])
        self._forget()

        def work(transaction: Transaction) -> int:
            deleted = len(transaction.rows(_DELETE, time))
            if deleted:
                transaction.rows(_DELETE_LINKS)
            return deleted

        return self._database.run(work)

    def _rewrite(self, id: str) -> None:
        """Write an exchange so that it builds on no other one."""
        whole, packed = self._whole(id)
        data = pack(whole, NOTHING, empty=packed.request is None, translated=packed.translated)
        update: Final = "UPDATE {s}.log_exchanges SET base = NULL, depth = 0, bodies = ? WHERE id = ?"
        self._database.run(lambda it: it.rows(update, data, id))

    # -- differences ---------------------------------------------------------------------------------------------------

    def _base(self, exchange: LoggedExchange, thread: str | None) -> WholeExchange:
        """Return the exchange to make a difference from: of the thread, else of the same client."""
        found = self._recent.get(thread or "") or self._recent.get(_client(exchange))
        if found is None and thread is not None:
            found = self._last(_LAST_OF_THREAD, thread)
        if found is None:
            found = self._last(_LAST_OF_CLIENT, exchange.asked, exchange.api, exchange.caller or "")
        return NOTHING if found is None or found.depth + 1 >= _FULL else found

    def _last(self, query: LiteralString, *values: object) -> WholeExchange | None:
        found = self._database.run(lambda it: it.rows(query, *values))
        return self._whole(found[0][0])[0] if found else None

    def _whole(self, id: str) -> tuple[WholeExchange, PackedExchange]:
        """Read an exchange and those that it builds on. Raises ``DamageError``."""
        query: Final = "SELECT depth, base, bodies FROM {s}.log_exchanges WHERE id = ?"
        chain: list[tuple[str, int, PackedExchange]] = []
        at: str | None = id
        while at is not None:
            wanted = at
            rows = self._database.run(lambda it: it.rows(query, wanted))  # noqa: B023 (it runs here)
            if not rows or len(chain) > _FULL:
                raise DamageError(f"exchange {id}: what it builds on is missing: {wanted}")
            depth, at, data = rows[0]
            chain.append((wanted, depth, decode(data)))
        whole = NOTHING
        for each, depth, packed in reversed(chain):
            whole = WholeExchange(each, depth, *unpack(packed, whole))
        return whole, chain[0][2]

    def _forget(self) -> None:
        self._recent.clear()
        self._size = 0

    def _remember(self, exchange: LoggedExchange, thread: str | None, whole: WholeExchange) -> None:
        """Keep an exchange in memory, as the last one of its thread and of its client."""
        for name in (_client(exchange), *([] if thread is None else [thread])):
            replaced = self._recent.pop(name, None)
            self._size += whole.size - (0 if replaced is None else replaced.size)
            self._recent[name] = whole
        while self._size > _CACHED and self._recent:
            self._size -= self._recent.popitem(last=False)[1].size


def _write(transaction: Transaction, rows: Sequence[tuple[Row, Placed]]) -> None:
    for row, placed in rows:
        transaction.rows(_INSERT, *row)
        placed.write(transaction)


def _day(number: int) -> str:
    return datetime.fromtimestamp(number * 86_400, UTC).strftime("%Y-%m-%d")


def _plain(value: Any) -> Any:
    """Return a number as it is, also where PostgreSQL sums whole numbers up as ``Decimal``."""
    return int(value) if isinstance(value, Decimal) else value


def _client(exchange: LoggedExchange) -> str:
    return f"{exchange.api} {exchange.asked} {exchange.caller}"


def _summary(row: Row) -> ExchangeSummary:
    *values, is_estimate = row
    names = ExchangeSummary.__struct_fields__[:-1]
    return ExchangeSummary(**dict(zip(names, values, strict=True)), estimated=bool(is_estimate))
