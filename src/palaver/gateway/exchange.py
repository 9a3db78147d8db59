"""One exchange: what a client asked for, and the answer of a model in the client's wire.

Rules:

- A model that speaks the client's wire is asked as the client asked (``same_wire``); any other one in its own
  (``translation``).
- Models are asked in the order of their ``Chain``; ``hop_of`` says what an error means for the others. The next one is
  asked only while nothing of an answer was handed on. The last refusal goes to the client.
- A body that cannot be read as a request is the client's fault, and is no failure of a model. An answer that cannot be
  read is a failure of its model.
- What happens stands in the ``Record``.

Stability: experimental.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import anyio

from palaver.core.errors import DecodeError, PalaverError, ProviderError
from palaver.gateway import same_wire
from palaver.gateway.client_api import is_unsigned
from palaver.gateway.listed_stream import as_list
from palaver.gateway.record import Attempt
from palaver.models.fallback import hop_of

if TYPE_CHECKING:
    from palaver.gateway.client_response import ClientResponse
    from palaver.gateway.record import Record
    from palaver.gateway.router import Candidate, Chain
    from palaver.gateway.translation import Translator

_LOGGER: Final = logging.getLogger("palaver.gateway")


class Exchange:
    """Asks models. An async context manager, inside which the answer is read."""

    def __init__(self, record: Record, chain: Chain, translator: Translator) -> None:
        """Keep the arguments; nothing is sent yet."""
        self._translator = translator
        self._record = record
        self._chain = chain
        self._asked: Candidate | None = None
        self._open = AsyncExitStack()

    async def __aenter__(self) -> ClientResponse:
        """Ask until a model answers. Raises ``PalaverError`` of the last one."""
        record = self._record
        record.route = self._chain.route
        pending = self._chain.order(lambda: record.session)
        while True:
            candidate = pending.pop(0)
            try:
                response = await self._ask(candidate)
                if response.error is None:
                    return as_list(response) if record.request.listed else response
                if not (pending := _next(candidate, response.error, pending)):
                    return response
                await self._open.aclose()
            except PalaverError as error:
                await self._open.aclose()
                if not (pending := _next(candidate, error, pending)):
                    raise
            except BaseException:
                candidate.health.released()
                await self._open.aclose()
                raise

    async def __aexit__(self, kind: type[BaseException] | None, raised: BaseException | None, _: object) -> None:
        """Close the connection to the model, and note how its answer ended."""
        error = raised if kind is not None else self._record.error
        if self._asked is not None and isinstance(error, PalaverError):
            _note(self._asked, error)
        with anyio.CancelScope(shield=True):
            await self._open.aclose()

    async def _ask(self, candidate: Candidate) -> ClientResponse:
        record, model = self._record, candidate.model
        same = model.endpoint.wire.partition(":")[0] == record.request.api.wire and model.text_calls is None
        record.model, record.wire, record.translated = model.name, model.endpoint.wire, not same
        record.target, record.retries = candidate.label, 0
        record.sent, record.losses, record.answer = b"", (), None
        record.forget_received()
        candidate.health.ask()
        try:
            response = await (same_wire.ask if same else self._translator.ask)(model, record, self._open)
        except PalaverError as error:
            if is_unsigned(error):
                _LOGGER.warning("%s", error)
            found = _of_model(error, record)
            record.attempts.append(Attempt(model.name, model.endpoint.wire, found, record.retries, record.target))
            raise found from error.__cause__
        if response.error is None:
            self._asked = candidate
            candidate.health.answered()
        record.attempts.append(Attempt(model.name, model.endpoint.wire, response.error, record.retries, record.target))
        return response


def _of_model(error: PalaverError, record: Record) -> PalaverError:
    """Return the error of a model for an answer of it that cannot be read, and any other error as it is.

    What cannot be read before anything was sent is the client's request.
    """
    if not isinstance(error, DecodeError) or not record.sent:
        return error
    made = ProviderError(record.wire or "", f"the answer cannot be read: {error}")
    made.retryable = True
    return made


def _next(candidate: Candidate, error: PalaverError, pending: list[Candidate]) -> list[Candidate]:
    """Return the models that are left to be asked after an error of one, and note the error."""
    hop = _note(candidate, error)
    if hop == "bigger":
        least = candidate.model.capabilities.window
        windows = [(each, each.model.capabilities.window) for each in pending]
        return [each for each, window in windows if least is None or window is None or window > least]
    return [] if hop == "stop" else pending


def _note(candidate: Candidate, error: PalaverError) -> str:
    """Note an error of a model, and return what it means for the others."""
    hop = "stop" if isinstance(error, DecodeError) else hop_of(error)
    if hop == "rest":
        candidate.health.failed(error)
    elif isinstance(error, ProviderError):
        candidate.health.answered()
    else:
        candidate.health.released()
    return hop
