"""Where the writer puts exchanges: the store, then the table of exchanges. To write one again changes nothing.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from palaver.core.errors import PalaverError
from palaver.gateway.database import open_database
from palaver.gateway.log import logged
from palaver.gateway.log.conversations import TAG, Conversations, Placed, Turn
from palaver.gateway.log.exchanges import Exchanges
from palaver.gateway.log.histories import Histories
from palaver.gateway.record import decode_answer
from palaver.gateway.spending import estimated, input_of
from palaver.store.location import open_store
from palaver.threads.ids import now_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.messages import AssistantMessage
    from palaver.core.request import Response
    from palaver.gateway.log.logged import Figures, LoggedExchange
    from palaver.gateway.log.options import LogOptions

_DAY: Final = 24 * 60 * 60 * 1000


class Sink:
    """The store and the database of the log, open. Used by one thread."""

    def __init__(self, options: LogOptions, database: str) -> None:
        """Open both. Raises ``StoreError``."""
        self._options = options
        self._database = open_database(database)
        try:
            self.exchanges = Exchanges(self._database)
            self._store = open_store(options.store)
        except BaseException:
            self._database.close()
            raise
        self._conversations = Conversations(self._store, self._database)
        self._histories = Histories()

    def write(self, records: Sequence[bytes], *, again: bool = False) -> None:
        """Write records of the spool. Raises ``UnavailableError`` when they should be tried again.

        ``again``: they may have been written before, by a process that died, or by a call that raised.
        """
        given = {each.id: each for each in map(logged.decode, records)}
        for known in self.exchanges.known([*given]):
            del given[known]
        exchanges = [*given.values()]
        turns = {each.id: None if each.amount == "figures" else self._read_turn(each) for each in exchanges}
        spoken = [(each, turn) for each in exchanges if (turn := turns[each.id]) is not None]
        placed = dict(zip([each.id for each, _ in spoken], self._conversations.add(spoken, again=again), strict=True))
        self.exchanges.add(
            [(each, _figures(each, turns[each.id]), placed.get(each.id, Placed())) for each in exchanges]
        )

    def write_bare(self, data: bytes) -> None:
        """Write an exchange whose messages cannot be stored into the table alone. Raises ``PalaverError``."""
        self.exchanges.add([(logged.decode(data), logged.Figures(), Placed())])

    def _read_turn(self, exchange: LoggedExchange) -> Turn | None:
        """Return what an exchange says; ``None`` for a request that cannot be read."""
        body = exchange.request if exchange.resolved is None else exchange.resolved
        try:
            request, digests = self._histories.read(exchange, body)
        except PalaverError:
            return None
        if exchange.wire is None or exchange.outcome == "refused":
            return Turn(request.messages, digests, None, None)
        response = _answer(exchange.wire, exchange.received, stream=exchange.stream)
        answer = visible = _message(response)
        if answer is not None and exchange.translated and exchange.returned is not None:
            visible = _message(_answer(exchange.api, exchange.returned, stream=exchange.stream)) or answer
        estimate = None
        if logged.needs_estimate(exchange.outcome, response):
            size = len(exchange.received) if exchange.outcome == "answered" else 0
            estimate = estimated(input_of(request), response, size)
        return Turn(request.messages, digests, answer, visible, estimate)

    def retain(self) -> int:
        """Delete what is older than it may be; return the number of exchanges."""
        if self._options.keep_days is None:
            return 0
        time = now_ms() - int(self._options.keep_days * _DAY)
        old = [each.id for each in self._store.threads(tag=TAG) if each.updated_at < time]
        for each in old:
            self._store.delete(each)
        deleted = self.exchanges.delete_before(time)
        if old:
            self._store.gc()
        return deleted

    def close(self) -> None:
        """Close both."""
        try:
            self._store.close()
        finally:
            self._database.close()


def _figures(exchange: LoggedExchange, turn: Turn | None) -> Figures:
    if exchange.figures is not None or turn is None:
        return exchange.figures or logged.Figures()
    if turn.estimate is not None:
        return structs.replace(logged.figures(exchange.model, turn.estimate), estimated=True)
    return logged.figures(exchange.model, None if turn.answer is None else turn.answer.usage)


def _answer(wire: str, data: bytes, *, stream: bool) -> Response | None:
    return decode_answer(wire, data, stream=stream) if data else None


def _message(response: Response | None) -> AssistantMessage | None:
    return None if response is None or not response.message.content else response.message
