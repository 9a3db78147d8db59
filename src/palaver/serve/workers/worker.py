"""A worker: one of several processes that answer the turns of a swarm, each turn once and in order.

- A client belongs to a partition, and a partition to the worker that has its lease (``leases``). A worker aims at an
  equal share: it takes free partitions and gives up surplus ones after their current turns. A stopping worker does not
  count.
- A turn is acknowledged when its answer is in the store and its events are on the bus. After a crash the next worker
  gets the unacknowledged turns in order: a stored answer is sent again, and an interrupted turn continues after its
  last stored message. A tool that ran during the crash may run again.
- An owner first writes its fence to a client's thread. That moves the head, so an earlier owner cannot write any more
  (``ConflictError``), and a lesser fence never follows a greater one.
- A worker that cannot renew its leases in time drops all partitions and answers nothing.
- Decisions are taken once. Before they are, a record with the name of their request is written; a request that is
  delivered again goes on with its turn, and approves nothing that asks since.
- An error of a turn is stored in the thread and is its answer, also when it is asked again. A failure of the store is
  not an error of the turn: the turn is retried while the lease lasts. A damaged thread gets an error for each turn.
- The outcome of a turn is the event ``session answer`` with its ``result``, or its ``error`` and ``code``. An answer
  that is too large for the bus is such an error; the thread has it anyway.
- Only one swarm of a realm can have workers. Runs on asyncio only, for the NATS client. A tool that blocks the event
  loop as long as a lease lasts loses the lease.

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
from palaver.serve.workers.client_queues import IDLE, ClientQueue, ClientQueues
from palaver.serve.workers.decisions import continue_turn, decide_calls, pending_turn
from palaver.serve.workers.leases import TTL, Lease, Leases
from palaver.serve.workers.queue import PARTITIONS, Delivery, PartitionConsumer, TurnQueue, TurnRequest, partition_of
from palaver.store.location import open_store
from palaver.store.store import to_thread
from palaver.swarm.call import LOGGER
from palaver.swarm.events import Event
from palaver.swarm.log import Log, Records, record
from palaver.swarm.names import client_thread, joined
from palaver.swarm.subscriptions import Signal
from palaver.swarm.swarm import LiveSwarm
from palaver.turn.approvals import DecisionError

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.store.store import Store
    from palaver.swarm.bus import Bus
    from palaver.swarm.session import Session
    from palaver.swarm.swarm import Swarm

RENEWALS: Final = 5
"""How often a lease is renewed during its lifetime."""
GRACE: Final = 30.0
"""The default number of seconds that turns in progress have when a worker stops."""
ANSWER: Final = "answer"
"""The type of the event with the outcome of a turn."""

_RETRY: Final = 0.2
_POSTGRES: Final = ("postgresql:", "postgres:")
_LEASE: Final = "lease"
_FAILED: Final = "failed"
_DECIDED: Final = "decided"
_RETRYABLE: Final = (ClosedError, ConflictError, UnavailableError)
"""Errors after which opening a session can succeed later."""


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
        """Share the work with all workers of the same swarm, database and NATS server.

        ``store`` is shared by all workers, so it must be in PostgreSQL. ``bus`` is open already and takes the events.
        ``postgres`` and ``schema`` locate the leases, which last ``ttl`` seconds. A session is closed after ``idle``
        seconds without a turn.
        """
        self.swarm, self._bus = swarm, bus
        self.leases = Leases(postgres, schema=schema, ttl=ttl)
        self.queue = TurnQueue(nats, swarm.name, partitions=partitions, prefix=prefix)
        self.live = _OwnedSwarm(self, store)
        self.client_queues = ClientQueues(self.live, idle=idle, limit=None)
        self._grace = grace
        self._names = {joined(swarm.realm, str(number)): number for number in range(partitions)}
        self._owned: dict[str, _OwnedPartition] = {}
        self._leaving: set[str] = set()
        self._leasing = anyio.Lock()
        self._valid_until = 0.0
        self._wake = Signal()
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
        """Release the leases and disconnect."""
        await self._stack.aclose()

    def stop(self) -> None:
        """Finish the turns in progress; then ``run`` returns."""
        self._stopped.set()
        self._wake.notify()

    @property
    def partitions(self) -> Mapping[int, int]:
        """The owned partitions and their fences."""
        return {self._names[name]: partition.fence for name, partition in self._owned.items()}

    async def changed(self) -> None:
        """Wait until the owned partitions change."""
        await self._changed.wait()

    async def run(self) -> None:
        """Answer turns until ``stop``, or until this is cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            while not self._stopped.is_set():
                await self._renew_and_balance(tasks)
                with anyio.move_on_after(self.leases.ttl / RENEWALS):
                    await self._wake.wait()
            with anyio.move_on_after(self._grace):
                await self._finish_all(tasks)
            self._drop(list(self._owned))
            tasks.cancel_scope.cancel()

    async def _finish_all(self, tasks: TaskGroup) -> None:
        """Finish all turns, and renew the leases meanwhile."""
        for name in list(self._owned):
            self._give_up(tasks, name)
        while self._owned:
            await self._renew_and_balance(tasks)
            with anyio.move_on_after(self.leases.ttl / RENEWALS):
                while self._owned:
                    await self._changed.wait()

    async def _watch(self) -> None:
        """Drop all partitions when the leases were not renewed in time."""
        while True:
            await anyio.sleep(max(0.05, self._valid_until - anyio.current_time()))
            if self._owned and anyio.current_time() >= self._valid_until:
                LOGGER.warning("the leases of %s were not renewed in time", self.leases.owner)
                self._drop(list(self._owned))

    async def _renew_and_balance(self, tasks: TaskGroup) -> None:
        """Renew the leases, take free partitions, and give up surplus ones."""
        try:
            async with self._leasing:
                share = await self._renew(tasks)
        except StoreError as error:
            LOGGER.warning("the leases were not renewed: %s", error)
            return
        staying = [name for name in self._owned if name not in self._leaving]
        for name in staying[share:]:
            self._give_up(tasks, name)

    async def _renew(self, tasks: TaskGroup) -> int:
        """Renew the leases, drop lost partitions, take free ones. Return this worker's share."""
        heartbeat = await self.leases.heartbeat(self.swarm.realm, leaving=self._stopped.is_set())
        owned = {name: lease for name, lease in heartbeat.leases.items() if name in self._names}
        lost = [name for name, partition in self._owned.items() if _fence(owned.get(name)) != partition.fence]
        if lost:
            LOGGER.warning("%d partitions were lost", len(lost))
            self._drop(lost)
        self._valid_until = heartbeat.until
        share = -(-len(self._names) // max(1, heartbeat.members))
        if self._stopped.is_set():
            return share
        if len(owned) < share:
            owned |= await self.leases.take(list(self._names), share - len(owned))
        for name, lease in owned.items():
            if name not in self._owned:
                self._own(tasks, lease)
        return share

    def _own(self, tasks: TaskGroup, lease: Lease) -> None:
        partition = self._owned[lease.name] = _OwnedPartition(self, self._names[lease.name], lease.fence)
        tasks.start_soon(partition.run)
        self._changed.notify()

    def _give_up(self, tasks: TaskGroup, name: str) -> None:
        if name not in self._leaving:
            self._leaving.add(name)
            tasks.start_soon(self._release, name, self._owned[name])

    async def _release(self, name: str, partition: _OwnedPartition) -> None:
        """Release a partition after its turns in progress."""
        try:
            await partition.finish()
            async with self._leasing:
                if self._owned.get(name) is partition:
                    del self._owned[name]
                    await self.leases.release(name)
        except StoreError as error:
            LOGGER.warning("the lease %s was not released: %s", name, error)
        finally:
            self._leaving.discard(name)
            self._changed.notify()

    def _drop(self, names: list[str]) -> None:
        """Drop partitions at once. Their sessions close in the background."""
        for partition in [self._owned.pop(name) for name in names if name in self._owned]:
            partition.drop()
        self._changed.notify()

    def fence(self, client: str) -> int:
        """Return the fence of a client's partition. Raises ``ConflictError`` when it is not owned."""
        partition = self._owned.get(joined(self.swarm.realm, str(partition_of(client, len(self._names)))))
        if partition is None:
            raise ConflictError(f"the client {client!r} belongs to another worker")
        return partition.fence

    def clients(self, partition: int) -> list[str]:
        """Return the clients of a partition that have a queue here."""
        return [client for client in self.client_queues.clients if partition_of(client, len(self._names)) == partition]

    def recheck_leases(self) -> None:
        """Check the leases soon."""
        self._wake.notify()

    async def publish_answer(self, request: TurnRequest, output: Mapping[str, Any]) -> None:
        """Publish the outcome of a turn, and wait until it and all earlier events are on the bus."""
        while True:
            self._publish(request, output)
            try:
                await self._bus.flush()
            except BusyError as error:
                LOGGER.warning("the answer of %s is published again: %s", request.run, error)
                await anyio.sleep(_RETRY)
            else:
                return

    def _publish(self, request: TurnRequest, output: Mapping[str, Any]) -> None:
        event = Event(
            source="session", type=ANSWER, client=request.client, swarm=self.swarm.name, run=request.run, output=output
        )
        try:
            self._bus.publish(event)
        except Exception as error:  # noqa: BLE001 (the caller gets this error in place of the answer)
            self.live.publish(structs.replace(event, output=_error_output(error)))

    @property
    def bus(self) -> Bus:
        """The bus that takes the events."""
        return self._bus


class _OwnedSwarm(LiveSwarm):
    """A swarm whose threads are written under a fence and read again for each session."""

    def __init__(self, worker: Worker, store: Store) -> None:
        super().__init__(worker.swarm, store=store, bus=worker.bus)
        self._threads = store
        self._worker = worker

    async def log(self, client: str) -> Log:
        """Open a client's log and write this worker's fence. Raises ``ConflictError`` when another worker owns it."""
        fence = self._worker.fence(client)
        realm = self.swarm.realm
        log = Log(await to_thread(self._threads.open, client_thread(realm, client)))
        found = Records(log).get(_LEASE, realm, 0)
        if found > fence:
            self._worker.recheck_leases()
            raise ConflictError(f"the client {client!r} belongs to another worker, of fence {found}")
        if found < fence:
            await log.append([record(_LEASE, realm, fence)])
        return log


class _OwnedPartition:
    """One partition while this worker owns it."""

    def __init__(self, worker: Worker, partition: int, fence: int) -> None:
        self._worker, self._partition, self.fence = worker, partition, fence
        self._consumer = PartitionConsumer(worker.queue, partition, fence, self._on_turn, self._cancel)
        self._scope = anyio.CancelScope()
        self._done = anyio.Event()

    async def run(self) -> None:
        """Take turns until the partition is dropped."""
        try:
            with self._scope:
                await self._consumer.run()
                self._worker.recheck_leases()
        finally:
            self._done.set()

    def drop(self) -> None:
        """Drop the partition at once."""
        self._consumer.close()
        self._scope.cancel()
        self._worker.client_queues.drop(self._worker.clients(self._partition))

    async def finish(self) -> None:
        """Drop the partition after its turns in progress."""
        self._consumer.close()
        await self._worker.client_queues.finish(self._worker.clients(self._partition))
        self._scope.cancel()
        await self._done.wait()

    def _on_turn(self, delivery: Delivery) -> None:
        async def answer(queue: ClientQueue) -> None:
            await self._answer(delivery, queue)

        self._worker.client_queues.put(delivery.request.client, answer)

    async def _cancel(self, client: str) -> bool:
        session = self._worker.live.get(client)
        return session is not None and await session.cancel()

    async def _answer(self, delivery: Delivery, queue: ClientQueue) -> None:
        output = await self._outcome(delivery.request, queue)
        await self._worker.publish_answer(delivery.request, output)
        await self._consumer.acknowledge(delivery.place)

    async def _outcome(self, request: TurnRequest, queue: ClientQueue) -> Mapping[str, Any]:
        """Return the outcome of a turn, as its event has it. The thread has it when this returns."""
        while True:
            session: Session | None = None
            try:
                session = await queue.session()
                return await _complete(session, request)
            except Exception as error:  # noqa: BLE001 (the other turns are answered all the same)
                if not isinstance(error, _RETRYABLE if session is None else (StoreError, ClosedError)):
                    LOGGER.exception("the turn %s of %s cannot be answered", request.run, request.client)
                    return _error_output(error)
                LOGGER.warning("the turn %s of %s is tried again: %s", request.run, request.client, error)
            await queue.close()
            self._worker.recheck_leases()
            await anyio.sleep(_RETRY)


async def _complete(session: Session, request: TurnRequest) -> Mapping[str, Any]:
    failed = session.records.get(_FAILED, request.run)
    if failed is not None:
        return dict(failed)
    try:
        answer = await _said_or_decided(session, request)
    except (StoreError, ClosedError):
        raise
    except DecisionError as error:  # nothing was decided, so nothing is kept
        return _error_output(error)
    except Exception as error:  # noqa: BLE001 (any error is the outcome of the turn)
        LOGGER.error("the turn %s of %s failed", request.run, request.client, exc_info=error)
        output = _error_output(error)
        await session.records.put(_FAILED, request.run, output)
        return output
    if session.closed:
        raise ClosedError("the session was closed in the middle of a turn")
    return {"result": answer}


async def _said_or_decided(session: Session, request: TurnRequest) -> str:
    """Answer a message, or take decisions once."""
    decisions = request.decisions
    if decisions is None:
        return await session.complete(request.text, request.payload, run=request.run)
    begun = session.records.get(_DECIDED, request.run)
    if begun is not None:
        return await continue_turn(session, begun)
    waiting = pending_turn(session.log.path)
    turn = request.turn or waiting.run
    if turn is not None and decisions.keys() <= {each.call.id for each in waiting.requests}:
        await session.records.put(_DECIDED, request.run, turn)
    return await decide_calls(session, decisions, turn)


def _error_output(error: Exception) -> dict[str, Any]:
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
    """Run a worker until SIGTERM or SIGINT, in a process of its own.

    ``store`` is the location of a store in PostgreSQL, which also has the leases; ``bus`` is the URL of NATS. Raises
    ``UnavailableError`` and ``TransportError``.
    """
    if not store.startswith(_POSTGRES):
        raise SwarmError(f"workers need a store in PostgreSQL, not {store.partition(':')[0]!r}")
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
