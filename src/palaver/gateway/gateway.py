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
from typing import TYPE_CHECKING, Final

import anyio

from palaver.gateway.router import Router
from palaver.gateway.telemetry import telemetry_components

if TYPE_CHECKING:
    from palaver.gateway.component import Component
    from palaver.gateway.config import GatewayConfig
    from palaver.gateway.health import Health
    from palaver.gateway.record import Record

_LOGGER: Final = logging.getLogger("palaver.gateway")


class Gateway:
    """What all requests share."""

    def __init__(
        self,
        config: GatewayConfig,
        find_key: Callable[[str], str | None],
        health: Health,
        previous: Gateway | None = None,
    ) -> None:
        """Make the router and the components; nothing runs yet. Raises ``PalaverError`` for what cannot be used.

        ``previous`` is the gateway before a reload, whose components are used again where their settings are the same.
        """
        self.config = config
        self.health = health
        self.router = Router(config, find_key, health)
        self.components: Sequence[Component] = _components(config)
        if previous is not None:
            self.components = [_same(each, previous.components) for each in self.components]

    async def admit(self, record: Record) -> None:
        """Ask every component. Raises ``PalaverError``."""
        for each in self.components:
            await each.admit(record)

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


def _components(config: GatewayConfig) -> list[Component]:
    """Return the components that the configuration asks for, in the order in which they see an exchange."""
    made: list[Component] = telemetry_components(config.telemetry)
    return made
