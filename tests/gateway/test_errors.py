"""Errors in the shape that a client's official SDK expects, and with the status that makes it wait, retry or stop."""

import gzip
import json

import anthropic
import cohere
import httpx
import openai
import pytest
from google import genai

from tests.gateway.running import PROVIDERS
from tests.gateway.test_wires import CALLS, body_of, path_of

ERRORS = {
    "openai_chat": {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}},
    "openai_responses": {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}},
    "anthropic_messages": {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}},
    "google_generate": {"error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}},
    "bedrock_converse": {"message": "slow down"},
    "cohere_chat": {"message": "slow down"},
    "ollama_chat": {"error": "slow down"},
}


def message_of(wire, body):
    error = body.get("error", body)
    return error if isinstance(error, str) else error["message"]


@pytest.mark.row("GW-03")
@pytest.mark.parametrize("model_wire", ["anthropic_messages", "openai_chat"])
@pytest.mark.parametrize("client_wire", PROVIDERS)
def test_an_error_of_a_provider_comes_in_the_shape_of_the_client(gateway, provider, client_wire, model_wire):
    provider.status, provider.headers = 429, {"content-type": "application/json", "retry-after": "0"}
    provider.body = httpx.Request("POST", "http://x", json=ERRORS[model_wire]).content
    body = body_of(client_wire, model_wire, stream=True)
    got = httpx.post(f"{gateway}{path_of(client_wire, model_wire, stream=True)}", content=body)
    assert got.status_code == 429
    assert got.headers["retry-after"] == "0"
    assert got.headers["content-type"] == "application/json"
    assert "slow down" in message_of(client_wire, got.json())
    assert got.json().keys() >= ERRORS[client_wire].keys()
    if client_wire == model_wire:
        assert got.content == provider.body


WORDS = {
    # the client's wire: how it names a prompt that is too long, a rate limit, an overload, no money, a bad key
    "openai_chat": (
        "context_length_exceeded",
        "rate_limit_exceeded",
        "server_is_overloaded",
        "insufficient_quota",
        "invalid_api_key",
    ),
    "openai_responses": (
        "context_length_exceeded",
        "rate_limit_exceeded",
        "server_is_overloaded",
        "insufficient_quota",
        "invalid_api_key",
    ),
    "anthropic_messages": (
        "invalid_request_error",
        "rate_limit_error",
        "overloaded_error",
        "billing_error",
        "authentication_error",
    ),
    "google_generate": (
        "INVALID_ARGUMENT",
        "RESOURCE_EXHAUSTED",
        "UNAVAILABLE",
        "RESOURCE_EXHAUSTED",
        "UNAUTHENTICATED",
    ),
    "bedrock_converse": (
        "ValidationException",
        "ThrottlingException",
        "ServiceUnavailableException",
        "ThrottlingException",
        "UnrecognizedClientException",
    ),
}
PHRASES = {
    "anthropic_messages": "prompt is too long",
    "google_generate": "input token count exceeds",
    "bedrock_converse": "Input is too long",
    "cohere_chat": "too many tokens",
    "ollama_chat": "input length exceeds the context length",
}
FAILURES = {
    "anthropic_messages": (
        (400, {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}),
        (429, {"type": "rate_limit_error", "message": "slow down"}),
        (529, {"type": "overloaded_error", "message": "Overloaded"}),
        (400, {"type": "invalid_request_error", "message": "Your credit balance is too low"}),
        (401, {"type": "authentication_error", "message": "invalid x-api-key"}),
    ),
    "openai_chat": (
        (400, {"message": "maximum context length is 8 tokens", "code": "context_length_exceeded"}),
        (429, {"message": "Rate limit reached", "code": "rate_limit_exceeded"}),
        (503, {"message": "capacity", "code": "server_is_overloaded"}),
        (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}),
        (401, {"message": "Incorrect API key provided", "code": "invalid_api_key"}),
    ),
}


def word_of(wire, got):
    """How an error is named in the client's API."""
    if wire == "bedrock_converse":
        return got.headers["x-amzn-errortype"]
    return got.json()["error"][{"google_generate": "status", "anthropic_messages": "type"}.get(wire, "code")]


@pytest.mark.row("GW-03")
@pytest.mark.parametrize("meaning", range(5), ids=["overflow", "rate", "overload", "quota", "key"])
@pytest.mark.parametrize("model_wire", FAILURES)
@pytest.mark.parametrize("client_wire", PROVIDERS)
def test_an_error_is_named_in_the_words_of_the_client(gateway, provider, client_wire, model_wire, meaning):
    if client_wire == model_wire:
        pytest.skip("handed on as it is")
    status, error = FAILURES[model_wire][meaning]
    provider.status, provider.headers = status, {"content-type": "application/json", "x-should-retry": "false"}
    provider.body = httpx.Request("POST", "http://x", json={"type": "error", "error": error}).content
    body = body_of(client_wire, model_wire, stream=False)
    got = httpx.post(f"{gateway}{path_of(client_wire, model_wire, stream=False)}", content=body)
    assert got.status_code == status
    if client_wire in WORDS:
        assert word_of(client_wire, got) == WORDS[client_wire][meaning]
    if meaning == 0:
        assert PHRASES.get(client_wire, "") in message_of(client_wire, got.json())


