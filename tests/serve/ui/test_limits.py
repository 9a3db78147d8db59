"""The web routes of a server are under the limits and the names of its other routes."""

from contextlib import ExitStack, asynccontextmanager
from functools import partial

import anyio
import httpx
import pytest
from starlette.applications import Starlette

from palaver import Agent
from palaver.cli.serve import AccessOptions, ServeOptions
from palaver.cli.server import _in_process
from palaver.models import FunctionModel, ScriptedModel
from palaver.serve.http import ClientLimiter, HttpApp, Limits
from palaver.serve.ui import AgUiEndpoint, AiSdkEndpoint
from palaver.serve.workers import LocalDispatcher
from palaver.store.memory import MemoryStore
from palaver.swarm import Swarm, SwarmAgent
from tests.serve.ui.test_endpoints import agui, chunks, ui

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}
V1, CHAT, AG_UI = "/v1/clients/{}/messages", "/api/chat", "/ag-ui"


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Slow:
    """A model that answers when it may."""

    def __init__(self):
        self.asked, self.let = anyio.Event(), anyio.Event()

    async def __call__(self, _prompt):
        self.asked.set()
        await self.let.wait()
        return "well"


def swarm(model=None):
    async def answer(_prompt):
        return "well"

    return Swarm("shop", [SwarmAgent("desk", FunctionModel(model or answer))])


def web(app):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


@asynccontextmanager
async def shop(limits, model=None):
    """A server with the web routes, in which all count together."""
    limiter = ClientLimiter(limits)
    async with swarm(model).start() as live, LocalDispatcher(live) as dispatcher:
        routes = [
            *AiSdkEndpoint(live, prefix="", limits=limiter).routes(CHAT),
            *AgUiEndpoint(live, prefix="", limits=limiter).routes(AG_UI),
        ]
        async with web(HttpApp(dispatcher, limits=limiter, routes=routes)) as http:
            yield http


def posts(http, client):
    """A request of each kind for a client."""
    return {
        "v1": partial(http.post, V1.format(client), json={"text": "hi"}),
        "ai sdk": partial(http.post, CHAT, json=ui("hi", id=client)),
        "ag-ui": partial(http.post, AG_UI, json=agui("hi") | {"threadId": client}),
        "load": partial(http.get, f"{CHAT}/{client}"),
        "read again": partial(http.get, f"{AG_UI}/{client}/stream"),
        "stop": partial(http.delete, f"{AG_UI}/{client}"),
    }


def refused(response, status, code):
    assert (response.status_code, response.json()["error"]["code"]) == (status, code), response.text
    assert set(response.json()["error"]) == {"code", "message"}
    return response


@pytest.mark.parametrize("kind", ["v1", "ai sdk", "ag-ui", "load", "read again", "stop"])
async def test_requests_of_a_client_are_counted_together_at_all_routes(kind):
    async with shop(Limits(rate=0.01, burst=3)) as http:
        for each in ("v1", "ai sdk", "load"):
            assert (await posts(http, "ann")[each]()).status_code == 200
        assert 90 <= int(refused(await posts(http, "ann")[kind](), 429, "rate_limit").headers["retry-after"]) <= 100
        assert (await posts(http, "bob")[kind]()).status_code in {200, 204}


async def test_waiting_messages_and_readers_are_counted():
    slow = Slow()
    async with shop(Limits(waiting=1, streams=1), slow) as http, anyio.create_task_group() as tasks:
        tasks.start_soon(posts(http, "ann")["ai sdk"])
        await slow.asked.wait()
        refused(await posts(http, "ann")["v1"](), 429, "busy")
        again = partial(http.get, f"{CHAT}/ann/stream")
        answers = []

        async def read():
            answers.append(await again())

        for _ in range(2):
            tasks.start_soon(read)
        with anyio.fail_after(60):
            while not answers:
                await anyio.lowlevel.checkpoint()
        refused(answers[0], 429, "busy")
        slow.let.set()
    assert chunks(answers[1])[-1]["type"] == "finish"
    slow = Slow()
    async with shop(Limits(waiting=1), slow) as http, anyio.create_task_group() as tasks:
        tasks.start_soon(posts(http, "ann")["v1"])
        await slow.asked.wait()
        assert refused(await posts(http, "ann")["ag-ui"](), 429, "busy").headers["retry-after"] == "1"
        slow.let.set()


@pytest.mark.parametrize("what", ["start", "body", "end"])
async def test_a_reader_who_takes_nothing_leaves(what):
    model = FunctionModel(Slow()) if what == "body" else ScriptedModel(["well"])
    endpoint = AiSdkEndpoint(Agent(model), resume=False, limits=Limits(io_timeout=0.01))
    body = [{"type": "http.request", "body": httpx.Request("POST", "http://x", json=ui("hi")).content}]

    async def receive():
        return body.pop() if body else await anyio.sleep_forever()

    async def send(message):
        if what == {"http.response.start": "start"}.get(message["type"], "body" if message.get("more_body") else "end"):
            await anyio.sleep_forever()

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/chat",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    with anyio.fail_after(60):
        await Starlette(routes=endpoint.routes("/chat"))(scope, receive, send)
    assert not endpoint._answers


@pytest.mark.parametrize("name", ["a b", "shared", "ä", "x/y", "x" * 129])
async def test_the_server_refuses_the_same_names_and_bodies_at_all_routes(name):
    options = ServeOptions("", swarm(), "127.0.0.1", 0, None, None, 0, AccessOptions(), None)
    async with _in_process(options, MemoryStore()) as (app, _), web(app) as http:
        for kind, post in posts(http, name).items():
            if (kind, name) != ("v1", "x/y"):  # it is no name in a path
                assert "client" in refused(await post(), 400, "decode").text or len(name) > 100
        for path in (V1.format("ann"), CHAT, AG_UI):
            refused(await http.post(path, content=b"x" * 262_145, headers=JSON), 413, "too_large")
        with ExitStack() as waiting:
            for _ in range(Limits().waiting):
                waiting.enter_context(app._turns.limiter.pending("ann"))
            for kind in ("v1", "ai sdk", "ag-ui"):
                refused(await posts(http, "ann")[kind](), 429, "busy")
