"""A swarm over WebSocket: the `websockets` client against a real server."""

import json
from contextlib import suppress

import anyio
import pytest
from anyio.lowlevel import checkpoint
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from palaver.serve.http import Limits

pytestmark = pytest.mark.anyio


async def until(ws, test):
    """Read frames until one is as wanted; give all."""
    frames = []
    with anyio.fail_after(60):
        while not frames or not test(frames[-1]):
            frames.append(json.loads(await ws.recv()))
    return frames


async def drained(ws):
    """Read whatever comes, and say how it ended."""
    with anyio.fail_after(60), suppress(ConnectionClosed):
        async for _ in ws:
            pass
    return ws.close_code, ws.close_reason


def answered(frame):
    return "answer" in frame


def refused(frame):
    return "error" in frame


async def test_messages_in_events_and_answers_out(office):
    async with office() as o, connect(o.ws("ann"), proxy=None) as ws:
        await ws.send(json.dumps({"text": "one two", "run": "r1"}))
        frames = await until(ws, answered)
        assert frames[-1] == {"run": "r1", "answer": "you said one two", "agent": "desk"}
        events = [frame["event"] for frame in frames[:-1]]
        deltas = [event["output"]["text"] for event in events if (event["source"], event["type"]) == ("agent", "delta")]
        assert "".join(deltas) == "you said one two"
        assert [frame["place"] for frame in frames[:-1]] == sorted(frame["place"] for frame in frames[:-1])
        assert {event["client"] for event in events} == {"ann"}


async def test_events_of_other_connections_of_the_client_arrive_too(office):
    async with office() as o, connect(o.ws("ann"), proxy=None) as ws, connect(o.ws("bob"), proxy=None) as other:
        await o.post("ann", "hi", run="r7")
        frames = await until(ws, lambda frame: frame["event"]["type"] == "commit-execution-end")
        assert {frame["event"]["run"] for frame in frames} == {None, "r7"}
        await other.send(json.dumps({"text": "hello"}))
        assert all(frame["event"]["client"] == "bob" for frame in (await until(other, answered))[:-1])


async def test_without_events(office):
    async with office() as o, connect(o.ws("ann?events=none"), proxy=None) as ws:
        for number in range(3):
            await ws.send(json.dumps({"text": str(number), "run": f"r{number}"}))
        frames = [json.loads(await ws.recv()) for _ in range(3)]
        assert [frame["answer"] for frame in frames] == [f"you said {number}" for number in range(3)]


async def test_events_from_a_place(office):
    async with office() as o:
        await o.post("ann", "one", run="r1")
        async with connect(o.ws("ann?since=0"), proxy=None) as ws:
            frames = await until(ws, lambda frame: frame["event"]["type"] == "commit-execution-end")
            assert frames[-1]["event"]["run"] == "r1"


@pytest.mark.parametrize("indent", [None, 2])
async def test_cancel(office, held, indent):
    async with office(held=held) as o, connect(o.ws("ann?events=none"), proxy=None) as ws:
        await ws.send(json.dumps({"text": "to person", "run": "r1"}))
        await held.asked.wait()
        await ws.send(json.dumps({"cancel": True}, indent=indent))
        assert (await until(ws, answered))[-1]["answer"] == ""


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("", "decode", "truncated"),
        ("[]", "decode", "Expected `object`"),
        ('{"text": 1}', "decode", "Expected `str`"),
        ('{"cancel": false}', "decode", 'expected {"cancel": true}'),
        ('{"cancel": 1, "text": ""}', "decode", 'expected {"cancel": true}'),
        ('{"text": " "}', "decode", "the text is empty"),
        (json.dumps({"text": "x" * 2000}), "too_large", "1,000 bytes"),
        (json.dumps({"text": "ä" * 600}, ensure_ascii=False), "too_large", "1,000 bytes"),
    ],
)
async def test_a_refused_message_gets_an_error_and_the_next_is_answered(office, text, code, said):
    async with office(limits=Limits(body=1000)) as o, connect(o.ws("ann?events=none"), proxy=None) as ws:
        await ws.send(text)
        (frame,) = await until(ws, refused)
        assert frame["error"]["code"] == code
        assert said in frame["error"]["message"]
        await ws.send(json.dumps({"text": "hi"}))
        assert (await until(ws, answered))[-1]["answer"] == "you said hi"


