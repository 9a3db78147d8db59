"""A proxy of Starlette and httpx that reads nothing: what a gateway in Python costs before it does anything.

Run as a process: ``python gateway_bare.py PORT UPSTREAM``.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request


def app(upstream: str) -> Starlette:
    """Return the proxy of a server."""
    client = httpx.AsyncClient(timeout=600, limits=httpx.Limits(max_connections=None, max_keepalive_connections=100))

    async def forward(request: Request) -> StreamingResponse:
        body = await request.body()
        sent = client.build_request("POST", upstream + request.url.path, content=body)
        response = await client.send(sent, stream=True)

        async def pieces() -> AsyncIterator[bytes]:
            async for each in response.aiter_bytes():
                yield each
            await response.aclose()

        return StreamingResponse(pieces(), response.status_code, {"content-type": response.headers["content-type"]})

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await client.aclose()

    return Starlette(routes=[Route("/{path:path}", forward, methods=["POST"])], lifespan=lifespan)


if __name__ == "__main__":
    uvicorn.run(app(sys.argv[2]), port=int(sys.argv[1]), log_level="error", access_log=False)
