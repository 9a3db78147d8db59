"""The queue of turns: a work queue of NATS JetStream, divided into partitions (extra ``nats``).

- A hash of the client's name decides its partition. The partition's owner takes the turns in order, through one
  consumer with the owner's fence in its name. A new owner deletes consumers of lesser fences, never of a greater one,
  and gets all unacknowledged turns again.
- Only a new consumer delivers a turn again, never a timeout, which would deliver it after later turns of its client. So
  a consumer is created again on each connection and after a gap in the numbers. A turn is delivered once, known by its
  place in the stream.
- A turn is acknowledged when the server has confirmed it. Then it is gone.
- The number of partitions is part of the subjects: a process with another number finds another stream and an error.
- A full queue refuses turns with ``BusyError``; it never drops one.

Runs on asyncio only: the NATS client knows no other event loop.

Stability: experimental.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from palaver.core.errors import BusyError, MessageError, SwarmError
from palaver.serve.nats.bus import token
from palaver.serve.nats.connection import (
    FAILURES,
    AckPolicy,
    APIError,
    Connection,
    ConsumerConfig,
    DiscardPolicy,
    Link,
    Msg,
    NotFoundError,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    error_text,
)
from palaver.swarm.subscriptions import Signal
from palaver.threads.ids import now_ms, uuid7
from palaver.turn.approvals import Decision

if TYPE_CHECKING:
    from types import TracebackType

PARTITIONS: Final = 64
"""The default number of partitions of a swarm."""
MAX_UNACKNOWLEDGED: Final = 256
"""The number of turns of a partition that its owner gets before it acknowledges the first."""

_log = logging.getLogger("palaver.swarm")
_NO_REDELIVERY: Final = 30 * 24 * 3600.0
"""The number of seconds after which a server would deliver a turn again."""
_INACTIVE: Final = 60.0
"""The number of seconds after which a server removes a consumer without a listener."""
_HEARTBEAT: Final = 2.0
_MISSED_HEARTBEATS: Final = 3
_RETRY: Final = 0.2
_CLEANUP_TIMEOUT: Final = 1.0
_ACK_TIMEOUT: Final = 2.0
_HEADERS: Final = 1024
_FULL: Final = 10077
_CONSUMER_EXISTS: Final = (10099, 10100, 10013, 10148)
"""Error codes: a consumer for the subject or with the name exists already."""
_NAME: Final = re.compile(r"p(\d+)-(\d+)-.*")
_NAMES: Final = "$JS.API.CONSUMER.NAMES"
_REQUEST_TIMEOUT: Final = 5.0
_YES, _NO = b"1", b"0"


class TurnRequest(Struct, frozen=True, kw_only=True):
    """A turn that waits for its answer. ``sent_at`` is in Unix milliseconds.

    With ``decisions`` it is no message: calls of the turn ``turn`` are decided, and ``run`` names the request.
    """

    run: str
    client: str
    text: str = ""
    payload: Any = None
    decisions: dict[str, Decision] | None = None
    turn: str | None = None
    sent_at: int = msgspec.field(default_factory=now_ms)


class Delivery(Struct, frozen=True):
    """A turn as its owner gets it, and its place in the queue."""

    place: int
    request: TurnRequest


def partition_of(client: str, partitions: int) -> int:
    """Return the partition of a client. It is the same on every machine."""
    return int.from_bytes(hashlib.blake2b(client.encode(), digest_size=8).digest()) % partitions


class TurnQueue:
    """The queue of one swarm. Entering it raises ``TransportError`` when no server answers."""

    def __init__(
        self, url: str, swarm: str, *, partitions: int = PARTITIONS, prefix: str = "palaver", max_bytes: int = 2**30
    ) -> None:
        """Use one of these servers. A new stream holds at most ``max_bytes`` of turns."""
        if partitions < 1:
            raise SwarmError(f"a swarm has at least one partition, not {partitions}")
        self.swarm, self.partitions = swarm, partitions
        self.stream = f"{prefix}-turns-{token(swarm)}".replace(".", "-")
        self._turns = f"{prefix}.turns.{token(swarm)}.{partitions}"
        self._cancels = f"{prefix}.cancels.{token(swarm)}.{partitions}"
        self._config = StreamConfig(
            name=self.stream,
            subjects=[f"{self._turns}.*"],
            retention=RetentionPolicy.WORK_QUEUE,
            storage=StorageType.FILE,
            discard=DiscardPolicy.NEW,
            max_bytes=max_bytes,
            duplicate_window=120.0,
        )
        self.link = Link([each.strip() for each in url.split(",")], self._prepare)
        self._group: TaskGroup | None = None
        self._max_payload = 0

    async def __aenter__(self) -> Self:
        """Connect."""
        await self.link.open()
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self.link.maintain)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        with anyio.CancelScope(shield=True):
            await self.link.close()
        group, self._group = self._group, None
        if group is not None:
            group.cancel_scope.cancel()
            await group.__aexit__(None, None, None)

    async def _prepare(self, connection: Connection) -> None:
        try:
            config = (await connection.streams.stream_info(self.stream)).config
        except NotFoundError:
            await connection.create_stream(self._config)
        else:
            if config.subjects != self._config.subjects:
                raise SwarmError(
                    f"the swarm {self.swarm!r} does not have {self.partitions} partitions: the turns of the stream"
                    f" {self.stream} are {', '.join(config.subjects or ())}"
                )
        self._max_payload = connection.client.max_payload - _HEADERS

    def subject(self, partition: int) -> str:
        """Under which subject the turns of a partition stand."""
        return f"{self._turns}.{partition}"

    def cancels(self, partition: int) -> str:
        """Return the subject of cancel requests for a partition."""
        return f"{self._cancels}.{partition}"

    async def send(self, request: TurnRequest) -> None:
        """Put a turn into the queue; it is stored when this returns. Wait for an unavailable server.

        Raises ``SwarmError`` for a message that cannot be encoded, ``BusyError`` when the queue is full.
        """
        try:
            data = msgspec.json.encode(request)
            partition = partition_of(request.client, self.partitions)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise SwarmError(f"the message of the client {request.client!r} is not JSON: {error}") from error
        if len(data) > self._max_payload:
            raise SwarmError(f"a message of {len(data):,} bytes is larger than the server accepts")
        headers = {"Nats-Msg-Id": uuid7()}  # new for each attempt: a turn that is sent again must arrive again
        while True:
            connection = await self.link.ready()
            try:
                await connection.streams.publish(self.subject(partition), data, headers=headers)
            except APIError as error:
                if error.err_code == _FULL:
                    raise BusyError(f"the queue of the swarm {self.swarm!r} is full") from error
                _log.warning("a turn was refused and is sent again: %s", error_text(error))
                await anyio.sleep(_RETRY)
            except FAILURES as error:
                self.link.mark_broken(connection, error)
            else:
                return

    async def cancel(self, client: str, seconds: float) -> bool:
        """Cancel the client's turn in progress. Return whether a worker had one."""
        with anyio.move_on_after(seconds), suppress(*FAILURES):
            connection = await self.link.ready()
            subject = self.cancels(partition_of(client, self.partitions))
            answer = await connection.client.request(subject, client.encode(), timeout=seconds)
            return bool(answer.data == _YES)
        return False


