"""Ask a model that speaks the client's wire: the client's own body goes out, and the model's own answer comes back.

Rules:

- The body goes out byte for byte, with the headers of the wire; only the name of the model is replaced
  (``request_body``), where it is another one, and reasoning that a model of another wire made is left out, which a real
  provider refuses.
- A stream that is empty, or begins with an error, is no answer.
- Until the first byte of an answer came, a failure may be retried by the policy of the model; afterwards none is.
- The answer goes back byte for byte as it comes, with its status and the headers of the wire. Secrets are masked in
  a refusal.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import anyio

from palaver import wires
from palaver.core.errors import DecodeError, PalaverError, ProviderError, StreamError, TimedOutError, TransportError
from palaver.core.events import Failed
from palaver.gateway.client_api import ERROR_STATUSES, last_bytes
from palaver.gateway.client_response import ClientResponse, once
from palaver.gateway.proof_envelope import holds_envelope
from palaver.gateway.request_body import with_model
from palaver.gateway.translation import replayable
from palaver.models import http
from palaver.models.failures import BODY, failure, inner_failure
from palaver.models.http import build_call, with_retries
from palaver.models.http_model import has_content
from palaver.models.redaction import without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AsyncExitStack

    from palaver.gateway.client_api import ClientApi
    from palaver.gateway.record import Record
    from palaver.models import Model
    from palaver.models.endpoint import HttpCall

_REFUSAL_SECONDS: Final = 5.0
"""The most seconds to wait for the body of a refusal."""
_ANSWERS: Final = frozenset(range(200, 300)) - {204, 205}
"""The statuses of answers: those of success that have a body."""
_IDENTITY: Final = {"accept-encoding": "identity"}
_FAILURES: Final = (b"error", b"xception")
"""What stands in any event that says that an answer failed."""


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
    if holds_envelope(body):
        body, record.losses = replayable(record)
    record.sent = with_model(body, model.id, request.api.host_fields) if endpoint.names_model else body
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
        if response.headers.get("content-type", "").lower().startswith("text/html"):
            raise DecodeError("an HTML page instead of an answer", source=model.name)
        if request.stream:
            _check_start(model.name, request.api.wire, first, response.headers)
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


def _check_start(model: str, wire: str, first: bytes, headers: Mapping[str, str]) -> None:
    """Refuse a stream that is none. Raises ``ProviderError``, or ``TransportError`` for an empty one."""
    if not first:
        raise TransportError(f"{model}: the stream ended before it began")
    if not any(each in first for each in _FAILURES):
        return
    decoder = wires.get(wire).stream_decoder()
    with suppress(DecodeError):  # the client finds out for itself
        if any(has_content(each) for each in decoder.feed(first)) or decoder.assembler.failure is None:
            return
        try:
            decoder.finish()
        except StreamError as error:
            raise inner_failure(ProviderError(wire, error.reason, code=error.code, body=error.body), headers) from None


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
    data, end = first, b""
    try:
        while data:
            yield data
            end = last_bytes(end, data)
            data = await _next(response, idle)
    except PalaverError as error:
        if not record.request.api.ends_event(end):
            raise
        record.error = error
        yield wires.get(record.request.api.wire).stream_encoder().feed(Failed("provider", str(error)))


async def _whole(response: http.HttpResponse, first: bytes, deadline: float) -> AsyncGenerator[bytes]:
    """Yield the body of an answer. Raises ``TransportError``, also for one that takes too long."""
    pieces = [first]
    with anyio.move_on_after(deadline - anyio.current_time()) as timeout:
        while pieces[-1]:
            pieces.append(await response.chunk())
    if timeout.cancelled_caught:
        raise _late()
    yield b"".join(pieces)


async def _next(response: http.HttpResponse, seconds: float) -> bytes:
    with anyio.move_on_after(seconds):
        return await response.chunk()
    raise _late()


def _late() -> TimedOutError:
    return TimedOutError("the answer did not go on in time", phase="idle")
