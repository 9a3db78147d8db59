"""Turns that somebody gave a name: each is answered once, however often it is asked.

Rules:

- What a log holds of a named turn stands in the metadata of its messages: that of its user message, and of the answer
  that was shown. An answer that is no message (a cancelled turn, a policy's word) is kept as a record.
- A turn whose message is there without an answer broke off: asked again, it is gone on with.
- The last ``KNOWN`` turns are known. Who hands in turns does not go further back.

Stability: experimental.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from palaver.core.messages import AssistantMessage, Message, UserMessage
from palaver.core.pairs import client_calls
from palaver.swarm.records import Values, kept_by
from palaver.threads.view import DISCARDED

KNOWN: Final = 256
"""How many turns back an answer is known."""
TURN: Final = "turn"
"""The name in the metadata of a message."""

_KIND: Final = "answered"
_NEW: Final = object()


class NamedTurns:
    """The named turns of one client. Costs the length of the log once, and nothing for turns without a name."""

    def __init__(self, values: Values, messages: Iterable[Message]) -> None:
        """Read what a log says, oldest first."""
        self._values = values
        self._answers: OrderedDict[str, str | None] = OrderedDict()
        for message in messages:
            self._read(message)

    def known(self, turn: str | None) -> Any:
        """The answer of a turn; ``None`` for one that broke off, ``NamedTurns.NEW`` for one that nobody knows."""
        return _NEW if turn is None else self._answers.get(turn, _NEW)

    NEW: Final = _NEW

    async def keep(self, turn: str | None, answer: str) -> None:
        """Keep the answer of a turn, where no message of the log is it. Raises ``StoreError``."""
        if turn is not None and self._answers.get(turn) is None:
            await self._values.put(_KIND, turn, answer)
            self._know(turn, answer)

    def _read(self, message: Message) -> None:
        kept = kept_by(message)
        if kept is not None and kept[0] == _KIND:
            self._know(kept[1], str(kept[2]))
        turn = message.metadata.get(TURN) if message.metadata else None
        if not isinstance(turn, str):
            return
        if isinstance(message, UserMessage):
            if turn not in self._answers:
                self._know(turn, None)
        elif isinstance(message, AssistantMessage) and _answers(message):
            self._know(turn, message.text)

    def _know(self, turn: str, answer: str | None) -> None:
        self._answers[turn] = answer
        self._answers.move_to_end(turn)
        while len(self._answers) > KNOWN:
            self._answers.popitem(last=False)

    def take(self, message: Message) -> None:
        """Know what joins the log."""
        if message.metadata:
            self._read(message)


def _answers(message: AssistantMessage) -> bool:
    """Whether an agent's message was shown, and calls nothing."""
    return not (DISCARDED in message.tags or client_calls(message) or message.malformed_tool_calls)
