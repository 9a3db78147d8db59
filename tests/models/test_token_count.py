"""Counting asks the provider's own endpoint, with the body that would be sent."""

import json
from base64 import b64decode
from contextlib import closing

import anthropic
import botocore.session
import httpx
import openai
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from google import genai
from google.genai import types
from google.oauth2.credentials import Credentials as GoogleToken
from hypothesis import given, strategies as st

from palaver import system, user
from palaver.core.errors import (
    AuthenticationError,
    CapabilityError,
    ContextOverflowError,
    DecodeError,
    ProviderError,
    RateLimitError,
    TimedOutError,
)
from palaver.core.parts import Image
from palaver.core.request import Settings
from palaver.core.tools import Tool
from palaver.models import Fallback, Prompt, Retry, ScriptedModel, Timeouts, model, providers
from palaver.models.endpoint import Counting
from palaver.models.providers.aws import foundation
from palaver.models.token_count import count_tokens, counted_body
from tests.models.asking import at
from tests.models.faults import says, serve, streams

KEY = "sk-test-0123456789"
TOOL = Tool.of("look", "Look it up.", {"type": "object", "properties": {"what": {"type": "string"}}})
PROMPT = Prompt(
    messages=(user("hi", Image.from_bytes(b"\x89PNG", "image/png")),),
    system=(system("Be brief."),),
    tools=(TOOL,),
    settings=Settings(max_tokens=16, temperature=0.5),
)
BEDROCK_ID = "eu.anthropic.claude-x-20250101-v1:0"
BARE_ID = "anthropic.claude-x-20250101-v1:0"
IDS = {"bedrock": BEDROCK_ID, "bedrock-anthropic": BEDROCK_ID}
ANSWERS = {
    "anthropic": {"input_tokens": 2095},
    "openai": {"object": "response.input_tokens", "input_tokens": 2095},
    "google": {"totalTokens": 2095, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 2095}]},
    "bedrock": {"inputTokens": 2095},
    "bedrock-anthropic": {"inputTokens": 2095},
    "vertex": {"totalTokens": 2095, "totalBillableCharacters": 70},
    "vertex-anthropic": {"input_tokens": 2095},
    "llamacpp": {"input_tokens": 2095, "object": "response.input_tokens"},
}
"""What each provider answers, as its page shows it."""
PATHS = {
    "anthropic": "/v1/messages/count_tokens",
    "openai": "/responses/input_tokens",
    "google": "/v1beta/models/m:countTokens",
    "bedrock": f"/model/{BARE_ID}/count-tokens".replace(":", "%3A"),
    "bedrock-anthropic": f"/model/{BARE_ID}/count-tokens".replace(":", "%3A"),
    "vertex": "/v1/projects/p1/locations/us-east5/publishers/google/models/m:countTokens",
    "vertex-anthropic": "/v1/projects/p1/locations/us-east5/publishers/anthropic/models/count-tokens:rawPredict",
    "llamacpp": "/chat/completions/input_tokens",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", KEY)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "us-east5")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p1")


def made(name, url):
    return model(f"{name}/{IDS.get(name, 'm')}", key=KEY, url=url, retry=Retry(attempts=1))


def inner(name, body):
    """What of a body is the request that would be sent."""
    for field in made(name, "http://127.0.0.1:9").endpoint.counting.inside:
        body = body[field]
    return json.loads(b64decode(body)) if isinstance(body, str) else body


@pytest.mark.anyio
@pytest.mark.parametrize("name", ANSWERS)
async def test_a_provider_counts_the_body_that_it_would_be_sent(name):
    with serve(says(ANSWERS[name])) as server:
        asked = made(name, server.url)
        assert await count_tokens(asked, PROMPT) == 2095
        (counted,) = server.asked
        with pytest.raises(ProviderError):
            async with asked.session().ask(PROMPT, stream=False):
                pass
        sent = json.loads(server.asked[-1].body)
    counting = asked.endpoint.counting
    body = inner(name, json.loads(counted.body))
    added = {field: text.replace("{model}", "m") for field, text in counting.adds.items()}
    assert counted.path == PATHS[name]
    assert {field: body[field] for field in added} == added
    assert {field: each for field, each in body.items() if field not in added} == {
        field: each for field, each in sent.items() if counting.takes is None or field in counting.takes
    }
    assert "Be brief." in json.dumps(body)
    assert "look" in json.dumps(body)
    assert "iVBORw==" in json.dumps(body)
    assert {name: server.asked[-1].headers.get(name) for name in ("authorization", "x-api-key", "x-goog-api-key")} == {
        name: counted.headers.get(name) for name in ("authorization", "x-api-key", "x-goog-api-key")
    }


