"""One exchange: what a client asked for, and the answer of a model in the client's wire.

Rules:

- A model that speaks the client's wire gets the client's body, byte for byte, with the headers of the wire; only the
  name of the model is replaced, where it is another one. Its answer goes back byte for byte, with its status.
- Any other model gets the request as its own wire says it, and its answer is written in the client's wire. The receipt
  is counted in the header ``palaver-losses``.
- A stream is handed on as it comes.
- Models are asked in order. The next one is asked while nothing of an answer was handed on, and only for errors that
  another model may not have (``Fallback``).

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import anyio
import msgspec
from msgspec import Struct, structs

from palaver import wires
from palaver.core.errors import DecodeError, PalaverError, StreamError, TimedOutError
from palaver.core.events import Failed
from palaver.models import http
from palaver.models.http import build_call
from palaver.models.language_model import Prompt

if TYPE_CHECKING:
    from palaver.core.request import Loss
    from palaver.gateway.client_api import ClientApi
    from palaver.models import Model
    from palaver.models.endpoint import HttpCall
    from palaver.models.language_model import Answer
    from palaver.wires._engine.stream_encoder import StreamEncoder

_DROPPED: Final = frozenset({"connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding"})
"""Headers of an answer that belong to one connection."""
_IDENTITY: Final = {"accept-encoding": "identity"}
_MODEL: Final = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')


class _Head(Struct):
    """What is read of every body."""

    model: str | None = None
    stream: bool | None = None


_HEAD: Final = msgspec.json.Decoder(_Head)


class Asked(Struct, frozen=True, kw_only=True):
    """A request as it came. ``headers`` are in lower case; ``query`` is without the key."""

    api: ClientApi
    name: str
    stream: bool
    body: bytes
    headers: Mapping[str, str] = {}
    query: str = ""


class Answered(Struct, frozen=True, kw_only=True):
    """An answer on its way to the client: its ``body`` is read once, inside the exchange."""

    status: int
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]
    model: str
    losses: tuple[Loss, ...] = ()


def read_head(body: bytes, api: ClientApi, *, model: str | None, stream: bool | None) -> tuple[str, bool]:
    """Return the model and whether a stream is asked for: what the path says, or else the body.

    Raises ``DecodeError``.
    """
    try:
        head = _HEAD.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error), source=api.wire) from None
    name = head.model if model is None else model
    if not name:
        raise DecodeError("no model is named", path="model", source=api.wire)
    wanted = stream if stream is not None else head.stream
    return name, api.streams_by_default if wanted is None else wanted


def with_model(body: bytes, name: str) -> bytes:
    """Return a body that names another model, and is else the same. Raises ``DecodeError``."""
    if _HEAD.decode(body).model == name:
        return body
    new = msgspec.json.encode(name)
    for found in _MODEL.finditer(body):  # the first is nearly always the one; those inside other values are passed over
        made = b"".join((body[: found.start(1)], new, body[found.end(1) :]))
        if _HEAD.decode(made).model == name:
            return made
    raise DecodeError("the name of the model was not found", path="model")


class Exchange:
    """Asks models. An async context manager, inside which the answer is read."""

    def __init__(self, asked: Asked, models: tuple[Model, ...]) -> None:
        """Keep the arguments; nothing is sent yet."""
        self._asked = asked
        self._models = models
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Answered:
        """Ask until a model answers. Raises ``PalaverError`` of the last one."""
        for place, each in enumerate(self._models):
            try:
                return await self._ask(each)
            except PalaverError as error:
                await self._open.aclose()
                if place + 1 == len(self._models) or not error.retryable:
                    raise
            except BaseException:
                await self._open.aclose()
                raise
        raise AssertionError  # there is one model at least

    async def __aexit__(self, *_: object) -> None:
        """Close the connection to the model."""
        with anyio.CancelScope(shield=True):
            await self._open.aclose()

    async def _ask(self, model: Model) -> Answered:
        same = model.endpoint.wire.partition(":")[0] == self._asked.api.wire
        return await (self._forward(model) if same else self._translate(model))

    # -- the same wire -------------------------------------------------------------------------------------------------

    async def _forward(self, model: Model) -> Answered:
        asked, endpoint = self._asked, model.endpoint
        address = endpoint.stream_url if asked.stream and endpoint.stream_url is not None else endpoint.url
        url = address.replace("{model}", quote(model.id, safe=""))
        if asked.query:
            url += f"{'&' if '?' in url else '?'}{asked.query}"
        body = with_model(asked.body, model.id) if endpoint.names_model else asked.body
        own = {name: text for name, text in asked.headers.items() if name.startswith(asked.api.request_headers)}
        secrets: list[str] = []
        call = await build_call(model, url, (body,), secrets=secrets, headers=own | _IDENTITY)
        response, first = await self._begin(model, call)
        kept = {name: text for name, text in response.headers.items() if _is_kept(name, asked.api)}
        return Answered(
            status=response.status, headers=kept, body=_rest(response, first, model.timeouts.idle), model=model.name
        )

    async def _begin(self, model: Model, call: HttpCall) -> tuple[http.HttpResponse, bytes]:
        """Send a request; return the response with its first bytes."""
        patience = model.timeouts.first_token if self._asked.stream else model.timeouts.whole
        with anyio.move_on_after(patience):
            response = await http.send(model.http, call, model.timeouts)
            self._open.push_async_callback(response.aclose)
            return response, await response.chunk()
        raise TimedOutError(f"{model.name}: no answer within {patience:g} s", phase="first_token")

    # -- another wire --------------------------------------------------------------------------------------------------

    async def _translate(self, model: Model) -> Answered:
        asked = self._asked
        wire = wires.get(asked.api.wire)
        request = wire.decode_request(asked.body)
        prompt = Prompt(
            messages=request.messages, tools=request.tools, settings=request.settings, provider=request.provider
        )
        answer = await self._open.enter_async_context(model.session().ask(prompt, stream=asked.stream))
        if asked.stream:
            return Answered(
                status=200,
                headers={"content-type": asked.api.stream_type},
                body=_written(answer, wire.stream_encoder()),
                model=model.name,
            )
        reply = await answer.finish()
        encoded = wire.encode_response(structs.replace(reply.response, original=None))
        return Answered(
            status=200,
            headers={"content-type": "application/json"},
            body=_once(encoded.body),
            model=model.name,
            losses=(*reply.losses, *encoded.losses),
        )


def _is_kept(name: str, api: ClientApi) -> bool:
    return name in {"content-type", "retry-after"} or name.startswith(api.response_headers)


async def _rest(response: http.HttpResponse, first: bytes, idle: float) -> AsyncGenerator[bytes]:
    """Yield the body of an answer as it comes. Raises ``TransportError``, also when nothing comes for too long."""
    data = first
    while data:
        yield data
        data = await _next(response, idle)


async def _next(response: http.HttpResponse, idle: float) -> bytes:
    with anyio.move_on_after(idle):
        return await response.chunk()
    raise TimedOutError(f"no data for {idle:g} s", phase="idle")


async def _once(body: bytes) -> AsyncGenerator[bytes]:
    yield body


async def _written(answer: Answer, encoder: StreamEncoder) -> AsyncGenerator[bytes]:
    """Yield an answer in the client's wire. What goes wrong in its middle is written in it, as the wire says it."""
    try:
        async for event in answer:
            if data := encoder.feed(event):
                yield data
    except StreamError as error:
        yield encoder.feed(Failed(error.kind, error.reason, error.code))
    except PalaverError as error:
        yield encoder.feed(Failed("provider", str(error)))
    yield encoder.finish()
