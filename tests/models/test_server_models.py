"""The listing of a server, in the shape of each provider's documentation."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from palaver import DecodeError, ProviderError, UnknownNameError
from palaver.core.errors import AuthenticationError, CapabilityError, TransportError
from palaver.models import list_models

pytestmark = pytest.mark.anyio

OPENAI = b'{"object": "list", "data": [{"id": "gpt-x", "object": "model"}, {"id": "gpt-y"}]}'
ANTHROPIC = b'{"data": [{"type": "model", "id": "claude-x", "display_name": "X"}], "has_more": false}'
GOOGLE = b'{"models": [{"name": "models/gemini-x", "displayName": "X"}]}'
COHERE = b'{"models": [{"name": "command-x", "endpoints": ["chat"]}]}'
OLLAMA = b'{"models": [{"name": "llama:8b", "model": "llama:8b"}]}'


@contextlib.contextmanager
def server(body, status=200):
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, dict(self.headers)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format, *args):
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        serving.daemon_threads = True
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}", asked
        finally:
            serving.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("provider", "body", "path", "names"),
    [
        ("openai", OPENAI, "/models", ("gpt-x", "gpt-y")),
        ("groq", OPENAI, "/models", ("gpt-x", "gpt-y")),
        ("anything", OPENAI, "/models", ("gpt-x", "gpt-y")),
        ("anthropic", ANTHROPIC, "/v1/models?limit=1000", ("claude-x",)),
        ("google", GOOGLE, "/v1beta/models?pageSize=1000", ("gemini-x",)),
        ("cohere", COHERE, "/v1/models?endpoint=chat&page_size=1000", ("command-x",)),
        ("ollama", OLLAMA, "/api/tags", ("llama:8b",)),
    ],
)
async def test_models_are_listed(provider, body, path, names):
    with server(body) as (url, asked):
        assert await list_models(provider, url=url, key="k") == names
    assert asked[0][0] == path
    assert provider == "ollama" or "k" in " ".join(asked[0][1].values())


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[1]", b'{"data": {}}', b'{"data": [{}]}', b"5", b'{"data": [null]}']
)
async def test_an_answer_that_is_no_listing_is_a_decode_error(body):
    with server(body) as (url, _), pytest.raises(DecodeError):
        await list_models("server", url=url)


async def test_a_refusal_is_a_provider_error_without_the_key():
    refused = b'{"error": {"message": "no secret-key"}}'
    with server(refused, 401) as (url, _), pytest.raises(ProviderError) as raised:
        await list_models("openai", url=url, key="secret-key")
    assert "secret-key" not in str(raised.value)


async def test_what_cannot_be_asked_is_said(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    with pytest.raises(AuthenticationError, match="OPENAI_API_KEY"):
        await list_models("openai")
    with pytest.raises(UnknownNameError, match="openai"):
        await list_models("opnai")
    with pytest.raises(CapabilityError):
        await list_models("bedrock")
    with pytest.raises(TransportError):
        await list_models("x", url="http://127.0.0.1:9")


async def test_a_key_that_a_server_echoes_is_masked():
    with server(b'{"data": [{"id": "model-of-sk-secret-1234"}]}') as (url, _):
        (found,) = await list_models("any", url=url, key="sk-secret-1234")
    assert found.startswith("model-of-")
    assert "secret" not in found
