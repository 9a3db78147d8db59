"""The turns that wait to be answered: a work queue of NATS JetStream, cut into partitions (extra ``nats``).

Rules:

- A client belongs to one partition, by a hash of its name. Whoever owns the partition takes its turns in the order in
  which they came, and one consumer of the server's does that: with the owner's fence in its name. A new owner deletes
  the consumer of the one before, never one of a greater fence, and is given everything again that is not acknowledged.
- Only a new consumer gives a turn again: not a clock, which would give it behind later turns of its client. So
  the consumer is made anew on each connection, and where a number is missing; what is held already is known by its
  place in the stream, and not given twice.
- A turn is acknowledged when the server has said that it knows. Then it is gone.
- The number of partitions is part of the subjects: who counts otherwise finds another stream, and is told so.
- A full queue refuses (``BusyError``); nothing that waits is ever thrown away.

On asyncio alone: the NATS client knows no other event loop.

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

from palaver.core.errors import BusyError, SwarmError
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
    said,
)
from palaver.swarm.subscriptions import Signal
from palaver.threads.ids import now_ms, uuid7

if TYPE_CHECKING:
    from types import TracebackType

PARTITIONS: Final = 64
"""How many partitions a swarm has, where nothing else is said."""
AHEAD: Final = 256
"""So many turns of a partition are given to its owner before it has acknowledged the first."""

_log = logging.getLogger("palaver.swarm")
_NEVER: Final = 30 * 24 * 3600.0
"""Seconds after which a server gives a turn again by itself."""
_GONE: Final = 60.0
"""Seconds after which a server forgets a consumer that nobody listens to."""
_HEARTBEAT: Final = 2.0
_MISSED: Final = 3
_AGAIN: Final = 0.2
_PARTING: Final = 1.0
_ACKNOWLEDGED: Final = 2.0
_HEADERS: Final = 1024
_FULL: Final = 10077
_TAKEN: Final = (10099, 10100, 10013, 10148)
"""A consumer for the subject, or of the name, is there already."""
_NAME: Final = re.compile(r"p(\d+)-(\d+)-.*")
_NAMES: Final = "$JS.API.CONSUMER.NAMES"
_ANSWER: Final = 5.0
_YES, _NO = b"1", b"0"


class Asked(Struct, frozen=True, kw_only=True):
    """A turn that waits to be answered. ``sent_at`` is Unix milliseconds."""

    run: str
    client: str
    text: str
    payload: Any = None
    sent_at: int = msgspec.field(default_factory=now_ms)


class Delivery(Struct, frozen=True):
    """A turn as its owner is given it, and its place in the queue."""

    place: int
    asked: Asked


def partition_of(client: str, partitions: int) -> int:
    """The partition of a client: the same on every machine."""
    return int.from_bytes(hashlib.blake2b(client.encode(), digest_size=8).digest()) % partitions


class TurnQueue:
    """The queue of one swarm. Entered by ``async with``, which raises ``TransportError`` where no server answers."""

    def __init__(
        self, url: str, swarm: str, *, partitions: int = PARTITIONS, prefix: str = "palaver", max_bytes: int = 2**30
    ) -> None:
        """Use a server, or one of several. At most ``max_bytes`` of turns may wait, if the stream is made here."""
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
        self._largest = 0

    async def __aenter__(self) -> Self:
        """Connect."""
        await self.link.open()
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self.link.keep)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go."""
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
            await connection.make(self._config)
        else:
            if config.subjects != self._config.subjects:
                raise SwarmError(
                    f"the swarm {self.swarm!r} is not cut into {self.partitions} partitions: the turns of the stream"
                    f" {self.stream} are {', '.join(config.subjects or ())}"
                )
        self._largest = connection.client.max_payload - _HEADERS

    def subject(self, partition: int) -> str:
        """Under which subject the turns of a partition stand."""
        return f"{self._turns}.{partition}"

    def cancels(self, partition: int) -> str:
        """Under which subject the owner of a partition hears whose turn is to be cancelled."""
        return f"{self._cancels}.{partition}"

    # -- handing in --------------------------------------------------------------------------------------------------

    async def send(self, asked: Asked) -> None:
        """Let a turn wait; when this has returned, it is kept. A server that is away is waited for.

        Raises ``SwarmError`` for what cannot be written, ``BusyError`` when the queue is full.
        """
        try:
            data = msgspec.json.encode(asked)
            partition = partition_of(asked.client, self.partitions)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise SwarmError(f"the message of the client {asked.client!r} is not JSON: {error}") from error
        if len(data) > self._largest:
            raise SwarmError(f"a message of {len(data):,} bytes is more than the server takes")
        headers = {"Nats-Msg-Id": uuid7()}  # of this sending: a turn that is asked for again must come again
        while True:
            connection = await self.link.ready()
            try:
                await connection.streams.publish(self.subject(partition), data, headers=headers)
            except APIError as error:
                if error.err_code == _FULL:
                    raise BusyError(f"the queue of the swarm {self.swarm!r} is full") from error
                _log.warning("a turn was not taken, and is sent again: %s", said(error))
                await anyio.sleep(_AGAIN)
            except FAILURES as error:
                self.link.fail(connection, error)
            else:
                return

    async def cancel(self, client: str, seconds: float) -> bool:
        """Have the turn under way of a client cancelled; give whether there was one, and an owner to ask."""
        with anyio.move_on_after(seconds), suppress(*FAILURES):
            connection = await self.link.ready()
            subject = self.cancels(partition_of(client, self.partitions))
            answer = await connection.client.request(subject, client.encode(), timeout=seconds)
            return bool(answer.data == _YES)
        return False