def test_every_endpoint_that_counts_is_tried_here():
    there = {row.name for row in providers.PROVIDERS.values() if any(endpoint.counting for endpoint in row.endpoints)}
    assert there == {*ANSWERS, "openai-chat"}
    for row in providers.PROVIDERS.values():
        for endpoint in row.endpoints:
            assert endpoint.counting is None or endpoint.counting.page.startswith("https://")


# -- what the official clients send for the same call ------------------------------------------------------------------

TURN = [{"role": "user", "content": "hi"}]
PLAIN = Prompt(messages=(user("hi"),), system=(system("Be brief."),))


def _anthropic(url):
    with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as client:
        return client.messages.count_tokens(model="m", messages=TURN, system="Be brief.").input_tokens


def _anthropic_vertex(url):
    asked = anthropic.AnthropicVertex(
        base_url=f"{url}/v1", region="us-east5", project_id="p1", access_token=KEY, max_retries=0
    )
    with asked as client:
        return client.messages.count_tokens(model="m", messages=TURN, system="Be brief.").input_tokens


def _openai(url):
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        turns = [{"role": "system", "content": "Be brief."}, *TURN]
        return client.responses.input_tokens.count(model="m", input=turns).input_tokens


def _google(url):
    with genai.Client(api_key=KEY, http_options={"base_url": url, "api_version": "v1beta"}) as client:
        return client.models.count_tokens(model="m", contents="hi").total_tokens


def _moved(url, method, target, headers, content):
    """Two clients send tokens over HTTPS only, so that their last step is ours."""
    kept = {name: text for name, text in headers.items() if name.lower() not in ("host", "content-length")}
    return httpx.request(method, f"{url}{target}", headers=kept, content=content)


def _vertex(url):
    def send(request):
        return _moved(url, request.method, request.url.raw_path.decode(), request.headers, request.content)

    client = genai.Client(
        vertexai=True,
        project="p1",
        location="us-east5",
        credentials=GoogleToken(KEY),
        http_options={"api_version": "v1", "httpx_client": httpx.Client(transport=httpx.MockTransport(send))},
    )
    with client:
        config = types.CountTokensConfig(system_instruction="Be brief.")
        return client.models.count_tokens(model="m", contents="hi", config=config).total_tokens


def _bedrock_count(url, counted):
    config = Config(proxies={}, signature_version=UNSIGNED)  # a token is sent over HTTPS only
    session = botocore.session.Session()
    client = session.create_client("bedrock-runtime", region_name="us-east-1", endpoint_url=url, config=config)
    with closing(client):
        return client.count_tokens(modelId=BARE_ID, input=counted)["inputTokens"]


def _bedrock(url):
    turn = [{"role": "user", "content": [{"text": "hi"}]}]
    return _bedrock_count(url, {"converse": {"messages": turn, "system": [{"text": "Be brief."}]}})


def _bedrock_invoke(url):
    body = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 16, "messages": TURN}
    return _bedrock_count(url, {"invokeModel": {"body": json.dumps(body).encode()}})


CLIENTS = {
    "anthropic": _anthropic,
    "vertex-anthropic": _anthropic_vertex,
    "openai": _openai,
    "google": _google,
    "vertex": _vertex,
    "bedrock": _bedrock,
    "bedrock-anthropic": _bedrock_invoke,
}
SAME = {"openai", "bedrock"}
"""Of these the whole body is the same. google-genai counts the contents only, and cannot count tools; Anthropic's
client writes one text as a string, where we write a list of parts."""


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.anyio
@pytest.mark.parametrize("name", CLIENTS)
async def test_a_count_is_asked_where_the_official_client_asks_it(name):
    with serve(says(ANSWERS[name])) as server:
        assert CLIENTS[name](server.url) == 2095
        assert await count_tokens(made(name, server.url), PLAIN) == 2095
        official, ours = server.asked
    assert (ours.method, ours.path) == (official.method, official.path.replace("?beta=true", ""))
    theirs, sent = json.loads(official.body), json.loads(ours.body)
    if name in SAME:
        assert sent == theirs
    elif name != "google":
        assert inner(name, theirs).keys() <= inner(name, sent).keys() | {"max_tokens"}
    assert made(name, server.url).endpoint.counting.found[0] in json.loads(json.dumps(ANSWERS[name]))


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    "asked",
    [
        model("cohere/command-a", key=KEY),
        model("openai-chat/gpt", key=KEY),
        model("azure/gpt", key=KEY, url="http://127.0.0.1:9", wire="openai_responses"),
        model("lab/llama", url="http://127.0.0.1:9"),
        ScriptedModel(["hi"]),
        Fallback([model("anthropic/claude", key=KEY)]),
    ],
    ids=lambda asked: asked.name,
)
async def test_a_model_that_cannot_count_says_so_and_is_not_asked(asked):
    with pytest.raises(CapabilityError, match="count") as told:
        await count_tokens(asked, PROMPT)
    assert asked.name in str(told.value)


