"""Clouds by name: their addresses come from the environment."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver import wires
from palaver.core.errors import AuthenticationError, UnknownNameError
from palaver.models import names
from palaver.models.endpoint import HttpCall
from palaver.models.http import Http
from palaver.models.http_model import Model
from palaver.models.language_model import complete
from palaver.models.providers.azure import AzureCredentials, resource
from tests.loopback import serve

VARIABLES = (
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    "GOOGLE_CLOUD_LOCATION",
    "GOOGLE_CLOUD_REGION",
    "CLOUD_ML_REGION",
    "GOOGLE_CLOUD_PROJECT",
    "ANTHROPIC_VERTEX_PROJECT_ID",
    "GOOGLE_VERTEX_BASE_URL",
    "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_AD_TOKEN",
    "AZURE_OPENAI_ENDPOINT",
    "OPENAI_API_VERSION",
)
CALL = HttpCall("POST", "https://x/", {}, ())


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "told", "url"),
    [
        (
            "bedrock/m",
            {"AWS_DEFAULT_REGION": "eu-west-1"},
            "https://bedrock-runtime.eu-west-1.amazonaws.com/model/{model}/converse",
        ),
        (
            "bedrock-anthropic/m",
            {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "eu-west-1"},
            "https://bedrock-runtime.us-east-1.amazonaws.com/model/{model}/invoke",
        ),
        (
            "vertex/m",
            {"GOOGLE_CLOUD_PROJECT": "pr"},
            "https://aiplatform.googleapis.com/v1/projects/pr/locations/global/publishers/google/models/{model}:generateContent",
        ),
        (
            "vertex-anthropic/m",
            {"GOOGLE_CLOUD_PROJECT": "pr", "CLOUD_ML_REGION": "us-east5"},
            "https://us-east5-aiplatform.googleapis.com/v1/projects/pr/locations/us-east5/publishers/anthropic/models/{model}:rawPredict",
        ),
        (
            "vertex/m",
            {"GOOGLE_CLOUD_PROJECT": "pr", "GOOGLE_VERTEX_BASE_URL": "https://proxy/"},
            "https://proxy/v1/projects/pr/locations/global/publishers/google/models/{model}:generateContent",
        ),
        (
            "azure/m",
            {"AZURE_OPENAI_ENDPOINT": "https://res.openai.azure.com/"},
            "https://res.openai.azure.com/openai/v1/chat/completions",
        ),
        (
            "azure-deployments/m",
            {"AZURE_OPENAI_ENDPOINT": "https://res.openai.azure.com/openai/v1/", "OPENAI_API_VERSION": "2024-10-21"},
            "https://res.openai.azure.com/openai/deployments/{model}/chat/completions?api-version=2024-10-21",
        ),
    ],
)
def test_an_address_is_filled_from_the_environment(name, told, url, monkeypatch):
    for variable, value in told.items():
        monkeypatch.setenv(variable, value)
    assert names.resolve(name).endpoint.url == url


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bedrock/m", "bedrock: no region: set AWS_REGION or AWS_DEFAULT_REGION, or pass url="),
        ("vertex/m", "vertex: no project: set GOOGLE_CLOUD_PROJECT or ANTHROPIC_VERTEX_PROJECT_ID"),
        ("azure/m", "azure: no endpoint: set AZURE_OPENAI_ENDPOINT, or pass url="),
    ],
)
def test_what_is_missing_in_an_address_is_named(name, said):
    with pytest.raises(UnknownNameError) as caught:
        names.resolve(name)
    assert str(caught.value) == said


def test_responses_at_azure():
    found = names.resolve("azure/m", url="https://res", wire="openai_responses").endpoint
    assert (found.wire, found.url) == ("openai_responses", "https://res/openai/v1/responses")


@pytest.mark.parametrize("text", ["https://r", "https://r/", "https://r/openai", "https://r/openai/v1/"])
def test_an_endpoint_of_azure_is_taken_as_people_write_it(text):
    assert resource(text) == "https://r"


@pytest.mark.anyio
async def test_a_key_or_a_token_for_azure(monkeypatch):
    with pytest.raises(AuthenticationError, match=r"^azure: no API key: set AZURE_OPENAI_API_KEY or AZURE_OPENAI_AD_T"):
        await AzureCredentials().headers(CALL)
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "entra")
    assert await AzureCredentials().headers(CALL) == {"Authorization": "Bearer entra"}
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "a-key")
    assert await AzureCredentials().headers(CALL) == {"api-key": "a-key"}
    assert await AzureCredentials("mine").headers(CALL) == {"api-key": "mine"}
    assert "mine" not in repr(AzureCredentials("mine"))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("azure", "/openai/v1/chat/completions"),
        ("azure-deployments", "/openai/deployments/my%20gpt/chat/completions?api-version=2024-10-21"),
    ],
)
async def test_azure_is_asked_in_both_forms(name, path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    answer = p.Response(p.assistant("Hi.").replace(finish_reason="stop"))
    body = wires.get("openai_chat").encode_response(answer).body
    with serve(body, content_type="application/json") as server:
        found = names.resolve(f"{name}/my gpt", key="k", url=server.url)
        async with Http() as http:
            model = Model(
                name=found.name, id=found.id, endpoint=found.endpoint, credentials=found.credentials, http=http
            )
            reply = await complete(model, p.Request(messages=(p.user("Hi?"),)))
    assert reply.response.message.text == "Hi."
    ((asked, sent),) = server.requests
    assert asked == path
    assert json.loads(sent)["model"] == "my gpt"
