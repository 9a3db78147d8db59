"""The events of one subscription, as they arrive from the stream.

- A consumer of the server pushes the events in order, without acknowledgements. After a gap in their numbers, after
  missed heartbeats (every ``HEARTBEAT`` seconds) and on every new connection, the consumer is created again after the
  last event. So a broken connection neither loses nor repeats an event.
- An event with a known id is left out; the last ``REMEMBERED`` ids are known.
- Events from before the subscription wait for room in its inbox, through the server's flow control. Later events are
  added at once, and the inbox decides what happens when it is full.

Stability: experimental.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import anyio

from palaver.core.errors import DecodeError
from palaver.serve.nats.connection import (
    FAILURES,
    AckPolicy,
    Connection,
    ConsumerConfig,
    DeliverPolicy,
    Link,
    Msg,
    error_text,
)
from palaver.swarm.events import decode
from palaver.swarm.subscriptions import Signal, Subscribed

HEARTBEAT: Final = 2.0
REMEMBERED: Final = 16_384

_log = logging.getLogger("palaver.swarm")
_MISSED_HEARTBEATS: Final = 3
_SKEW: Final = 5_000
"""Clocks differ: a replay from a time starts this many milliseconds earlier."""
_RETRY: Final = 0.2


class _Consumer:
    """The state of one consumer of the server."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.name: str | None = None
        self.ended = False
        self.blocked = False
        self.received = 0  # the consumer's number of the event that came last
        self.last_message_at = anyio.current_time()
        self.progress = Signal()

    async def reached(self, goal: int) -> bool:
        """Wait for a number of events. Return whether they arrived before the end."""
        while self.received < goal and not self.ended:
            await self.progress.wait()
        return self.received >= goal

    def end(self) -> None:
        self.ended = True
        self.progress.notify()


