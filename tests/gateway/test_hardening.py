"""What hostile clients and faulty providers may do: each gets one clear error, and no message has two meanings."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
from queue import Queue

import httpx
import pytest

from palaver.gateway import GatewayConfig, Listen, Target
from palaver.gateway.config import TargetTimeout
from tests.gateway.running import PROVIDERS, running, targets
from tests.gateway.test_routes import JSON
from tests.gateway.test_streams import pieces_of
from tests.gateway.test_wires import STREAM_TYPES, answer_of, body_of, path_of

CHUNKED = b"Transfer-Encoding: chunked\r\n"
CLOSE = b"Connection: close\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory, provider):
    """A gateway as `palaver gateway` serves it."""
    file = tmp_path_factory.mktemp("gateway") / "gateway.toml"
    file.write_text(
        f'[telemetry]\naccess_log = "none"\n[models]\nm = {{ model = "local/m", url = "{provider.url}/v1" }}\n'
    )
    ran = subprocess.Popen(
        [sys.executable, "-m", "palaver", "gateway", str(file), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_PROXY": "127.0.0.1"},
    )
    try:
        yield int(re.search(r":(\d+) ", ran.stdout.readline())[1])
    finally:
        ran.kill()
        ran.communicate()


def sent(port, data, *, end=True):
    """Send bytes, and ``end`` the sending; return all that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(data)
        if end:
            connection.shutdown(socket.SHUT_WR)
        got = b""
        with contextlib.suppress(OSError):
            while piece := connection.recv(65536):
                got += piece
    return got


BODY = b'{"model": "m", "messages": []}'
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
SMUGGLED = {
    "two lengths": POST + b"Content-Length: 30\r\nContent-Length: 5\r\n\r\n" + BODY + HIDDEN,
    "a list of lengths": POST + b"Content-Length: 30, 5\r\n\r\n" + BODY + HIDDEN,
    "a length that is no number": POST + b"Content-Length: +30\r\n\r\n" + BODY + HIDDEN,
    "two encodings": POST + CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    "another encoding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a space before the colon": POST + b"Content-Length : 5\r\n\r\n" + BODY + HIDDEN,
    "a name with a line break": POST + b"X: a\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a chunk of a wrong size": POST + CHUNKED + b"\r\n-1\r\n" + BODY + b"\r\n0\r\n\r\n" + HIDDEN,
    "a zero byte": POST + b"X: a\0b\r\nContent-Length: 0\r\n\r\n" + HIDDEN,
    "two hosts": POST + b"Host: evil.example\r\nContent-Length: 0\r\n\r\n",
    "huge headers": POST + b"X: " + b"a" * 70_000 + b"\r\n\r\n",
    "very many headers": POST + b"".join(b"X-%d: aaaa\r\n" % each for each in range(8000)) + b"\r\n",
}


@pytest.mark.row("GW-40")
@pytest.mark.parametrize("data", SMUGGLED.values(), ids=SMUGGLED)
def test_a_request_that_can_be_understood_in_two_ways_is_refused(server, provider, data):
    got = sent(server, data)
    assert got.startswith(b"HTTP/1.1 400 ")
    assert got.count(b"HTTP/1.1 ") == 1, "nothing behind it is read as a request"
    assert provider.asked == []


@pytest.mark.row("GW-40")
def test_a_request_with_a_length_beside_chunks_is_one_request_or_none(server, provider):
    provider.headers, provider.body = JSON, answer_of("openai_chat", stream=False)
    chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    got = sent(server, POST + CLOSE + b"Content-Length: 3\r\n" + CHUNKED + b"\r\n" + chunk, end=False)
    assert got.count(b"HTTP/1.1 ") == 1
    assert [body for _, _, body in provider.asked] in ([], [BODY])


@pytest.mark.row("GW-40")
def test_a_folded_header_is_one_header(server, provider):
    provider.headers, provider.body = JSON, answer_of("openai_chat", stream=False)
    folded = b"X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 30\r\n\r\n"
    got = sent(server, POST + CLOSE + folded + BODY, end=False)
    assert got.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 400 "))
    assert got.count(b"HTTP/1.1 ") == 1


@pytest.mark.row("GW-40")
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic_messages", "google_generate"])
def test_a_body_that_is_too_large_is_a_413(provider, wire):
    with running(GatewayConfig(models=targets(provider.url), listen=Listen(max_body=100))) as url:
        got = httpx.post(f"{url}{path_of(wire, wire, stream=False)}", content=b" " * 101)
    assert got.status_code == 413
    assert "more than 100 bytes" in got.text
    assert provider.asked == []


