"""A gateway for a long time: many streams, a configuration that changes, a database that is away, and its memory.

The cases of ``make test`` take seconds. Those of ``make test-long`` have 1,000 streams for ten minutes; the variables
``PALAVER_SOAK_STREAMS`` and ``PALAVER_SOAK_SECONDS`` change that.
"""

import asyncio
import contextlib
import os
import statistics
import sys
import time
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from palaver.gateway.database import open_database
from palaver.gateway.keys import GatewayKeys
from palaver.gateway.log.exchanges import Exchanges
from palaver.gateway.usage import UsageLedger
from palaver.store.location import open_store
from tests.gateway.databases import location
from tests.gateway.soak import FILES, Door, GatewayProcess, Load, provider

if sys.platform != "linux":
    pytest.skip("needs /proc, which tells the memory of a process", allow_module_level=True)

STREAMS = int(os.environ.get("PALAVER_SOAK_STREAMS", "1000"))
SECONDS = float(os.environ.get("PALAVER_SOAK_SECONDS", "600"))
MIB = 1 << 20
LIMITS = '[[limits]]\nrequests = "1M/day"\ncost = "1000/day"\n[[limits]]\nper = "key"\ntokens = "1000M/day"\n'


def log(folder, store, database):
    """Return the lines of a configuration with a log and keys."""
    return f'database = "{database}"\n[log]\nstore = "{store}"\nspool = "{folder}/spool"\n[keys]\n'


def new_key(database):
    """Return the secret of a new key."""
    with closing(open_database(database)) as opened:
        return GatewayKeys(opened).create("soak").secret


@pytest.mark.row("GW-10", "GW-29")
@pytest.mark.parametrize(
    ("streams", "seconds", "pause", "every"),
    [
        pytest.param(2 * FILES, 3, 0.05, 0.5, id="seconds"),
        pytest.param(STREAMS, SECONDS, 0.4, 5, marks=pytest.mark.long, id="minutes"),
    ],
)
def test_every_stream_is_whole_while_the_configuration_changes(tmp_path, streams, seconds, pause, every):
    """And the memory is that of the first minute at the end."""
    sizes = []

    async def conduct():
        end = time.monotonic() + seconds
        due = time.monotonic() + every
        while time.monotonic() < end:
            await asyncio.sleep(min(1, every))
            sizes.append(running.memory())
            if time.monotonic() > due:
                await running.reload()
                due = time.monotonic() + every

    with provider(pause) as url, GatewayProcess(tmp_path, url) as running:
        load = Load(running.url)
        asyncio.run(load.run(streams, conduct))
        assert running.stop() == 0
    show(f"{len(load.ids):,} streams, {load.most:,} at a time, {running.reloads} reloads")
    assert load.failures == []
    assert load.most == streams
    assert len(load.ids) >= streams
    assert running.reloads
    check_flat(sizes)


def show(figures):
    """Write figures to the output of the test."""
    sys.stdout.write(f"{figures}\n")


def check_flat(sizes):
    """Compare the memory of the first minute, or of the first third of a shorter run, with that of the end."""
    warm = min(60, len(sizes) // 3)
    first, last = (statistics.median(each) for each in (sizes[warm : warm + 20], sizes[-20:]))
    show(f"MiB: {[each // MIB for each in sizes[:: max(1, len(sizes) // 20)]]}")
    assert last < 1.1 * first + 8 * MIB, [each // MIB for each in sizes]


@pytest.mark.row("GW-36")
@pytest.mark.server
@pytest.mark.parametrize(
    ("streams", "pause", "away"),
    [
        pytest.param(40, 0.05, 1.5, id="seconds"),
        pytest.param(min(STREAMS, 300), 0.4, 60, marks=pytest.mark.long, id="a minute"),
    ],
)
def test_traffic_goes_on_while_postgresql_is_away_and_all_of_it_arrives_once(tmp_path, streams, pause, away):
    """Keys and the log are in one database, which is away for a third of the time."""
    with location("postgres", tmp_path) as database, provider(pause) as url:
        load = asyncio.run(ask_while_away(tmp_path, database, url, streams, away))
        assert load.failures == []
        with closing(open_database(database)) as opened, open_store(database) as store:
            logged = [each.id for each in Exchanges(opened).recent(1_000_000)]
            counted = sum(each.requests for each in UsageLedger(opened).sums())
            threads = sum(1 for _ in store.threads())
    assert sorted(logged) == sorted(load.ids)
    assert threads == counted == len(load.ids)


async def ask_while_away(folder, database, url, streams, away):
    """Run a gateway and its load, with the database away in the middle; return when the log is whole."""
    place = urlsplit(database)
    door = Door(place.hostname, place.port or 5432)
    await door.open()
    user = place.netloc.rpartition("@")[0]
    through = place._replace(netloc=f"{user}@127.0.0.1:{door.port}").geturl()

    async def conduct():
        await asyncio.sleep(away)
        await door.close()
        before = len(load.ids)
        await asyncio.sleep(away)
        while len(load.ids) < before + streams:
            assert not load.failures, load.failures
            await asyncio.sleep(0.05)
        show(f"{len(load.ids) - before:,} exchanges while the database was away")
        await door.open()
        await asyncio.sleep(away)

    with contextlib.ExitStack() as stack:
        process = GatewayProcess(folder, url, log(folder, through, through))
        running = await asyncio.to_thread(stack.enter_context, process)  # the door is served meanwhile
        load = Load(running.url, new_key(database))
        await load.run(streams, conduct)
        assert await asyncio.to_thread(running.stop) == 0
    until = time.monotonic() + 600
    while list((folder / "spool").iterdir()):  # the writer goes on alone
        assert time.monotonic() < until, running.errors.read_text("utf-8")
        await asyncio.sleep(0.05)
    await door.close()
    show(f"{len(load.ids):,} exchanges")
    return load


@pytest.mark.row("GW-30", "GW-31", "GW-33")
@pytest.mark.parametrize(
    ("requests", "growth"),
    [pytest.param(600, 8, id="seconds"), pytest.param(20_000, 16, marks=pytest.mark.long, id="20,000")],
)
def test_small_requests_with_log_keys_and_limits_take_no_memory(tmp_path, requests, growth):
    """``growth`` is in MiB, between the first third of the requests and the last."""
    store, database = str(tmp_path / "store.db"), str(tmp_path / "gateway.db")
    secret = new_key(database)

    async def ask(load, numbers):
        async with load.client() as client:

            async def worker():
                for number in numbers:
                    await load.ask(client, f"boat-{number}", 2, stream=False)

            async with asyncio.TaskGroup() as group:
                for _ in range(16):
                    group.create_task(worker())

    with provider(0) as url, GatewayProcess(tmp_path, url, log(tmp_path, store, database) + LIMITS) as running:
        load = Load(running.url, secret)
        numbers = iter(range(requests))
        sizes = []
        for _ in range(3):
            asyncio.run(ask(load, iter([next(numbers) for _ in range(requests // 3)])))
            sizes.append(running.memory())
        assert running.stop() == 0
    show(f"MiB: {[round(each / MIB, 1) for each in sizes]}")
    assert load.failures == []
    assert sizes[-1] < sizes[0] + growth * MIB, [each // MIB for each in sizes]
