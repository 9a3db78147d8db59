"""What stands beside the exchanges of a gateway: keys, limits, the log, metrics.

Rules:

- A component runs while the gateway runs: it is entered before the first exchange and left after the last.
- ``admit`` is called before an exchange, in the order of the components; one that raises ends the exchange.
- ``ended`` is called once for each exchange, also for those that were not admitted, before the client sees its end.
- At a reload a component goes on when the new configuration makes one of the same class and with the same ``settings``;
  else it is replaced, and both run until the last exchange of the old one has ended.
- What ``ended`` raises is a defect of the component: it is logged, and changes no answer.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.gateway.client_response import ClientResponse
    from palaver.gateway.record import Record


class Component:
    """Base of all components; it does nothing."""

    settings: object = None
    """What it was made from: its section of the configuration. ``None``: it is replaced at each reload."""

    async def __aenter__(self) -> Self:
        """Start."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, when every exchange has ended."""

    async def admit(self, record: Record) -> None:
        """Allow an exchange. Raises ``PalaverError``, which the client gets."""

    def rewritten(self, record: Record, response: ClientResponse) -> ClientResponse:  # noqa: ARG002 (for components)
        """Return an answer as it goes on to the client. It has not begun yet."""
        return response

    async def ended(self, record: Record) -> None:
        """Take note of an exchange."""