IN_STREAMS = {
    "openai_chat": '"code":"context_length_exceeded"',
    "openai_responses": '"code":"context_length_exceeded"',
    "anthropic_messages": '"type":"invalid_request_error","message":"prompt is too long',
    "google_generate": '"status":"INVALID_ARGUMENT"',
    "bedrock_converse": "validationException",
    "cohere_chat": "too many tokens",
    "ollama_chat": "input length exceeds the context length",
}


@pytest.mark.row("GW-03")
@pytest.mark.parametrize("client_wire", PROVIDERS)
def test_an_error_in_a_stream_is_named_in_the_words_of_the_client(gateway, provider, client_wire):
    events = [
        {"type": "response.created", "sequence_number": 0, "response": {"id": "r", "output": []}},
        {
            "type": "response.output_item.added",
            "sequence_number": 1,
            "output_index": 0,
            "item": {"type": "message", "id": "m", "role": "assistant", "content": []},
        },
        {
            "type": "response.output_text.delta",
            "sequence_number": 2,
            "item_id": "m",
            "output_index": 0,
            "content_index": 0,
            "delta": "Hi",
        },
        {"type": "error", "sequence_number": 3, "code": "context_length_exceeded", "message": "the window is full"},
    ]
    model_wire = "openai_responses"
    lines = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events]
    if client_wire == model_wire:
        model_wire = "openai_chat"
        told = {"error": {"message": "the window is full", "code": "context_length_exceeded"}}
        chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}
        lines = [f"data: {json.dumps(each)}\n\n" for each in (chunk, told)]
    provider.headers = {"content-type": "text/event-stream"}
    provider.body = "".join(lines).encode()
    body = body_of(client_wire, model_wire, stream=True)
    got = httpx.post(f"{gateway}{path_of(client_wire, model_wire, stream=True)}", content=body)
    assert got.status_code == 200
    assert IN_STREAMS[client_wire] in got.content.decode("utf-8", "replace").replace('": ', '":').replace('", "', '","')


@pytest.mark.parametrize(
    ("path", "wire"),
    [
        ("/v1beta/models/comp:frobnicate", "google_generate"),
        ("/v1/projects/p/locations/l/publishers/google/models/m:nothing", "google_generate"),
        ("/api/generate", "ollama_chat"),
        ("/v1/messages/batches", "anthropic_messages"),
        ("/v2/embed", "cohere_chat"),
        ("/model/m/invoke", "bedrock_converse"),
        ("/v1/chat/nothing", "openai_chat"),
    ],
)
def test_a_path_that_there_is_not_is_an_error_of_the_api_above_it(gateway, path, wire):
    got = httpx.post(f"{gateway}{path}", content=b"{}")
    assert got.status_code in {404, 405}
    assert message_of(wire, got.json()) == f"there is no POST {path}"
    assert got.json().keys() == ERRORS[wire].keys()
    if wire == "openai_chat":
        assert got.json()["error"]["code"] is None


BAD_BODIES = {"no JSON": b"{", "no model": b'{"messages": []}', "not UTF-8": b'{"model": "\xff"}', "a list": b"[]"}


@pytest.mark.row("GW-03")
@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
@pytest.mark.parametrize(
    "wire", ["openai_chat", "openai_responses", "anthropic_messages", "cohere_chat", "ollama_chat"]
)
def test_a_body_that_is_no_request_is_a_400(gateway, provider, wire, body):
    got = httpx.post(f"{gateway}{CALLS[wire, None].path}", content=body)
    assert (got.status_code, provider.asked) == (400, [])
    assert message_of(wire, got.json())


@pytest.mark.parametrize(
    ("body", "headers", "words"),
    [
        (b'{"model": "m", "messages": [{"role": "user", "content": "a\\ud83d"}]}', {}, r"\ud83d stands alone"),
        (b'{"model": "m", "messages": [{"role": "user", "content": "\\ud83d b"}]}', {}, r"\ud83d stands alone"),
        (gzip.compress(b"{}"), {}, "compressed with gzip"),
        (gzip.compress(b"{}"), {"content-encoding": "gzip"}, "encoding 'gzip'"),
        (b" ", {}, "the body is empty"),
        (b'{"model": "m" "messages"}', {}, "JSON is malformed"),
    ],
    ids=["half a pair", "half a pair and more", "gzip", "gzip that says so", "empty", "no JSON"],
)
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic_messages"])
def test_a_body_that_cannot_be_read_says_why(gateway, wire, body, headers, words):
    got = httpx.post(f"{gateway}{path_of(wire, 'm', stream=False)}", content=body, headers=headers)
    assert got.status_code == (415 if headers else 400)
    assert words in message_of(wire, got.json())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic_messages"])
