"""Count the tokens of a request, without an answer.

Rules:

- A provider that counts in the client's wire gets the client's own body, and its answer goes back byte for byte.
- Any other one that can count (``palaver.models.token_count``) counts what it would be sent.
- Where no provider counts, or the one that does cannot be asked, the count is an estimate (``palaver.tokens``), and the
  header ``palaver-estimate: true`` says so. A request that the provider refuses as invalid is refused.
- Components admit such a request as any other; ``ClientRequest.counts`` tells it from those.

Stability: experimental.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
from msgspec import structs
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from palaver.core.errors import CapabilityError, DecodeError, PalaverError
from palaver.gateway import same_wire
from palaver.gateway.apis import APIS
from palaver.gateway.client_api import ClientApi, Count, api_error
from palaver.gateway.credentials import without_credentials
from palaver.gateway.http_io import error_response, read_body, refusal
from palaver.gateway.record import Attempt, ClientRequest, Record
from palaver.gateway.request_body import read_head
from palaver.models.catalogue import rates_of
from palaver.models.fallback import hop_of
from palaver.models.language_model import Prompt
from palaver.models.token_count import count_tokens
from palaver.serve.http.errors import Refused
from palaver.tokens import estimate, estimate_tools, overhead

if TYPE_CHECKING:
    from starlette.requests import Request

    from palaver.gateway.gateway import Gateway
    from palaver.gateway.live import LiveGateway
    from palaver.models import Model

_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def count_routes(live: LiveGateway) -> list[Route]:
    """Return the routes of all APIs."""
    return [
        Route(each.path, partial(_answer, live, api, each), methods=["POST"]) for api in APIS for each in api.counts
    ]


async def _answer(live: LiveGateway, api: ClientApi, row: Count, request: Request) -> Response:
    if (full := live.refusal()) is not None:
        return error_response(api, full, {"connection": "close"})
    with live.exchange() as gateway:
        try:
            caller = await gateway.caller(api, request)
            sent = await read_body(request, gateway.config.listen)
            body = _unwrapped(sent, row.inside)
            model, _ = read_head(body, api, model=request.path_params.get("model"), stream=False)
        except (Refused, PalaverError) as error:
            return refusal(api, error)
        except ClientDisconnect:
            return Response(status_code=499)
        headers = without_credentials(request.headers.items())
        asked = ClientRequest(api=api, model=model, stream=False, body=body, headers=headers, counts=True)
        record = Record(request=asked, caller=caller)
        try:
            response = await _count(gateway, record, row, sent)
        except PalaverError as error:
            record.error, record.outcome = error, "refused"
            response = error_response(api, api_error(error))
        except BaseException:
            record.outcome = "cancelled"
            await gateway.ended(record)
            raise
        record.status = response.status_code
        await gateway.ended(record)
        return response


async def _count(gateway: Gateway, record: Record, row: Count, sent: bytes) -> Response:
    """Ask the first model that would be asked for an answer. Raises ``PalaverError``."""
    await gateway.admit(record)
    request = record.request
    chain = gateway.router.find(request.model, request.api)
    record.route = chain.route
    candidate = chain.order(lambda: record.session)[0]
    model = candidate.model
    record.model, record.wire, record.target = model.name, model.endpoint.wire, candidate.label
    record.outcome = "answered"
    headers = {"palaver-model": quote(model.name, safe="/:.-_"), "palaver-exchange": record.id}
    asked = Attempt(model.name, model.endpoint.wire, target=candidate.label)
    try:
        same = model.endpoint.wire == request.api.wire and model.endpoint.counting is not None
        if same and (sent is request.body or not _names_model(request.body)):
            data = await _ask_alike(model, record, sent)
        else:
            record.translated = True
            data = msgspec.json.encode(row.write(await count_tokens(model, _prompt(request))))
        record.attempts.append(asked)
    except PalaverError as error:
        if not isinstance(error, CapabilityError | DecodeError):  # of which none was asked
            record.attempts.append(structs.replace(asked, error=error))
        if not isinstance(error, CapabilityError) and hop_of(error) == "stop":
            raise
        data = msgspec.json.encode(row.write(_estimate(request, model)))
        headers["palaver-estimate"] = "true"
    return Response(data, headers=headers, media_type="application/json")


async def _ask_alike(model: Model, record: Record, sent: bytes) -> bytes:
    """Send the client's own body to where its provider counts. Raises ``PalaverError``."""
    counting = model.endpoint.counting
    assert counting is not None  # noqa: S101 (the caller looked)
    there = model.endpoint
    names = there.names_model and not counting.inside
    at = structs.replace(there, url=counting.url, stream_url=None, names_model=names)
    asked = structs.replace(model, id=counting.named(model.id), endpoint=at)
    copied = Record(request=structs.replace(record.request, body=sent))  # its bytes are no answer
    async with AsyncExitStack() as opened:
        response = await same_wire.ask(asked, copied, opened)
        data = b"".join([each async for each in response.body])
    if response.error is not None:
        raise response.error
    return data


def _unwrapped(body: bytes, inside: tuple[str, ...]) -> bytes:
    """Return what some fields enclose, or the body itself where they are not there."""
    found = body
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        for name in inside:
            fields = _FIELDS.decode(found)
            if name not in fields:
                return body
            found = bytes(fields[name])
    return found


def _names_model(body: bytes) -> bool:
    """Whether a body that was enclosed names the model by the client's name, which its provider does not know."""
    return "model" in _FIELDS.decode(body)


def _prompt(request: ClientRequest) -> Prompt:
    found = request.decoded
    return Prompt(messages=found.messages, tools=found.tools, settings=found.settings, provider=found.provider)


def _estimate(request: ClientRequest, model: Model) -> int:
    found, rates = request.decoded, rates_of(model.name)
    return sum([estimate(each, rates) + overhead(each) for each in found.messages]) + estimate_tools(found.tools)
