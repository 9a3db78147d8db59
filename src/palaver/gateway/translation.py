"""Ask a model of another wire: the request in its wire, and its answer in the client's.

Rules:

- Both ways go through the neutral message. What could not be carried stands on the receipt, ``Record.losses``.
- A stream is written as it comes. What goes wrong in its middle is written in it, as the client's wire says it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, final

from msgspec import structs

from palaver import wires
from palaver.core.errors import PalaverError, StreamError
from palaver.core.events import Failed
from palaver.gateway.client_response import ClientResponse
from palaver.models import http
from palaver.models.http import Sender
from palaver.models.language_model import Prompt

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from palaver.gateway.record import Record
    from palaver.models import Model
    from palaver.models.endpoint import HttpCall
    from palaver.models.http import HttpResponse, Timeouts
    from palaver.models.language_model import Answer


async def ask(model: Model, record: Record, opened: AsyncExitStack) -> ClientResponse:
    """Send the client's request to a model; ``opened`` closes the connection. Raises ``PalaverError``."""
    api, stream = record.request.api, record.request.stream
    request = record.request.decoded
    prompt = Prompt(
        messages=request.messages, tools=request.tools, settings=request.settings, provider=request.provider
    )
    tapped = structs.replace(model, http=_Tapped(model.http, record))
    answer = await opened.enter_async_context(tapped.session().ask(prompt, stream=stream, on_notice=record.note_retry))
    if stream:
        headers = {"content-type": api.stream_type}
        return ClientResponse(status=200, headers=headers, body=_streamed(answer, record))
    reply = await answer.finish()
    encoded = wires.get(api.wire).encode_response(structs.replace(reply.response, original=None))
    record.answer, record.losses = reply.response, (*reply.losses, *encoded.losses)
    return ClientResponse(status=200, headers={"content-type": "application/json"}, body=_once(encoded.body))


@final
class _Tapped(Sender):
    """Records what is sent and received."""

    def __init__(self, sender: Sender | None, record: Record) -> None:
        self._sender = sender
        self._record = record

    async def send(self, call: HttpCall, timeouts: Timeouts, /) -> HttpResponse:
        """Send, recording the body and each piece of the answer. Raises as ``Http.send`` does."""
        self._record.sent = b"".join(call.chunks)
        self._record.received.clear()
        response = await http.send(self._sender, call, timeouts)
        response.tap = self._record.note_received
        return response


async def _once(body: bytes) -> AsyncGenerator[bytes]:
    yield body


async def _streamed(answer: Answer, record: Record) -> AsyncGenerator[bytes]:
    """Yield an answer in the client's wire."""
    encoder = wires.get(record.request.api.wire).stream_encoder()
    try:
        async for event in answer:
            if data := encoder.feed(event):
                yield data
    except StreamError as error:
        record.error = error
        yield encoder.feed(Failed(error.kind, error.reason, error.code))
    except PalaverError as error:
        record.error = error
        yield encoder.feed(Failed("provider", str(error)))
    finally:
        record.answer = answer.so_far
    if record.error is None:
        reply = await answer.finish()
        end = encoder.finish()
        record.losses = (*reply.losses, *encoder.losses)
    else:
        end = encoder.finish()
    yield end
