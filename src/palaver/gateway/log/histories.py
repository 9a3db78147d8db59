"""The histories of the last requests: a request that continues one costs what is new in it.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from palaver import wires
from palaver.gateway.conversations import cost_of, same_beginning, settled_in
from palaver.gateway.log.history import digest
from palaver.gateway.recent_bodies import RecentBodies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.messages import Message
    from palaver.core.request import Request
    from palaver.gateway.log.logged import LoggedExchange
    from palaver.wires._engine.list_memory import RequestReader

_LIMIT: Final = 64 << 20
"""Bytes of memory."""


class _Read(NamedTuple):
    reader: RequestReader
    messages: Sequence[Message]
    digests: Sequence[bytes | None]


class Histories:
    """Reads requests."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._recent = RecentBodies[_Read](_LIMIT, cost_of)

    def read(self, exchange: LoggedExchange, body: bytes) -> tuple[Request, Sequence[bytes | None]]:
        """Return a request, and the digest of each of its messages. Raises ``DecodeError``."""
        key = (exchange.api, exchange.caller)
        known = self._recent.take(key, body) or _Read(wires.get(exchange.api).request_reader(), (), ())
        request = known.reader.read(body)
        messages = request.messages
        same = same_beginning(known.messages, messages)
        digests = (*known.digests[:same], *map(digest, messages[same:]))
        self._recent.give_back(key, body, settled_in(known.reader, body), _Read(known.reader, messages, digests))
        return request, digests
