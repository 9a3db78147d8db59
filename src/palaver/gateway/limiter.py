"""Limits of requests, tokens and money: the component that reserves them, and counts what was used.

Rules:

- An exchange reserves what it may use of each of its limits, or is refused with 429, the limit, and when it begins
  anew. When it has ended, what it used is counted instead (``palaver.gateway.spending``).
- A client is told not to ask again by itself (``x-should-retry``) where it would wait for more than a minute.
- Where the database cannot be reached and no share of a limit is left, exchanges are refused with 503.

Stability: experimental.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Literal, Self, final

import anyio

from palaver.core.errors import StoreError
from palaver.gateway.client_api import RefusedError
from palaver.gateway.component import Component
from palaver.gateway.counters import Charge, Counters, LimitReachedError
from palaver.gateway.limits import LimitTable, shown
from palaver.gateway.spending import expected, used
from palaver.gateway.usage import UsageLedger
from palaver.store.store import to_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from anyio.abc import TaskGroup

    from palaver.gateway.counters import Counter
    from palaver.gateway.database import Database
    from palaver.gateway.limits import LimitRule, ScopedLimit
    from palaver.gateway.record import ClientRequest, Record
    from palaver.gateway.spending import Amounts

WRITTEN: Final = 1.0
"""Seconds between two times that sums are written, and shares given back."""
_CLEANED: Final = 3600
_MOST: Final = 10_000
_LOGGER: Final = logging.getLogger("palaver.gateway")


@final
class Limiter(Component):
    """Reserves and counts. ``models`` returns the names of the models that may answer a request."""

    def __init__(
        self,
        open_database: Callable[[], Database],
        rules: Sequence[LimitRule],
        *,
        unknown_price: Literal["refuse", "zero"],
        models: Callable[[ClientRequest], Sequence[str]],
        counted_name: Callable[[ClientRequest], str] = lambda request: request.model,
    ) -> None:
        """Read the rules. Raises ``DecodeError``. The database is opened when the component is entered.

        ``counted_name`` returns the name under which a request is counted.
        """
        self._open_database = open_database
        self._table = LimitTable(rules)
        self._unknown_price = unknown_price
        self._models, self._counted_name = models, counted_name
        self._found: dict[tuple[object, ...], tuple[ScopedLimit, ...]] = {}
        self._reserved: dict[str, list[Charge]] = {}
        self._running = AsyncExitStack()
        self._counters: Counters
        self._ledger: UsageLedger
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        """Open the counters. Raises ``StoreError``."""

        def opened() -> tuple[Counters, UsageLedger]:
            database = self._open_database()
            return Counters(database), UsageLedger(database)

        self._counters, self._ledger = await to_thread(opened)
        self._tasks = await self._running.enter_async_context(anyio.create_task_group())
        self._running.callback(self._tasks.cancel_scope.cancel)
        self._tasks.start_soon(self._write_often)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give all shares back, and write what was used."""
        await self._running.aclose()
        await self._write(all_shares=True)

    async def admit(self, record: Record) -> None:
        """Reserve what an exchange may use. Raises ``RefusedError``."""
        charges: list[Charge] = []
        if limits := self._limits(record):
            priced = any(each.limit.measure == "cost" for each in limits)
            models = self._models(record.request) if priced else ()
            amounts = expected(record.request, models, [each.limit for each in limits])
            if amounts.cost is None and self._unknown_price == "refuse":
                raise _unpriced(models)
            now = record.at / 1000
            charges = [_charge(self._counters.counter(each, now), amounts) for each in limits]
            try:
                await self._counters.reserve(charges, self._tasks)
            except LimitReachedError as reached:
                raise _reached(reached.charge) from None
            except StoreError as error:
                raise RefusedError("overloaded", "limits cannot be checked now", retry_after=1) from error
        self._reserved[record.id] = charges

    async def ended(self, record: Record) -> None:
        """Count what an exchange used, instead of what it reserved."""
        charges = self._reserved.pop(record.id, None)
        if charges is None:
            return
        amounts = used(record)
        for counter, reserved in charges:
            counter.left += reserved - amounts.of(counter.scoped.limit.measure)
        self._ledger.add(record, amounts)

    def _limits(self, record: Record) -> tuple[ScopedLimit, ...]:
        caller, model = record.caller, record.request.model
        counted = self._counted_name(record.request)
        who = () if caller is None else (caller.key_id, caller.name, caller.team, caller.limits)
        place = (model, counted, *who)
        found = self._found.get(place)
        if found is None:
            if len(self._found) >= _MOST:
                self._found.clear()
            found = self._found[place] = self._table.find(caller, model, counted)
        return found

    async def _write_often(self) -> None:
        cleaned = -math.inf
        while True:
            await anyio.sleep(WRITTEN)
            await self._write()
            if time.monotonic() - cleaned > _CLEANED:
                cleaned = time.monotonic()
                await self._clean()

    async def _write(self, *, all_shares: bool = False) -> None:
        try:
            with anyio.CancelScope(shield=True):
                await to_thread(self._ledger.write)
                await self._counters.balance(all_shares=all_shares)
        except StoreError as error:
            _LOGGER.warning("what was used cannot be written: %s", error)

    async def _clean(self) -> None:
        try:
            await self._counters.forget_old()
        except StoreError as error:
            _LOGGER.warning("old counters cannot be deleted: %s", error)


def _charge(counter: Counter, amounts: Amounts) -> Charge:
    """Return what is reserved: at least 1, so that nothing is admitted when the limit is reached."""
    return Charge(counter, max(1, amounts.of(counter.scoped.limit.measure)))


def _unpriced(models: Sequence[str]) -> RefusedError:
    names = ", ".join(models)
    return RefusedError(
        "forbidden",
        f"the cost of this request is limited, and the price of {names} is not known: add it to the file that"
        ' PALAVER_MODELS names, or set unknown_price = "zero"',
    )


def _reached(charge: Charge) -> RefusedError:
    counter, amount = charge
    scoped, measure = counter.scoped, counter.scoped.limit.measure
    frees = dt.datetime.fromtimestamp(counter.ends, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    needs = "" if measure == "requests" else f"; this request may use {shown(measure, amount)}"
    return RefusedError(
        "rate_limit",
        f"{scoped.label} has a limit of {scoped.limit}, of which {shown(measure, counter.spent)} are used or reserved"
        f"{needs}; it begins anew at {frees}",
        retry_after=max(1, math.ceil(counter.ends - time.time())),
        code="insufficient_quota" if measure == "cost" else None,
    )
