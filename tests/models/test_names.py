"""Models by name: providers, addresses, keys, and what happens where one is missing."""

import importlib
import importlib.util
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from palaver import wires
from palaver.core.errors import AuthenticationError, UnknownNameError
from palaver.models import names, providers
from palaver.models.endpoint import ApiKey, HttpCall, NoKey, first_set
from palaver.models.providers.ollama import host

CALL = HttpCall("POST", "http://127.0.0.1/", {}, ())
ROWS = list(providers.PROVIDERS.values())
KEYED = [row for row in ROWS if row.needs_key and row.credentials(row, "k").__class__ is ApiKey]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """No key and no address of whoever runs the tests."""
    for row in ROWS:
        for name in (
            *row.keys,
            *row.bases,
            *(each for place in row.address_variables.values() for each in place.variables),
        ):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv(names.DEFAULT, raising=False)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_names_wires_that_there_are(row):
    assert row.endpoints
    assert row.page.startswith("https://")
    for endpoint in row.endpoints:
        assert wires.get(endpoint.wire).name == endpoint.wire.partition(":")[0]
        assert endpoint.provider_name == row.name
        assert endpoint.names_model or "{model}" in endpoint.url
        assert "{base}" in endpoint.url


@pytest.mark.parametrize("row", [row for row in ROWS if not row.address_variables], ids=lambda row: row.name)
def test_every_name_gives_an_address(row):
    found = names.resolve(f"{row.name}/some/model")
    assert (found.provider, found.id) == (row.name, "some/model")
    assert found.endpoint.url.startswith(row.base)
    assert "{base}" not in found.endpoint.url + (found.endpoint.stream_url or "")


def test_an_id_may_hold_slashes_and_colons():
    assert names.resolve("openrouter/meta/llama-4:free").id == "meta/llama-4:free"


@pytest.mark.parametrize("name", ["llama", "openai/", "/gpt-5", "nobody/gpt-5"])
def test_a_name_that_is_none_lists_the_providers(name):
    with pytest.raises(UnknownNameError, match=r"openai, openai-chat, anthropic"):
        names.resolve(name)


def test_without_a_name_the_environment_says_it(monkeypatch):
    with pytest.raises(UnknownNameError, match="PALAVER_MODEL"):
        names.resolve()
    monkeypatch.setenv("PALAVER_MODEL", "groq/llama")
    assert names.resolve().name == "groq/llama"
    assert names.resolve("openai/x").name == "openai/x"


def test_openai_is_asked_on_responses_unless_the_name_or_the_wire_says_chat():
    assert names.resolve("openai/x").endpoint.url == "https://api.openai.com/v1/responses"
    assert names.resolve("openai-chat/x").endpoint.url == "https://api.openai.com/v1/chat/completions"
    assert names.resolve("openai/x", wire="openai_chat").endpoint.url == "https://api.openai.com/v1/chat/completions"


def test_a_provider_is_not_asked_on_a_wire_that_it_does_not_speak():
    with pytest.raises(UnknownNameError, match="anthropic does not speak 'openai_chat'; it speaks anthropic_messages"):
        names.resolve("anthropic/x", wire="openai_chat")
    with pytest.raises(UnknownNameError, match="no variant"):
        names.resolve("groq/x", wire="openai_chat:klingon")


def test_another_variant_is_spoken_at_the_same_place():
    found = names.resolve("vllm/x", wire="openai_chat:deepseek")
    assert (found.endpoint.wire, found.endpoint.url) == (
        "openai_chat:deepseek",
        "http://127.0.0.1:8000/v1/chat/completions",
    )


def test_any_server_is_asked_at_its_address():
    found = names.resolve("lab/llama", url="http://10.0.0.7:9000/v1/")
    assert found.endpoint.wire == "openai_chat:compatible"
    assert found.endpoint.url == "http://10.0.0.7:9000/v1/chat/completions"
    other = names.resolve("lab/claude", url="http://10.0.0.7:9000", wire="anthropic_messages")
    assert other.endpoint.url == "http://10.0.0.7:9000/v1/messages"
    known = names.resolve("deepseek/x", url="https://api.deepseek.com/anthropic", wire="anthropic_messages")
    assert known.endpoint.url == "https://api.deepseek.com/anthropic/v1/messages"
    with pytest.raises(UnknownNameError, match="no standard address"):
        names.resolve("lab/x", url="http://10.0.0.7", wire="bedrock_converse")
    with pytest.raises(UnknownNameError, match="http://"):
        names.resolve("lab/x", url="10.0.0.7")


