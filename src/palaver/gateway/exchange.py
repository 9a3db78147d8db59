"""One exchange: what a client asked for, and the answer of a model in the client's wire.

Rules:

- A model that speaks the client's wire is asked as the client asked (``same_wire``); any other one in its own
  (``translation``).
- Models are asked in the order of their ``Fallback``, which says what an error means for the others. The next one is
  asked only while nothing of an answer was handed on. The last refusal goes to the client.
- What happens stands in the ``Record``.

Stability: experimental.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import anyio

from palaver.core.errors import PalaverError
from palaver.gateway import same_wire
from palaver.gateway.record import Attempt

if TYPE_CHECKING:
    from palaver.gateway.client_response import ClientResponse
    from palaver.gateway.record import Record
    from palaver.gateway.router import Chain
    from palaver.gateway.translation import Translator
    from palaver.models import Model


class Exchange:
    """Asks models. An async context manager, inside which the answer is read."""

    def __init__(self, record: Record, chain: Chain, translator: Translator) -> None:
        """Keep the arguments; nothing is sent yet."""
        self._translator = translator
        self._record = record
        self._models, self._fallback = chain
        self._open = AsyncExitStack()

    async def __aenter__(self) -> ClientResponse:
        """Ask until a model answers. Raises ``PalaverError`` of the last one."""
        pending = self._fallback.order()
        while True:
            index = pending.pop(0)
            try:
                response = await self._ask(self._models[index])
                if response.error is None:
                    self._fallback.answered(index)
                    return response
                if not (pending := self._next(index, response.error, pending)):
                    return response
                await self._open.aclose()
            except PalaverError as error:
                await self._open.aclose()
                if not (pending := self._next(index, error, pending)):
                    raise
            except BaseException:
                await self._open.aclose()
                raise

    async def __aexit__(self, *_: object) -> None:
        """Close the connection to the model."""
        with anyio.CancelScope(shield=True):
            await self._open.aclose()

    async def _ask(self, model: Model) -> ClientResponse:
        record = self._record
        same = model.endpoint.wire.partition(":")[0] == record.request.api.wire and model.text_calls is None
        record.model, record.wire, record.translated = model.name, model.endpoint.wire, not same
        record.sent, record.losses, record.answer = b"", (), None
        record.received.clear()
        try:
            response = await (same_wire.ask if same else self._translator.ask)(model, record, self._open)
        except PalaverError as error:
            record.attempts.append(Attempt(model.name, model.endpoint.wire, error))
            raise
        record.attempts.append(Attempt(model.name, model.endpoint.wire, response.error))
        return response

    def _next(self, index: int, error: PalaverError, pending: list[int]) -> list[int]:
        """Return the models that are left to be asked after an error of one."""
        hop = self._fallback.hop(index, error)
        if hop == "bigger":
            window = self._models[index].capabilities.window
            return [each for each in pending if self._fallback.may_hold_more(each, window)]
        return [] if hop == "stop" else pending
