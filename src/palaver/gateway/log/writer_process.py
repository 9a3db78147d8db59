"""The process of the writer: it has its own interpreter, so that what it decodes and compresses delays no answer.

Rules:

- The process gets the options at its standard input, and stops when that ends: also when the gateway was killed. Then
  it writes what is left, and removes the folder. It holds the folder by the same lock as the gateway.
- It tells at its standard output why the store is away, one JSON value a line, and logs to standard error.
- A writer that dies is started again.

Stability: experimental.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, json

from palaver.gateway.garbage import collect_rarely
from palaver.gateway.log.options import LogOptions
from palaver.gateway.log.sink import Sink
from palaver.gateway.log.writer import Writer

if TYPE_CHECKING:
    from palaver.gateway.log.spool import Spool

_LOGGER: Final = logging.getLogger("palaver.gateway.log")
_PAUSE: Final = 1.0
"""Seconds before a writer that died is started again."""
_NICE: Final = 15
"""The writer may wait; answers may not."""


class _Task(Struct, frozen=True):
    folder: str
    lock: int
    database: str
    options: LogOptions


class WriterProcess:
    """Runs a writer for a spool."""

    def __init__(self, spool: Spool, options: LogOptions, database: str) -> None:
        """Keep the arguments; nothing runs yet."""
        self._spool = spool
        self._task = json.encode(_Task(str(spool.folder), spool.lock, database, options))
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="palaver gateway log", daemon=True)
        self._process: subprocess.Popen[bytes] | None = None
        self.error: str | None = None
        """Why the store or the database cannot be written to now."""

    def start(self) -> None:
        """Start the process."""
        self._process = self._started()
        self._watcher.start()

    def stop(self, timeout: float) -> None:
        """Let the process write the rest. After ``timeout`` seconds it goes on alone. The spool must be closed."""
        self._ended.set()
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        self._watcher.join(timeout)
        os.close(self._spool.lock)

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603 (this interpreter)
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=() if sys.platform == "win32" else (self._spool.lock,),
            start_new_session=True,  # Ctrl-C at a terminal is for the gateway
        )
        if process.stdin is not None:
            process.stdin.write(self._task + b"\n")
            process.stdin.flush()
        return process

    def _watch(self) -> None:
        """Read what the process tells, and start it again when it dies."""
        while self._process is not None:
            with self._process as process:
                for line in process.stdout or ():
                    self.error = json.decode(line, type=str | None)
                code = process.wait()
            if self._ended.is_set() or self._ended.wait(_PAUSE):
                return
            _LOGGER.error("the writer of the log ended with %d, and is started again", code)
            self._process = self._started()


def main() -> None:
    """Run the writer of which the standard input tells."""
    logging.basicConfig(format="%(name)s: %(message)s")
    if sys.platform != "win32":
        os.nice(_NICE)
    collect_rarely()
    task = json.decode(sys.stdin.buffer.readline(), type=_Task)
    stop = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.buffer.read()
        stop.set()

    def publish(error: str | None) -> None:
        with suppress(OSError):  # the gateway is gone
            sys.stdout.buffer.write(json.encode(error) + b"\n")
            sys.stdout.buffer.flush()

    threading.Thread(target=wait_for_end, daemon=True).start()
    writer = Writer(Path(task.folder), task.lock, lambda: Sink(task.options, task.database), changed=publish)
    writer.run(stop)
