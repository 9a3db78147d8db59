"""Exact token counts of a prompt, from its provider.

Rules:

- The count covers the body that would be sent, as the wire writes it, after all losses.
- ``Endpoint.counting`` describes how an endpoint counts. Only the fields that its documentation names are sent; fields
  that steer the answer (``max_tokens``, ``stream``) are refused there.
- A model without such a row raises ``CapabilityError``. An estimate (``palaver.tokens.estimate``) and a tokenizer
  (``palaver.tokens.tokenizers``) need no request.
- Credentials, retries, timeouts and errors are those of the model.

Stability: experimental.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final
from urllib.parse import quote

import anyio
import msgspec

from palaver.core.errors import CapabilityError, DecodeError, PalaverError, TimedOutError
from palaver.models import http
from palaver.models.endpoint import Counting
from palaver.models.http import build_call, raise_error, with_retries
from palaver.models.http_model import Model, prompt_encoder
from palaver.models.language_model import LanguageModel, OnNotice, Prompt
from palaver.models.redaction import without_secrets

_LIMIT: Final = 1_048_576
"""The most bytes of an answer, which is little more than a number."""


async def count_tokens(model: LanguageModel, prompt: Prompt, *, on_notice: OnNotice | None = None) -> int:
    """Return the tokens that the provider counts in a prompt, without answering it.

    Raises ``CapabilityError`` for a model that cannot count, and otherwise as ``language_model`` says.
    """
    if not isinstance(model, Model):
        raise CapabilityError(f"{model.name}: only a provider's model can count tokens, not a {type(model).__name__}")
    counting = model.endpoint.counting
    if counting is None:
        spoken = f"{model.endpoint.provider_name} cannot count the tokens of a prompt on {model.endpoint.wire}"
        raise CapabilityError(f"{model.name}: {spoken}; use a tokeniser or an estimate instead")
    named = counting.named(model.id)
    encoded = prompt_encoder(model).encode(prompt, stream=False)
    body = counted_body(counting, named, b"".join(encoded.chunks))
    url = counting.url.replace("{model}", quote(named, safe=""))

    async def attempt() -> int:
        secrets: list[str] = []
        try:
            return await _asked(model, counting, url, body, secrets)
        except PalaverError as error:
            without_secrets(error, secrets)
            raise

    return await with_retries(model, attempt, on_notice)


def counted_body(counting: Counting, model_id: str, body: bytes) -> bytes:
    """Return the body that is sent to count another one: its accepted fields, byte for byte as written."""
    fields: dict[str, Any] = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    if counting.takes is not None:
        fields = {name: each for name, each in fields.items() if name in counting.takes}
    fields.update((name, text.replace("{model}", model_id)) for name, text in counting.adds.items())
    made: Any = b64encode(msgspec.json.encode(fields)).decode() if counting.base64 else fields
    for name in reversed(counting.inside):
        made = {name: made}
    return msgspec.json.encode(made)


async def _asked(model: Model, counting: Counting, url: str, body: bytes, secrets: list[str]) -> int:
    """Ask once."""
    call = await build_call(model, url, (body,), secrets=secrets)
    patience = model.timeouts.whole
    with anyio.move_on_after(patience):
        arriving = await http.send(model.http, call, model.timeouts)
        try:
            if not 200 <= arriving.status < 300:  # noqa: PLR2004 (success)
                await raise_error(model, model.endpoint.wire, arriving)
            told, _ = await arriving.read(_LIMIT)
            return _number(model, counting, told)
        finally:
            await arriving.aclose()
    raise TimedOutError(f"{model.name}: no token count within {patience:g} s", phase="first_token")


def _number(model: Model, counting: Counting, told: bytes) -> int:
    path = ".".join(counting.found)
    try:
        found: Any = msgspec.json.decode(told)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"a token count that is not JSON: {error}", source=model.name) from None
    try:
        for name in counting.found:
            found = found[name]
    except (KeyError, TypeError, IndexError):
        found = None
    if type(found) is not int or found < 0:
        raise DecodeError("a token count without a number", path=path, source=model.name)
    return found
