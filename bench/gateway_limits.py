"""What a limit of a gateway costs a request: a share that the process took before, or one statement for each request.

    python bench/gateway_limits.py [postgresql://…]

Prints the median and the 99th percentile in microseconds, for requests one after the other and 32 at a time.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from palaver.gateway.counters import Charge, Counters
from palaver.gateway.database import Database, open_database
from palaver.gateway.limits import Limit, ScopedLimit
from palaver.store.store import to_thread

REQUESTS = 2000
SCOPED = ScopedLimit(f"bench {time.time_ns()}", "", Limit("requests", 10**6, "month"))
ADD = (
    "INSERT INTO {s}.counters AS c (name, start, ends, most, used, share) VALUES (?, 0, 0, 0, 1, 0)"
    " ON CONFLICT (name, start) DO UPDATE SET used = c.used + 1 WHERE c.used < ? RETURNING used"
)


async def timed(work: Callable[[], Awaitable[object]], at_once: int) -> list[float]:
    """Return the seconds of each call."""
    took: list[float] = []

    async def worker() -> None:
        for _ in range(REQUESTS // at_once):
            before = time.perf_counter()
            await work()
            took.append(time.perf_counter() - before)
            await anyio.sleep(0.0005)  # as requests, whose other work lets the event loop turn

    async with anyio.create_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(worker)
    return sorted(took)


async def measure(kind: str, database: Database, tasks: TaskGroup) -> None:
    """Measure both in one database."""
    counters = Counters(database)

    async def share() -> None:
        await counters.reserve([Charge(counters.counter(SCOPED, time.time()), 1)], tasks)

    async def statement() -> None:
        await to_thread(database.run, lambda it: it.rows(ADD, f"{SCOPED.name} each", 10**6))

    for work in (share, statement):
        for at_once in (1, 32):
            took = await timed(work, at_once)
            middle, late = statistics.median(took) * 1e6, took[len(took) * 99 // 100] * 1e6
            name = f"{kind:<12}{work.__name__:<12}{at_once:>3} at once"
            sys.stdout.write(f"{name}  p50 {middle:8.1f}  p99 {late:8.1f}\n")


async def main() -> None:
    """Measure each database."""
    with tempfile.TemporaryDirectory() as folder:
        for place in [str(Path(folder) / "gateway.db"), *sys.argv[1:]]:
            database = open_database(place)
            async with anyio.create_task_group() as tasks:
                await measure(place.partition(":")[0] if "://" in place else "sqlite", database, tasks)
            database.close()


asyncio.run(main())
