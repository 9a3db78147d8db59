"""Ask a model that speaks the client's wire: the client's own body goes out, and the model's own answer comes back.

Rules:

- The body goes out byte for byte, with the headers of the wire; only the name of the model is replaced, where it is
  another one, and reasoning that a model of another wire made is left out, which a real provider refuses.
- A body that names a model more than once is written anew with one name: servers differ in which one they take, and
  whether ``Model`` counts, so another model could be asked than the one that was allowed.
- Until the first byte of an answer came, a failure may be retried by the policy of the model; afterwards none is.
- The answer goes back byte for byte as it comes, with its status and the headers of the wire. Secrets are masked in
  a refusal.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import anyio
import msgspec
from msgspec import Struct

from palaver import wires
from palaver.core.errors import DecodeError, PalaverError, TimedOutError
from palaver.core.events import Failed
from palaver.gateway.client_api import ERROR_STATUSES
from palaver.gateway.client_response import ClientResponse, once
from palaver.gateway.http_io import body_fault
from palaver.gateway.patterns import LONGEST_NAME
from palaver.gateway.proof_envelope import MARKER
from palaver.gateway.translation import replayable
from palaver.models import http
from palaver.models.failures import BODY, failure
from palaver.models.http import build_call, with_retries
from palaver.models.redaction import without_secrets

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from palaver.gateway.client_api import ClientApi
    from palaver.gateway.record import Record
    from palaver.models import Model
    from palaver.models.endpoint import HttpCall

_ENVELOPE: Final = MARKER.encode()
_REFUSAL_SECONDS: Final = 5.0
"""The most seconds to wait for the body of a refusal."""
_ANSWERS: Final = frozenset(range(200, 300)) - {204, 205}
"""The statuses of answers: those of success that have a body."""
_IDENTITY: Final = {"accept-encoding": "identity"}
_NAME: Final = b'"model"'
_LETTERS: Final = (b"\\u004", b"\\u006")
"""How a name of a field may hide letters."""
_MODEL: Final = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')


class _Head(Struct):
    """What is read of every body."""

    model: str | None = None
    stream: bool | None = None


_HEAD: Final = msgspec.json.Decoder(_Head)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_head(body: bytes, api: ClientApi, *, model: str | None, stream: bool | None) -> tuple[str, bool]:
    """Return the model and whether a stream is asked for: what the path says, or else the body.

    Raises ``DecodeError``.
    """
    try:
        head = _HEAD.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(body_fault(body, error), source=api.wire) from None
    name = head.model if model is None else model
    if not name:
        raise DecodeError("no model is named", path="model", source=api.wire)
    if len(name) > LONGEST_NAME:
        raise DecodeError(f"a name has up to {LONGEST_NAME} characters", path="model", source=api.wire)
    wanted = stream if stream is not None else head.stream
    return name, api.streams_by_default if wanted is None else wanted


def with_model(body: bytes, name: str) -> bytes:
    """Return a body that names another model, and is else the same. Raises ``DecodeError``."""
    new = msgspec.json.encode(name)
    if _names_several(body):
        return _with_one_model(body, new)
    if _HEAD.decode(body).model == name:
        return body
    for found in _MODEL.finditer(body):  # the first is nearly always the one; those inside other values are passed over
        made = b"".join((body[: found.start(1)], new, body[found.end(1) :]))
        if _HEAD.decode(made).model == name:
            return made
    raise DecodeError("the name of the model was not found", path="model")


def _names_several(body: bytes) -> bool:
    """Return whether a server may find more than one name of a model in a body, also as ``Model``."""
    lower = body.lower()
    if any(each in lower for each in _LETTERS):
        return True
    count = lower.count(_NAME)
    if count <= 1:
        return False
    fields = _FIELDS.decode(body)
    inside = sum([bytes(each).lower().count(_NAME) for each in fields.values()])
    return count - inside > 1  # of two fields with one name the decoder returns the last


def _with_one_model(body: bytes, name: bytes) -> bytes:
    others = {each: value for each, value in _FIELDS.decode(body).items() if each.casefold() != "model"}
    return msgspec.json.encode({"model": msgspec.Raw(name), **others})


async def ask(model: Model, record: Record, opened: AsyncExitStack) -> ClientResponse:
    """Send the client's request to a model, as often as its policy allows; ``opened`` closes the connection.

    Raises ``PalaverError``.
    """
    request, endpoint = record.request, model.endpoint
    address = endpoint.stream_url if request.stream and endpoint.stream_url is not None else endpoint.url
    url = address.replace("{model}", quote(model.id, safe=""))
    if request.query:
        url += f"{'&' if '?' in url else '?'}{request.query}"
    body = request.body
    if _ENVELOPE in body:
        body, record.losses = replayable(record)
    record.sent = with_model(body, model.id) if endpoint.names_model else body
    refusal: ClientResponse | None = None

    async def attempt() -> ClientResponse:
        nonlocal refusal
        await opened.aclose()
        response = await _try_once(model, url, record, opened)
        if response.error is not None:
            refusal = response
            raise response.error
        return response

    try:
        return await with_retries(model, attempt, record.note_retry)
    except PalaverError as error:
        if refusal is None or refusal.error is not error:
            raise
        return refusal


async def _try_once(model: Model, url: str, record: Record, opened: AsyncExitStack) -> ClientResponse:
    request = record.request
    own = {name: text for name, text in request.headers.items() if name.startswith(request.api.request_headers)}
    secrets: list[str] = []
    call = await build_call(model, url, (record.sent,), secrets=secrets, headers=own | _IDENTITY)
    begun = anyio.current_time()
    response, first = await _begin(model, call, record, opened)
    headers = {name: text for name, text in response.headers.items() if _is_of_wire(name, request.api)}
    if response.status in _ANSWERS:
        if response.headers.get("content-type", "").startswith("text/html"):
            raise DecodeError("an HTML page instead of an answer", source=model.name)
        times = model.timeouts
        body = (
            _streamed(response, first, record, times.idle)
            if request.stream
            else _whole(response, first, begun + times.whole)
        )
        return ClientResponse(status=response.status, headers=headers, body=body)
    rest = b""
    with anyio.move_on_after(_REFUSAL_SECONDS), suppress(PalaverError):
        rest, _ = await response.read(BODY)
    error = failure(request.api.wire, response.status, response.headers, first + rest, now=model.clock.date())
    without_secrets(error, secrets)
    if response.status not in ERROR_STATUSES:
        raise error
    return ClientResponse(status=response.status, headers=headers, body=once(error.body), error=error)


async def _begin(
    model: Model, call: HttpCall, record: Record, opened: AsyncExitStack
) -> tuple[http.HttpResponse, bytes]:
    """Send a request; return the response with its first bytes."""
    patience = model.timeouts.first_token if record.request.stream else model.timeouts.whole
    with anyio.move_on_after(patience):
        response = await http.send(model.http, call, model.timeouts)
        opened.push_async_callback(response.aclose)
        record.forget_received()
        response.tap = record.note_received
        return response, await response.chunk()
    raise TimedOutError(f"{model.name}: no answer within {patience:g} s", phase="first_token")


def _is_of_wire(name: str, api: ClientApi) -> bool:
    return name in {"content-type", "retry-after"} or name.startswith(api.response_headers)


async def _streamed(response: http.HttpResponse, first: bytes, record: Record, idle: float) -> AsyncGenerator[bytes]:
    """Yield a stream as it comes. What breaks off between two events ends with an error in the client's wire.

    Raises ``TransportError`` for a stream that breaks off inside an event, also when nothing comes for too long: the
    client then sees that the connection breaks off.
    """
    data = last = first
    try:
        while data:
            yield data
            last = data
            data = await _next(response, idle)
    except PalaverError as error:
        if not record.request.api.ends_event(last):
            raise
        record.error = error
        yield wires.get(record.request.api.wire).stream_encoder().feed(Failed("provider", str(error)))


async def _whole(response: http.HttpResponse, first: bytes, deadline: float) -> AsyncGenerator[bytes]:
    """Yield the body of an answer as it comes. Raises ``TransportError``, also for one that takes too long."""
    data = first
    while data:
        yield data
        data = await _next(response, deadline - anyio.current_time())


async def _next(response: http.HttpResponse, seconds: float) -> bytes:
    with anyio.move_on_after(seconds):
        return await response.chunk()
    raise TimedOutError("the answer did not go on in time", phase="idle")
