"""One model asked by many at once, some of whom leave: no connection, task or descriptor is left behind."""

import gc
import random
import socket
import threading
from functools import partial
from pathlib import Path

import anyio
import pytest

from palaver import user
from palaver.models import Http, Retry
from palaver.models.language_model import Prompt
from tests.models.asking import HI, at, told
from tests.models.faults import DONE, HELLO, STOP, delta, serve, streams
from tests.models.test_http2 import Server

CROWD = 200


def descriptors():
    gc.collect()
    return len([*Path("/proc/self/fd").iterdir()])


async def ask_and_perhaps_leave(model, number, ended, *, cancels):
    """Every fifth leaves after the first event; where it ``cancels``, every third is, at its own moment."""
    with anyio.move_on_after(random.Random(number).random() * 0.1 if cancels and number % 3 == 0 else 60):
        async with model.session().ask(HI) as answer:
            await anext(answer)
            if number % 5:
                reply = await answer.finish()
                assert reply.response.message.text == "Hello"
                ended.append(number)


async def crowd(model, *, cancels):
    ended = []
    async with anyio.create_task_group() as tasks:
        for number in range(CROWD):
            tasks.start_soon(partial(ask_and_perhaps_leave, model, number, ended, cancels=cancels))
    assert {number for number in range(CROWD) if number % 3 and number % 5} <= set(ended)


@pytest.mark.anyio
@pytest.mark.share(2)
async def test_a_crowd_leaves_nothing_open(anyio_backend):
    step = streams(HELLO[0], 0.01, HELLO[1], STOP, DONE)
    with serve(step) as server:
        before = descriptors()
        async with Http() as http:
            model = at(server.url, http=http, retry=Retry(attempts=1))
            await crowd(model, cancels=True)
            opened = server.connections
            await told(model)
            assert server.connections == opened
        with anyio.fail_after(60):
            while descriptors() - before > opened:  # noqa: ASYNC110 (the server's own ends, until it is left)
                await anyio.sleep(0.01)
    assert descriptors() <= before


@pytest.mark.anyio
@pytest.mark.share(2)
async def test_a_crowd_over_http2_shares_one_connection(anyio_backend):
    """Nobody is cancelled here: httpcore loses a frame when that happens while it writes."""
    import httpx

    server = Server()
    server.streams.append(0)  # the first stream gets a whole answer, too
    before = descriptors()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=(listener,))
        thread.start()
        async with httpx.AsyncClient(http1=False, http2=True) as client, Http(client) as http:
            model = at(f"http://127.0.0.1:{listener.getsockname()[1]}", http=http, retry=Retry(attempts=1))
            await crowd(model, cancels=False)
            _, reply = await told(model)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert reply.response.message.text == "Hello"
    assert server.connections == 1
    assert descriptors() <= before


@pytest.mark.anyio
async def test_one_session_asked_twice_at_once_sends_both_as_they_are(anyio_backend):
    with serve(streams(delta("Hel"), 0.02, delta("lo"), STOP, DONE)) as server:
        session = at(server.url).session()
        replies = []

        async def ask(text):
            async with session.ask(Prompt(messages=(user("first"), user(text)))) as answer:
                replies.append((await answer.finish()).response.message.text)

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(ask, f"number {number}.")
    assert replies == ["Hello"] * 20
    said = sorted(each.body.decode() for each in server.asked)
    assert all(sum(f"number {number}." in body for body in said) == 1 for number in range(20))
    assert all(body.count("number") == 1 for body in said)
