"""Connections that say nothing, or half of it, in front of a real server."""

import socket
from contextlib import ExitStack, suppress

import anyio
import pytest
from websockets.asyncio.client import connect

from palaver.serve.http import connections
from palaver.serve.http.connections import LimitedH11Protocol, default_connection_limit
from tests.swarm.served import served

pytestmark = [pytest.mark.anyio, pytest.mark.finding("F-107")]

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def app(scope, receive, send):
    """Say ok; a POST reads its body."""
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    while scope["method"] == "POST":
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if not message["more_body"]:
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def address(url):
    return "127.0.0.1", int(url.rpartition(":")[2])


async def connected(url):
    return await anyio.connect_tcp(*address(url))


async def until_closed(stream, within=60):
    """Read until the server ends the connection; gives what came."""
    got = b""
    with anyio.fail_after(within):
        try:
            while True:
                got += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return got


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(connections, "_TIMEOUTS", dict.fromkeys(connections._TIMEOUTS, 0.2))


POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"G", HEALTH, HEALTH + b"X-a", POST, POST + b"half", HEALTH + b"\r\n" + b"GET"])
async def test_what_is_not_sent_whole_is_closed(short, sent):
    async with served(app, http=LimitedH11Protocol, timeout_keep_alive=1) as (url, _), await connected(url) as stream:
        if sent:
            await stream.send(sent)
        got = await until_closed(stream)
        assert got.count(b"200 OK") == sent.count(b"\r\n\r\n") - sent.count(b"POST")


async def test_a_head_that_drips_gets_no_more_time(short):
    async with (
        served(app, http=LimitedH11Protocol) as (url, _),
        await connected(url) as stream,
        anyio.create_task_group() as tasks,
    ):

        async def drip():
            while True:
                await stream.send(b"x")
                await anyio.sleep(0.02)

        async def dripping():
            with suppress(anyio.BrokenResourceError):
                await drip()

        await stream.send(HEALTH)
        tasks.start_soon(dripping)
        assert await until_closed(stream) == b""
        tasks.cancel_scope.cancel()


async def test_an_answer_may_take_longer_than_a_head(short):
    began, let = anyio.Event(), anyio.Event()

    async def slow(scope, receive, send):
        if scope["type"] == "http":
            began.set()
            await let.wait()
        await app(scope, receive, send)

    async with served(slow, http=LimitedH11Protocol) as (url, _), await connected(url) as stream:
        await stream.send(HEALTH + b"Connection: close\r\n\r\n")
        await began.wait()
        await anyio.sleep(0.5)  # longer than a head may take
        let.set()
        assert b"200 OK" in await until_closed(stream)


async def test_connections_that_say_nothing_keep_nobody_out():
    with ExitStack() as held:
        async with served(app, http=LimitedH11Protocol, limit_concurrency=4) as (url, server):
            for _ in range(50):
                each = held.enter_context(socket.create_connection(address(url)))
                each.sendall(HEALTH)
            for _ in range(5):
                async with await connected(url) as stream:
                    await stream.send(HEALTH + b"Connection: close\r\n\r\n")
                    assert b"200 OK" in await until_closed(stream)
            assert len(server.server_state.connections) <= 4


async def test_more_than_there_is_room_for_is_refused_while_all_are_answered():
    arrived, let = anyio.Semaphore(0), anyio.Event()

    async def slow(scope, receive, send):
        if scope["type"] == "http":
            arrived.release()
            await let.wait()
        await app(scope, receive, send)

    async with served(slow, http=LimitedH11Protocol, limit_concurrency=2) as (url, _):
        streams = [await connected(url) for _ in range(2)]
        for each in streams:
            await each.send(HEALTH + b"Connection: close\r\n\r\n")
        with anyio.fail_after(60):
            for _ in streams:
                await arrived.acquire()
        async with await connected(url) as late:
            assert await until_closed(late) == b""
        let.set()
        for each in streams:
            async with each:
                assert b"200 OK" in await until_closed(each)


def test_files_are_left_for_other_things():
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 0 < default_connection_limit() <= min(connections.MAX_CONNECTIONS, files)


async def test_a_web_socket_is_not_a_body_that_is_still_to_come(short):
    ended = []

    async def echo(scope, receive, send):
        if scope["type"] != "websocket":
            await app(scope, receive, send)
            return
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})
        ended.append(message["type"])

    async with served(echo, http=LimitedH11Protocol) as (url, _), connect(url.replace("http", "ws"), proxy=None) as ws:
        await anyio.sleep(0.5)  # longer than a head or a body may take
        assert ended == []
        await ws.send("still here")
        assert await ws.recv() == "still here"