def test_a_missing_key_of_a_provider_is_named_in_the_log_only(gateway, monkeypatch, caplog, wire, stream):
    monkeypatch.delenv("MISTRAL_API_KEY", raising=False)
    body = body_of(wire, "mistral/m", stream=stream)
    got = httpx.post(f"{gateway}{path_of(wire, 'mistral/m', stream=stream)}", content=body)
    assert message_of(wire, got.json()) == "the gateway has no key for mistral"
    assert "MISTRAL_API_KEY" in caplog.text


def test_the_official_clients_raise_their_own_errors(gateway, provider):
    provider.status, provider.headers = 429, {"content-type": "application/json", "retry-after": "0"}
    provider.body = httpx.Request("POST", "http://x", json=ERRORS["cohere_chat"]).content
    said = [{"role": "user", "content": "Hi"}]
    with (
        openai.OpenAI(base_url=f"{gateway}/v1", api_key="k", max_retries=0) as client,
        pytest.raises(openai.RateLimitError, match="slow down"),
    ):
        client.chat.completions.create(model="cohere_chat", messages=said)
    with (
        anthropic.Anthropic(base_url=gateway, api_key="k", max_retries=0) as client,
        pytest.raises(anthropic.RateLimitError, match="slow down"),
    ):
        client.messages.create(model="cohere_chat", messages=said, max_tokens=9)
    with (
        genai.Client(api_key="k", http_options={"base_url": gateway}) as client,
        pytest.raises(genai.errors.ClientError, match="RESOURCE_EXHAUSTED"),
    ):
        client.models.generate_content(model="cohere_chat", contents="Hi")


@pytest.mark.row("GW-04")
def test_models_are_listed_for_each_client(gateway):
    with openai.OpenAI(base_url=f"{gateway}/v1", api_key="k") as client:
        assert {each.id for each in client.models.list()} == set(PROVIDERS)
    with anthropic.Anthropic(base_url=gateway, api_key="k") as client:
        assert {each.id for each in client.models.list()} == set(PROVIDERS)
    with genai.Client(api_key="k", http_options={"base_url": gateway}) as client:
        assert {each.name for each in client.models.list()} == {f"models/{each}" for each in PROVIDERS}
    with httpx.Client() as connections:
        client = cohere.ClientV2("k", base_url=gateway, httpx_client=connections)
        assert {each.name for each in client.models.list().models} == set(PROVIDERS)
    assert {each["name"] for each in httpx.get(f"{gateway}/api/tags").json()["models"]} == set(PROVIDERS)


def test_a_client_may_look_whether_somebody_is_there(gateway):
    assert httpx.head(gateway).status_code == 200
    assert httpx.get(gateway).json()["name"] == "palaver gateway"


FOREIGN = {
    "a page of another site": {"origin": "https://evil.example", "content-type": "text/plain"},
    "a page that a browser names as such": {"sec-fetch-site": "cross-site"},
    "a name that was bound to this machine": {"host": "evil.example:4000"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("wire", PROVIDERS)
def test_no_page_of_another_site_can_spend_money(gateway, provider, wire, headers):
    url = f"{gateway}{path_of(wire, wire, stream=False)}"
    got = httpx.post(url, content=body_of(wire, wire, stream=False), headers=headers)
    assert got.status_code in {403, 421}
    assert provider.asked == []
    assert message_of(wire, got.json())


@pytest.mark.parametrize(
    ("headers", "wire"),
    [
        ({}, "openai_chat"),
        ({"anthropic-version": "2023-06-01"}, "anthropic_messages"),
        ({"x-goog-api-key": "k"}, "google_generate"),
    ],
)
@pytest.mark.parametrize(("method", "status"), [("GET", 405), ("POST", 404)])
def test_a_path_that_there_is_not_is_an_error_of_the_client(gateway, headers, wire, method, status):
    path = "/v1/messages" if status == 405 else "/v1/nothing"
    got = httpx.request(method, f"{gateway}{path}", headers=headers)
    assert got.status_code == status
    assert message_of(wire, got.json()) == f"there is no {method} {path}"
    assert got.json().keys() >= ERRORS[wire].keys()


def test_no_page_of_another_site_lists_models(gateway):
    assert httpx.get(f"{gateway}/v1/models", headers={"host": "evil.example"}).status_code == 421
