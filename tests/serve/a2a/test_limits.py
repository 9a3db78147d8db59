"""A2A servers that send without end: they are left at a limit, and the turn's error says so."""

# pyright: basic

from contextlib import asynccontextmanager

import anyio.lowlevel
import pytest
from a2a.types import AgentCapabilities, AgentCard, AgentInterface
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from palaver.core.errors import TransportError
from palaver.serve.a2a import a2a_agent, client
from palaver.swarm import Swarm
from tests.swarm.served import served

pytestmark = [pytest.mark.finding("F-105"), pytest.mark.anyio]

LIMIT = 1 << 20
BUFFERS = 32 << 20
"""More than the sockets between two sides hold."""
ENDLESS = 1 << 27
"""What a server sends that is not left; it ends, so that a test without a limit fails and does not hang."""

LIES = {
    "whole": ("application/json", {}, b'{"x":"', b"x" * 65536),
    "line": ("text/event-stream", {}, b"data: ", b"x" * 65536),
    "comments": ("text/event-stream", {}, b"", b": nothing\n" * 1000),
    "packed": ("application/json", {"content-encoding": "gzip"}, b"\x1f\x8b\x08" + bytes(7), b"x" * 65536),
}


@asynccontextmanager
async def lying(lie, *, card):
    sent = [0]
    kind, headers, begin, piece = LIES[lie]

    async def pieces():
        yield begin
        while sent[0] < ENDLESS:
            sent[0] += len(piece)
            yield piece
            await anyio.lowlevel.checkpoint()  # so that the server hears that nobody takes any more

    async def lies(_):
        return StreamingResponse(pieces(), media_type=kind, headers=headers)

    async def honest(request):
        url = f"{request.base_url}"
        told = AgentCard(
            name="theirs", description="theirs", version="1", default_input_modes=["text"],
            default_output_modes=["text"], capabilities=AgentCapabilities(streaming=kind == "text/event-stream"),
            supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        )  # fmt: skip
        return JSONResponse(MessageToDict(told))

    routes = [Route("/.well-known/agent-card.json", lies if card else honest), Route("/", lies, methods=["POST"])]
    async with served(Starlette(routes=routes)) as (url, _):
        yield url, sent


async def failed(url):
    async with Swarm("office", [a2a_agent(url, name="far")]).start() as live, live.session("ann") as session:
        with pytest.raises(TransportError) as raised:
            await session.complete("hello")
    return str(raised.value)


@pytest.fixture(autouse=True)
def _limit(monkeypatch):
    monkeypatch.setattr(client, "LIMIT", LIMIT)


@pytest.mark.parametrize("lie", LIES)
async def test_an_endless_answer_ends_at_the_limit(lie):
    async with lying(lie, card=False) as (url, sent):
        error = await failed(url)
    assert ("the answer is compressed" if lie == "packed" else "more than 1048576 bytes") in error
    assert sent[0] < LIMIT + BUFFERS


async def test_an_endless_card_ends_at_the_limit():
    async with lying("whole", card=True) as (url, sent):
        assert "more than 1048576 bytes" in await failed(url)
    assert sent[0] < LIMIT + BUFFERS
