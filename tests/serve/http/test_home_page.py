"""What the server says of itself: a page for people, and a description for programs."""

import json
import re
import shutil
from pathlib import Path

import anyio
import httpx
import jsonschema
import pytest
from starlette.routing import Route

from palaver.core.factories import assistant, tool_call
from palaver.models import ScriptedModel
from palaver.serve.http import HttpApp, openapi
from palaver.serve.ui import AgUiEndpoint, AiSdkEndpoint
from palaver.serve.workers import LocalDispatcher
from palaver.swarm import Swarm, SwarmAgent
from tests.serve.http.test_approvals import Till
from tests.swarm.served import served

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("home_page.mjs")


@pytest.fixture
async def client(request):
    options = getattr(request, "param", {})
    swarm = Swarm("shop <&>", [SwarmAgent("desk", ScriptedModel(["Moin."] * 3))])
    async with swarm.start() as live, LocalDispatcher(live) as dispatcher:
        routes = [*AiSdkEndpoint(live).routes("/api/chat"), *AgUiEndpoint(live).routes("/ag-ui")]
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
    own = ["GET /v1/clients/CLIENT/messages"]
    web = [f"{each} {path}" for path in ("/api/chat", "/ag-ui") for each in ("POST", "GET", "DELETE")]
    routes = [*own, *(each if each.startswith("POST") else f"{each}/ID" for each in web)]
    for route in (*routes, "GET /api/chat/ID/stream"):
        assert f"<code>{route}</code>" in page.text


@pytest.mark.parametrize("client", [{"token": "t"}], indirect=True)
async def test_the_page_asks_for_a_token_where_one_is_needed(client):
    assert 'id="token"' in (await client.get("/")).text
    assert (await client.get("/openapi.json")).json()["security"] == [{"token": []}]
    assert (await client.get("/", headers={"origin": "https://evil.example"})).status_code == 403


def routes_of(app):
    """Each route of an application as a method and a path; that of a WebSocket begins as a GET."""
    return sorted(
        (method, re.sub(r":\w+", "", route.path))
        for route in app._app.routes
        for method in getattr(route, "methods", {"GET"}) - {"HEAD"}
    )


async def test_every_route_is_described_and_every_description_is_of_a_route():
    async with Swarm("shop", [SwarmAgent("desk", ScriptedModel([]))]).start() as live:
        dispatcher = LocalDispatcher(live)
        web = [*AiSdkEndpoint(live).routes("/api/chat"), *AgUiEndpoint(live).routes("/ag-ui")]
        own = [Route("/own/{name:path}", lambda _: None, methods=["GET", "PUT"])]
        alike = AiSdkEndpoint(live).routes("/api-chat")
        for routes, count in (([], 10), (web, 18), ([*web, *AiSdkEndpoint(live).routes("/"), *own, *alike], 28)):
            app = HttpApp(dispatcher, routes=routes)
            found = openapi.document("shop", app._app.routes, secured=False)["paths"]
            described = [(method.upper(), path) for path, operations in found.items() for method in operations]
            assert sorted(described) == sorted(set(routes_of(app)))
            assert len(described) == count
            ids = [each["operationId"] for operations in found.values() for each in operations.values()]
            assert len(set(ids)) == count
            for path, operations in found.items():
                for each in operations.values():
                    named = {one["name"] for one in each.get("parameters", ()) if one["in"] == "path"}
                    assert named == set(re.findall(r"{(\w+)}", path))
                    assert each["responses"].keys() > {"default"}


SAMPLES = {"client": "ann", "id": "ann"}


async def test_every_route_that_is_described_answers_as_described(client):
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    schema = document["components"]["schemas"]["Error"]
    for path, operations in document["paths"].items():
        for method, each in operations.items():
            if "101" in each["responses"] or path.endswith("/events"):
                continue
            response = await client.request(method.upper(), path.format(**SAMPLES))
            status = str(response.status_code)
            if status in {"404", "405"}:
                assert path.endswith("/messages"), (method, path)  # this server keeps no history
            answer = each["responses"].get(status, each["responses"]["default"])
            for kind, content in answer.get("content", {}).items():
                assert response.headers["content-type"].startswith(kind)
                if kind == "application/json":
                    jsonschema.validate(response.json(), schema if "$ref" in content["schema"] else content["schema"])
            assert response.status_code < 400 or response.json()["error"]["code"]


async def test_a_body_of_the_web_routes_is_answered_as_described(client):
    paths = (await client.get("/openapi.json")).json()["paths"]
    said = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}], "content": "hi"}
    for path, body in (
        ("/api/chat", {"id": "ann", "messages": [said]}),
        ("/ag-ui", {"threadId": "bob", "runId": "r", "messages": [said]}),
    ):
        operation = paths[path]["post"]
        jsonschema.validate(body, operation["requestBody"]["content"]["application/json"]["schema"])
        for lacking in body:
            assert lacking in operation["requestBody"]["content"]["application/json"]["schema"]["required"]
            refused = await client.post(path, json={key: each for key, each in body.items() if key != lacking})
            assert (refused.status_code, "400" in operation["responses"]) == (400, True)
        answer = await client.post(path, json=body)
        assert answer.headers["content-type"].startswith(*operation["responses"]["200"]["content"])
        assert (await client.get(f"{path}/ann/stream")).status_code == 204
        assert "204" in paths[f"{path}/{{id}}/stream"]["get"]["responses"]


async def test_the_message_that_is_described_is_answered_as_described(client):
    operation = (await client.get("/openapi.json")).json()["paths"]["/v1/clients/{client}/messages"]["post"]
    body = {"text": "Hello"}
    jsonschema.validate(body, operation["requestBody"]["content"]["application/json"]["schema"])
    answer = (await client.post("/v1/clients/ann/messages", json=body)).json()
    jsonschema.validate(answer, operation["responses"]["200"]["content"]["application/json"]["schema"])
    assert answer["answer"] == "Moin."


async def clicked(url, *words):
    """What the log of the page shows: after a message, and after each button that was clicked."""
    node = shutil.which("node") or pytest.skip("no Node")
    done = await anyio.run_process([node, str(SCRIPT), url, *words])
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("button", "told"),
    [("approve", "So: Bob <b> has 100 EUR"), ("reject", "So: "), ("answer", "So: in cash")],
)
async def test_the_page_shows_a_call_that_waits_and_decides_it(office, button, told):
    till = Till()
    async with office(given=till.agents) as o:
        asked, decided = await clicked(o.url, "Pay Bob.", button)
        call = 'pay {"to":"Bob <b>","euros":100}\nIt costs money.\n'
        assert asked == [
            ["you", "Pay Bob."],
            ["agent", "A call waits for a decision."],
            ["pending", call, "approve", "reject", "answer"],
        ]
        assert [kind for kind, *_ in decided] == ["you", "agent", "you", "agent"]
        assert decided[2][1].startswith(f"{button} pay")
        assert decided[3][1].startswith(told)
        assert till.paid == ([100] if button == "approve" else [])


async def test_the_page_escapes_what_no_one_sees(office):
    hidden = "Bob\u202e\u2028\U000e0041"

    def asking(prompt):
        return assistant(tool_calls=[tool_call("pay", {"to": hidden, "euros": 1}, id="c1")])

    agent = Till().agents[0].replace(model=ScriptedModel([asking]))
    async with office(given=[agent]) as o:
        (asked,) = await clicked(o.url, "Pay Bob.")
        assert asked[-1][1].startswith(r'pay {"to":"Bob\u{202e}\u{2028}\u{e0041}","euros":1}')
