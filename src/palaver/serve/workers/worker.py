"""A worker: one process among several that answer the turns of a swarm, each turn once and in order.

Rules:

- Clients belong to partitions, and a partition to the one worker that has its lease (``leases``). A worker aims at its
  equal share of them: it takes what is free, and gives up what it has too much, each at the end of the turn under way.
  One that stops counts no more: what it gives up is taken by the others before its last turn ends.
- A turn is acknowledged when its answer is in the store and its events are on the bus. So what a dead worker had not
  acknowledged is given to the next one, in order: an answer that is in the thread is given again, and a turn that broke
  off goes on from its last stored message. A tool that ran when its worker died may run again.
- The first thing that an owner writes to a client's thread is its fence. It moves the head, and so whoever owned
  the client before can write no more, whatever it believes (``ConflictError``); and no lesser fence follows a greater.
- A worker that cannot renew its leases in time lets go of everything, and answers nothing.
- A turn that ends with an error is answered with that error, which the thread keeps; asked again, it gives it again. A
  store that is away, or that another one wrote to, is no error of the turn: it is tried again as long as the lease
  is held. A thread that no session can be opened on (it is damaged, or cannot be called so) answers each turn with what
  is wrong, and the other clients notice nothing.
- What a turn came to is told on the bus: ``session answer``, with its ``result``, or its ``error`` and ``code``. An
  answer that the bus cannot carry (it is too large) is told as that error; the thread holds it all the same.

One swarm of a realm can have workers; two of them would take each other's threads away. On asyncio alone, for the NATS
client. A tool that blocks the event loop for as long as a lease lasts loses it.

Stability: experimental.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
from anyio.abc import TaskGroup
from msgspec import structs

from palaver.core.errors import (
    BusyError,
    ClosedError,
    ConflictError,
    PalaverError,
    StoreError,
    SwarmError,
    UnavailableError,
)
from palaver.serve.nats.bus import NatsBus
from palaver.serve.workers.client_queues import IDLE, ClientQueues, Lane
from palaver.serve.workers.leases import TTL, Lease, Leases
from palaver.serve.workers.queue import PARTITIONS, Asked, Delivery, Intake, TurnQueue, partition_of
from palaver.store.location import open_store
from palaver.store.to_thread import to_thread
from palaver.swarm.call_context import LOGGER
from palaver.swarm.events import Event
from palaver.swarm.live import LiveSwarm
from palaver.swarm.log import Log, Records, record
from palaver.swarm.names import client_thread, joined
from palaver.swarm.subscriptions import Signal

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.store.store import Store
    from palaver.swarm.bus import Bus
    from palaver.swarm.session import Session
    from palaver.swarm.swarm import Swarm

BEATS: Final = 5
"""How often a lease is renewed while it lasts."""
GRACE: Final = 30.0
"""Seconds that turns under way have when a worker stops, where nothing else is said."""
ANSWER: Final = "answer"
"""The type of the event that says what a turn came to."""

_AGAIN: Final = 0.2
_POSTGRES: Final = ("postgresql:", "postgres:")
_LEASE: Final = "lease"
_FAILED: Final = "failed"
_PASSING: Final = (ClosedError, ConflictError, UnavailableError)
"""Why a session cannot be opened now, and can later."""


class Worker:
    """Answers turns of a swarm. ``async with Worker(…) as worker: await worker.run()``."""

    def __init__(
        self,
        swarm: Swarm,
        *,
        store: Store,
        bus: Bus,
        nats: str,
        postgres: str,
        schema: str = "palaver",
        partitions: int = PARTITIONS,
        prefix: str = "palaver",
        idle: float = IDLE,
        ttl: float = TTL,
        grace: float = GRACE,
    ) -> None:
        """Share the work with all workers of the same swarm, database and NATS.

        ``store`` is shared by all workers, and so must be one of PostgreSQL; ``bus`` is entered already, and takes the
        events. ``postgres`` and ``schema`` say where the leases are, each of ``ttl`` seconds. A session that is
        ``idle`` for so many seconds is closed.
        """
        self.swarm, self._bus = swarm, bus
        self.leases = Leases(postgres, schema=schema, ttl=ttl)
        self.queue = TurnQueue(nats, swarm.name, partitions=partitions, prefix=prefix)
        self.live = _OwnedSwarm(self, store)
        self.client_queues = ClientQueues(self.live, idle=idle, most=None)
        self._grace = grace
        self._names = {joined(swarm.realm, str(number)): number for number in range(partitions)}
        self._tenures: dict[str, _Tenure] = {}
        self._leaving: set[str] = set()
        self._leasing = anyio.Lock()
        self._until = 0.0
        self._stir = Signal()
        self._stopped = anyio.Event()
        self._changed = Signal()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Connect. Raises ``UnavailableError`` without PostgreSQL, ``TransportError`` without NATS."""
        async with AsyncExitStack() as stack:
            for each in (self.leases, self.queue, self.live, self.client_queues):
                await stack.enter_async_context(each)
            await self.leases.declare(self._names)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the leases back, and let go."""
        await self._stack.aclose()

    # -- running -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let the turns under way come to their end, then ``run`` returns."""
        self._stopped.set()
        self._stir.tell()

    @property
    def partitions(self) -> Mapping[int, int]:
        """The partitions that are owned now, and their fences."""
        return {self._names[name]: tenure.fence for name, tenure in self._tenures.items()}

    async def changed(self) -> None:
        """Wait until other partitions are owned."""
        await self._changed.wait()

    async def run(self) -> None:
        """Answer turns until ``stop``, or until this is cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            while not self._stopped.is_set():
                await self._beat(tasks)
                with anyio.move_on_after(self.leases.ttl / BEATS):
                    await self._stir.wait()
            with anyio.move_on_after(self._grace):
                await self._finish_all(tasks)
            self._drop(list(self._tenures))
            tasks.cancel_scope.cancel()

    async def _finish_all(self, tasks: TaskGroup) -> None:
        """Let all turns end, with the leases renewed as long as that takes."""
        for name in list(self._tenures):
            self._leave(tasks, name)
        while self._tenures:
            await self._beat(tasks)
            with anyio.move_on_after(self.leases.ttl / BEATS):
                while self._tenures:
                    await self._changed.wait()

    async def _watch(self) -> None:
        """Let go of everything when the leases were not renewed in time."""
        while True:
            await anyio.sleep(max(0.05, self._until - anyio.current_time()))
            if self._tenures and anyio.current_time() >= self._until:
                LOGGER.warning("the leases of %s were not renewed in time", self.leases.owner)
                self._drop(list(self._tenures))

    async def _beat(self, tasks: TaskGroup) -> None:
        """Renew what is owned, and give or take what is due."""
        try:
            async with self._leasing:
                share = await self._renew(tasks)
        except StoreError as error:
            LOGGER.warning("the leases were not renewed: %s", error)
            return
        staying = [name for name in self._tenures if name not in self._leaving]
        for name in staying[share:]:
            self._leave(tasks, name)

    async def _renew(self, tasks: TaskGroup) -> int:
        """Renew what is owned, let go of what was lost, take what is free; give how many are due to this worker."""
        beat = await self.leases.beat(self.swarm.realm, leaving=self._stopped.is_set())
        owned = {name: lease for name, lease in beat.leases.items() if name in self._names}
        lost = [name for name, tenure in self._tenures.items() if _fence(owned.get(name)) != tenure.fence]
        if lost:
            LOGGER.warning("%d partitions were lost", len(lost))
            self._drop(lost)
        self._until = beat.until
        share = -(-len(self._names) // max(1, beat.members))
        if self._stopped.is_set():
            return share
        if len(owned) < share:
            owned |= await self.leases.take(list(self._names), share - len(owned))
        for name, lease in owned.items():
            if name not in self._tenures:
                self._begin(tasks, lease)
        return share

    def _begin(self, tasks: TaskGroup, lease: Lease) -> None:
        tenure = self._tenures[lease.name] = _Tenure(self, self._names[lease.name], lease.fence)
        tasks.start_soon(tenure.run)
        self._changed.tell()

    def _leave(self, tasks: TaskGroup, name: str) -> None:
        if name not in self._leaving:
            self._leaving.add(name)
            tasks.start_soon(self._give_up, name, self._tenures[name])

    async def _give_up(self, name: str, tenure: _Tenure) -> None:
        """Give a partition to others, at the end of the turns under way."""
        try:
            await tenure.finish()
            async with self._leasing:
                if self._tenures.get(name) is tenure:
                    del self._tenures[name]
                    await self.leases.release(name)
        except StoreError as error:
            LOGGER.warning("the lease %s was not given back: %s", name, error)
        finally:
            self._leaving.discard(name)
            self._changed.tell()

    def _drop(self, names: list[str]) -> None:
        """Let go of partitions at once, and answer nothing more; no session that closes slowly is waited for."""
        for tenure in [self._tenures.pop(name) for name in names if name in self._tenures]:
            tenure.drop()
        self._changed.tell()

    # -- what its parts use ------------------------------------------------------------------------------------------

    def fence(self, client: str) -> int:
        """The fence under which a client is owned. Raises ``ConflictError`` when it is not."""
        tenure = self._tenures.get(joined(self.swarm.realm, str(partition_of(client, len(self._names)))))
        if tenure is None:
            raise ConflictError(f"the client {client!r} belongs to another worker")
        return tenure.fence

    def clients(self, partition: int) -> list[str]:
        """Who of a partition has turns or a session here just now."""
        return [client for client in self.client_queues.clients if partition_of(client, len(self._names)) == partition]

    def doubt(self) -> None:
        """Ask soon what is still owned."""
        self._stir.tell()

    async def tell(self, asked: Asked, output: Mapping[str, Any]) -> None:
        """Say what a turn came to, and wait until that and everything before it is on the bus."""
        while True:
            self._say(asked, output)
            try:
                await self._bus.flush()
            except BusyError as error:
                LOGGER.warning("the answer of %s is said again: %s", asked.run, error)
                await anyio.sleep(_AGAIN)
            else:
                return

    def _say(self, asked: Asked, output: Mapping[str, Any]) -> None:
        said = Event(
            source="session", type=ANSWER, client=asked.client, swarm=self.swarm.name, run=asked.run, output=output
        )
        try:
            self._bus.publish(said)
        except Exception as error:  # noqa: BLE001 (whoever waits is told that, if not the answer)
            self.live.publish(structs.replace(said, output=_told(error)))

    @property
    def bus(self) -> Bus:
        """Where events go."""
        return self._bus


class _OwnedSwarm(LiveSwarm):
    """A swarm whose threads are written under a fence, and read anew with each session."""

    def __init__(self, worker: Worker, store: Store) -> None:
        super().__init__(worker.swarm, store=store, bus=worker.bus)
        self._threads = store
        self._worker = worker

    async def log(self, client: str) -> Log:
        """Open the log of a client, and make it this worker's. Raises ``ConflictError`` when it is another's."""
        fence = self._worker.fence(client)
        realm = self.swarm.realm
        log = Log(await to_thread(self._threads.open, client_thread(realm, client)))
        found = Records(log).get(_LEASE, realm, 0)
        if found > fence:
            self._worker.doubt()
            raise ConflictError(f"the client {client!r} belongs to another worker, of fence {found}")
        if found < fence:
            await log.append([record(_LEASE, realm, fence)])
        return log


class _Tenure:
    """One partition, as long as it is owned."""

    def __init__(self, worker: Worker, partition: int, fence: int) -> None:
        self._worker, self._partition, self.fence = worker, partition, fence
        self._intake = Intake(worker.queue, partition, fence, self._hear, self._cancel)
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()

    async def run(self) -> None:
        """Take turns until let go of."""
        try:
            with self._scope:
                await self._intake.run()
                self._worker.doubt()
        finally:
            self._over.set()

    def drop(self) -> None:
        """Let go at once."""
        self._intake.close()
        self._scope.cancel()
        self._worker.client_queues.drop(self._worker.clients(self._partition))

    async def finish(self) -> None:
        """Let go at the end of the turns under way."""
        self._intake.close()
        await self._worker.client_queues.finish(self._worker.clients(self._partition))
        self._scope.cancel()
        await self._over.wait()

    def _hear(self, delivery: Delivery) -> None:
        async def answer(lane: Lane) -> None:
            await self._answer(delivery, lane)

        self._worker.client_queues.put(delivery.asked.client, answer)

    async def _cancel(self, client: str) -> bool:
        session = self._worker.live.get(client)
        return session is not None and await session.cancel()

    async def _answer(self, delivery: Delivery, lane: Lane) -> None:
        output = await self._came_to(delivery.asked, lane)
        await self._worker.tell(delivery.asked, output)
        await self._intake.acknowledge(delivery.place)

    async def _came_to(self, asked: Asked, lane: Lane) -> Mapping[str, Any]:
        """What a turn comes to, as its answer's event tells it; when this has returned, the thread holds it."""
        while True:
            session: Session | None = None
            try:
                session = await lane.session()
                return await _complete(session, asked)
            except Exception as error:  # noqa: BLE001 (the others are answered all the same)
                if not isinstance(error, _PASSING if session is None else (StoreError, ClosedError)):
                    LOGGER.exception("the turn %s of %s cannot be answered", asked.run, asked.client)
                    return _told(error)
                LOGGER.warning("the turn %s of %s is tried again: %s", asked.run, asked.client, error)
            await lane.close()
            self._worker.doubt()
            await anyio.sleep(_AGAIN)


