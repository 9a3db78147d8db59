"""Vertex AI: a token that google-auth gets from a server on loopback, and the two rows."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

import anyio
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt
from msgspec import structs

import palaver as p
from palaver import wires
from palaver.core.errors import AuthenticationError, TransportError
from palaver.models.endpoint import HttpCall
from palaver.models.http import Http
from palaver.models.http_model import Model
from palaver.models.language_model import complete
from palaver.models.providers import find
from palaver.models.providers.vertex import GoogleCredentials
from tests.loopback import listening, serve

CALL = HttpCall("POST", "https://aiplatform.googleapis.com/v1/x", {}, ())
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


class Tokens:
    """What the token server gives, and what it was asked with."""

    def __init__(self) -> None:
        self.url = ""
        self.seconds = 3600
        self.refuses = False
        self.asked: list[dict[str, Any]] = []


@contextlib.contextmanager
def token_server() -> Iterator[Tokens]:
    tokens = Tokens()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            public = KEY.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            tokens.asked.append(jwt.decode(form["assertion"][0], certs=public, verify=False))
            given = {"access_token": f"token-{len(tokens.asked)}", "expires_in": tokens.seconds, "token_type": "Bearer"}
            refused = {"error": "invalid_grant", "error_description": "Account not found"}
            body = json.dumps(refused if tokens.refuses else given).encode()
            self.send_response(400 if tokens.refuses else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with listening(Handler) as url:
        tokens.url = f"{url}/token"
        yield tokens


@pytest.fixture
def tokens(tmp_path, monkeypatch):
    """A service account in a file, whose token server stands on loopback."""
    pem = KEY.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with token_server() as found:
        file = tmp_path / "account.json"
        account = {
            "type": "service_account",
            "project_id": "a-project",
            "private_key_id": "1",
            "private_key": pem.decode(),
            "client_email": "robot@a-project.example",
            "token_uri": found.url,
        }
        file.write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield found


@pytest.mark.anyio
async def test_a_token_is_got_once_and_again_before_it_expires(tokens):
    credentials = GoogleCredentials()
    assert await credentials.headers(CALL) == {"Authorization": "Bearer token-1"}
    assert await credentials.headers(CALL) == {"Authorization": "Bearer token-1"}
    (claims,) = tokens.asked
    assert claims["iss"] == "robot@a-project.example"
    assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    assert claims["exp"] > time.time()
    assert "token-1" not in repr(credentials)


@pytest.mark.anyio
async def test_a_token_that_is_about_to_expire_is_replaced(tokens):
    tokens.seconds = 120
    credentials = GoogleCredentials()
    assert await credentials.headers(CALL) == {"Authorization": "Bearer token-1"}
    tokens.seconds = 3600
    assert await credentials.headers(CALL) == {"Authorization": "Bearer token-2"}
    assert await credentials.headers(CALL) == {"Authorization": "Bearer token-2"}


@pytest.mark.anyio
async def test_many_that_ask_at_once_share_one_token(tokens):
    credentials = GoogleCredentials()
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(credentials.headers, CALL)
    assert len(tokens.asked) == 1


@pytest.mark.anyio
async def test_a_token_that_was_given_is_sent(monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere")
    assert await GoogleCredentials(" mine ").headers(CALL) == {"Authorization": "Bearer mine"}
    assert "mine" not in repr(GoogleCredentials("mine"))


@pytest.mark.anyio
async def test_a_refused_token_is_one_error(tokens, monkeypatch):
    tokens.refuses = True
    with pytest.raises(AuthenticationError, match=r"^vertex: no token: .*Account not found"):
        await GoogleCredentials().headers(CALL)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere")
    with pytest.raises(AuthenticationError, match=r"^vertex: no token: File /nowhere was not found"):
        await GoogleCredentials().headers(CALL)


@pytest.mark.anyio
async def test_without_google_auth_one_sentence_says_so(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "google.auth.exceptions", None)
    with pytest.raises(AuthenticationError, match=r"google-auth, which is not installed: pip install 'palaver\[goog"):
        await GoogleCredentials().headers(CALL)


@pytest.mark.anyio
async def test_a_token_server_that_is_gone_is_a_matter_of_the_network(tokens, tmp_path, monkeypatch):
    account = json.loads((tmp_path / "account.json").read_text())
    (tmp_path / "account.json").write_text(json.dumps({**account, "token_uri": "http://127.0.0.1:9/token"}))
    with pytest.raises(TransportError, match=r"^vertex: no token: "):
        await GoogleCredentials().headers(CALL)


ANSWER = p.Response(p.assistant("Hi.").replace(finish_reason="stop"))
FRAMES = {
    "vertex": (
        b'data: {"candidates":[{"content":{"role":"model","parts":[{"text":"Hi."}]},"finishReason":"STOP"}]}\r\n\r\n'
    ),
    "vertex-anthropic": (
        b'data: {"type":"message_start","message":{"role":"assistant","content":[]}}\n\n'
        b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hi."}}\n\n'
        b'data: {"type":"content_block_stop","index":0}\n\n'
        b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
        b'data: {"type":"message_stop"}\n\n'
    ),
}
PATHS = {
    ("vertex", False): "publishers/google/models/gemini-x:generateContent",
    ("vertex", True): "publishers/google/models/gemini-x:streamGenerateContent?alt=sse",
    ("vertex-anthropic", False): "publishers/anthropic/models/claude-x%4020990101:rawPredict",
    ("vertex-anthropic", True): "publishers/anthropic/models/claude-x%4020990101:streamRawPredict",
}


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("name", "id"), [("vertex", "gemini-x"), ("vertex-anthropic", "claude-x@20990101")])
async def test_each_row_asks_where_it_should(tokens, name, id, stream):
    row = find(name)
    (endpoint,) = row.endpoints
    words = {"{project}": "a-project", "{location}": "europe-west1"}
    body = FRAMES[name] if stream else wires.get(endpoint.wire).encode_response(ANSWER).body
    with serve(body, content_type="text/event-stream" if stream else "application/json") as server:
        urls = {"url": endpoint.url, "stream_url": endpoint.stream_url}
        for word, text in {"{base}": server.url, **words}.items():
            urls = {field: url.replace(word, text) for field, url in urls.items()}
        async with Http() as http:
            model = Model(
                name=f"{name}/{id}",
                id=id,
                endpoint=structs.replace(endpoint, **urls),
                credentials=row.credentials(row, None),
                http=http,
            )
            reply = await complete(model, p.Request(messages=(p.user("Hi?"),)), stream=stream)
    assert reply.response.message.text == "Hi."
    ((path, sent),) = server.requests
    assert path == f"/v1/projects/a-project/locations/europe-west1/{PATHS[name, stream]}"
    fields = json.loads(sent)
    assert "model" not in fields
    if name == "vertex-anthropic":
        assert fields["anthropic_version"] == "vertex-2023-10-16"
        assert fields.get("stream", False) is stream


def test_hosts_by_location(monkeypatch):
    host = find("vertex").address_variables["host"]
    assert host.default == "global"
    assert [host.convert(location) for location in ("global", "us", "eu", "us-east5")] == [
        "aiplatform.googleapis.com",
        "aiplatform.us.rep.googleapis.com",
        "aiplatform.eu.rep.googleapis.com",
        "us-east5-aiplatform.googleapis.com",
    ]
