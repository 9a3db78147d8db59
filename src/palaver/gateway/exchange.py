"""One exchange: what a client asked for, and the answer of a model in the client's wire.

Rules:

- A model that speaks the client's wire gets the client's body, byte for byte, with the headers of the wire; only the
  name of the model is replaced, where it is another one. Its answer goes back byte for byte, with its status.
- Any other model gets the request as its own wire says it, and its answer is written in the client's wire. The receipt
  is counted in the header ``palaver-losses``.
- A stream is handed on as it comes.
- Models are asked in the order of their ``Fallback``, which says what an error means for the others. The next one is
  asked only while nothing of an answer was handed on. The last refusal goes to the client.

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
from palaver.core.errors import DecodeError, PalaverError, ProviderError, StreamError, TimedOutError
from palaver.core.events import Failed
from palaver.models import http
from palaver.models.failures import BODY, failure
from palaver.models.http import build_call
from palaver.models.language_model import Prompt
from palaver.models.redaction import without_secrets

if TYPE_CHECKING:
    from palaver.core.request import Loss
    from palaver.gateway.client_api import ClientApi
    from palaver.gateway.router import Chain
    from palaver.models import Model
    from palaver.models.endpoint import HttpCall
    from palaver.models.language_model import Answer
    from palaver.wires._engine.stream_encoder import StreamEncoder

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
    """An answer on its way to the client: its ``body`` is read once, inside the exchange.

    ``error`` is what a refusal in the client's own wire says, whose ``body`` goes on as it is.
    """

    status: int
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]
    model: str
    losses: tuple[Loss, ...] = ()
    error: ProviderError | None = None


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

    def __init__(self, asked: Asked, chain: Chain) -> None:
        """Keep the arguments; nothing is sent yet."""
        self._asked = asked
        self._models, self._fallback = chain
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Answered:
        """Ask until a model answers. Raises ``PalaverError`` of the last one."""
        pending = self._fallback.order()
        while True:
            index = pending.pop(0)
            try:
                answered = await self._ask(self._models[index])
                if answered.error is None:
                    self._fallback.answered(index)
                    return answered
                if not (pending := self._next(index, answered.error, pending)):
                    return answered
                await self._open.aclose()
            except PalaverError as error:
                await self._open.aclose()
                if not (pending := self._next(index, error, pending)):
                    raise
            except BaseException:
                await self._open.aclose()
                raise

    def _next(self, index: int, error: PalaverError, pending: list[int]) -> list[int]:
        """Return the models that are left to be asked after an error of one."""
        hop = self._fallback.hop(index, error)
        if hop == "bigger":
            window = self._models[index].capabilities.window
            return [each for each in pending if self._fallback.may_hold_more(each, window)]
        return [] if hop == "stop" else pending

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
        if 200 <= response.status < 300:  # noqa: PLR2004 (success)
            arriving = _rest(response, first, model.timeouts.idle)
            return Answered(status=response.status, headers=kept, body=arriving, model=model.name)
        rest, _ = await response.read(BODY)
        error = failure(asked.api.wire, response.status, response.headers, first + rest, now=model.clock.date())
        without_secrets(error, secrets)
        return Answered(status=response.status, headers=kept, body=_once(error.body), model=model.name, error=error)

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