async def _complete(session: Session, asked: Asked) -> Mapping[str, Any]:
    failed = session.records.get(_FAILED, asked.run)
    if failed is not None:
        return dict(failed)
    try:
        answer = await session.complete(asked.text, asked.payload, run=asked.run)
    except (StoreError, ClosedError):
        raise
    except Exception as error:  # noqa: BLE001 (whatever it is, it is what the turn came to)
        LOGGER.error("the turn %s of %s failed", asked.run, asked.client, exc_info=error)
        told = _told(error)
        await session.records.put(_FAILED, asked.run, told)
        return told
    if session.closed:
        raise ClosedError("the session was closed in the middle of a turn")
    return {"result": answer}


def _told(error: Exception) -> dict[str, Any]:
    text = str(error) or type(error).__name__
    if isinstance(error, PalaverError):
        return {"error": text, "code": error.error_code}
    return {"error": text, "code": type(error).__name__, "internal": True}


def _fence(lease: Lease | None) -> int | None:
    return None if lease is None else lease.fence


async def run_worker(
    swarm: Swarm,
    *,
    store: str,
    bus: str,
    schema: str = "palaver",
    partitions: int = PARTITIONS,
    prefix: str = "palaver",
    ttl: float = TTL,
    grace: float = GRACE,
) -> None:
    """Be a worker until SIGTERM or SIGINT: what a process of its own runs.

    ``store`` is the location of a store in PostgreSQL, which holds the leases too; ``bus`` the URL of NATS. Raises
    ``UnavailableError``, ``TransportError``.
    """
    if not store.startswith(_POSTGRES):
        raise SwarmError(f"workers share a store in PostgreSQL, and {store.partition(':')[0]!r} is none")
    opened = await to_thread(open_store, store, schema=schema)
    try:
        events = NatsBus(bus, stream=f"{prefix.upper()}_EVENTS", prefix=f"{prefix}.events")
        worker = Worker(
            swarm,
            store=opened,
            bus=events,
            nats=bus,
            postgres=store,
            schema=schema,
            partitions=partitions,
            prefix=prefix,
            ttl=ttl,
            grace=grace,
        )
        async with events, worker, anyio.create_task_group() as tasks:
            tasks.start_soon(_until_signal, worker)
            await worker.run()
            tasks.cancel_scope.cancel()
    finally:
        await to_thread(opened.close)


async def _until_signal(worker: Worker) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            worker.stop()
