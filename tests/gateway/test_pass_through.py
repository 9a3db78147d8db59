"""A model of the client's own wire: faults of its server, and what goes through beside the body."""

import json
import socket
import threading

import anyio
import httpx
import pytest

from palaver import Response, Text, assistant, wires
from palaver.core.errors import RateLimitError
from palaver.core.events import Failed
from palaver.gateway import GatewayConfig, Target
from palaver.gateway.apis import API_OF
from palaver.gateway.client_api import ClientApi, last_bytes
from palaver.gateway.config import Breaker
from palaver.gateway.health import TargetHealth
from palaver.gateway.keep_alive import StreamSender
from palaver.stream.replay_events import replay_events
from tests.gateway.running import PROVIDERS, running
from tests.gateway.test_wires import STREAM_TYPES, answer_of, body_of, path_of

JSON = {"content-type": "application/json"}
BODY = b'{"model":"m","messages":[]}'


def pair(provider, wire, **config):
    """A gateway whose model ``m`` has two places of one wire."""
    name, suffix = PROVIDERS[wire]
    one, two = (
        Target(model=f"{name}/{each}", wire=wire, url=provider.url + suffix, key="PALAVER_TEST_KEY", retries=0)
        for each in ("first", "second")
    )
    return GatewayConfig(models={"m": [one, two]}, **config)


def broken_start(wire):
    encoder = wires.get(wire).stream_encoder()
    return encoder.feed(Failed("provider", "the model is overloaded", "overloaded_error"))


@pytest.mark.row("GW-25")
@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses", "anthropic_messages", "google_generate"])
@pytest.mark.parametrize("kind", ["empty", "error"])
def test_a_stream_that_never_begins_is_asked_of_the_next_model(provider, wire, kind):
    answers = [b"" if kind == "empty" else broken_start(wire), answer_of(wire, stream=True)]
    provider.respond = lambda _: (200, {"content-type": STREAM_TYPES[wire]}, answers.pop(0))
    with running(pair(provider, wire)) as url:
        got = httpx.post(f"{url}{path_of(wire, 'm', stream=True)}", content=body_of(wire, "m", stream=True))
    assert got.content == answer_of(wire, stream=True)
    assert len(provider.asked) == 2


@pytest.mark.row("GW-26")
def test_an_answer_that_speaks_of_errors_is_an_answer(provider):
    encoder = wires.get("openai_chat").stream_encoder()
    whole = Response(assistant(Text("an error is no exception"), model="m", finish_reason="stop"))

    data = b"".join(map(encoder.feed, replay_events(whole))) + encoder.finish()
    provider.respond = lambda _: (200, {"content-type": "text/event-stream"}, data)
    with running(pair(provider, "openai_chat")) as url:
        got = httpx.post(f"{url}/v1/chat/completions", content=b'{"model":"m","messages":[],"stream":true}')
    assert got.content == data
    assert len(provider.asked) == 1


@pytest.mark.row("GW-07")
@pytest.mark.anyio
async def test_no_event_is_sent_inside_of_one_whose_lines_end_with_two_characters():
    got, api, pinged = [], API_OF["anthropic_messages"], anyio.Event()

    async def send(message):
        got.append(message["body"])
        if message["body"] == api.idle_event:
            pinged.set()

    sender = StreamSender(send, api, 0.001)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sender.run)
        await sender.send(b"event: content_block_delta\r\n")
        await anyio.sleep(0.05)  # fifty times as long as a stream may be silent
        assert got == [b"event: content_block_delta\r\n"]
        await sender.send(b"data: {}\r\n\r\n")
        await pinged.wait()
        tasks.cancel_scope.cancel()


@pytest.mark.row("GW-07")
@pytest.mark.parametrize(
    ("pieces", "between"),
    [
        ([b"data: a\r\n"], False),
        ([b"data: a\r\n\r\n"], True),
        ([b"data: a\n", b"\n"], True),
        ([b"data: a\r\n", b"\r", b"\n"], True),
        ([b"data: a\n"], False),
        ([b"data: a\r", b"\n"], False),
        ([b"data: a\r\r"], True),
        ([b"a", b"b"], False),
        ([], False),
    ],
)
def test_the_end_of_an_event_is_an_empty_line(pieces, between):
    api = ClientApi(wire="any", provider_name="any", calls=(), write_error=lambda _: ({}, {}))
    end = b""
    for each in pieces:
        end = last_bytes(end, each)
    assert api.ends_event(end) is between


