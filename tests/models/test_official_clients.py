"""What our models send is sent where, how and as whom each provider's own client sends it."""

import json
from contextlib import closing
from urllib.parse import unquote

import anthropic
import botocore.session
import cohere
import httpx
import ollama
import openai
import pytest
from botocore.config import Config
from google import genai
from google.genai import types
from google.oauth2.credentials import Credentials as GoogleToken

from palaver import user
from palaver.core.errors import PalaverError
from palaver.core.request import Settings
from palaver.models import Prompt, Retry, model
from palaver.models.providers import vertex
from tests.models.faults import says, serve

KEY = "sk-test-0123456789"
ASKED = Prompt(messages=(user("hi"),), settings=Settings(max_tokens=16))
TURN = [{"role": "user", "content": "hi"}]
REFUSED = says({"error": {"message": "no", "type": "invalid_request_error"}, "message": "no"}, 400)


# -- the clients, as their pages say -----------------------------------------------------------------------------------


def _openai_chat(url, stream):
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        more = {"stream_options": {"include_usage": True}} if stream else {}
        client.chat.completions.create(model="m", messages=TURN, max_completion_tokens=16, stream=stream, **more)


def _openai_responses(url, stream):
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        client.responses.create(model="m", input=TURN, max_output_tokens=16, stream=stream)


def _azure_v1(url, stream):
    with openai.OpenAI(base_url=f"{url}/openai/v1/", api_key=KEY, max_retries=0) as client:
        client.responses.create(model="m", input=TURN, max_output_tokens=16, stream=stream)


def _azure_deployments(url, stream):
    made = openai.AzureOpenAI(azure_endpoint=url, api_key=KEY, api_version="2024-10-21", max_retries=0)
    with made as client:
        client.chat.completions.create(model="m", messages=TURN, max_completion_tokens=16, stream=stream)


def _anthropic(url, stream):
    with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as client:
        client.messages.create(model="m", messages=TURN, max_tokens=16, stream=stream)


def _anthropic_bedrock(url, stream):
    made = anthropic.AnthropicBedrock(base_url=url, api_key=KEY, aws_region="us-east-1", max_retries=0)
    with made as client:
        client.messages.create(model=BEDROCK_ID, messages=TURN, max_tokens=16, stream=stream)


def _anthropic_vertex(url, stream):
    made = anthropic.AnthropicVertex(
        base_url=f"{url}/v1", region="us-east5", project_id="p1", access_token=KEY, max_retries=0
    )
    with made as client:
        client.messages.create(model="m", messages=TURN, max_tokens=16, stream=stream)


def _ask_google(client, stream):
    config = types.GenerateContentConfig(max_output_tokens=16)
    if stream:
        list(client.models.generate_content_stream(model="m", contents="hi", config=config))
    else:
        client.models.generate_content(model="m", contents="hi", config=config)


def _google(url, stream):
    with genai.Client(api_key=KEY, http_options={"base_url": url, "api_version": "v1beta"}) as client:
        _ask_google(client, stream)


def _moved(url, method, target, headers, content):
    """Two clients send tokens over HTTPS only, so that their last step is ours."""
    kept = {name: text for name, text in headers.items() if name.lower() not in ("host", "content-length")}
    return httpx.request(method, f"{url}{target}", headers=kept, content=content)


def _vertex(url, stream):
    def send(request):
        return _moved(url, request.method, request.url.raw_path.decode(), request.headers, request.content)

    made = genai.Client(
        vertexai=True,
        project="p1",
        location="us-east5",
        credentials=GoogleToken(KEY),
        http_options={"api_version": "v1", "httpx_client": httpx.Client(transport=httpx.MockTransport(send))},
    )
    with made as client:
        _ask_google(client, stream)


def _bedrock(url, stream):
    client = botocore.session.Session().create_client(
        "bedrock-runtime",
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )

    def send(request, **_):
        target = request.url.partition(".amazonaws.com")[2]
        headers = {name: text.decode() if isinstance(text, bytes) else text for name, text in request.headers.items()}
        raise RuntimeError(str(_moved(url, request.method, target, headers, request.body)))

    client.meta.events.register("before-send.bedrock-runtime", send)
    with closing(client):
        ask = client.converse_stream if stream else client.converse
        turn = [{"role": "user", "content": [{"text": "hi"}]}]
        ask(modelId=BEDROCK_ID, messages=turn, inferenceConfig={"maxTokens": 16})