class Feed:
    """Fills the inbox of one subscription."""

    def __init__(self, link: Link, stream: str, subject: str, events: Subscribed) -> None:
        """Follow the events under a subject pattern of a stream."""
        self._link, self._stream, self._subject = link, stream, subject
        self._where, self._since, self._inbox = events.where, events.since, events.inbox
        self._next: int | None = None  # the next place in the stream; None: start by time
        self._last_old = 0  # events after this place are newer than the subscription
        self._created: datetime | None = None
        self._seen: dict[str, None] = {}
        self._consumer: _Consumer | None = None
        self._scope = anyio.CancelScope()
        self._consumer_changed = Signal()
        self._ready = anyio.Event()

    async def ready(self) -> None:
        """Wait until the subscription sees every new event."""
        await self._ready.wait()

    def stop(self) -> None:
        """Stop following the stream."""
        self._scope.cancel()

    async def run(self) -> None:
        """Follow the stream, over one connection after another, until stopped."""
        with self._scope:
            while not self._inbox.closed:
                connection = await self._link.ready()
                try:
                    await self._begin(connection)
                    await self._follow(connection)
                except FAILURES as error:
                    if not connection.down.is_set():
                        _log.warning("a subscription reconnects: %s", error_text(error))
                        await anyio.sleep(_RETRY)
        self._ready.set()
        self._consumer_changed.notify()

    async def caught_up(self) -> None:
        """Wait until all events that the stream has now are in the inbox."""
        while not self._inbox.closed:
            consumer = self._consumer
            if consumer is None or consumer.name is None or consumer.ended:
                await self._consumer_changed.wait()
                continue
            try:
                info = await consumer.connection.streams.consumer_info(self._stream, consumer.name)
            except FAILURES:
                await anyio.sleep(_RETRY)
                continue
            delivered = info.delivered.consumer_seq if info.delivered is not None else 0
            goal = delivered + (info.num_pending or 0)
            if await consumer.reached(goal):
                return

    async def _begin(self, connection: Connection) -> None:
        """Decide where to continue: the stream may have been created again."""
        info = await connection.streams.stream_info(self._stream)
        if self._created is None:
            self._last_old = info.state.last_seq
            since = self._since
            if since is None:
                self._next = self._last_old + 1
            elif since.place is not None or since.time is None:
                self._next = (since.place or 0) + 1
        elif info.created != self._created:
            self._next, self._last_old = 1, 0
        self._created = info.created

    def _config(self, inbox: str) -> ConsumerConfig:
        since = self._since
        config = ConsumerConfig(
            deliver_subject=inbox,
            filter_subject=self._subject,
            ack_policy=AckPolicy.NONE,
            max_deliver=1,
            flow_control=True,
            idle_heartbeat=HEARTBEAT,
            mem_storage=True,
            num_replicas=1,
        )
        if self._next is not None:
            config.deliver_policy, config.opt_start_seq = DeliverPolicy.BY_START_SEQUENCE, self._next
        elif since is not None and since.time is not None:
            config.deliver_policy, config.opt_start_time = DeliverPolicy.BY_START_TIME, _datetime(since.time - _SKEW)
        return config

    async def _follow(self, connection: Connection) -> None:
        consumer = _Consumer(connection)

        async def on_message(message: Msg) -> None:
            if not consumer.ended:
                await self._on_message(consumer, message)

        inbox = connection.client.new_inbox()
        listening = await connection.subscribe(inbox, on_message)
        try:
            consumer.name = await connection.consume(self._stream, self._config(inbox))
            self._consumer = consumer
            self._ready.set()
            self._consumer_changed.notify()
            await self._watch(consumer)
        finally:
            consumer.end()
            with anyio.CancelScope(shield=True), suppress(*FAILURES):
                if not connection.down.is_set():
                    await listening.unsubscribe()
                    await connection.delete_consumer(self._stream, consumer.name)

    async def _watch(self, consumer: _Consumer) -> None:
        """Wait until a consumer is of no use any more."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._broken, consumer)
            while not consumer.ended:
                with anyio.move_on_after(HEARTBEAT):
                    await consumer.progress.wait()
                if (
                    not consumer.blocked
                    and anyio.current_time() - consumer.last_message_at > _MISSED_HEARTBEATS * HEARTBEAT
                ):
                    consumer.end()
            tasks.cancel_scope.cancel()

    async def _broken(self, consumer: _Consumer) -> None:
        await consumer.connection.down.wait()
        consumer.end()

    async def _on_message(self, consumer: _Consumer, message: Msg) -> None:
        consumer.last_message_at = anyio.current_time()
        headers = message.headers or {}
        if "Status" in headers:
            await self._control(consumer, message, headers)
            return
        sequence = message.metadata.sequence
        if sequence.consumer != consumer.received + 1:
            consumer.end()
            return
        if sequence.stream <= self._last_old:
            consumer.blocked = True
            await self._inbox.room()
            consumer.blocked = False
            consumer.last_message_at = anyio.current_time()
            if consumer.ended:
                return
        self._deliver(message.data, sequence.stream)
        self._next = sequence.stream + 1
        consumer.received += 1
        consumer.progress.notify()

    async def _control(self, consumer: _Consumer, message: Msg, headers: Mapping[str, str]) -> None:
        """Answer the server's flow control, and detect missed events by its heartbeat."""
        client = consumer.connection.client
        with suppress(*FAILURES):
            if message.reply:
                await client.publish(message.reply)
            elif (stalled := headers.get("Nats-Consumer-Stalled")) is not None:
                await client.publish(stalled)
        last = headers.get("Nats-Last-Consumer")
        if last is not None and int(last) != consumer.received:
            consumer.end()

    def _deliver(self, data: bytes, place: int) -> None:
        try:
            event = decode(data).at(place)
        except DecodeError as error:
            _log.warning("stream %s, place %d: %s", self._stream, place, error)
            return
        if not self._where.admits(event):
            return
        since = self._since
        if since is not None and since.time is not None and place <= self._last_old and event.sent_at < since.time:
            return
        if event.id in self._seen:
            return
        self._seen[event.id] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._inbox.put(event)


def _datetime(at: int) -> datetime:
    """Return Unix milliseconds as a datetime, limited to the years 1970 to 9999."""
    return datetime.fromtimestamp(min(max(at, 0), 253_402_300_799_000) / 1000, UTC)
