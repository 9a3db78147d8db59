"""A real uvicorn in the loop of a test, on a free port of loopback."""

from contextlib import asynccontextmanager

import anyio
import uvicorn


class _Server(uvicorn.Server):
    """One that says when it has begun, and leaves the signals of the process alone."""

    def __init__(self, config):
        super().__init__(config)
        self.begun = anyio.Event()

    async def startup(self, sockets=None):
        await super().startup(sockets)
        self.begun.set()


@asynccontextmanager
async def served(app, **options):
    """Serve an application: its address, and the server."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", **options)
    server = _Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server._serve)
        await server.begun.wait()
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}", server
        finally:
            server.should_exit = True
