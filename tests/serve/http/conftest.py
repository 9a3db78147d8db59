"""Servers on a real uvicorn on a free port. The server runs on asyncio, and so do these tests."""

from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint

from palaver.core.factories import assistant, tool_call
from palaver.models.scripted import ScriptedModel
from palaver.serve.http import HttpApp, live_history
from palaver.serve.workers import LocalDispatcher
from palaver.store.memory import MemoryStore
from palaver.swarm import Swarm, SwarmAgent, navigation
from tests.swarm.served import served


@pytest.fixture
def anyio_backend():
    return "asyncio"


class BlockingOperator:
    """An operator who answers on a signal, and reports when a question arrives."""

    def __init__(self):
        self.asked, self.let = anyio.Event(), anyio.Event()
        self.heard = []

    async def __call__(self, place, text):
        self.heard.append(text)
        self.asked.set()
        await self.let.wait()
        return f"held {text}"


class Office:
    """A running server."""

    def __init__(self, live, front, url, http):
        self.live, self.front, self.url, self.http = live, front, url, http

    async def reader(self, client):
        """Wait until somebody reads the events of a client, and return the subscription."""
        with anyio.fail_after(60):
            while True:
                for each in self.live.bus._open:
                    if each.where.client == client:
                        return each
                await checkpoint()

    def ws(self, client):
        return f"{self.url.replace('http', 'ws')}/v1/clients/{client}"

    async def post(self, client, text, **more):
        return await self.http.post(f"/v1/clients/{client}/messages", json={"text": text, **more})


def echo(prompt):
    return f"you said {prompt.messages[-1].text}"


def agents(held):
    """Return three agents: one echoes, streams and hands over, one is plain, one waits for a signal."""

    def desk(prompt):
        last = prompt.messages[-1]
        if last.role == "user" and last.text.startswith("to "):
            return assistant(tool_calls=[tool_call(f"to_{last.text[3:]}", {}, id=f"call-{last.text[3:]}")])
        return f"you said {last.text}"

    return [
        SwarmAgent(
            "desk", ScriptedModel([], then=desk), stream=True, tools=[navigation("sales"), navigation("person")]
        ),
        SwarmAgent("sales", ScriptedModel([], then=lambda prompt: f"sales heard {prompt.messages[-1].text}")),
        SwarmAgent("person", operator=held, operator_timeout=60),
    ]


@pytest.fixture
def office():
    """Start a swarm, a dispatcher and a server."""

    @asynccontextmanager
    async def office_(*, held=None, given=None, store=None, headers=None, most=64, **more):
        swarm = Swarm("office", given or agents(held or BlockingOperator()))
        async with (
            swarm.start(store=store or MemoryStore()) as live,
            LocalDispatcher(live, limit=most) as desk,
        ):
            front = HttpApp(desk, history=live_history(live), **more)
            async with served(front) as (url, _):
                async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as http:
                    yield Office(live, front, url, http)
                front.close()

    return office_


@pytest.fixture
def held():
    return BlockingOperator()
