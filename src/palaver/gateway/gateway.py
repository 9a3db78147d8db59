"""A gateway as a value: its router, its components, and what every exchange goes through.

Rules:

- An exchange is admitted by every component in order; then a model is asked; then every component notes its end.
- The components see the end before the client does, so that what they write is there when the client has its answer.

Stability: experimental.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from palaver.gateway.database import default_location, open_database
from palaver.gateway.log.component import ExchangeLog
from palaver.gateway.router import Router
from palaver.gateway.stored_responses import StoredResponses

if TYPE_CHECKING:
    from palaver.gateway.client_response import ClientResponse
    from palaver.gateway.component import Component
    from palaver.gateway.config import GatewayConfig
    from palaver.gateway.database import Database
    from palaver.gateway.record import ClientRequest, Record
    from palaver.gateway.stored_responses import ResponseOptions

_LOGGER: Final = logging.getLogger("palaver.gateway")


class Gateway:
    """What all requests share."""

    def __init__(self, config: GatewayConfig, find_key: Callable[[str], str | None]) -> None:
        """Make the router and the components; nothing runs yet. Raises ``PalaverError`` for what cannot be used."""
        self.config = config
        self._database: Database | None = None
        self.router = Router(config, find_key)
        self.components: Sequence[Component] = _components(self)

    @property
    def database(self) -> Database:
        """The database of all components, opened on first use. Raises ``StoreError``."""
        if self._database is None:
            self._database = open_database(self.config.database or default_location())
        return self._database

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the components."""
        async with AsyncExitStack() as opened:
            opened.callback(self._close)
            for each in self.components:
                await opened.enter_async_context(each)
            yield

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()

    async def admit(self, record: Record) -> None:
        """Ask every component. Raises ``PalaverError``."""
        for each in self.components:
            await each.admit(record)

    def rewritten(self, record: Record, response: ClientResponse) -> ClientResponse:
        """Return an answer as it goes on to the client."""
        for each in self.components:
            response = each.rewritten(record, response)
        return response

    async def ended(self, record: Record) -> None:
        """Tell every component that an exchange has ended, once. It is not cancelled."""
        if record.seconds is not None:
            return
        record.seconds = time.perf_counter() - record.began
        with anyio.CancelScope(shield=True):
            for each in self.components:
                try:
                    await each.ended(record)
                except Exception:
                    _LOGGER.exception("%s failed", type(each).__name__)


def _components(gateway: Gateway) -> list[Component]:
    """Return the components that the configuration asks for, in the order in which they see an exchange."""
    config = gateway.config
    components: list[Component] = []
    if config.responses is not None:
        components.append(_stored_responses(gateway, config.responses))
    if config.log is not None:
        components.append(ExchangeLog(config.log, config.database or default_location()))
    return components


def _stored_responses(gateway: Gateway, options: ResponseOptions) -> StoredResponses:
    def wires(request: ClientRequest) -> list[str]:
        return [each.endpoint.wire for each in gateway.router.find(request.model, request.api).models]

    return StoredResponses(options, lambda: gateway.database, wires)