class PartitionConsumer:
    """Takes the turns of one partition for its owner.

    ``on_turn`` is called with each turn, in order, and must not block; ``cancel`` gets the client of a turn to cancel.
    """

    def __init__(
        self,
        queue: TurnQueue,
        partition: int,
        fence: int,
        on_turn: Callable[[Delivery], None],
        cancel: Callable[[str], Awaitable[bool]],
    ) -> None:
        """Prepare; ``run`` starts."""
        self._queue, self._partition, self._fence = queue, partition, fence
        self._on_turn, self._cancel = on_turn, cancel
        self._unacknowledged: dict[int, Msg] = {}
        self._closed = False
        self._consumers_created = 0
        self._consumer: _Consumer | None = None
        self._redelivered = Signal()

    async def run(self) -> None:
        """Take turns, over one connection after another, until cancelled or until a greater fence takes over."""
        link = self._queue.link
        while True:
            connection = await link.ready()
            try:
                await self._consume(connection)
            except _OvertakenError:
                return
            except FAILURES as error:
                if not connection.down.is_set():
                    _log.warning("partition %d reconnects: %s", self._partition, error_text(error))
                    await anyio.sleep(_RETRY)

    def close(self) -> None:
        """Take no more turns. Those already taken can still be acknowledged."""
        self._closed = True

    async def acknowledge(self, place: int) -> None:
        """Acknowledge a turn; it is gone from the queue when this returns."""
        while True:
            message = self._unacknowledged.get(place)
            connection = await self._queue.link.ready()
            if message is None or await self._acknowledged(connection, message, place):
                self._unacknowledged.pop(place, None)
                return
            if self._unacknowledged.get(place) is message:
                with anyio.move_on_after(_RETRY):
                    await self._redelivered.wait()

    async def _acknowledged(self, connection: Connection, message: Msg, place: int) -> bool:
        with suppress(*FAILURES):
            await connection.client.request(message.reply, b"+ACK", timeout=_ACK_TIMEOUT)
            return True
        try:
            await connection.streams.get_msg(self._queue.stream, seq=place)
        except NotFoundError:
            return True
        except FAILURES as error:
            _log.debug("a turn is not acknowledged yet: %s", error_text(error))
        return False

    async def _consume(self, connection: Connection) -> None:
        consumer = self._consumer = _Consumer()
        inbox = connection.client.new_inbox()
        name: str | None = None

        async def on_message(message: Msg) -> None:
            self._take(consumer, message)

        async def on_cancel(message: Msg) -> None:
            await self._cancelled(message)

        turns = await connection.subscribe(inbox, on_message)
        cancels = await connection.subscribe(self._queue.cancels(self._partition), on_cancel)
        try:
            name = await self._create_consumer(connection, inbox)
            await self._watch(connection, consumer)
        finally:
            consumer.end()
            with anyio.move_on_after(_CLEANUP_TIMEOUT, shield=True), suppress(*FAILURES):
                if not connection.down.is_set():
                    await cancels.unsubscribe()
                    await turns.unsubscribe()
                    if name is not None:
                        await connection.streams.delete_consumer(self._queue.stream, name)

    async def _create_consumer(self, connection: Connection, inbox: str) -> str:
        """Create the consumer and remove those of lesser fences."""
        while True:
            self._consumers_created += 1
            config = ConsumerConfig(
                name=f"p{self._partition}-{self._fence}-{self._consumers_created}",
                filter_subject=self._queue.subject(self._partition),
                deliver_subject=inbox,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=_NO_REDELIVERY,
                max_ack_pending=MAX_UNACKNOWLEDGED,
                idle_heartbeat=_HEARTBEAT,
                inactive_threshold=_INACTIVE,
                mem_storage=True,
                num_replicas=1,
            )
            try:
                return await connection.consume(self._queue.stream, config)
            except APIError as error:
                if error.err_code not in _CONSUMER_EXISTS:
                    raise
            await self._remove_others(connection)

    async def _remove_others(self, connection: Connection) -> None:
        stream, offset = self._queue.stream, 0
        while True:  # names only: the server has nothing else about a consumer that is being deleted
            question = msgspec.json.encode({"offset": offset})
            answer = await connection.client.request(f"{_NAMES}.{stream}", question, timeout=_REQUEST_TIMEOUT)
            names = msgspec.json.decode(answer.data, type=_Names).consumers or ()
            if not names:
                return
            offset += len(names)
            for name in names:
                found = _NAME.fullmatch(name)
                if found is None or int(found[1]) != self._partition:
                    continue
                if int(found[2]) > self._fence:
                    raise _OvertakenError
                with suppress(NotFoundError):
                    await connection.streams.delete_consumer(stream, name)

    async def _watch(self, connection: Connection, consumer: _Consumer) -> None:
        """Wait until the consumer or its connection fails."""
        async with anyio.create_task_group() as tasks:

            async def broken() -> None:
                await connection.down.wait()
                consumer.end()

            tasks.start_soon(broken)
            while not consumer.ended.is_set():
                with anyio.move_on_after(_HEARTBEAT):
                    await consumer.ended.wait()
                if anyio.current_time() - consumer.last_message_at > _MISSED_HEARTBEATS * _HEARTBEAT:
                    consumer.end()
            tasks.cancel_scope.cancel()

    def _take(self, consumer: _Consumer, message: Msg) -> None:
        consumer.last_message_at = anyio.current_time()
        if consumer.ended.is_set() or not message.reply or (message.headers and "Status" in message.headers):
            return
        sequence = message.metadata.sequence
        consumer.received += 1
        if sequence.consumer != consumer.received:
            consumer.end()
            return
        place = sequence.stream
        delivered = place in self._unacknowledged
        if delivered or not self._closed:
            self._unacknowledged[place] = message
            self._redelivered.notify()
        if not delivered and not self._closed:
            try:
                request = msgspec.json.decode(message.data, type=TurnRequest)
            except (msgspec.MsgspecError, ValueError, MessageError) as error:
                _log.error("the message at place %d of the queue is not a turn and stays there: %s", place, error)
                return
            self._on_turn(Delivery(place, request))

    async def _cancelled(self, message: Msg) -> None:
        done = not self._closed and await self._cancel(message.data.decode(errors="replace"))
        await message.respond(_YES if done else _NO)


class _Consumer:
    """The state of one consumer of the server."""

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.received = 0  # the consumer's number of the last turn
        self.last_message_at = anyio.current_time()

    def end(self) -> None:
        self.ended.set()


class _Names(Struct, frozen=True):
    """The names of consumers, as the server lists them; ``None`` means none."""

    consumers: list[str] | None = None


class _OvertakenError(Exception):
    """An owner with a greater fence consumes the partition."""
