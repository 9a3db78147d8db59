"""Token counts and single models, as the official clients ask for them."""

import anthropic
import boto3
import cohere
import httpx
import openai
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from google import genai

from palaver.gateway import GatewayConfig, Target
from palaver.gateway.limits import LimitRule
from tests.gateway.running import running, targets
from tests.gateway.test_routes import JSON

SAID = [{"role": "user", "content": "How many tokens is this?"}]
ANSWERS = {
    "anthropic_messages": b'{"input_tokens": 41, "extra": true}',
    "openai_responses": b'{"object": "response.input_tokens", "input_tokens": 41}',
    "google_generate": b'{"totalTokens": 41, "extra": true}',
    "bedrock_converse": b'{"inputTokens": 41}',
}


def count_anthropic(url, model):
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        return client.messages.count_tokens(model=model, messages=SAID).input_tokens


def count_openai(url, model):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        return client.responses.input_tokens.count(model=model, input="How many tokens is this?").input_tokens


def count_google(url, model):
    with genai.Client(api_key="k", http_options={"base_url": url}) as client:
        return client.models.count_tokens(model=model, contents="How many tokens is this?").total_tokens


def count_google_enclosed(url, model):
    inner = {
        "model": f"models/{model}",
        "contents": [{"role": "user", "parts": [{"text": "How many tokens is this?"}]}],
    }
    got = httpx.post(f"{url}/v1beta/models/{model}:countTokens", json={"generateContentRequest": inner})
    return got.json()["totalTokens"]


def count_bedrock(url, model):
    options = Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1})
    client = boto3.client("bedrock-runtime", region_name="eu-central-1", endpoint_url=url, config=options)
    said = [{"role": "user", "content": [{"text": "How many tokens is this?"}]}]
    return client.count_tokens(modelId=model, input={"converse": {"messages": said}})["inputTokens"]


CLIENTS = [count_anthropic, count_openai, count_google, count_google_enclosed, count_bedrock]


@pytest.mark.row("GW-05")
@pytest.mark.parametrize("model", ANSWERS)
@pytest.mark.parametrize("count", CLIENTS)
def test_a_provider_that_counts_is_asked(gateway, provider, count, model):
    provider.headers, provider.body = JSON, ANSWERS[model]
    assert count(gateway, model) == 41
    ((path, headers, sent),) = provider.asked
    assert path.endswith(("count_tokens", "input_tokens", ":countTokens", "count-tokens"))
    assert "secret-1" in "".join(headers.values())
    assert b"How many tokens is this?" in sent or model == "bedrock_converse"


@pytest.mark.row("GW-05")
@pytest.mark.parametrize("model", ["ollama_chat", "cohere_chat", "down"])
@pytest.mark.parametrize("count", CLIENTS)
def test_else_the_count_is_an_estimate(provider, count, model):
    down = Target(model="anthropic/m", url="http://127.0.0.1:1", key="PALAVER_TEST_KEY", retries=0)
    with running(GatewayConfig(models={**targets(provider.url), "down": down})) as url:
        assert 4 <= count(url, model) <= 40
    assert provider.asked == []


@pytest.mark.row("GW-05")
def test_the_client_and_the_provider_of_one_wire_see_each_others_bytes(gateway, provider):
    provider.headers, provider.body = JSON, ANSWERS["anthropic_messages"]
    body = b'{ "model": "anthropic_messages","messages":[{"role":"user","content":"Hi"}], "unknown": 1 }'
    headers = {"anthropic-beta": "token-counting-2024-11-01"}
    got = httpx.post(f"{gateway}/v1/messages/count_tokens?beta=true", content=body, headers=headers)
    ((_, there, sent),) = provider.asked
    assert (got.content, sent) == (provider.body, body.replace(b'"anthropic_messages"', b'"model-1"'))
    assert there["anthropic-beta"] == "token-counting-2024-11-01"
    assert "palaver-estimate" not in got.headers


@pytest.mark.row("GW-05")
def test_an_estimate_says_so_and_what_is_invalid_is_refused(gateway, provider):
    body = b'{"model": "ollama_chat", "messages": [{"role": "user", "content": "Hi"}]}'
    assert httpx.post(f"{gateway}/v1/messages/count_tokens", content=body).headers["palaver-estimate"] == "true"
    provider.status, provider.headers, provider.body = 400, JSON, b'{"error": {"message": "wrong"}}'
    wrong = body.replace(b"ollama_chat", b"anthropic_messages")
    assert httpx.post(f"{gateway}/v1/messages/count_tokens", content=wrong).status_code == 400
    for bad in (b"{", b"{}", body.replace(b"[", b"7, [")):
        assert httpx.post(f"{gateway}/v1/messages/count_tokens", content=bad).status_code == 400


@pytest.mark.row("GW-06")
def test_one_model_is_shown_to_each_client(gateway):
    with openai.OpenAI(base_url=f"{gateway}/v1", api_key="k") as client:
        assert client.models.retrieve("ollama_chat").id == "ollama_chat"
    with anthropic.Anthropic(base_url=gateway, api_key="k") as client:
        assert client.models.retrieve("ollama_chat").id == "ollama_chat"
    with genai.Client(api_key="k", http_options={"base_url": gateway}) as client:
        assert client.models.get(model="ollama_chat").name == "models/ollama_chat"
    with httpx.Client() as connections:
        client = cohere.ClientV2("k", base_url=gateway, httpx_client=connections)
        assert client.models.get("ollama_chat").name == "ollama_chat"
    shown = httpx.post(f"{gateway}/api/show", json={"model": "ollama_chat"}).json()
    assert "tools" in shown["capabilities"]
    assert httpx.get(f"{gateway}/api/version").json()["version"]


@pytest.mark.row("GW-06")
def test_a_model_that_there_is_not_is_a_404(provider):
    with running(GatewayConfig(models=targets(provider.url), only_listed=True)) as url:
        for headers in ({}, {"anthropic-version": "1"}, {"x-goog-api-key": "k"}):
            got = httpx.get(f"{url}/v1/models/none", headers=headers)
            assert (got.status_code, "no model 'none'" in got.text) == (404, True)
        assert httpx.get(f"{url}/v1/models/none", headers={"host": "evil.example"}).status_code == 421
        assert httpx.get(f"{url}/v1/models/none/of/these").status_code == 404


@pytest.mark.row("GW-06")
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/models", "/", "/health"])
def test_options_names_the_methods_of_a_path(gateway, path):
    got = httpx.options(f"{gateway}{path}")
    assert got.status_code == 204
    assert got.headers["allow"]
    assert "access-control-allow-origin" not in got.headers
    assert httpx.options(f"{gateway}/none").status_code == 404


@pytest.mark.row("GW-31")
@pytest.mark.parametrize("wire", ["anthropic_messages", "google_generate"])
def test_a_count_that_a_provider_makes_is_a_request(provider, tmp_path, wire):
    provider.headers, provider.body = JSON, ANSWERS[wire]
    rules = (LimitRule(requests="2/month"),)
    config = GatewayConfig(models=targets(provider.url), database=str(tmp_path / "g.db"), limits=rules)
    with running(config) as url:
        body = {"model": wire, "messages": SAID}
        got = [httpx.post(f"{url}/v1/messages/count_tokens", json=body).status_code for _ in range(3)]
    assert (got, len(provider.asked)) == ([200, 200, 429], 2)
