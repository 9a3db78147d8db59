"""A gateway as a value: its router, its components, and what every exchange goes through.

Rules:

- An exchange is admitted by every component in order; then a model is asked; then every component notes its end.
- The components see the end before the client does, so that what they write is there when the client has its answer.

Stability: experimental.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from palaver.core.errors import DecodeError
from palaver.gateway.authentication import Authentication
from palaver.gateway.component import Component
from palaver.gateway.credentials import find_credential
from palaver.gateway.database import default_location
from palaver.gateway.limiter import Limiter
from palaver.gateway.log.component import ExchangeLog
from palaver.gateway.router import Router
from palaver.gateway.stored_responses import ResponseOptions, StoredResponses
from palaver.gateway.telemetry import telemetry_components
from palaver.gateway.translation import Translator
from palaver.serve.http.access import ANY, Access

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from palaver.gateway.client_api import ClientApi
    from palaver.gateway.client_response import ClientResponse
    from palaver.gateway.config import GatewayConfig
    from palaver.gateway.database import Database
    from palaver.gateway.health import Health
    from palaver.gateway.keys import Caller
    from palaver.gateway.live import Resources
    from palaver.gateway.record import ClientRequest, Record

_C = TypeVar("_C", bound="Component")
_LOGGER: Final = logging.getLogger("palaver.gateway")


class Gateway:
    """What all requests share."""

    def __init__(
        self,
        config: GatewayConfig,
        find_key: Callable[[str], str | None],
        health: Health,
        resources: Resources,
        previous: Gateway | None = None,
    ) -> None:
        """Make the router and the components; nothing runs yet. Raises ``PalaverError`` for what cannot be used.

        ``previous`` is the gateway before a reload, whose components are used again where their settings are the same.
        """
        self.config = config
        self.health = health
        self.resources = resources
        self.router = Router(config, find_key, health, resources.client)
        self.router.check()
        self.access = _access(config)
        same = previous is not None and previous.config.translation == config.translation
        former = previous.translator if previous is not None and same else None
        self.translator: Translator = former or Translator(config.translation)
        self.translator.forget_conversations()
        self.components: Sequence[Component] = _components(self)
        if previous is not None:
            self.components = [_same(each, previous.components) for each in self.components]
        self._admitting = [each for each in self.components if type(each).admit is not Component.admit]
        self._rewriting = [each for each in self.components if type(each).rewritten is not Component.rewritten]

    def component(self, kind: type[_C]) -> _C | None:
        """Return the component of a class; ``None`` where the configuration asks for none."""
        return next((each for each in self.components if isinstance(each, kind)), None)

    async def caller(self, api: ClientApi, request: HTTPConnection) -> Caller | None:
        """Return whose key a request has; ``None`` where it needs none.

        Raises ``RefusedError``, and ``Refused`` for a page of another site.
        """
        self.access.check_origin(request)
        check = self.component(Authentication)
        return None if check is None else await check.caller(find_credential(api, request.headers, request.url.query))

    async def admit(self, record: Record) -> None:
        """Ask every component. Raises ``PalaverError``."""
        for each in self._admitting:
            await each.admit(record)

    def rewritten(self, record: Record, response: ClientResponse) -> ClientResponse:
        """Return an answer as it goes on to the client."""
        for each in self._rewriting:
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


def _same(made: Component, previous: Sequence[Component]) -> Component:
    """Return the component of the same class and settings; ``made`` itself where there is none."""
    if made.settings is None:
        return made
    found = (each for each in previous if type(each) is type(made) and each.settings == made.settings)
    return next(found, made)


def _components(gateway: Gateway) -> list[Component]:
    """Return the components that the configuration asks for, in the order in which they see an exchange."""
    config = gateway.config
    made: list[Component] = telemetry_components(config.telemetry)
    database = partial(gateway.resources.database, config.database)
    if config.keys is not None:
        made.append(Authentication(database, required=config.keys.required))
        made[-1].settings = (config.database, config.keys)
    if config.keys is not None or config.limits:
        made.append(_limiter(gateway, database))
    if config.responses is not None:
        made.append(_stored_responses(gateway, database))
        made[-1].settings = (config.database, config.responses, config.models, config.only_listed)
    if config.log is not None:
        made.append(ExchangeLog(config.log, config.database or default_location()))
        made[-1].settings = (config.database, config.log)
    return made


def _stored_responses(gateway: Gateway, database: Callable[[], Database]) -> StoredResponses:
    def wires(request: ClientRequest) -> list[str]:
        places = gateway.router.find(request.model, request.api).places
        return [each.model.endpoint.wire for place in places for each in place]

    return StoredResponses(gateway.config.responses or ResponseOptions(), database, wires)


def _limiter(gateway: Gateway, database: Callable[[], Database]) -> Limiter:
    def models(request: ClientRequest) -> list[str]:
        return [each.model.name for place in gateway.router.find(request.model, request.api).places for each in place]

    def counted_name(request: ClientRequest) -> str:
        return gateway.router.counted_name(request.model, request.api)

    config, price = gateway.config, gateway.config.unknown_price
    made = Limiter(database, config.limits, unknown_price=price, models=models, counted_name=counted_name)
    made.settings = (config.database, config.keys, config.limits, price, config.models, config.only_listed)
    return made


def _access(config: GatewayConfig) -> Access:
    """Return what checks hosts and origins: without keys, only this machine is answered."""
    if config.keys is not None and config.keys.required:
        return Access(hosts=config.listen.hosts or (ANY,))
    if config.listen.hosts:
        raise DecodeError("names besides those of this machine need keys.required = true", path="listen.hosts")
    return Access()