def _cohere(url, stream):
    with httpx.Client() as http:
        client = cohere.ClientV2(api_key=KEY, base_url=url, httpx_client=http)
        ask = client.chat_stream if stream else client.chat
        list(ask(model="m", messages=TURN, max_tokens=16))


def _ollama(url, stream):
    client = ollama.Client(host=url, headers={"Authorization": f"Bearer {KEY}"})
    with client._client:
        asked = client.chat(model="m", messages=TURN, options={"num_predict": 16}, stream=stream)
        list(asked)


BEDROCK_ID = "eu.anthropic.claude-x-20250101-v1:0"
PLAIN = ("authorization", "content-type")
ROWS = {
    "openai": (_openai_responses, "m", PLAIN),
    "openai-chat": (_openai_chat, "m", PLAIN),
    "azure": (_azure_v1, "m", ("content-type",)),
    "azure-deployments": (_azure_deployments, "m", ("api-key", "content-type")),
    "anthropic": (_anthropic, "m", ("content-type",)),
    "bedrock-anthropic": (_anthropic_bedrock, BEDROCK_ID, PLAIN),
    "vertex-anthropic": (_anthropic_vertex, "m", PLAIN),
    "google": (_google, "m", ("x-goog-api-key", "content-type")),
    "vertex": (_vertex, "m", PLAIN),
    "bedrock": (_bedrock, BEDROCK_ID, PLAIN),
    "cohere": (_cohere, "m", PLAIN),
    "ollama": (_ollama, "m", PLAIN),
}
"""The official client, the model's id, and the headers that must be the same. Not so, on purpose:

- Anthropic's client shows the key as a bearer token since 2.0, and OpenAI's does so to Azure's v1 API; we show it in
  `x-api-key` and in `api-key`, as the pages of both say.
- Anthropic's client asks for 2026-10-21 of its API; our wire speaks 2023-06-01.
- google-genai asks for `v1` of the Gemini API since 3.0; we ask for `v1beta`, which knows more fields.
"""
APART = {"anthropic": {"x-api-key": KEY, "anthropic-version": "2023-06-01"}, "azure": {"api-key": KEY}}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", KEY)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "us-east5")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p1")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.share(2)
async def test_a_model_sends_what_the_official_client_sends(name, stream, anyio_backend):
    client, model_id, headers = ROWS[name]
    with serve(REFUSED) as theirs:
        wire = {"azure": "openai_responses"}.get(name)
        ours_model = model(f"{name}/{model_id}", key=KEY, url=theirs.url, wire=wire, retry=Retry(attempts=1))
        with pytest.raises(Exception, match=r"no|400"):
            client(theirs.url, stream)
        (official,) = theirs.asked
        with pytest.raises(PalaverError, match="400"):
            async with ours_model.session().ask(ASKED, stream=stream):
                pass
        ours = theirs.asked[-1]
    assert unquote(ours.path) == unquote(official.path)
    for header in headers:
        assert _plain(ours.headers[header]) == _plain(official.headers[header]), header
    assert {name: ours.headers[name] for name in APART.get(name, ())} == APART.get(name, {})
    assert ours.method == official.method
    assert _asked(ours.body) == _asked(official.body)


def _plain(text):
    return text.replace("; charset=utf-8", "").lower() if text.startswith("application/") else text


def _asked(body):
    """Of whom, and whether as a stream."""
    said = json.loads(body)
    return said.get("model"), said.get("stream") or False


def test_hosts_are_those_of_the_official_clients(monkeypatch):
    for location in ("us-east5", "global", "us", "eu"):
        monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", location)
        monkeypatch.delenv("GOOGLE_VERTEX_BASE_URL", raising=False)
        with anthropic.AnthropicVertex(region=location, project_id="p1", access_token=KEY) as client:
            official = str(client.base_url)
        assert model("vertex-anthropic/m", key=KEY).endpoint.url.startswith(official)
    assert vertex.ROWS[0].name == "vertex"
    monkeypatch.delenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", raising=False)
    session = botocore.session.Session()
    with closing(session.create_client("bedrock-runtime", region_name="us-east-1")) as client:
        assert model("bedrock/m", key=KEY).endpoint.url.startswith(client.meta.endpoint_url)
