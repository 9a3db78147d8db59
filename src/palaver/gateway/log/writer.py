"""The writer of the log: brings what is in the spool to the store and the database.

Rules:

- Records are written in their order, as many at once as there are, up to ``_BATCH`` bytes, each until it is there. A
  store that is away is asked again, after a pause that doubles up to ``_MAX_PAUSE``; meanwhile the spool grows.
- Where the store refuses a batch for another reason, each of its records is written alone. One that is refused then
  becomes a row without messages; when that fails, too, it is put into ``rejected`` in the folder of the spool, and
  logged. Nothing behind it waits.
- A record that was altered is put into ``rejected``, as is what cannot be read at the end of a segment.
- The folders of processes that died are adopted: their records are written, and the folders removed.
- At the end everything is written, unless the store is away: then the folder stays for the next process.

Stability: experimental.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from palaver.core.errors import PalaverError, UnavailableError
from palaver.gateway.log import spool

if TYPE_CHECKING:
    from palaver.gateway.log.sink import Sink
    from palaver.gateway.log.spool import SpooledRecord

_LOGGER: Final = logging.getLogger("palaver.gateway.log")
_POLL: Final = 0.2
"""Seconds between two looks at the spool."""
_MAX_PAUSE: Final = 5.0
_ADOPT: Final = 10.0
"""Seconds between two looks for folders of processes that died."""
_RETAIN: Final = 3600.0
_REJECTED: Final = "rejected"
_BATCH: Final = 1 << 20
_MOST: Final = 256
"""Records of a batch."""


class _StoppedError(Exception):
    """The writer should stop, and the store is away."""


class Writer:
    """Reads the spool in a folder, and writes into a sink that it opens."""

    def __init__(
        self, folder: Path, lock: int, open_sink: Callable[[], Sink], *, changed: Callable[[str | None], None]
    ) -> None:
        """Keep the arguments. ``lock`` is that of the folder; ``changed`` gets why the store is away, or ``None``."""
        self._folder, self._lock, self._open_sink, self._changed = folder, lock, open_sink, changed
        self._root = folder.parent
        self._sink: Sink | None = None
        self._stop = threading.Event()
        self._offsets: dict[Path, int] = {}
        self._adopted = self._retained = -_RETAIN
        self._error: str | None = None

    def run(self, stop: threading.Event) -> None:
        """Write until ``stop``, then the rest; remove the folder. The spool must be closed before ``stop`` is set."""
        self._stop = stop
        again = True  # a writer of this folder may have died
        try:
            while not stop.is_set():
                found = self._drain(self._folder, ended=False, again=again)
                again = False
                if not found:
                    self._between()
                    stop.wait(_POLL)
            self._drain(self._folder, ended=True, again=again)
        except _StoppedError:
            _LOGGER.warning("%s: %s; the next gateway writes what is there", self._folder, self._error)
        finally:
            spool.remove_folder(self._folder, self._lock)
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
            if folder == self._folder or not folder.is_dir():
                continue
            lock = spool.lock_folder(folder)
            if lock is not None:
                try:
                    self._drain(folder, ended=True, again=True)
                finally:
                    spool.remove_folder(folder, lock)

    def _drain(self, folder: Path, *, ended: bool, again: bool) -> int:
        """Write what is in a folder; return the number of records.

        ``ended``: nothing is appended any more. ``again``: some may be written already.
        """
        found, count = spool.segments(folder), 0
        for place, segment in enumerate(found):
            complete = ended or place + 1 < len(found)
            offset = self._offsets.get(segment, 0)
            with segment.open("rb") as file:
                for batch in _batches(spool.read(file, offset)):
                    self._write_batch(segment, batch, again=again)
                    self._offsets[segment] = offset = batch[-1].end
                    count += len(batch)
            if complete:
                self._finish(segment, offset)
        return count

    def _write_batch(self, segment: Path, batch: Sequence[SpooledRecord], *, again: bool) -> None:
        for each in batch:
            if not each.whole:
                _LOGGER.warning("%s: a record of %d bytes was altered; it is in %s", segment, len(each.data), _REJECTED)
                self._reject(each.data)
        if whole := [each.data for each in batch if each.whole]:
            self._write(whole, again=again)

    def _finish(self, segment: Path, offset: int) -> None:
        """Delete a segment that was read."""
        with segment.open("rb") as file:
            file.seek(offset)
            rest = file.read().rstrip(b"\0")
        if rest:
            _LOGGER.warning("%s: the last %d bytes cannot be read; they are in %s", segment, len(rest), _REJECTED)
            self._reject(rest)
        segment.unlink()
        self._offsets.pop(segment, None)

    def _write(self, records: Sequence[bytes], *, again: bool) -> None:
        """Write records, until they are there. Raises ``_StoppedError``."""
        pause = 0.1
        while True:
            try:
                self._opened().write(records, again=again)
            except UnavailableError as error:
                self._wait(error, pause)
                pause, again = min(2 * pause, _MAX_PAUSE), True
            except Exception:
                if len(records) > 1:
                    for each in records:
                        self._write([each], again=True)
                    return
                _LOGGER.exception("an exchange cannot be stored as messages")
                self._write_bare(records[0])
                return
            else:
                self._note(None)
                return

    def _wait(self, error: PalaverError, pause: float) -> None:
        if self._error is None:
            _LOGGER.warning("%s; exchanges wait in %s", error, self._root)
        self._note(str(error))
        self._close()
        if self._stop.wait(pause):
            raise _StoppedError from None

    def _note(self, error: str | None) -> None:
        if error != self._error:
            self._error = error
            self._changed(error)

    def _write_bare(self, data: bytes) -> None:
        try:
            self._opened().write_bare(data)
        except Exception:
            _LOGGER.exception("an exchange cannot be stored; it is in %s", self._root / _REJECTED)
            self._reject(data)

    def _reject(self, data: bytes) -> None:
        """Keep what cannot be written for somebody who looks."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with suppress(OSError), os.fdopen(os.open(self._root / _REJECTED, flags, 0o600), "ab") as file:
            file.write(spool.framed(data))

    def _opened(self) -> Sink:
        if self._sink is None:
            self._sink = self._open_sink()
        return self._sink

    def _close(self) -> None:
        if self._sink is not None:
            with suppress(Exception):
                self._sink.close()
            self._sink = None


def _batches(records: Iterable[SpooledRecord]) -> Iterator[list[SpooledRecord]]:
    """Yield records in batches."""
    batch: list[SpooledRecord] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.data)
        if size >= _BATCH or len(batch) >= _MOST:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
