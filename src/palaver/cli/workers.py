"""The worker processes of ``palaver serve``: started, watched, started again, and stopped.

Rules:

- Store and bus are told by the environment, so that no password stands in a list of processes.
- A worker that ended by itself is started again; one that lived less than ``STEADY`` seconds after a pause, which
  doubles up to ``LONGEST``.
- A signal of the terminal is the front's: workers are in sessions of their own, and end when the front asks them to,
  or when it is gone.

Stability: experimental.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from typing import Final

import anyio
from anyio.abc import Process

from palaver.cli.harmless import echo
from palaver.store.location import VARIABLE

STEADY: Final = 10.0
LONGEST: Final = 30.0
GRACE: Final = 40.0
"""Seconds that a worker has to end; its turns have less."""


class Workers:
    """A number of workers of one swarm."""

    def __init__(self, file: str, store: str, bus: str, count: int) -> None:
        """Start nothing yet."""
        self._command = [sys.executable, "-m", "palaver", "work", file, "--attached"]
        self._environment = {**os.environ, VARIABLE: store, "PALAVER_BUS": bus}
        self._count = count
        self._running: dict[int, Process] = {}
        self._keeping = anyio.CancelScope()
        self._ended = anyio.Event()
        self._stopping = anyio.Event()

    async def run(self) -> None:
        """Keep them running until ``stop``."""
        try:
            with self._keeping:
                async with anyio.create_task_group() as tasks:
                    for number in range(1, self._count + 1):
                        tasks.start_soon(self._keep, number)
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Let them end, and wait for that; who takes too long is killed."""
        self._stopping.set()
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.terminate()
        with anyio.move_on_after(GRACE):
            for process in tuple(self._running.values()):
                await process.wait()
        self._keeping.cancel()
        await self._ended.wait()

    def kill(self) -> None:
        """Wait no longer."""
        self._stopping.set()
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.kill()

    async def _keep(self, number: int) -> None:
        pause = 0.0
        while not self._stopping.is_set():
            began = anyio.current_time()
            pid, code = await self._run(number)
            if self._stopping.is_set():
                return
            steady = anyio.current_time() - began >= STEADY
            pause = 0.0 if steady else min(LONGEST, max(1.0, 2 * pause))
            when = "now" if steady else f"in {pause:g} s"
            echo(f"palaver: worker {number} (process {pid}) ended with {code}; another is started {when}", err=True)
            with anyio.move_on_after(pause):
                await self._stopping.wait()

    async def _run(self, number: int) -> tuple[int, int]:
        process = await anyio.open_process(
            self._command,
            stdin=subprocess.PIPE,
            stdout=None,
            stderr=None,
            env=self._environment,
            start_new_session=True,
        )
        self._running[number] = process
        echo(f"worker {number}: process {process.pid}")
        try:
            return process.pid, await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()
                await process.aclose()
            del self._running[number]
