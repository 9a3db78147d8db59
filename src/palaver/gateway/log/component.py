"""The log as a component of a gateway.

Stability: experimental.
"""

from __future__ import annotations

import logging
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import platformdirs

from palaver.core.errors import UnavailableError
from palaver.gateway.component import Component
from palaver.gateway.log.logged import encode, logged
from palaver.gateway.log.redaction import Redaction
from palaver.gateway.log.spool import Spool
from palaver.gateway.log.writer_process import WriterProcess
from palaver.store.location import default_location
from palaver.store.store import to_thread

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.gateway.log.logged import Amount
    from palaver.gateway.log.options import LogOptions
    from palaver.gateway.record import Record

LARGE: Final = 1 << 18
"""Bytes of an exchange from which on it is masked in a thread: less takes less time than a thread may wait for."""
_STOP: Final = 10.0
"""Seconds that the end of the gateway waits for the writer, which then goes on alone."""
_LOGGER: Final = logging.getLogger("palaver.gateway.log")


class ExchangeLog(Component):
    """Spools each exchange when it ends, and runs the writer."""

    _spool: Spool
    _writer: WriterProcess

    def __init__(self, options: LogOptions, database: str) -> None:
        """Keep the arguments; ``database`` is the location of the gateway's database. Raises ``DecodeError``."""
        self._options, self._database = options, database
        self._redact = Redaction(options.redact, keys=options.redact_keys)
        self._amount: Amount = "figures" if not options.content else "bodies" if options.bodies else "messages"
        self.dropped = 0
        """The number of exchanges that are not in the log."""

    async def __aenter__(self) -> Self:
        """Make a folder in the spool, and start the writer. Raises ``UnavailableError``."""
        options = self._options
        data = Path(platformdirs.user_data_dir("palaver", appauthor=False))
        root = Path(options.spool) if options.spool else data / "gateway-spool" / _name(options, self._database)
        self._spool = Spool(root, max_bytes=options.max_spool, sync=options.sync)
        self._writer = WriterProcess(self._spool, options, self._database)
        self._writer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the spool, and wait for the writer."""
        self._spool.close()
        await to_thread(self._writer.stop, _STOP)

    async def admit(self, record: Record) -> None:  # noqa: ARG002 (the base's signature)
        """Refuse an exchange that could not be logged, where the configuration says so. Raises ``UnavailableError``."""
        if self._options.when_full == "refuse" and self._spool.full:
            raise UnavailableError("the log of the gateway is full")

    async def ended(self, record: Record) -> None:
        """Spool an exchange. With ``sync``, wait until it is on the disk."""
        if self._spool.full and (self._options.when_full == "drop" or not record.attempts):
            self.dropped += 1
            if self.dropped == 1 or not self.dropped % 1000:
                _LOGGER.warning("the spool of the log is full: %d exchanges are not logged", self.dropped)
            return
        try:
            large = _size(record) > LARGE
            made = await to_thread(self._made, record) if large else self._made(record)
            self._spool.append(made)
        except UnavailableError:
            self.dropped += 1
            raise
        if self._options.sync:
            await self._spool.synced()

    def _made(self, record: Record) -> bytes:
        return encode(logged(record, self._redact, self._amount))

    @property
    def health(self) -> dict[str, Any]:
        """The state of the log: bytes that wait, exchanges that were dropped, and why the store is away."""
        return {
            "spooled_bytes": self._spool.size,
            "dropped": self.dropped,
            "error": self._writer.error,
        }


def _size(record: Record) -> int:
    """Return how many bytes are to be masked, about."""
    return len(record.request.body) + len(record.sent) + sum(map(len, record.received)) + sum(map(len, record.returned))


def _name(options: LogOptions, database: str) -> str:
    """Return the name of the folder of a log: another gateway's writer must not adopt what belongs to this one."""
    return sha256(f"{database}\0{options.store or default_location()}".encode()).hexdigest()[:16]