@pytest.mark.row("GW-40")
def test_a_body_that_does_not_arrive_is_a_408(provider):
    config = GatewayConfig(models=targets(provider.url), listen=Listen(body_seconds=0.2))
    with running(config) as url:
        port = httpx.URL(url).port
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(POST + b"Content-Length: 30\r\n\r\n{")
            got = connection.recv(65536)
    assert b" 408 " in got
    assert provider.asked == []


NAMES = [
    "a\r\nx-forged: 1",
    "a\nb",
    "ключ",
    "a\0b",
    "../../admin",
    "http://169.254.169.254/",
    "a?b=c#d",
    "@evil.example",
]


@pytest.mark.row("GW-40")
@pytest.mark.parametrize("client_wire", ["openai_chat", "anthropic_messages"])
@pytest.mark.parametrize("model_wire", ["openai_chat", "google_generate"])
def test_a_name_of_a_model_chooses_no_header_and_no_address(provider, client_wire, model_wire):
    name, suffix = PROVIDERS[model_wire]
    star = Target(model=f"{name}/*", wire=model_wire, url=provider.url + suffix, key="PALAVER_TEST_KEY")
    provider.headers, provider.body = JSON, answer_of(model_wire, stream=False)
    path = "/v1/messages" if client_wire == "anthropic_messages" else "/v1/chat/completions"
    with running(GatewayConfig(models={"*": star})) as url:
        for each in NAMES:
            asked = {"model": each, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
            got = httpx.post(f"{url}{path}", json=asked)
            assert got.status_code == 200, got.text
            assert "x-forged" not in got.headers
            assert got.headers["palaver-model"].isascii()
    for asked, headers, _ in provider.asked:
        assert "x-forged" not in headers
        assert asked.startswith(suffix or "/v1beta/models/")
        assert ".." not in asked.split("/")
    assert len(provider.asked) == len(NAMES)


@pytest.mark.row("GW-40")
@pytest.mark.parametrize("name", ["http://169.254.169.254/x", "evil/m", "local/m@127.0.0.1", "openai/../../x"])
def test_an_unlisted_name_leads_only_to_known_providers(provider, monkeypatch, name):
    monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    provider.headers, provider.body = JSON, answer_of("openai_chat", stream=False)
    with running(GatewayConfig()) as url:
        httpx.post(f"{url}/v1/chat/completions", content=body_of("openai_chat", name, stream=False))
    assert {path for path, _, _ in provider.asked} <= {"/v1/chat/completions"}


@pytest.mark.row("GW-40")
def test_headers_of_a_provider_cannot_break_those_of_the_answer(provider):
    provider.headers = {**JSON, "request-id": "caf\xe9 \x85 x"}
    provider.body = answer_of("anthropic_messages", stream=False)
    with running(GatewayConfig(models=targets(provider.url))) as url:
        body = body_of("anthropic_messages", "anthropic_messages", stream=False)
        got = httpx.post(f"{url}/v1/messages", content=body)
    assert (got.status_code, got.content) == (200, provider.body)
    assert got.headers["request-id"].isascii()


# -- faults of a provider ----------------------------------------------------------------------------------------------


OK = b"HTTP/1.1 200 OK\r\nContent-Type: TYPE\r\n"
FAULTS = {
    "closes at once": [b""],
    "sends no HTTP": [b"\x16\x03\x01\x02\x00 nothing\r\n\r\n"],
    "sends huge headers": [OK + b"X: " + b"a" * 200_000 + b"\r\n\r\n"],
    "closes after the headers": [OK + b"Content-Length: 50\r\n\r\n"],
    "says a longer length": [OK + b"Content-Length: 99999\r\n\r\n", b"BODY"],
    "breaks a chunk off": [OK + CHUNKED + b"\r\n", b"fff\r\n", b"BODY"],
    "sends a wrong chunk": [OK + CHUNKED + b"\r\n", b"zz\r\nBODY\r\n"],
    "says nothing": [None],
    "says headers only": [OK + CHUNKED + b"\r\n", None],
    "sends garbage": [OK + b"Content-Length: 20\r\n\r\n", b"\xff\xfe garbage garbage!"],
}
"""What a server sends to each request before it closes the connection; ``None`` waits until the client has gone."""


@contextlib.contextmanager
def faulty(pieces):
    """Yield the address of a server that answers every request with ``pieces``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, args=(listener, pieces))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def accept(listener, pieces):
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            connection.settimeout(30)
            got = b""
            while b"\r\n\r\n" not in got:
                got += connection.recv(65536)
            head, _, body = got.partition(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", head.lower())[1])
            while len(body) < length:
                body += connection.recv(65536)
            for each in pieces:
                if each is None:
                    connection.recv(1)
                    break
                connection.sendall(each)


@pytest.mark.row("GW-28")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_provider_is_one_clear_error_of_each_client(monkeypatch, fault, stream):
    monkeypatch.setenv("PALAVER_TEST_KEY", "secret-1")
    kind = STREAM_TYPES["openai_chat"] if stream else "application/json"
    begun = pieces_of("openai_chat", "alpha")[0] if stream else answer_of("openai_chat", stream=False)[:40]
    pieces = [each and each.replace(b"TYPE", kind.encode()).replace(b"BODY", begun) for each in FAULTS[fault]]
    got = dict[str, httpx.Response]()
    with faulty(pieces) as there:
        slow = TargetTimeout(first_token=0.3, whole=0.3, idle=0.3)
        model = Target(model="local/m", url=f"{there}/v1", wire="openai_chat", timeout=slow, retries=0)
        with running(GatewayConfig(models={"m": model})) as url, httpx.Client(timeout=30) as client:
            for wire in ("openai_chat", "anthropic_messages", "ollama_chat"):
                with contextlib.suppress(httpx.RemoteProtocolError):  # it breaks off for the client as it did here
                    body = body_of(wire, "m", stream=stream)
                    got[wire] = client.post(f"{url}{path_of(wire, 'm', stream=stream)}", content=body)
    if fault == "sends garbage":
        got.pop("openai_chat", None)  # byte for byte
    for response in got.values():
        assert response.status_code in {502, 504} or b"error" in response.content
        assert b"secret-1" not in response.content


# -- what stands behind a body, and clients that do not read ---------------------------------------


def chunked(*trailers, host=b"Host: 127.0.0.1\r\n"):
    head = b"POST /v1/chat/completions HTTP/1.1\r\n" + host + CLOSE + CHUNKED
    return head + b"\r\n%x\r\n%b\r\n0\r\n" % (len(BODY), BODY) + b"".join(trailers) + b"\r\n"


@pytest.mark.row("GW-40")
def test_a_trailer_is_no_header(server, provider):
    provider.headers, provider.body = JSON, answer_of("openai_chat", stream=False)
    assert sent(server, chunked(b"openai-organization: a\r\n"), end=False).startswith(b"HTTP/1.1 200 ")
    ((_, headers, _),) = provider.asked
    assert "openai-organization" not in headers
    assert sent(server, chunked(b"Host: 127.0.0.1\r\n", host=b""), end=False).startswith(b"HTTP/1.1 421 ")


@pytest.mark.row("GW-40")
@pytest.mark.parametrize("trailers", [[b"X: a\r\n"] * 40_000, [b"X: ", b"a" * 300_000, b"\r\n"]], ids=["many", "long"])
def test_trailers_have_a_bound(server, trailers):
    whole = chunked(*trailers).replace(CLOSE, b"")
    with (
        socket.create_connection(("127.0.0.1", server), timeout=20) as connection,
        contextlib.suppress(ConnectionError),
    ):
        connection.sendall(whole[:-2])
        while connection.recv(65536):
            pass  # until the server closes, although nothing ends the trailers


@pytest.mark.row("GW-40")
def test_a_path_with_another_slash_is_not_redirected(server):
    got = sent(server, b"POST /v1/messages/ HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 404 ")
    assert b"evil.example" not in got


IMPATIENT = """
import palaver.gateway.server as server
from palaver.cli import gateway
server._READING_SECONDS = 0.3
gateway.serve([{file!r}, "--port", "0"])
"""


@pytest.mark.row("GW-40")
def test_a_client_that_reads_nothing_is_left(tmp_path, provider):
    provider.headers, provider.pieces = {"content-type": "text/event-stream"}, Queue()
    file = tmp_path / "gateway.toml"
    file.write_text(f'[models]\nm = {{ model = "local/m", url = "{provider.url}/v1" }}\n')
    script = IMPATIENT.format(file=str(file))
    env = {**os.environ, "NO_PROXY": "127.0.0.1"}
    ran = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=env)
    try:
        port = int(re.search(r":(\d+) ", ran.stdout.readline())[1])
        body = b'{"model": "m", "messages": [], "stream": true}'
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            for _ in range(400):
                provider.pieces.put(b"data: " + b" " * 65_536 + b"\n\n")
            assert provider.gone.wait(30)
    finally:
        ran.kill()
        ran.communicate()
