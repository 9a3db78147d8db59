"""What the server says of itself: a page for people, and a description for programs."""

import re

import httpx
import jsonschema
import pytest

from palaver.models import ScriptedModel
from palaver.serve.http import HttpApp
from palaver.serve.ui import AiSdkEndpoint
from palaver.serve.workers import LocalDispatcher
from palaver.swarm import Swarm, SwarmAgent
from tests.swarm.served import served

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(request):
    options = getattr(request, "param", {})
    swarm = Swarm("shop <&>", [SwarmAgent("desk", ScriptedModel(["Moin."]))])
    async with swarm.start() as live, LocalDispatcher(live) as dispatcher:
        routes = AiSdkEndpoint(live).routes("/api/chat")
        app = HttpApp(dispatcher, title=swarm.name, agents=["desk"], routes=routes, **options)
        async with served(app) as (url, _), httpx.AsyncClient(base_url=url) as made:
            yield made


async def test_the_page_names_agents_and_routes_and_loads_nothing_from_elsewhere(client):
    page = await client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "<title>shop &lt;&amp;&gt;</title>" in page.text
    assert "%%" not in page.text
    assert not re.search(r'(src|href)="https?:', page.text)
    assert "/v1/clients/CLIENT/messages" in page.text


@pytest.mark.parametrize("client", [{"token": "t"}], indirect=True)
async def test_the_page_asks_for_a_token_where_one_is_needed(client):
    assert 'id="token"' in (await client.get("/")).text
    assert (await client.get("/openapi.json")).json()["security"] == [{"token": []}]
    assert (await client.get("/", headers={"origin": "https://evil.example"})).status_code == 403


async def test_every_route_that_is_described_is_there_and_answers_as_described(client):
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    schema = document["components"]["schemas"]["Error"]
    for path, operations in document["paths"].items():
        for method in operations:
            if path == "/ag-ui" or path.endswith("/events"):
                continue
            response = await client.request(method.upper(), path.replace("{client}", "ann"))
            assert response.status_code not in {404, 405} or path.endswith("/messages"), (method, path)
            if response.status_code >= 400:
                jsonschema.validate(response.json(), schema)


async def test_the_message_that_is_described_is_answered_as_described(client):
    operation = (await client.get("/openapi.json")).json()["paths"]["/v1/clients/{client}/messages"]["post"]
    body = {"text": "Hello"}
    jsonschema.validate(body, operation["requestBody"]["content"]["application/json"]["schema"])
    answer = (await client.post("/v1/clients/ann/messages", json=body)).json()
    jsonschema.validate(answer, operation["responses"]["200"]["content"]["application/json"]["schema"])
    assert answer["answer"] == "Moin."