def test_an_address_is_given_or_of_the_environment_or_of_the_row(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://proxy/v1/")
    assert names.resolve("openai/x").endpoint.url == "http://proxy/v1/responses"
    assert names.resolve("openai/x", url="http://mine/v1").endpoint.url == "http://mine/v1/responses"
    monkeypatch.setenv("OPENAI_BASE_URL", " ")
    assert names.resolve("openai/x").endpoint.url == "https://api.openai.com/v1/responses"


def test_the_model_of_google_stands_in_the_address():
    endpoint = names.resolve("google/gemini").endpoint
    assert endpoint.url.endswith("/v1beta/models/{model}:generateContent")
    assert endpoint.stream_url.endswith("/v1beta/models/{model}:streamGenerateContent?alt=sse")
    assert not endpoint.names_model
    assert not endpoint.stream_field


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434"),
        (":11435", "http://127.0.0.1:11435"),
        ("box", "http://box:11434"),
        ("box:80/ollama/", "http://box:80/ollama"),
        ("http://box", "http://box:80"),
        ("https://box", "https://box:443"),
        ("https://box:8443", "https://box:8443"),
        ("[::1]", "http://[::1]:11434"),
        ("[::1]:9", "http://[::1]:9"),
    ],
)
def test_the_host_of_ollama_is_read_as_people_write_it(monkeypatch, written, meant):
    assert host(written) == meant
    monkeypatch.setenv("OLLAMA_HOST", written)
    assert names.resolve("ollama/x").endpoint.url == f"{meant}/api/chat"


# -- keys --


@pytest.mark.anyio
@pytest.mark.parametrize("row", KEYED, ids=lambda row: row.name)
async def test_a_missing_key_is_one_sentence_naming_the_variables(row):
    credentials = names.resolve(f"{row.name}/x", url="http://127.0.0.1").credentials
    with pytest.raises(AuthenticationError) as caught:
        await credentials.headers(CALL)
    text = str(caught.value)
    assert text == f"{row.name}: no API key: set {' or '.join(row.keys)}, or pass key="
    assert caught.value.status is None


@pytest.mark.anyio
@pytest.mark.parametrize("row", KEYED, ids=lambda row: row.name)
async def test_keys_are_looked_up_in_order_when_first_used_and_never_shown(monkeypatch, row):
    credentials = names.resolve(f"{row.name}/x", url="http://127.0.0.1").credentials
    for name in reversed(row.keys):
        monkeypatch.setenv(name, f" sk-{name}\n")
        sent = await credentials.headers(CALL)
        assert [value.removeprefix("Bearer ") for value in sent.values()] == [f"sk-{name}"]
    assert "sk-" not in repr(credentials)
    given = names.resolve(f"{row.name}/x", url="http://127.0.0.1", key="sk-given").credentials
    assert [value.removeprefix("Bearer ") for value in (await given.headers(CALL)).values()] == ["sk-given"]
    assert "sk-" not in repr(given)


@pytest.mark.anyio
async def test_each_provider_gets_its_key_in_its_header():
    sent = {
        name: await names.resolve(f"{name}/x", key="k").credentials.headers(CALL) for name in ("anthropic", "google")
    }
    assert sent == {"anthropic": {"x-api-key": "k"}, "google": {"x-goog-api-key": "k"}}


@pytest.mark.anyio
async def test_a_server_of_ones_own_needs_no_key(monkeypatch):
    assert await names.resolve("ollama/x").credentials.headers(CALL) == {}
    assert await NoKey().headers(CALL) == {}
    assert repr(NoKey()) == "NoKey()"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert await names.resolve("lab/x", url="http://127.0.0.1").credentials.headers(CALL) == {}


def test_available_are_those_with_a_key(monkeypatch):
    assert names.available() == ()
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    monkeypatch.setenv("GROQ_API_KEY", "k")
    monkeypatch.setenv("MISTRAL_API_KEY", " ")
    monkeypatch.setenv("OLLAMA_API_KEY", "k")
    assert names.available() == ("google", "groq")
    assert first_set(("NOT_SET_AT_ALL",)) is None


class Alive(BaseHTTPRequestHandler):
    """Answers every question with 200."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        """Say nothing."""


@pytest.mark.anyio
async def test_servers_on_this_machine_are_asked_only_when_wanted(monkeypatch):
    for row in ROWS:
        for name in row.bases[:1]:
            monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("VLLM_BASE_URL", "http://127.0.0.1:99999/v1")
    assert await names.local_servers(seconds=2) == ()
    with ThreadingHTTPServer(("127.0.0.1", 0), Alive) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{server.server_port}")
        assert names.available() == ()
        assert await names.local_servers(seconds=2) == ("ollama",)
        server.shutdown()
        thread.join()


def test_no_module_is_hidden_by_the_function_that_makes_models():
    assert importlib.util.find_spec("palaver.models.model") is None
    assert callable(importlib.import_module("palaver.models").model)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("openai:gpt-5.5", "openai/gpt-5.5"),
        ("OpenAI/gpt-5.5", "openai/gpt-5.5"),
        ("gemini/gemini-3-pro", "google/gemini-3-pro"),
        ("claude-opus-4-8", "anthropic/claude-opus-4-8"),
        ("gpt-5.5", "openai/gpt-5.5"),
    ],
)
def test_another_spelling_suggests_the_name_that_is_meant(name, meant):
    with pytest.raises(UnknownNameError, match=rf"did you mean {meant}\?"):
        names.model(name)
