"""The models that a server offers, by its own listing.

Rules:

- ``Endpoint.listing`` is the address of the listing; the wire's usual one, unless a provider's row says otherwise.
- A listing is an object with a list under ``data`` (OpenAI, Anthropic and those compatible with them) or ``models``
  (Gemini, Cohere, Ollama). A model is named by ``id``, else by ``name``; Gemini's begin with ``models/``.
- Only the first page is read: 1,000 models, where the server allows so many.

Sources: https://platform.openai.com/docs/api-reference/models/list, https://docs.anthropic.com/en/api/models-list,
https://ai.google.dev/api/models, https://docs.cohere.com/reference/list-models,
https://github.com/ollama/ollama/blob/main/docs/api.md

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final, cast

import anyio
import msgspec

from palaver.core import jsontext
from palaver.core.errors import CapabilityError, DecodeError, PalaverError, TimedOutError
from palaver.core.type_checks import check_arguments
from palaver.models import http
from palaver.models.endpoint import HttpCall
from palaver.models.failures import failure
from palaver.models.http import Timeouts
from palaver.models.names import resolve
from palaver.models.redaction import masked, secrets_of, without_secrets
from palaver.stream.frames import LIMIT

_TIMEOUTS: Final = Timeouts(connect=5.0, write=10.0, whole=30.0)
_ANY: Final = "any"
"""A placeholder for the model id, when only the provider matters."""


async def list_models(
    provider: str,
    *,
    key: str | None = None,
    url: str | None = None,
    wire: str | None = None,
    timeouts: Timeouts = _TIMEOUTS,
) -> tuple[str, ...]:
    """Ask a server for its models; return their ids, in its order.

    ``provider`` is the name of a provider, or any name for a server at ``url``. ``key``, ``url`` and ``wire`` are those
    of ``palaver.models.model``. ``timeouts`` are in seconds; ``whole`` is for the answer. Raises ``UnknownNameError``
    for an unknown provider, ``CapabilityError`` for one that lists no models, and ``ProviderError``, ``TransportError``
    or ``DecodeError`` when the server does not answer with a list.
    """
    check_arguments("list_models", list_models, locals())
    found = resolve(f"{provider}/{_ANY}", key=key, url=url, wire=wire)
    address = found.endpoint.listing
    if address is None:
        raise CapabilityError(f"{provider}: the address of its model list is unknown")
    call = HttpCall("GET", address, dict(found.endpoint.headers), ())
    headers = {**call.headers, **await found.credentials.headers(call)}
    secrets = [*secrets_of(address, call.headers), *secrets_of("", headers, shown=True)]
    try:
        listed = await _listed(provider, found.endpoint.wire, HttpCall("GET", address, headers, ()), timeouts)
    except PalaverError as error:
        without_secrets(error, secrets)
        raise
    return tuple([masked(each, secrets) for each in listed])  # a server may echo the key


async def _listed(provider: str, wire: str, call: HttpCall, timeouts: Timeouts) -> tuple[str, ...]:
    with anyio.move_on_after(timeouts.whole):
        response = await http.send(None, call, timeouts)
        try:
            body, ended = await response.read(LIMIT)
            if not 200 <= response.status < 300:  # noqa: PLR2004 (success)
                raise failure(wire, response.status, response.headers, body or response.reason.encode(), now=0.0)
            if not ended:
                raise DecodeError(f"a model list of more than {LIMIT} bytes", source=provider)
            return _ids(provider, body)
        finally:
            await response.aclose()
    raise TimedOutError(f"{provider}: no model list within {timeouts.whole:g} s", phase="first_token")


def _ids(provider: str, body: bytes) -> tuple[str, ...]:
    try:
        listing: Any = jsontext.value(body)
    except DecodeError as error:
        raise DecodeError(f"a model list that cannot be read: {error.reason}", source=provider) from None
    items: Any = listing
    if isinstance(listing, dict):
        fields = cast("dict[str, Any]", listing)
        items = fields.get("data", fields.get("models"))
    try:
        models = msgspec.convert(items, list[dict[str, Any]])
    except msgspec.ValidationError as error:
        raise DecodeError(f"a response without a list of models: {error}", path="data", source=provider) from None
    ids: list[str] = []
    for index, item in enumerate(models):
        name = item.get("id", item.get("name"))
        if not isinstance(name, str):
            raise DecodeError("a model without a name", path=f"data[{index}]", source=provider)
        ids.append(name.removeprefix("models/"))
    return tuple(ids)
