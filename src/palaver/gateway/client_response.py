"""An answer on its way to the client.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from palaver.core.errors import ProviderError


class ClientResponse(Struct, frozen=True, kw_only=True):
    """Status, headers and body in the client's wire. The body is read once, inside the exchange.

    ``error`` is what a refusal in the client's own wire says, whose ``body`` goes on as it is.
    """

    status: int
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]
    error: ProviderError | None = None


async def once(body: bytes) -> AsyncGenerator[bytes]:
    """Yield a body that is whole."""
    yield body
