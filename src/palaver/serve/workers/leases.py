"""Leases: who may do something just now, among processes that share a PostgreSQL database (extra ``postgres``).

Rules:

- A lease has a name, an owner, a fence and a time at which it ends. It is taken when it is free or has ended, and
  renewed as long as nobody else took it. All times are the database's.
- The fence grows with every change of owner, of any lease of the schema: of two fences the greater one was given
  later. So fences of different leases can be compared too.
- Who owns something announces itself among the members of a group, by the same renewals; ``beat`` tells how many
  members are alive.
- ``beat`` is one transaction. The caller must take its leases for lost when it has not come back in time: ``until``
  says, by this machine's clock, how long they are good for at least.
- A network that is silent for as long as a lease lasts is taken for broken, and connected to again.
- Nothing waits for another process: rows that another one holds just now are left out. Who stops in the middle of a
  transaction holds its rows no longer than its leases.

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
"""Seconds that a lease is good for, where nothing else is said."""

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
_BURY: Final = "delete from {s}.palaver_members where kind = %s and expires < clock_timestamp() - interval '1 hour'"
_LEAVE: Final = "delete from {s}.palaver_members where member = %s"
_IMPATIENT: Final = "select set_config('idle_in_transaction_session_timeout', %s, true)"
_LISTED: Final = "select name, owner, fence, expires > clock_timestamp() from {s}.palaver_leases order by name"


class Lease(Struct, frozen=True):
    """What somebody owns for a while."""

    name: str
    fence: int


class Beat(Struct, frozen=True):
    """What is still owned, how many members are alive, and until when that is good by ``anyio.current_time``."""

    leases: Mapping[str, Lease]
    members: int
    until: float


class Held(Struct, frozen=True):
    """A lease as everybody sees it. ``live`` says that it has not ended."""

    name: str
    owner: str | None
    fence: int
    live: bool


class Leases:
    """The leases of one owner. Entered by ``async with``; at the end all of them are given back."""

    def __init__(self, conninfo: str, *, schema: str = "palaver", owner: str | None = None, ttl: float = TTL) -> None:
        """Own leases in a schema of a database, as ``owner``, each for ``ttl`` seconds from its last renewal."""
        if ttl <= 0:
            raise SwarmError(f"a lease of {ttl:g} seconds is none")
        self.owner = owner or uuid7()
        self.ttl = ttl
        self._conninfo, self._schema = conninfo, schema
        self._database: Database | None = None
        self._threads = CapacityLimiter(_CONNECTIONS)  # appends that wait for a slow disk hold up no renewal

    async def __aenter__(self) -> Self:
        """Connect, and make the tables where they are not. Raises ``UnavailableError`` without a server."""
        self._database = await self._call(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give everything back, and let go."""
        with anyio.CancelScope(shield=True):
            try:
                await self._run(self._leave)
            finally:
                database, self._database = self._database, None
                if database is not None:
                    await self._call(database.close)

    def _open(self) -> Database:
        conninfo = _impatient(self._conninfo, self.ttl)
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
            raise SwarmError("leases are asked for within their block")
        return await self._call(self._database.run, work)

    # -- leases ------------------------------------------------------------------------------------------------------

    async def declare(self, names: Iterable[str]) -> None:
        """Say which leases there are, so that ``take`` finds them. Raises ``StoreError``."""
        listed = list(names)
        await self._run(lambda link, _: link.execute(_NAMES, listed))

    async def acquire(self, name: str) -> Lease | None:
        """Take one lease, when it is free or has ended; ``None`` when somebody has it. Raises ``StoreError``."""
        await self.declare([name])
        return (await self.take([name], 1)).get(name)

    async def take(self, names: Iterable[str], most: int) -> dict[str, Lease]:
        """Take up to ``most`` of these leases, as far as they are free or have ended. Raises ``StoreError``."""
        return _leases(await self._run(partial(self._take, list(names), most)))

    def _take(self, names: list[str], most: int, link: Link, _: bool) -> list[Any]:  # noqa: FBT001 (as work is called)
        return link.rows(_TAKE, names, most, self.owner, f"{link.quoted}.palaver_fences", self.ttl)

    async def renew(self) -> dict[str, Lease]:
        """Renew everything that is still owned, and give it; what is missing was lost. Raises ``StoreError``."""
        return _leases(await self._run(lambda link, _: link.rows(_RENEW, self.ttl, self.owner)))

    async def beat(self, kind: str, *, leaving: bool = False) -> Beat:
        """Renew everything, as a member of a group that is alive, or is ``leaving``. Raises ``StoreError``."""
        began = anyio.current_time()
        rows, members = await self._run(partial(self._beat, kind, leaving))
        return Beat(_leases(rows), members, began + self.ttl)

    def _beat(self, kind: str, leaving: bool, link: Link, _: bool) -> tuple[list[Any], int]:  # noqa: FBT001 (as work is)
        with link.transaction():
            self._hurry(link)
            link.execute(_BURY, kind)
            if leaving:
                link.execute(_LEAVE, self.owner)
            else:
                link.execute(_BEAT, kind, self.owner, self.ttl)
            rows = link.rows(_RENEW, self.ttl, self.owner)
            return rows, int(link.value(_LIVE, kind))

    async def release(self, *names: str) -> None:
        """Give leases back; those that are lost already are left alone. Raises ``StoreError``."""
        await self._run(lambda link, _: link.execute(_RELEASE, list(names), self.owner))

    async def listed(self) -> list[Held]:
        """All leases of the schema. Raises ``StoreError``."""
        rows = await self._run(lambda link, _: link.rows(_LISTED))
        return [Held(str(name), owner, int(fence), bool(live)) for name, owner, fence, live in rows]

    def _leave(self, link: Link, _: bool) -> None:  # noqa: FBT001 (as work is called)
        with link.transaction():
            self._hurry(link)
            link.execute("update {s}.palaver_leases set owner = null where owner = %s", self.owner)
            link.execute(_LEAVE, self.owner)

    def _hurry(self, link: Link) -> None:
        """Let the server end a transaction that this process does not go on with."""
        link.execute(_IMPATIENT, f"{max(1, round(1000 * self.ttl))}ms")


def _impatient(conninfo: str, ttl: float) -> str:
    """Settings that give a silent network up when a lease would have ended, where nothing else is said."""
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