def counting_at(url, waits=None, **more):
    counting = Counting(url=f"{url}/count/{{model}}", found=("data", "total"))
    return at(url, waits, provider={"counting": counting}, **more)


@pytest.mark.anyio
async def test_a_count_is_retried_and_each_retry_is_reported():
    notices = []
    with serve(says({"error": {"message": "busy"}}, 529), says({"data": {"total": 3}})) as server:
        waits = []
        asked = counting_at(server.url, retry=Retry(first=0.0, jitter=0.0))
        assert await count_tokens(asked, PROMPT, on_notice=notices.append) == 3
        assert [each.path for each in server.asked] == ["/count/m"] * 2
        assert server.asked[0].body == server.asked[1].body
    assert [(each.kind, each.attempt) for each in notices] == [("retry", 1)]
    assert waits == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "invalid_api_key", AuthenticationError),
        (429, "rate_limit_exceeded", RateLimitError),
        (413, "request_too_large", ContextOverflowError),
    ],
)
async def test_a_refusal_is_the_error_that_it_is_for_an_answer(status, code, kind):
    with serve(says({"error": {"message": f"no {KEY}", "code": code}}, status)) as server:
        asked = counting_at(server.url, retry=Retry(attempts=1), credentials=model("openai/m", key=KEY).credentials)
        with pytest.raises(kind) as told:
            await count_tokens(asked, PROMPT)
    assert KEY not in str(told.value)
    assert KEY.encode() not in told.value.body


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer", [{}, [], 7, {"data": 7}, {"data": {"total": "7"}}, {"data": {"total": True}}, {"data": {"total": -1}}]
)
async def test_an_answer_without_a_number_is_no_count(answer):
    with serve(says(answer)) as server, pytest.raises(DecodeError, match=r"data\.total|number"):
        await count_tokens(counting_at(server.url), PROMPT)


@pytest.mark.anyio
async def test_an_answer_that_never_comes_is_not_waited_for():
    with serve(streams(end="stall")) as server:
        asked = counting_at(server.url, timeouts=Timeouts(whole=0.05), retry=Retry(attempts=1))
        with pytest.raises(TimedOutError, match="no token count"):
            await count_tokens(asked, PROMPT)


# -- pure --------------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=2), max_leaves=4)


@given(
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.none() | st.frozensets(NAMES),
    st.lists(st.sampled_from(["in", "put"]), max_size=3),
    st.booleans(),
)
def test_what_is_counted_is_what_is_taken_of_the_body_and_lies_where_it_is_looked_for(body, takes, inside, base64):
    counting = Counting(url="", found=(), takes=takes, inside=tuple(inside), base64=base64, adds={"model": "x/{model}"})
    found = json.loads(counted_body(counting, "m", json.dumps(body).encode()))
    for name in inside:
        assert list(found) == [name]
        found = found[name]
    found = json.loads(b64decode(found)) if base64 else found
    kept = {name: each for name, each in body.items() if takes is None or name in takes}
    assert found == {**kept, "model": "x/m"}


def test_numbers_stand_as_they_were_written():
    counting = Counting(url="", found=())
    body = b'{"tools":[{"n":1e-07,"m":2.0,"k":1180591620717411303424}]}'
    assert counted_body(counting, "m", body) == body


def test_a_profile_is_counted_as_its_model():
    assert foundation(BEDROCK_ID) == BARE_ID
    assert foundation("global.anthropic.claude-y") == "anthropic.claude-y"
    assert foundation(BARE_ID) == BARE_ID
    assert foundation("amazon.nova") == "amazon.nova"
