"""Ask a model of another wire: the request in its wire, and its answer in the client's.

Rules:

- Both ways go through the neutral message. What could not be carried stands on the receipt, ``Record.losses``.
- A stream is written as it comes. What goes wrong in its middle is written in it, as the client's wire says it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from msgspec import structs

from palaver import wires
from palaver.core.errors import PalaverError, StreamError
from palaver.core.events import Failed
from palaver.gateway.client_response import ClientResponse
from palaver.gateway.conversations import Conversations
from palaver.models.language_model import Prompt

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from palaver.gateway.record import Record
    from palaver.models import Model
    from palaver.models.language_model import Answer


_CONVERSATIONS: Final = Conversations()


async def ask(model: Model, record: Record, opened: AsyncExitStack) -> ClientResponse:
    """Send the client's request to a model; ``opened`` closes the connection. Raises ``PalaverError``."""
    api, stream = record.request.api, record.request.stream
    conversation = _CONVERSATIONS.take(model, api.wire, record.request.body)
    conversation.record = record
    opened.callback(_CONVERSATIONS.give_back, model, api.wire, conversation)
    request = conversation.request(record.request.body)
    prompt = Prompt(
        messages=request.messages, tools=request.tools, settings=request.settings, provider=request.provider
    )
    answer = await opened.enter_async_context(conversation.session.ask(prompt, stream=stream))
    if stream:
        headers = {"content-type": api.stream_type}
        return ClientResponse(status=200, headers=headers, body=_streamed(answer, record))
    reply = await answer.finish()
    encoded = wires.get(api.wire).encode_response(structs.replace(reply.response, original=None))
    record.answer, record.losses = reply.response, (*reply.losses, *encoded.losses)
    return ClientResponse(status=200, headers={"content-type": "application/json"}, body=_once(encoded.body))


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
