"""Leases, in a real PostgreSQL."""

import threading
from contextlib import AsyncExitStack

import anyio
import psycopg
import pytest

from palaver.core.errors import SwarmError, UnavailableError
from palaver.serve.workers.leases import Leases
from palaver.store.postgres.database import Link
from tests.store.postgres.server import CONNINFO, fresh_schema, run

pytestmark = [pytest.mark.anyio, pytest.mark.server]


@pytest.fixture
def schema():
    with fresh_schema() as name:
        yield name


def leases(schema, **more):
    return Leases(CONNINFO, schema=schema, **more)


def end(schema, owner):
    """Let the leases of an owner end, and its membership."""
    run(schema, "update {s}.palaver_leases set expires = now() - interval '1 ms' where owner = %s", owner)
    run(schema, "update {s}.palaver_members set expires = now() - interval '1 ms' where member = %s", owner)


@pytest.mark.row("ASK-29")
async def test_one_at_a_time_owns_a_lease_and_the_fence_grows_with_each_change(schema):
    async with leases(schema) as ann, leases(schema) as bob:
        first = await ann.acquire("a")
        assert first is not None
        assert await bob.acquire("a") is None
        assert await ann.acquire("a") is None
        assert await ann.renew() == {"a": first}
        await bob.release("a")
        assert await bob.acquire("a") is None
        await ann.release("a")
        second = await bob.acquire("a")
        assert second.fence > first.fence
        assert await ann.renew() == {}
        end(schema, bob.owner)
        third = await ann.acquire("a")
        assert third.fence > second.fence
        assert await bob.renew() == {}


async def test_who_comes_late_keeps_what_nobody_took(schema):
    async with leases(schema) as ann:
        lease = await ann.acquire("a")
        end(schema, ann.owner)
        assert await ann.renew() == {"a": lease}
        async with leases(schema) as bob:
            assert await bob.acquire("a") is None


async def test_fences_of_different_leases_can_be_compared(schema):
    async with leases(schema) as ann, leases(schema) as bob:
        fences = [(await owner.acquire(name)).fence for owner, name in ((ann, "a"), (bob, "b"), (ann, "c"))]
        assert fences == sorted(set(fences))


@pytest.mark.row("ASK-29")
async def test_owners_who_race_share_the_leases_among_them(schema):
    names = [f"p{n}" for n in range(40)]
    got = {}

    async def take(owner):
        while True:
            taken = await owner.take(names, 3)
            if not taken:
                return
            for name, lease in taken.items():
                got.setdefault(name, []).append((owner.owner, lease.fence))

    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        owners = [await stack.enter_async_context(leases(schema)) for _ in range(6)]
        await owners[0].declare(names)
        for owner in owners:
            tasks.start_soon(take, owner)
    assert sorted(got) == sorted(names)
    assert {len(each) for each in got.values()} == {1}
    assert len({each[0][1] for each in got.values()}) == len(names)


async def test_a_beat_renews_and_counts_who_is_alive(schema):
    async with leases(schema) as ann, leases(schema) as bob:
        lease = await ann.acquire("a")
        assert (await ann.heartbeat("office")).leases == {"a": lease}
        assert (await bob.heartbeat("office")).members == 2
        assert (await bob.heartbeat("harbour")).members == 1
        end(schema, bob.owner)
        heartbeat = await ann.heartbeat("office")
        assert heartbeat.members == 1
        assert anyio.current_time() < heartbeat.until <= anyio.current_time() + ann.ttl


async def test_at_the_end_everything_is_given_back(schema):
    async with leases(schema) as ann:
        async with leases(schema) as bob:
            await bob.acquire("a")
            await bob.heartbeat("office")
        assert [(each.name, each.owner) for each in await ann.list_all()] == [("a", None)]
        assert (await ann.heartbeat("office")).members == 1


async def test_tables_are_made_by_whoever_comes_first(schema):
    async with anyio.create_task_group() as tasks:

        async def come():
            async with leases(schema) as owner:
                await owner.acquire(owner.owner)

        for _ in range(5):
            tasks.start_soon(come)


async def test_a_connection_that_breaks_is_made_again(schema):
    async with leases(schema) as ann:
        lease = await ann.acquire("a")
        with psycopg.connect(CONNINFO, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where query like %s and pid <> pg_backend_pid()",
                [f'%"{schema}"%'],
            )
        assert await ann.renew() == {"a": lease}


async def test_what_cannot_be_is_refused():
    with pytest.raises(SwarmError, match="seconds"):
        Leases(CONNINFO, ttl=0)
    with pytest.raises(UnavailableError):
        async with Leases("postgresql://postgres@127.0.0.1:1/test", ttl=1):
            pass


async def test_who_leaves_keeps_its_leases_and_counts_no_more(schema):
    async with leases(schema) as ann, leases(schema) as bob:
        lease = await ann.acquire("a")
        await ann.heartbeat("office")
        assert (await bob.heartbeat("office")).members == 2
        assert (await ann.heartbeat("office", leaving=True)).leases == {"a": lease}
        assert (await bob.heartbeat("office")).members == 1
        assert await bob.acquire("a") is None


@pytest.mark.row("ASK-29")
async def test_an_owner_that_stops_in_mid_beat_keeps_its_leases_from_nobody(schema, monkeypatch):
    value, asleep, wake = Link.value, threading.Event(), threading.Event()

    def sleeping(link, text, *values):
        if "count(*)" in text and not asleep.is_set():
            asleep.set()
            wake.wait(300)
        return value(link, text, *values)

    async with leases(schema, ttl=1.0) as ann, leases(schema, ttl=1.0) as bob, anyio.create_task_group() as tasks:
        await ann.acquire("a")
        monkeypatch.setattr(Link, "value", sleeping)
        tasks.start_soon(ann.heartbeat, "office")
        await anyio.to_thread.run_sync(asleep.wait)
        try:
            with anyio.fail_after(60):
                lease = None
                while lease is None:
                    lease = await bob.acquire("a")
        finally:
            wake.set()
