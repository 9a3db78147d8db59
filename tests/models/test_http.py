"""The pool of connections, and what is left of it."""

import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from palaver.core.errors import MessageError, TimedOutError
from palaver.models import Http, Timeouts
from palaver.models.endpoint import HttpCall
from palaver.models.http import send
from tests.models.asking import at, told
from tests.models.faults import HELLO, delta, serve, streams

SCRIPT = """
import gc, sys, anyio
from tests.models.asking import HI, at, told
from tests.models.faults import HELLO, delta, endless, serve, streams

async def main():
    for _ in range(3):
        await told(at(url))
    async with at(url).session().ask(HI) as answer:
        await anext(answer)
    if sys.argv[2] == "raise":
        raise KeyError("on purpose")

with serve(streams(*HELLO)) as server:
    url = server.url
    try:
        for _ in range(2):
            anyio.run(main, backend=sys.argv[1])
    except KeyError:
        pass
    gc.collect()
print("connections", server.connections)
"""


@pytest.mark.parametrize("end", ["return", "raise"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.share(2)
def test_nothing_is_left_open_when_a_loop_ends(backend, end):
    """Warnings of objects that are thrown away are printed, and never raised: so a process of its own is looked at."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "always", "-c", SCRIPT, backend, end],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "ResourceWarning" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert "connections" in done.stdout


@pytest.mark.anyio
@pytest.mark.parametrize("late", [(), (0.01,)], ids=["at once", "later"])
async def test_models_share_the_connections_of_a_loop(late, anyio_backend):
    """Also when the body ends a little behind the end mark."""
    with serve(streams(*HELLO, *late)) as server:
        for _ in range(3):
            await told(at(server.url))
    assert server.connections == 1


@pytest.mark.anyio
async def test_a_pool_of_ones_own(anyio_backend):
    with serve(streams(*HELLO)) as server:
        http = Http()
        with pytest.raises(MessageError, match="not open"):
            await told(at(server.url, http=http))
        for _ in range(2):
            async with http:
                await told(at(server.url, http=http))
                await told(at(server.url, http=http))
    assert server.connections == 2


@pytest.mark.anyio
async def test_a_client_that_was_given_stays_open(anyio_backend):
    import httpx

    with serve(streams(*HELLO)) as server:
        async with httpx.AsyncClient(headers={"x-mine": "yes"}) as client:
            async with Http(client) as http:
                await told(at(server.url, http=http))
            assert not client.is_closed
            await told(at(server.url, http=http))
    assert server.asked[0].headers["x-mine"] == "yes"


@pytest.mark.anyio
async def test_a_hundred_at_once(anyio_backend):
    with serve(streams(delta("Hel"), 0.05, *HELLO[1:])) as server:
        model = at(server.url, timeouts=Timeouts())
        replies = []

        async def one():
            replies.append((await told(model))[1])

        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(one)
    assert [reply.response.message.text for reply in replies] == ["Hello"] * 100


@pytest.mark.anyio
async def test_connecting_takes_too_long(anyio_backend):
    """Nobody accepts: the queue of a listener is full."""
    import socket

    with socket.socket() as listener, socket.socket() as filler, socket.socket() as other:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for each in (filler, other):
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        call = HttpCall("POST", f"http://127.0.0.1:{listener.getsockname()[1]}/", {}, (b"{}",))
        with pytest.raises(TimedOutError) as caught:
            await send(None, call, Timeouts(connect=0.1))
    assert caught.value.phase == "connect"


def test_the_times_are_those_of_the_reference():
    text = Path("docs/reference/faults.md").read_text()
    for name in Timeouts.__struct_fields__:
        assert re.search(rf"`{name}` {getattr(Timeouts(), name):g}\b", text), name


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_timeout_that_is_not_positive_is_refused_by_name(seconds):
    with pytest.raises(MessageError, match=r"Timeouts: idle: .* is not a positive number of seconds"):
        Timeouts(idle=seconds)
