"""A stream as one JSON list, whose items are the events: how Google's API answers where the client asks for no SSE.

Models are asked for events all the same, which can be read as they come.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Final

from msgspec import structs

from palaver.stream.sse import SSEReader

if TYPE_CHECKING:
    from palaver.gateway.client_response import ClientResponse

_EVENTS: Final = "text/event-stream"


def as_list(response: ClientResponse) -> ClientResponse:
    """Return an answer of events as a list of them; any other answer as it is."""
    if not response.headers.get("content-type", "").startswith(_EVENTS):
        return response
    headers = {**response.headers, "content-type": "application/json; charset=UTF-8"}
    return structs.replace(response, headers=headers, body=_listed(response.body))


async def _listed(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the items as their events come. Raises ``DecodeError`` for what is no stream of events."""
    reader, before = SSEReader(), b"["
    async for data in body:
        for frame in reader.feed(data):
            yield before + frame.data
            before = b",\r\n"
        if reader.error is not None:
            raise reader.error
    for frame in reader.finish():
        yield before + frame.data
        before = b",\r\n"
    yield b"]" if before != b"[" else b"[]"
