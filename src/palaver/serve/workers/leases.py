"""Leases: exclusive rights for a limited time, shared by processes over PostgreSQL (extra ``postgres``).

- A lease has a name, an owner, a fence and an end time, which is the database's. It can be taken when it is free or has
  ended, and is renewed until somebody else took it.
- The fence grows with every new owner of any lease of the schema, so fences of different leases can be compared.
- ``heartbeat`` renews all leases in one transaction, registers the owner as a member of a group, and counts the live
  members. ``until`` says, by this machine's clock, how long the leases last at least; a caller must drop them then.
- A network that is silent as long as a lease lasts counts as broken, and the connection is made again.
- No process waits for another one: rows that it locks are left out. A process that stops in a transaction holds its
  rows no longer than its leases.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, LiteralString, ParamSpec, Self, TypeVar

import anyio
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from msgspec import Struct

from palaver.core.errors import SwarmError
from palaver.store.postgres.database import Database, Link, conninfo_to_dict, make_conninfo, psycopg, store_error
from palaver.threads.ids import uuid7

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

TTL: Final = 10.0
"""The default number of seconds that a lease lasts."""

_CONNECTIONS: Final = 2

_P = ParamSpec("_P")
_T = TypeVar("_T")

_TABLES: Final = """
create schema if not exists {s};
create sequence if not exists {s}.palaver_fences;
create table if not exists {s}.palaver_leases (
    name text collate "C" primary key,
    owner text,
    fence bigint not null default 0,
    expires timestamptz not null default '-infinity'
) with (fillfactor = 50);
create table if not exists {s}.palaver_members (
    kind text collate "C" not null,
    member text collate "C" not null,
    expires timestamptz not null,
    primary key (kind, member)
) with (fillfactor = 50);
"""
_NAMES: Final = "insert into {s}.palaver_leases (name) select unnest(%s::text[]) on conflict do nothing"
_TAKE: Final = """
with free as (
    select name from {s}.palaver_leases
    where name = any(%s) and (owner is null or expires <= clock_timestamp())
    order by random() limit %s for update skip locked
)
update {s}.palaver_leases as lease
set owner = %s, fence = nextval(%s::text::regclass), expires = clock_timestamp() + make_interval(secs => %s)
from free where lease.name = free.name
returning lease.name, lease.fence
"""
_RENEW: Final = """
update {s}.palaver_leases set expires = clock_timestamp() + make_interval(secs => %s)
where owner = %s returning name, fence
"""
_RELEASE: Final = "update {s}.palaver_leases set owner = null where name = any(%s) and owner = %s"
_BEAT: Final = """
insert into {s}.palaver_members (kind, member, expires)
values (%s, %s, clock_timestamp() + make_interval(secs => %s))
on conflict (kind, member) do update set expires = excluded.expires
"""
_LIVE: Final = "select count(*) from {s}.palaver_members where kind = %s and expires > clock_timestamp()"
_REMOVE_DEAD: Final = (
    "delete from {s}.palaver_members where kind = %s and expires < clock_timestamp() - interval '1 hour'"
)
_LEAVE: Final = "delete from {s}.palaver_members where member = %s"
_TRANSACTION_TIMEOUT: Final = "select set_config('idle_in_transaction_session_timeout', %s, true)"
_LIST: Final = "select name, owner, fence, expires > clock_timestamp() from {s}.palaver_leases order by name"


class Lease(Struct, frozen=True):
    """A lease of this owner."""

    name: str
    fence: int


class Heartbeat(Struct, frozen=True):
    """The leases still owned, the number of live members, and the end of the leases by ``anyio.current_time``."""

    leases: Mapping[str, Lease]
    members: int
    until: float


class LeaseState(Struct, frozen=True):
    """A lease of any owner. ``live``: it has not ended."""

    name: str
    owner: str | None
    fence: int
    live: bool


class Leases:
    """The leases of one owner, as an async context manager. Leaving it releases them."""

    def __init__(self, conninfo: str, *, schema: str = "palaver", owner: str | None = None, ttl: float = TTL) -> None:
        """Own leases in a schema of a database as ``owner``. Each lasts ``ttl`` seconds after its last renewal."""
        if ttl <= 0:
            raise SwarmError(f"a lease must last more than 0 seconds, not {ttl:g}")
        self.owner = owner or uuid7()
        self.ttl = ttl
        self._conninfo, self._schema = conninfo, schema
        self._database: Database | None = None
        self._threads = CapacityLimiter(_CONNECTIONS)  # so that appends on a slow disk delay no renewal

    async def __aenter__(self) -> Self:
        """Connect, and create missing tables. Raises ``UnavailableError`` without a server."""
        self._database = await self._call(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release all leases and disconnect."""
        with anyio.CancelScope(shield=True):
            try:
                await self._run(self._leave)
            finally:
                database, self._database = self._database, None
                if database is not None:
                    await self._call(database.close)

    def _open(self) -> Database:
        conninfo = _with_timeouts(self._conninfo, self.ttl)
        database = Database(conninfo, self._schema, min_size=1, max_size=_CONNECTIONS, timeout=self.ttl)
        try:
            database.run(_prepare)
        except BaseException:
            database.close()
            raise
        return database

    async def _call(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await run_sync(partial(function, *args, **kwargs), limiter=self._threads)

    async def _run(self, work: Callable[[Link, bool], _T]) -> _T:
        if self._database is None:
            raise SwarmError("leases can only be used inside their async with block")
        return await self._call(self._database.run, work)

    async def declare(self, names: Iterable[str]) -> None:
        """Create leases by name, so that ``take`` finds them. Raises ``StoreError``."""
        wanted = list(names)
        await self._run(lambda link, _: link.execute(_NAMES, wanted))

    async def acquire(self, name: str) -> Lease | None:
        """Take one lease if it is free or has ended; ``None`` when it is owned. Raises ``StoreError``."""
        await self.declare([name])
        return (await self.take([name], 1)).get(name)

    async def take(self, names: Iterable[str], limit: int) -> dict[str, Lease]:
        """Take up to ``limit`` of these leases that are free or have ended. Raises ``StoreError``."""
        return _leases(await self._run(partial(self._take, list(names), limit)))

    def _take(self, names: list[str], limit: int, link: Link, _: bool) -> list[Any]:  # noqa: FBT001 (as work is called)
        return link.rows(_TAKE, names, limit, self.owner, f"{link.quoted}.palaver_fences", self.ttl)

    async def renew(self) -> dict[str, Lease]:
        """Renew and return the leases still owned; missing ones were lost. Raises ``StoreError``."""
        return _leases(await self._run(lambda link, _: link.rows(_RENEW, self.ttl, self.owner)))

    async def heartbeat(self, kind: str, *, leaving: bool = False) -> Heartbeat:
        """Renew all leases as a live, or ``leaving``, member of a group. Raises ``StoreError``."""
        began = anyio.current_time()
        rows, members = await self._run(partial(self._heartbeat, kind, leaving))
        return Heartbeat(_leases(rows), members, began + self.ttl)

    def _heartbeat(self, kind: str, leaving: bool, link: Link, _: bool) -> tuple[list[Any], int]:  # noqa: FBT001 (as work is)
        with link.transaction():
            self._limit_transaction(link)
            link.execute(_REMOVE_DEAD, kind)
            if leaving:
                link.execute(_LEAVE, self.owner)
            else:
                link.execute(_BEAT, kind, self.owner, self.ttl)
            rows = link.rows(_RENEW, self.ttl, self.owner)
            return rows, int(link.value(_LIVE, kind))

    async def release(self, *names: str) -> None:
        """Release leases. Lost ones are left alone. Raises ``StoreError``."""
        await self._run(lambda link, _: link.execute(_RELEASE, list(names), self.owner))

    async def list_all(self) -> list[LeaseState]:
        """Return all leases of the schema. Raises ``StoreError``."""
        rows = await self._run(lambda link, _: link.rows(_LIST))
        return [LeaseState(str(name), owner, int(fence), bool(live)) for name, owner, fence, live in rows]

    def _leave(self, link: Link, _: bool) -> None:  # noqa: FBT001 (as work is called)
        with link.transaction():
            self._limit_transaction(link)
            link.execute("update {s}.palaver_leases set owner = null where owner = %s", self.owner)
            link.execute(_LEAVE, self.owner)

    def _limit_transaction(self, link: Link) -> None:
        """Let the server end a transaction that this process does not continue."""
        link.execute(_TRANSACTION_TIMEOUT, f"{max(1, round(1000 * self.ttl))}ms")


def _with_timeouts(conninfo: str, ttl: float) -> str:
    """Add timeouts that give up a silent network when a lease has ended, unless the caller set them."""
    try:
        given = conninfo_to_dict(conninfo)
    except psycopg.Error as error:
        raise store_error(error) from error
    seconds = max(2, round(ttl))  # the least that libpq knows
    wanted = {
        "connect_timeout": seconds,
        "tcp_user_timeout": 1000 * seconds,
        "keepalives_idle": seconds,
        "keepalives_interval": 1,
        "keepalives_count": seconds,
    }
    return make_conninfo(conninfo, **{name: wanted[name] for name in wanted.keys() - given.keys()})


def _prepare(link: Link, _: bool) -> None:  # noqa: FBT001 (as work is called)
    found: LiteralString = "select to_regclass(%s || '.palaver_members')"
    if link.value(found, link.quoted) is None:
        with link.transaction():
            link.execute("select pg_advisory_xact_lock({lock})")
            link.script(_TABLES)


def _leases(rows: Iterable[Any]) -> dict[str, Lease]:
    return {str(name): Lease(str(name), int(fence)) for name, fence in rows}
