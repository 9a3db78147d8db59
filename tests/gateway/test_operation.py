"""A gateway in operation: signals, a configuration that changes, and what a silent stream gets."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import anthropic
import anyio
import cohere
import httpx
import openai
import pytest
from google import genai

from palaver.gateway import GatewayConfig, Listen
from palaver.gateway.component import Component
from palaver.gateway.config import Breaker
from palaver.gateway.live import LiveGateway
from tests.gateway.running import running, targets, upstream
from tests.gateway.test_routes import JSON, at
from tests.gateway.test_streams import pieces_of
from tests.gateway.test_wires import answer_of, body_of, path_of

SSE = {"content-type": "text/event-stream"}


@contextlib.contextmanager
def process(file, *options):
    """Yield a gateway in a process of its own, and its address."""
    ran = subprocess.Popen(
        [sys.executable, "-m", "palaver", "gateway", str(file), "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_PROXY": "127.0.0.1"},
    )
    try:
        yield ran, ran.stdout.readline().split()[0]
    finally:
        ran.kill()
        ran.communicate()


def written(file, url, model, **listen):
    lines = ["[listen]", *(f"{name} = {value}" for name, value in listen.items())]
    file.write_text(
        "\n".join(
            [
                *lines,
                "[telemetry]",
                'access_log = "none"',
                f'[models]\nm = {{ model = "local/{model}", url = "{url}/v1" }}\n',
            ]
        )
    )
    return file


def read_until(pieces, word):
    got = b""
    while word not in got:
        got += next(pieces)
    return got


@pytest.mark.row("GW-39")
def test_a_signal_lets_answers_end_and_refuses_new_ones(provider, tmp_path):
    provider.headers, provider.pieces = SSE, Queue()
    first, end = pieces_of("openai_chat", "alpha")
    provider.pieces.put(first)
    with process(written(tmp_path / "g.toml", provider.url, "m")) as (ran, url), httpx.Client(base_url=url) as client:
        assert client.get("/health").json()["status"] == "ok"
        with httpx.stream(
            "POST", f"{url}/v1/chat/completions", content=body_of("openai_chat", "m", stream=True)
        ) as got:
            pieces = got.iter_raw()
            read_until(pieces, b"alpha")
            ran.send_signal(signal.SIGTERM)
            while (health := client.get("/health")).status_code == 200:
                assert ran.poll() is None
            assert (health.status_code, health.json()["status"], health.json()["exchanges"]) == (503, "draining", 1)
            refused = client.post("/v1/chat/completions", content=body_of("openai_chat", "m", stream=True))
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert "about to stop" in refused.json()["error"]["message"]
            provider.pieces.put(end)
            provider.pieces.put(b"")
            assert b"[DONE]" in b"".join(pieces)
        assert ran.wait(60) == 0
    assert len(provider.asked) == 1


@pytest.mark.row("GW-39")
def test_answers_that_take_longer_than_the_grace_are_broken_off(provider, tmp_path):
    provider.headers, provider.pieces = SSE, Queue()
    provider.pieces.put(pieces_of("openai_chat", "alpha")[0])
    file = written(tmp_path / "g.toml", provider.url, "m", grace=0.1)
    body = body_of("openai_chat", "m", stream=True)
    with process(file) as (ran, url), httpx.stream("POST", f"{url}/v1/chat/completions", content=body) as got:
        pieces = got.iter_raw()
        read_until(pieces, b"alpha")
        ran.send_signal(signal.SIGTERM)
        assert ran.wait(60) == 0
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
    assert provider.gone.wait(30)


@pytest.mark.row("GW-29")
def test_a_reload_loses_no_request(provider, tmp_path):
    open_gate, came = threading.Event(), threading.Semaphore(0)

    def respond(body):
        came.release()
        assert open_gate.wait(60)
        return 200, JSON, body[:20].ljust(20)

    provider.respond = respond
    file = written(tmp_path / "g.toml", provider.url, "old")
    body = body_of("openai_chat", "m", stream=False)
    with upstream() as streams, process(file) as (ran, url), ThreadPoolExecutor(200) as pool:
        streams.headers, streams.pieces = SSE, Queue()
        with httpx.Client(limits=httpx.Limits(max_connections=None), timeout=60) as client:
            asked = [pool.submit(client.post, f"{url}/v1/chat/completions", content=body) for _ in range(200)]
            for _ in asked:
                assert came.acquire(timeout=60)
            file.write_text("[models\n")
            ran.send_signal(signal.SIGHUP)
            assert "the configuration was not changed" in ran.stderr.readline()
            assert client.get(f"{url}/health").json()["exchanges"] == 200
            written(file, streams.url, "new")
            ran.send_signal(signal.SIGHUP)
            while "was read again" not in ran.stderr.readline():
                assert ran.poll() is None
            streams.pieces.put(pieces_of("openai_chat", "alpha")[0])
            with client.stream(
                "POST", f"{url}/v1/chat/completions", content=body_of("openai_chat", "m", stream=True)
            ) as s:
                read_until(pieces := s.iter_raw(), b"alpha")
                written(file, provider.url, "newest")
                ran.send_signal(signal.SIGHUP)
                while "was read again" not in ran.stderr.readline():
                    assert ran.poll() is None
                streams.pieces.put(pieces_of("openai_chat", "alpha")[-1])
                streams.pieces.put(b"")
                assert b"[DONE]" in b"".join(pieces)
            open_gate.set()
            answers = [each.result() for each in asked]
            last = client.post(f"{url}/v1/chat/completions", content=body)
    assert [each.status_code for each in answers] == [200] * 200
    assert [b'"old"' in body for _, _, body in provider.asked] == [True] * 200 + [False]
    assert b'"new"' in streams.asked[0][2]
    assert last.status_code == 200


@pytest.mark.row("GW-29")
def test_a_file_that_changes_is_read_again(provider, tmp_path):
    provider.headers, provider.body = JSON, answer_of("openai_chat", stream=False)
    file = written(tmp_path / "g.toml", "http://127.0.0.1:1", "old")
    with process(file, "--watch") as (ran, url):
        assert httpx.get(f"{url}/health", timeout=60).is_success
        written(file, provider.url, "new")
        while "was read again" not in ran.stderr.readline():
            assert ran.poll() is None
        got = httpx.post(f"{url}/v1/chat/completions", content=body_of("openai_chat", "m", stream=False))
    assert got.content == provider.body


class Part(Component):
    """Notes when it is entered and left."""

    def __init__(self, settings, notes):
        self.settings, self.notes = settings, notes

    async def __aenter__(self):
        self.notes.append(f"enter {self.settings}")
        if self.settings == "broken":
            raise OSError("no such store")
        return self

    async def __aexit__(self, *_):
        self.notes.append(f"leave {self.settings}")


@pytest.mark.row("GW-29")
@pytest.mark.anyio
async def test_a_component_is_replaced_only_when_its_settings_changed(monkeypatch):
    notes = []

    def components(gateway):
        return [Part(gateway.config.breaker.rest, notes), Part("same", notes)]

    monkeypatch.setattr("palaver.gateway.gateway._components", components)
    live = LiveGateway(GatewayConfig(breaker=Breaker(rest=1)), lambda _: None)
    async with live.running():
        with live.exchange() as gateway:
            await live.reload(GatewayConfig(breaker=Breaker(rest=2)))
            assert live.gateway is not gateway
            await anyio.wait_all_tasks_blocked()
            assert notes == ["enter 1", "enter same", "enter 2"], "the old one is in use"
        await anyio.wait_all_tasks_blocked()
        assert notes[3:] == ["leave 1"]
        monkeypatch.setattr(
            "palaver.gateway.gateway._components", lambda _: [Part("first", notes), Part("broken", notes)]
        )
        before = live.gateway
        with pytest.raises(OSError, match="no such store"):
            await live.reload(GatewayConfig())
        assert live.gateway is before
        assert notes[4:] == ["enter first", "enter broken", "leave first"]
    assert notes[7:] == ["leave 2", "leave same"]


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def impatient(provider):
    with running(GatewayConfig(models=targets(provider.url), listen=Listen(keep_alive=0.05))) as url:
        yield url


IDLE = {"openai_chat": b": keep-alive\n\n", "anthropic_messages": b'event: ping\ndata: {"type": "ping"}\n\n'}
SILENT = ("bedrock_converse", "google_generate", "ollama_chat")


@pytest.mark.row("GW-07")
@pytest.mark.parametrize("model_wire", ["anthropic_messages", "google_generate"])
@pytest.mark.parametrize("client_wire", ["openai_chat", "openai_responses", "anthropic_messages", "cohere_chat"])
def test_a_silent_stream_gets_events_that_say_nothing(impatient, provider, client_wire, model_wire):
    provider.headers, provider.pieces = SSE, Queue()
    first, end = pieces_of(model_wire, "alpha")
    provider.pieces.put(first)
    event = IDLE.get(client_wire, IDLE["openai_chat"])
    url = f"{impatient}{path_of(client_wire, model_wire, stream=True)}"
    with httpx.stream("POST", url, content=body_of(client_wire, model_wire, stream=True)) as response:
        pieces = response.iter_raw()
        got = read_until(pieces, b"alpha")
        got += read_until(pieces, event)
        provider.pieces.put(end)
        provider.pieces.put(b"")
        got += b"".join(pieces)
    kept = got.replace(event, b"")
    assert b"alpha" in kept
    if client_wire == model_wire:
        assert kept == first + end


def ask_openai(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        said = [{"role": "user", "content": "Hi"}]
        for each in client.chat.completions.create(model="openai_chat", messages=said, stream=True):
            yield each.choices[0].delta.content if each.choices else None


def ask_responses(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        for each in client.responses.create(model="openai_chat", input="Hi", stream=True):
            yield getattr(each, "delta", None)


def ask_anthropic(url):
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        said = [{"role": "user", "content": "Hi"}]
        with client.messages.stream(model="openai_chat", messages=said, max_tokens=9) as stream:
            yield from stream.text_stream


def ask_google(url):
    with genai.Client(api_key="k", http_options={"base_url": url}) as client:
        for each in client.models.generate_content_stream(model="openai_chat", contents="Hi"):
            yield each.text


def ask_cohere(url):
    with httpx.Client() as connections:
        client = cohere.ClientV2("k", base_url=url, httpx_client=connections)
        for each in client.chat_stream(model="openai_chat", messages=[{"role": "user", "content": "Hi"}]):
            yield each.delta.message.content.text if each.type == "content-delta" else None


@pytest.mark.row("GW-07")
@pytest.mark.parametrize("ask", [ask_openai, ask_responses, ask_anthropic, ask_google, ask_cohere])
def test_the_official_clients_pass_over_such_events(impatient, provider, ask):
    provider.headers, provider.pieces = SSE, Queue()
    first, second, end = pieces_of("openai_chat", "alpha", "beta")
    provider.pieces.put(first)
    feed = iter([second, end + b""])
    got = ""
    timer = None
    for text in ask(impatient):
        if text and (piece := next(feed, None)) is not None:
            timer = threading.Timer(0.3, lambda piece=piece: provider.pieces.put(piece))
            timer.start()
            if piece == end:
                timer.join()
                provider.pieces.put(b"")
        got += text or ""
    assert got == "alphabeta"


@pytest.mark.row("GW-07")
@pytest.mark.parametrize("client_wire", SILENT)
def test_wires_without_such_an_event_get_nothing(impatient, provider, client_wire):
    provider.headers, provider.pieces = SSE, Queue()
    first, end = pieces_of("openai_chat", "alpha")
    provider.pieces.put(first)
    url = f"{impatient}{path_of(client_wire, 'openai_chat', stream=True)}"
    with httpx.stream("POST", url, content=body_of(client_wire, "openai_chat", stream=True)) as response:
        pieces = response.iter_raw()
        got = read_until(pieces, b"alpha")
        threading.Timer(0.3, lambda: [provider.pieces.put(each) for each in (end, b"")]).start()
        got += b"".join(pieces)
    assert b"keep-alive" not in got
    assert b"ping" not in got


@pytest.mark.row("GW-28")
def test_health_shows_each_model_and_is_503_when_none_answers(provider):
    provider.status, provider.headers, provider.body = 503, JSON, b"{}"
    models = [at(provider, "a"), at(provider, "b")]
    with running(GatewayConfig(models={"m": models})) as url:
        assert httpx.get(f"{url}/health").json() == {"status": "ok", "exchanges": 0, "targets": []}
        httpx.post(f"{url}/v1/chat/completions", content=body_of("openai_chat", "m", stream=False))
        down = httpx.get(f"{url}/health")
        foreign = httpx.get(f"{url}/health", headers={"host": "evil.example"})
        provider.status, provider.body = 200, answer_of("openai_chat", stream=False)
        httpx.post(f"{url}/v1/chat/completions", content=body_of("openai_chat", "m", stream=False))
        up = httpx.get(f"{url}/health")
    assert (down.status_code, down.json()["status"]) == (503, "failing")
    assert [each["state"] for each in down.json()["targets"]] == ["open", "open"]
    assert "secret-1" not in down.text
    assert foreign.json() == {"status": "failing", "exchanges": 0}
    assert (up.status_code, [each["state"] for each in up.json()["targets"]]) == (200, ["closed", "open"])


@pytest.mark.row("GW-40")
def test_more_requests_than_allowed_are_refused_in_the_wire_of_the_client(provider):
    provider.headers, provider.pieces = SSE, Queue()
    provider.pieces.put(pieces_of("openai_chat", "alpha")[0])
    config = GatewayConfig(models=targets(provider.url), listen=Listen(max_concurrent=1))
    with running(config) as url:
        body = body_of("openai_chat", "openai_chat", stream=True)
        with httpx.stream("POST", f"{url}/v1/chat/completions", content=body) as first:
            pieces = first.iter_raw()
            read_until(pieces, b"alpha")
            refused = httpx.post(f"{url}/v1/messages", content=b"{}")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["type"] == "overloaded_error"
        assert provider.gone.wait(30)
