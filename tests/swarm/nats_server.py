"""The tests' NATS: ``PALAVER_NATS``, else this machine; and a server of their own, which may be killed."""

import asyncio
import os
import shutil
import socket
import subprocess
import time
import uuid
from contextlib import contextmanager

import nats
import pytest

from palaver.serve.nats import NatsBus

URL = os.environ.get("PALAVER_NATS", "nats://127.0.0.1:4222")


async def _delete(url, stream):
    client = await nats.connect(url, allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0)
    try:
        if stream is not None:
            await client.jetstream().delete_stream(stream)
    except nats.js.errors.NotFoundError:
        pass
    finally:
        await client.close()


@contextmanager
def fresh_stream(url=URL):
    """Yield the options of a new stream, which is deleted afterwards; without a server the test is skipped."""
    try:
        asyncio.run(_delete(url, None))
    except (OSError, nats.errors.Error) as error:
        pytest.skip(f"no NATS: {error}")
    name = f"palaver-test-{uuid.uuid4().hex}"
    try:
        yield {"stream": name, "prefix": name}
    finally:
        asyncio.run(_delete(url, name))


def open_bus(options, url=URL, **more):
    return NatsBus(url, **options, **more)


class PrivateServer:
    """A server on a free port; its store outlives it."""

    def __init__(self, folder):
        self._binary = shutil.which("nats-server") or pytest.skip("no binary of a NATS server")
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        self._process = None

    def start(self):
        self._process = subprocess.Popen(
            [self._binary, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self._folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(1000):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        raise AssertionError("the server does not come up")

    def kill(self):
        self._process.kill()
        self._process.wait()

    def remove(self):
        if self._process is not None and self._process.poll() is None:
            self.kill()