class Intake:
    """The turns of one partition, as its owner takes them.

    ``hear`` is called with each, in order, and must not wait; ``cancel`` with a client whose turn is to be cancelled.
    """

    def __init__(
        self,
        queue: TurnQueue,
        partition: int,
        fence: int,
        hear: Callable[[Delivery], None],
        cancel: Callable[[str], Awaitable[bool]],
    ) -> None:
        """Stand ready; ``run`` begins."""
        self._queue, self._partition, self._fence = queue, partition, fence
        self._hear, self._cancel = hear, cancel
        self._held: dict[int, Msg] = {}
        self._closed = False
        self._made = 0
        self._stage: _Stage | None = None
        self._given = Signal()

    async def run(self) -> None:
        """Take turns, over one connection after another, until cancelled; or until a greater fence takes them."""
        link = self._queue.link
        while True:
            connection = await link.ready()
            try:
                await self._follow(connection)
            except _OvertakenError:
                return
            except FAILURES as error:
                if not connection.down.is_set():
                    _log.warning("partition %d goes on in a moment: %s", self._partition, said(error))
                    await anyio.sleep(_AGAIN)

    def close(self) -> None:
        """Take no more turns; those that were taken can still be acknowledged."""
        self._closed = True

    async def acknowledge(self, place: int) -> None:
        """Let a turn be gone; when this has returned, it is."""
        while True:
            held = self._held.get(place)
            connection = await self._queue.link.ready()
            if held is None or await self._acknowledged(connection, held, place):
                self._held.pop(place, None)
                return
            if self._held.get(place) is held:
                with anyio.move_on_after(_AGAIN):
                    await self._given.wait()

    async def _acknowledged(self, connection: Connection, held: Msg, place: int) -> bool:
        with suppress(*FAILURES):
            await connection.client.request(held.reply, b"+ACK", timeout=_ACKNOWLEDGED)
            return True
        try:
            await connection.streams.get_msg(self._queue.stream, seq=place)
        except NotFoundError:
            return True
        except FAILURES as error:
            _log.debug("a turn is not acknowledged yet: %s", said(error))
        return False

    # -- the consumer ------------------------------------------------------------------------------------------------

    async def _follow(self, connection: Connection) -> None:
        stage = self._stage = _Stage()
        inbox = connection.client.new_inbox()
        name: str | None = None

        async def heard(message: Msg) -> None:
            self._take(stage, message)

        async def cancelled(message: Msg) -> None:
            await self._cancelled(message)

        turns = await connection.subscribe(inbox, heard)
        cancels = await connection.subscribe(self._queue.cancels(self._partition), cancelled)
        try:
            name = await self._consume(connection, inbox)
            await self._watch(connection, stage)
        finally:
            stage.end()
            with anyio.move_on_after(_PARTING, shield=True), suppress(*FAILURES):
                if not connection.down.is_set():
                    await cancels.unsubscribe()
                    await turns.unsubscribe()
                    if name is not None:
                        await connection.streams.delete_consumer(self._queue.stream, name)

    async def _consume(self, connection: Connection, inbox: str) -> str:
        """Make the consumer, in the place of those of lesser fences."""
        while True:
            self._made += 1
            config = ConsumerConfig(
                name=f"p{self._partition}-{self._fence}-{self._made}",
                filter_subject=self._queue.subject(self._partition),
                deliver_subject=inbox,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=_NEVER,
                max_ack_pending=AHEAD,
                idle_heartbeat=_HEARTBEAT,
                inactive_threshold=_GONE,
                mem_storage=True,
                num_replicas=1,
            )
            try:
                return await connection.consume(self._queue.stream, config)
            except APIError as error:
                if error.err_code not in _TAKEN:
                    raise
            await self._remove_others(connection)

    async def _remove_others(self, connection: Connection) -> None:
        stream, offset = self._queue.stream, 0
        while True:  # their names alone: of one that is just being deleted the server tells nothing else
            question = msgspec.json.encode({"offset": offset})
            answer = await connection.client.request(f"{_NAMES}.{stream}", question, timeout=_ANSWER)
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

    async def _watch(self, connection: Connection, stage: _Stage) -> None:
        """Wait until a consumer is of no use any more."""
        async with anyio.create_task_group() as tasks:

            async def broken() -> None:
                await connection.down.wait()
                stage.end()

            tasks.start_soon(broken)
            while not stage.over.is_set():
                with anyio.move_on_after(_HEARTBEAT):
                    await stage.over.wait()
                if anyio.current_time() - stage.heard_at > _MISSED * _HEARTBEAT:
                    stage.end()
            tasks.cancel_scope.cancel()

    def _take(self, stage: _Stage, message: Msg) -> None:
        stage.heard_at = anyio.current_time()
        if stage.over.is_set() or not message.reply or (message.headers and "Status" in message.headers):
            return
        sequence = message.metadata.sequence
        stage.came += 1
        if sequence.consumer != stage.came:
            stage.end()
            return
        place = sequence.stream
        known = place in self._held
        if known or not self._closed:
            self._held[place] = message
            self._given.tell()
        if not known and not self._closed:
            try:
                asked = msgspec.json.decode(message.data, type=Asked)
            except (msgspec.MsgspecError, ValueError) as error:
                _log.error("what stands at place %d of the queue is no turn, and is left there: %s", place, error)
                return
            self._hear(Delivery(place, asked))

    async def _cancelled(self, message: Msg) -> None:
        done = not self._closed and await self._cancel(message.data.decode(errors="replace"))
        await message.respond(_YES if done else _NO)


class _Stage:
    """One consumer of the server, from its making to its end."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.came = 0  # the consumer's number of the turn that came last
        self.heard_at = anyio.current_time()

    def end(self) -> None:
        self.over.set()


class _Names(Struct, frozen=True):
    """The names of consumers, as the server lists them; those that are missing count as none."""

    consumers: list[str] | None = None


class _OvertakenError(Exception):
    """Somebody with a greater fence consumes the partition."""
