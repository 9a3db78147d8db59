"""The writer of the log: a thread that brings what is in the spool to the store and the database.

Rules:

- Records are written in their order, each until it is there. A store that is away is asked again, after a pause that
  doubles up to ``_MAX_PAUSE``; meanwhile the spool grows.
- A record that the store refuses for another reason becomes a row without messages; when that fails, too, it is put
  into ``rejected`` in the folder of the spool, and logged. Nothing behind it waits.
- The folders of processes that died are adopted: their records are written, and the folders removed.
- At the end everything is written, unless the store is away: then the folder stays for the next process.

Stability: experimental.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from palaver.core.errors import PalaverError, UnavailableError
from palaver.gateway.log import spool

if TYPE_CHECKING:
    from palaver.gateway.log.sink import Sink
    from palaver.gateway.log.spool import Spool

_LOGGER: Final = logging.getLogger("palaver.gateway.log")
_POLL: Final = 0.05
"""Seconds between two looks at the spool."""
_MAX_PAUSE: Final = 5.0
_ADOPT: Final = 10.0
"""Seconds between two looks for folders of processes that died."""
_RETAIN: Final = 3600.0
_REJECTED: Final = "rejected"


class _StoppedError(Exception):
    """The writer should stop, and the store is away."""


class Writer:
    """Reads a spool, and writes into a sink that it opens."""

    def __init__(self, source: Spool, open_sink: Callable[[], Sink]) -> None:
        """Keep the arguments; nothing runs yet."""
        self._source, self._open_sink = source, open_sink
        self._root = source.folder.parent
        self._sink: Sink | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="palaver gateway log", daemon=True)
        self._offsets: dict[Path, int] = {}
        self._adopted = self._retained = -_RETAIN
        self.error: str | None = None
        """Why the store or the database cannot be written to now."""
        self.written = 0
        self.rejected = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Write the rest, and wait for that. The spool must be closed."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self._drain(self._source.folder, ended=False):
                    self._between()
                    self._stop.wait(_POLL)
            self._drain(self._source.folder, ended=True)
        except _StoppedError:
            _LOGGER.warning("%s: %s; the next gateway writes what is there", self._source.folder, self.error)
        finally:
            spool.remove_folder(self._source.folder, self._source.lock)
            self._close()

    def _between(self) -> None:
        """Do what is due from time to time."""
        now = time.monotonic()
        if now - self._adopted > _ADOPT:
            self._adopted = now
            self._adopt()
        if now - self._retained > _RETAIN:
            self._retained = now
            with suppress(PalaverError):
                self._opened().retain()

    def _adopt(self) -> None:
        """Write what processes that died have left."""
        for folder in sorted(self._root.iterdir()):
            if folder == self._source.folder or not folder.is_dir():
                continue
            lock = spool.lock_folder(folder)
            if lock is not None:
                try:
                    self._drain(folder, ended=True)
                finally:
                    spool.remove_folder(folder, lock)

    def _drain(self, folder: Path, *, ended: bool) -> int:
        """Write what is in a folder; return the number of records. ``ended``: nothing is appended any more."""
        found, count = spool.segments(folder), 0
        for place, segment in enumerate(found):
            complete = ended or place + 1 < len(found)
            offset = self._offsets.get(segment, 0)
            with segment.open("rb") as file:
                for record in spool.read(file, offset):
                    self._write(record.data)
                    self._offsets[segment] = offset = record.end
                    count += 1
            if complete:
                self._finish(segment, offset)
        return count

    def _finish(self, segment: Path, offset: int) -> None:
        """Delete a segment that was read."""
        rest = segment.stat().st_size - offset
        if rest:
            _LOGGER.warning("%s: the last %d bytes are no whole record, and are cut", segment, rest)
        segment.unlink()
        self._offsets.pop(segment, None)

    def _write(self, data: bytes) -> None:
        """Write a record, until it is there. Raises ``_StoppedError``."""
        pause = 0.1
        while True:
            try:
                self._opened().write(data)
            except UnavailableError as error:
                self._wait(error, pause)
                pause = min(2 * pause, _MAX_PAUSE)
            except Exception:
                _LOGGER.exception("an exchange cannot be stored as messages")
                return self._write_bare(data)
            else:
                self.error = None
                self.written += 1
                return None

    def _wait(self, error: PalaverError, pause: float) -> None:
        if self.error is None:
            _LOGGER.warning("%s; exchanges wait in %s", error, self._root)
        self.error = str(error)
        self._close()
        if self._stop.wait(pause):
            raise _StoppedError from None

    def _write_bare(self, data: bytes) -> None:
        try:
            self._opened().write_bare(data)
        except Exception:
            self.rejected += 1
            _LOGGER.exception("an exchange cannot be stored; it is in %s", self._root / _REJECTED)
            with suppress(OSError):
                file = os.open(self._root / _REJECTED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.write(file, spool.framed(data))
                os.close(file)

    def _opened(self) -> Sink:
        if self._sink is None:
            self._sink = self._open_sink()
        return self._sink

    def _close(self) -> None:
        if self._sink is not None:
            with suppress(Exception):
                self._sink.close()
            self._sink = None
