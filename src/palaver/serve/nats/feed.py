"""The events of one subscription, as they come from the stream.

Rules:

- A consumer of the server's, without acknowledgements, pushes the events in order. Each is numbered; where a number is
  missing, where nothing is heard (a heartbeat is due every ``HEARTBEAT`` seconds), and on every new connection, the
  consumer is made anew behind the last event that came. So nothing is lost, or comes twice, because a connection broke.
- An event whose id came before is left out, as long as it is remembered (the last ``REMEMBERED``).
- What was in the stream before the subscription waits for room in its inbox, by way of the server's flow control:
  replaying cannot be too fast. What comes after goes in at once, and finds room or does not.

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
    said,
)
from palaver.swarm.events import decode
from palaver.swarm.subscriptions import Signal, Subscribed

HEARTBEAT: Final = 2.0
REMEMBERED: Final = 16_384

_log = logging.getLogger("palaver.swarm")
_MISSED: Final = 3
_SKEW: Final = 5_000
"""Clocks of machines differ: what was sent at a time is looked for from so many milliseconds before."""
_AGAIN: Final = 0.2


class _Stage:
    """One consumer of the server, from its making to its end."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.name: str | None = None
        self.over = False
        self.blocked = False
        self.came = 0  # the consumer's number of the event that came last
        self.heard_at = anyio.current_time()
        self.moved = Signal()

    async def reached(self, goal: int) -> bool:
        """Wait until so many events came; tells whether they did before the end."""
        while self.came < goal and not self.over:
            await self.moved.wait()
        return self.came >= goal

    def end(self) -> None:
        self.over = True
        self.moved.tell()


class Feed:
    """Fills the inbox of one subscription."""

    def __init__(self, link: Link, stream: str, subject: str, events: Subscribed) -> None:
        """Follow the events under a subject pattern of a stream."""
        self._link, self._stream, self._subject = link, stream, subject
        self._where, self._since, self._inbox = events.where, events.since, events.inbox
        self._next: int | None = None  # where in the stream to go on; None: by the time that was asked for
        self._live = 0  # what stands behind this place came after the subscription
        self._created: datetime | None = None
        self._seen: dict[str, None] = {}
        self._stage: _Stage | None = None
        self._scope = anyio.CancelScope()
        self._moved = Signal()
        self._ready = anyio.Event()

    async def ready(self) -> None:
        """Wait until every event published from here on is seen."""
        await self._ready.wait()

    def stop(self) -> None:
        """Follow no more."""
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
                        _log.warning("a subscription goes on in a moment: %s", said(error))
                        await anyio.sleep(_AGAIN)
        self._ready.set()
        self._moved.tell()

    async def caught_up(self) -> None:
        """Wait until all that the stream has for this subscription now is in its inbox."""
        while not self._inbox.closed:
            stage = self._stage
            if stage is None or stage.name is None or stage.over:
                await self._moved.wait()
                continue
            try:
                info = await stage.connection.streams.consumer_info(self._stream, stage.name)
            except FAILURES:
                await anyio.sleep(_AGAIN)
                continue
            delivered = info.delivered.consumer_seq if info.delivered is not None else 0
            goal = delivered + (info.num_pending or 0)
            if await stage.reached(goal):
                return

    # -- where to begin ----------------------------------------------------------------------------------------------

    async def _begin(self, connection: Connection) -> None:
        """Decide where to go on: the stream may have been made anew meanwhile."""
        info = await connection.streams.stream_info(self._stream)
        if self._created is None:
            self._live = info.state.last_seq
            since = self._since
            if since is None:
                self._next = self._live + 1
            elif since.place is not None or since.time is None:
                self._next = (since.place or 0) + 1
        elif info.created != self._created:
            self._next, self._live = 1, 0
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
            config.deliver_policy, config.opt_start_time = DeliverPolicy.BY_START_TIME, _moment(since.time - _SKEW)
        return config

    # -- what comes --------------------------------------------------------------------------------------------------

    async def _follow(self, connection: Connection) -> None:
        stage = _Stage(connection)

        async def heard(message: Msg) -> None:
            if not stage.over:
                await self._hear(stage, message)

        inbox = connection.client.new_inbox()
        listening = await connection.subscribe(inbox, heard)
        try:
            stage.name = await connection.consume(self._stream, self._config(inbox))
            self._stage = stage
            self._ready.set()
            self._moved.tell()
            await self._watch(stage)
        finally:
            stage.end()
            with anyio.CancelScope(shield=True), suppress(*FAILURES):
                if not connection.down.is_set():
                    await listening.unsubscribe()
                    await connection.forget(self._stream, stage.name)

    async def _watch(self, stage: _Stage) -> None:
        """Wait until a consumer is of no use any more."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._broken, stage)
            while not stage.over:
                with anyio.move_on_after(HEARTBEAT):
                    await stage.moved.wait()
                if not stage.blocked and anyio.current_time() - stage.heard_at > _MISSED * HEARTBEAT:
                    stage.end()
            tasks.cancel_scope.cancel()

    async def _broken(self, stage: _Stage) -> None:
        await stage.connection.down.wait()
        stage.end()

    async def _hear(self, stage: _Stage, message: Msg) -> None:
        stage.heard_at = anyio.current_time()
        headers = message.headers or {}
        if "Status" in headers:
            await self._control(stage, message, headers)
            return
        sequence = message.metadata.sequence
        if sequence.consumer != stage.came + 1:
            stage.end()
            return
        if sequence.stream <= self._live:
            stage.blocked = True
            await self._inbox.room()
            stage.blocked = False
            stage.heard_at = anyio.current_time()
            if stage.over:
                return
        self._give(message.data, sequence.stream)
        self._next = sequence.stream + 1
        stage.came += 1
        stage.moved.tell()

    async def _control(self, stage: _Stage, message: Msg, headers: Mapping[str, str]) -> None:
        """Answer the server's flow control, and see by its heartbeat whether anything was missed."""
        client = stage.connection.client
        with suppress(*FAILURES):
            if message.reply:
                await client.publish(message.reply)
            elif (stalled := headers.get("Nats-Consumer-Stalled")) is not None:
                await client.publish(stalled)
        last = headers.get("Nats-Last-Consumer")
        if last is not None and int(last) != stage.came:
            stage.end()

    def _give(self, data: bytes, place: int) -> None:
        try:
            event = decode(data).at(place)
        except DecodeError as error:
            _log.warning("stream %s, place %d: %s", self._stream, place, error)
            return
        if not self._where.admits(event):
            return
        since = self._since
        if since is not None and since.time is not None and place <= self._live and event.sent_at < since.time:
            return
        if event.id in self._seen:
            return
        self._seen[event.id] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._inbox.put(event)


def _moment(at: int) -> datetime:
    """A time in Unix milliseconds; one that no calendar holds is the nearest that this one does."""
    return datetime.fromtimestamp(min(max(at, 0), 253_402_300_799_000) / 1000, UTC)