@pytest.mark.row("GW-01")
@pytest.mark.parametrize(("verb", "stream"), [("rawPredict", False), ("streamRawPredict", True)])
def test_a_client_of_vertex_reaches_a_model_at_its_own_provider(gateway, provider, verb, stream):
    kind = "text/event-stream" if stream else "application/json"
    provider.headers, provider.body = {"content-type": kind}, answer_of("anthropic_messages", stream=stream)
    path = f"/v1/projects/p/locations/l/publishers/anthropic/models/anthropic_messages:{verb}"
    body = b'{"anthropic_version":"vertex-2023-10-16","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}'
    got = httpx.post(gateway + path, content=body)
    assert got.content == provider.body
    sent = json.loads(provider.asked[-1][2])
    assert "anthropic_version" not in sent
    assert (sent["model"], sent["max_tokens"]) == ("model-1", 9)


@pytest.mark.row("GW-08")
def test_headers_of_one_name_go_on_as_one(gateway, provider):
    provider.headers, provider.body = JSON, answer_of("anthropic_messages", stream=False)
    fields = [("anthropic-beta", "one"), ("anthropic-beta", "two, three")]
    httpx.post(
        f"{gateway}/v1/messages",
        content=body_of("anthropic_messages", "anthropic_messages", stream=False),
        headers=fields,
    )
    assert provider.asked[-1][1]["anthropic-beta"] == "one, two, three"


@pytest.mark.row("GW-40")
@pytest.mark.parametrize(
    "headers", [{"content-type": "Text/HTML"}, {"content-type": "application/json", "content-encoding": "br"}]
)
def test_what_is_no_answer_of_the_wire_is_a_502(gateway, provider, headers):
    provider.headers, provider.body = headers, b"<html>"
    got = httpx.post(f"{gateway}/v1/chat/completions", content=body_of("openai_chat", "openai_chat", stream=False))
    assert got.status_code == 502
    assert "message" in got.json()["error"]


@pytest.mark.row("GW-40")
def test_a_text_that_cannot_be_written_is_replaced_in_an_error(gateway, provider):
    provider.status, provider.headers = 400, JSON
    provider.body = b'{"error":{"message":"half \\ud83d","type":"x"}}'
    body = body_of("anthropic_messages", "openai_chat", stream=False)
    got = httpx.post(f"{gateway}/v1/messages", content=body)
    assert got.status_code == 400
    assert "half" in got.json()["error"]["message"]


@pytest.mark.row("GW-28")
def test_a_model_rests_for_a_bounded_time_whatever_it_says():
    clock = [0.0]
    health = TargetHealth("m", Breaker(rest=1), lambda: clock[0])
    health.failed(RateLimitError("any", "slow down", status=429, retry_after=1e11))
    assert health.state == "open"
    clock[0] = 601.0
    assert health.available


CLOSES = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"


@pytest.fixture
def closing_server():
    """A server that answers one request on each connection, and closes it when the next one comes."""
    asked, open_ = [], []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            data = b""
            while b"\r\n\r\n" not in data or not data.endswith(BODY[-2:]):
                data += connection.recv(65_536)
            asked.append(data)
            answer = answer_of("openai_chat", stream=False)
            connection.sendall(CLOSES % (len(answer), answer))
            open_.append(connection)
            threading.Thread(target=lambda it=connection: (it.recv(1), it.close())).start()

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()
    for each in open_:
        each.close()


@pytest.mark.row("GW-26")
def test_a_connection_that_the_server_has_closed_is_no_failure_of_the_model(closing_server):
    url, asked = closing_server
    target = Target(model="local/m", wire="openai_chat", url=f"{url}/v1", retries=0)
    with running(GatewayConfig(models={"m": target}, breaker=Breaker(failures=1, rest=60))) as gateway:
        for _ in range(3):
            assert httpx.post(f"{gateway}/v1/chat/completions", content=BODY).status_code == 200
    assert len(asked) == 3
