"""The bus over NATS JetStream: for many processes and machines, and kept for those who come later.

Rules:

- All events of a bus are one stream; an event's place is its number there. The stream is made where it is not there,
  with ``max_age`` and ``max_bytes``, and left as it is where it is.
- ``publish`` puts an event into an outbox (``outbox``: how many may wait); one task writes it. A server that is away
  for a while is waited for: nothing is lost as long as the process lives and the outbox has room.
- Subscriptions go on where they were when a connection breaks; a server's restart is not seen by those who listen.
- On asyncio alone: the NATS client knows no other event loop.

The subjects of events: ``palaver.events.<client>.<source>``, where either may be any text.

Rules:

- A token keeps ASCII letters, digits, ``-`` and ``_``; every other byte of its UTF-8 is ``=`` and two hexadecimal
  digits, and empty text is ``=``. So different texts have different tokens, without a dot, a blank or a wildcard.
- What would be longer than 200 characters is ``==`` and its SHA-256; a subject is no longer than a server takes.

Stability: experimental.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from palaver.core.errors import ClosedError, SwarmError
from palaver.serve.nats.connection import Connection, Link, NotFoundError, StorageType, StreamConfig
from palaver.serve.nats.feed import Feed
from palaver.serve.nats.outbox import Outbox
from palaver.swarm.bus import Where
from palaver.swarm.events import Event, encode
from palaver.swarm.subscriptions import GRACE, ListeningBus, Subscribed

if TYPE_CHECKING:
    from anyio.abc import TaskGroup


# --- subjects ---------------------------------------------------------------------------------------------------------


_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_LONGEST: Final = 200


@lru_cache(maxsize=4096)
def token(text: str) -> str:
    """One token of a subject for any text. Raises ``UnicodeEncodeError`` for lone surrogates."""
    data = text.encode()
    if not data:
        return "="
    written = "".join([chr(byte) if byte in _PLAIN else f"={byte:02x}" for byte in data])
    return written if len(written) <= _LONGEST else f"=={hashlib.sha256(data).hexdigest()}"


def subject(prefix: str, client: str, source: str) -> str:
    """The subject of an event."""
    return f"{prefix}.{token(client)}.{token(source)}"


def pattern(prefix: str, where: Where) -> str:
    """The subjects among which every wanted event is."""
    client = "*" if where.client is None else token(where.client)
    source = "*" if where.source is None else token(where.source)
    return f"{prefix}.{client}.{source}"


# --- bus --------------------------------------------------------------------------------------------------------------


STREAM: Final = "PALAVER_EVENTS"
PREFIX: Final = "palaver.events"

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")
_SUBJECT: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_HEADERS: Final = 1024
"""So many bytes of a message are not the event itself."""
_TWICE: Final = timedelta(minutes=2)
"""How long the server remembers an id."""


class NatsBus(ListeningBus):
    """Carries events over a stream of NATS JetStream (``Bus``)."""

    def __init__(
        self,
        url: str,
        *,
        stream: str = STREAM,
        prefix: str = PREFIX,
        max_age: timedelta = timedelta(days=7),
        max_bytes: int = 2**30,
        outbox: int = 65_536,
        grace: float = GRACE,
    ) -> None:
        """Use a server, or one of several: ``nats://a:4222,nats://b:4222``.

        Entering raises ``TransportError``, naming the URL, where none answers.
        """
        super().__init__(grace)
        if not _NAME.fullmatch(stream):
            raise SwarmError(f"a stream is called by ASCII letters, digits, - and _, not {stream!r}")
        if not _SUBJECT.fullmatch(prefix):
            raise SwarmError(f"a prefix of subjects is words with dots between them, not {prefix!r}")
        self._stream, self._prefix = stream, prefix
        self._config = StreamConfig(
            name=stream,
            subjects=[f"{prefix}.*.*"],
            storage=StorageType.FILE,
            max_age=max_age.total_seconds(),
            max_bytes=max_bytes,
            duplicate_window=min(_TWICE, max_age).total_seconds() if max_age else _TWICE.total_seconds(),
        )
        self._largest = 0
        self._link = Link([each.strip() for each in url.split(",")], self._prepare)
        self._outbox = Outbox(self._link, outbox)
        self._feeds: dict[Subscribed, Feed] = {}

    def publish(self, event: Event) -> None:
        """Say what happened. Raises ``SwarmError`` for what cannot be written, ``ClosedError`` at the end."""
        if self._closed is not None:
            raise ClosedError(self._closed)
        data = encode(event)
        if len(data) > self._largest:
            raise SwarmError(f"event {event.source} {event.type}: {len(data):,} bytes are more than the server takes")
        self._outbox.put(subject(self._prefix, event.client, event.source), token(event.id), data)

    async def flush(self) -> None:
        """Wait until everything published is acknowledged. Raises ``BusyError`` where some of it was given up."""
        await self._outbox.flush()

    async def caught_up(self, events: Subscribed) -> None:
        """Wait until what the stream has now has come into the inbox of a subscription."""
        if (feed := self._feeds.get(events)) is not None:
            await feed.caught_up()

    async def _attach(self, events: Subscribed) -> None:
        assert self._tasks is not None  # noqa: S101 (subscriptions are attached to a bus that was entered)
        feed = Feed(self._link, self._stream, pattern(self._prefix, events.where), events)
        self._feeds[events] = feed
        self._tasks.start_soon(feed.run)
        await feed.ready()

    def _detach(self, events: Subscribed) -> None:
        if (feed := self._feeds.pop(events, None)) is not None:
            feed.stop()

    async def _begin(self, tasks: TaskGroup) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise SwarmError("a bus over NATS runs on asyncio alone: its client knows no other event loop") from None
        await self._link.open()
        tasks.start_soon(self._link.keep)
        tasks.start_soon(self._outbox.run)

    async def _end(self) -> None:
        await self._link.close()

    async def _prepare(self, connection: Connection) -> None:
        """Have a stream, and know what the server takes."""
        try:
            config = (await connection.streams.stream_info(self._stream)).config
        except NotFoundError:
            await connection.make(self._config)
        else:
            if self._config.subjects != config.subjects:
                raise SwarmError(
                    f"stream {self._stream} of {self._link.shown} is for {', '.join(config.subjects or ())},"
                    f" not for {self._prefix}"
                )
        self._largest = connection.client.max_payload - _HEADERS