async def test_limits_hold_for_frames(office, held):
    limits = Limits(waiting=1, rate=0.01, burst=4)
    async with office(held=held, limits=limits) as o, connect(o.ws("ann?events=none"), proxy=None) as ws:
        await ws.send(json.dumps({"text": "to person", "run": "r1"}))
        await held.asked.wait()
        await ws.send(json.dumps({"text": "more"}))
        assert (await until(ws, refused))[-1]["error"]["code"] == "busy"
        await ws.send(json.dumps({"text": "more"}))
        assert (await until(ws, refused))[-1]["error"]["code"] == "busy"
        await ws.send(json.dumps({"text": "more"}))
        assert (await until(ws, refused))[-1]["error"]["code"] == "rate_limit"
        held.let.set()
        assert (await until(ws, answered))[-1]["run"] == "r1"


async def test_a_binary_frame_closes_it(office):
    async with office() as o, connect(o.ws("ann?events=none"), proxy=None) as ws:
        await ws.send(b"\x00")
        with pytest.raises(ConnectionClosed) as closed:
            await ws.recv()
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1003, "expected text frames with JSON")


async def test_a_slow_reader_is_closed_with_the_reason(office):
    limits = Limits(events=8, io_timeout=60)
    async with office(limits=limits) as o, connect(o.ws("ann"), proxy=None, max_queue=1, compression=None) as ws:
        session = await o.live.open("ann")
        reader = await o.reader("ann")
        while not reader.inbox.closed:
            session.publish("ticker", "x" * 100_000)
            assert len(reader.inbox._waiting) <= 9
            await anyio.sleep(0.001)
        assert await drained(ws) == (1013, "slow reader: 8 events are waiting")
        await session.close()


async def test_a_reader_that_takes_nothing_is_left_after_a_while(office):
    limits = Limits(events=1000, io_timeout=0.2)
    async with office(limits=limits) as o, connect(o.ws("ann"), proxy=None, max_queue=1, compression=None) as ws:
        session = await o.live.open("ann")
        reader = await o.reader("ann")
        for _ in range(200):
            session.publish("ticker", "x" * 100_000)
        with anyio.fail_after(60):
            while not reader.inbox.closed:
                await checkpoint()
        assert await drained(ws) == (1013, "slow reader: nothing was read for 0.2 seconds")
        await session.close()


async def test_the_end_cancels_nothing(office, held):
    async with office(held=held) as o:
        async with connect(o.ws("ann"), proxy=None) as ws:
            await ws.send(json.dumps({"text": "to person", "run": "r1"}))
            await held.asked.wait()
        held.let.set()
        assert (await o.post("ann", "to person", run="r1")).json()["answer"].startswith("held")


async def test_the_end_cancels_where_it_was_asked_for(office, held):
    async with office(held=held) as o, o.live.bus.subscribe() as events:
        async with connect(o.ws("ann?cancel=disconnect"), proxy=None) as ws:
            await ws.send(json.dumps({"text": "to person", "run": "r1"}))
            await held.asked.wait()
        with anyio.fail_after(60):
            async for event in events:
                if event.type == "cancel-output":
                    break


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("ann", {}, 401, "authentication"),
        ("shared", {"authorization": "Bearer s"}, 400, "decode"),
        ("ann?cancel=no", {"authorization": "Bearer s"}, 400, "decode"),
        ("ann?since=no", {"authorization": "Bearer s"}, 400, "decode"),
        (f"ann?since={'9' * 19}", {"authorization": "Bearer s"}, 400, "decode"),
    ],
)
async def test_what_is_refused_is_refused_before_it_is_opened(office, path, headers, status, code):
    async with office(token="s") as o:
        with pytest.raises(InvalidStatus) as error:
            async with connect(o.ws(path), proxy=None, additional_headers=headers):
                pass
        assert error.value.response.status_code == status
        assert json.loads(error.value.response.body)["error"]["code"] == code


async def test_too_many_are_refused(office):
    async with office(limits=Limits(streams=1)) as o, connect(o.ws("ann"), proxy=None):
        with pytest.raises(InvalidStatus) as error:
            async with connect(o.ws("ann"), proxy=None):
                pass
        assert error.value.response.status_code == 429
        assert error.value.response.headers["retry-after"] == "1"


async def test_closing_the_front_closes_it(office):
    async with office() as o, connect(o.ws("ann"), proxy=None) as ws:
        o.front.close()
        with anyio.fail_after(60), pytest.raises(ConnectionClosed) as closed:
            await ws.recv()
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1001, "the server is stopping")


async def test_none_begins_while_the_server_stops(office):
    async with office() as o:
        o.front.close()
        with pytest.raises(InvalidStatus) as error:
            async with connect(o.ws("ann"), proxy=None):
                pass
        assert error.value.response.status_code == 503
        assert json.loads(error.value.response.body)["error"]["code"] == "closed"
