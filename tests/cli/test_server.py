"""The processes of workers, with others in their place."""

import sys

import anyio
import pytest

from palaver.cli.server import WorkerPool

pytestmark = pytest.mark.anyio

FIRST = """
import os, signal, sys, time
with open(sys.argv[1], "a") as log:
    log.write("began\\n")
try:
    os.mkdir(sys.argv[1] + ".first")
except FileExistsError:
    sys.exit(1)
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(2), sys.exit(0)))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture(params=["asyncio"])
def anyio_backend(request):
    return request.param


async def test_no_worker_is_started_again_while_the_others_end(tmp_path):
    """One takes two seconds to end; the other died at once, and would be started again after one."""
    log = tmp_path / "log"
    workers = WorkerPool("no file", "no store", "no bus", 2)
    workers._command = [sys.executable, "-c", FIRST, str(log)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(workers.run)
        with anyio.fail_after(60):
            while not log.exists() or log.read_text() != 2 * "began\n":  # noqa: ASYNC110 (nobody tells)
                await anyio.sleep(0.01)
        await anyio.sleep(0.3)
        await workers.stop()
    assert log.read_text() == 2 * "began\n"
