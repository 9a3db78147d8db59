"""What all requests to a provider have in common: how they are made, asked again, and refused.

Rules:

- Headers are those of the endpoint, and what shows who asks, which is asked anew for each attempt. What of them is
  secret is told as soon as it is known, so that no error shows it.
- ``persisting`` is the only loop that asks again: as often and as patiently as the model's ``Retry`` says.
- A refusal becomes the one right error (``failures``); its body is waited for a few seconds, since its status says
  enough.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import anyio

from palaver.core.errors import PalaverError
from palaver.models.endpoint import HttpCall
from palaver.models.failures import BODY, failure
from palaver.models.language_model import Notice, OnNotice
from palaver.models.masking import secrets_of

if TYPE_CHECKING:
    from palaver.models.http import Arriving
    from palaver.models.http_model import Model

_PATIENCE: Final = 5.0
"""Seconds for the body of an error."""

T = TypeVar("T")


async def request(
    model: Model, url: str, chunks: Sequence[bytes], *, secrets: list[str], headers: Mapping[str, str] = {}
) -> HttpCall:
    """A request to a model's endpoint. What of it is secret is added to ``secrets``, also where this raises."""
    known = model.endpoint.headers
    sent = {"content-type": "application/json", **{name.lower(): text for name, text in known.items()}, **headers}
    call = HttpCall("POST", url, sent, chunks)
    secrets.extend(secrets_of(url, sent))
    if model.credentials is not None:
        shown = await model.credentials.headers(call)
        sent.update((name.lower(), text) for name, text in shown.items())
        secrets.extend(secrets_of("", shown, shown=True))
    return call


async def refused(model: Model, wire: str, arriving: Arriving) -> NoReturn:
    """Raise the error that an answer without success is."""
    body = b""
    with anyio.move_on_after(_PATIENCE), suppress(PalaverError):
        body, _ = await arriving.read(BODY)
    now = model.clock.date()
    raise failure(wire, arriving.status, arriving.headers, body or arriving.reason.encode(), now=now)


async def persisting(model: Model, attempt: Callable[[], Awaitable[T]], on_notice: OnNotice | None) -> T:
    """Make attempts until one succeeds. Raises what the last one raised."""
    attempts = 0
    while True:
        attempts += 1
        try:
            return await attempt()
        except PalaverError as error:
            wait = model.retry.wait(attempts, error, model.clock.chance())
            if wait is None:
                raise
            if on_notice is not None:
                on_notice(Notice(kind="retry", model=model.name, error=error, attempt=attempts, wait=wait))
        await model.clock.sleep(wait)
