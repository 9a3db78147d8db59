"""A real uvicorn in the loop of a test, on a free port of loopback."""

import sys
from contextlib import asynccontextmanager

import anyio
import uvicorn
from anyio.lowlevel import checkpoint


async def let_others_run():
    """Let the tasks that are ready run, and those that they make ready.

    ``anyio.wait_all_tasks_blocked`` looks ten times a second, as often as uvicorn's own task wakes up: where both fall
    into step, it waits for minutes.
    """
    for _ in range(100):
        await checkpoint()


class _Server(uvicorn.Server):
    """A server that signals its start, and ignores the signals of the process."""

    def __init__(self, config):
        super().__init__(config)
        self.begun, self.ended = anyio.Event(), anyio.Event()

    async def startup(self, sockets=None):
        await super().startup(sockets)
        self.begun.set()

    async def run(self):
        try:
            await self._serve()
        finally:
            self.begun.set()
            self.ended.set()


@asynccontextmanager
async def served(app, *, at=0, **options):
    """Serve an application; yield its address, and the server."""
    config = uvicorn.Config(app, host="127.0.0.1", port=at, log_level="warning", timeout_graceful_shutdown=1, **options)
    server = _Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        await server.begun.wait()
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}", server
        finally:
            server.should_exit = True
            sse = sys.modules.get("sse_starlette.sse")
            if sse is not None:  # a server that got a signal ends the streams of all later ones in this process
                sse.AppStatus.should_exit = False
            with anyio.CancelScope(shield=True):  # even after a failure: nothing is left for the next test
                await server.ended.wait()
