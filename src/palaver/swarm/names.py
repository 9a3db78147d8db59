"""Valid names of clients and turns in requests from outside, and how names are joined.

Rules:

- 1 to 128 ASCII letters, digits and ``. _ ~ : @ + -``, so that a name fits an address, a subject and a thread's id.
- ``shared`` is reserved and cannot be a client.
- A thread is called ``<realm>/<client>``. In both, ``/`` is written ``%2F`` and ``%`` is written ``%25``, so that no
  two clients share a thread by their names.

Named turns: each is answered once, even if it is requested several times:

- The log keeps a named turn in the metadata of its messages: of its user message, and of the answer that was shown.
  An answer that is not a message (a cancelled turn, a policy's text) is stored as a record.
- A turn with a message but no answer was interrupted: when requested again, it is continued.
- The last ``KNOWN`` turns are known. Clients must not repeat older ones.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from palaver.core.errors import DecodeError
from palaver.core.messages import AssistantMessage, Message, UserMessage
from palaver.core.pairs import client_calls
from palaver.swarm.events import SHARED
from palaver.swarm.log import Values, kept_by, record
from palaver.threads.view import DISCARDED

if TYPE_CHECKING:
    from palaver.swarm.turn import Turn

# --- names ------------------------------------------------------------------------------------------------------------


_NAME: Final = re.compile(r"[A-Za-z0-9._~:@+-]{1,128}")


def joined(*names: str) -> str:
    """Join names by ``/``, with ``%`` and ``/`` in them escaped: different names give different texts."""
    return "/".join([name.replace("%", "%25").replace("/", "%2F") for name in names])


def client_thread(realm: str, client: str) -> str:
    """Return the id of the thread of a client. ``SHARED`` is the client of shared values."""
    return joined(realm, client)


def name_of_agent(name: object) -> str:
    """Return the name of an agent. Raises ``TypeError`` for anything but a string."""
    if not isinstance(name, str):
        raise TypeError(f"agent: expected the name of an agent, not {type(name).__name__}")
    return name


def checked_run(run: object) -> str | None:
    """Return the name of a turn. Raises ``TypeError`` for anything but a string or ``None``."""
    if run is not None and not isinstance(run, str):
        raise TypeError(f"run: expected a string, not {type(run).__name__}")
    return run


def checked_client_id(client: object) -> str:
    """Return the id of a client. Raises ``TypeError`` for anything but a string."""
    if not isinstance(client, str):
        raise TypeError(f"client: expected a string, not {type(client).__name__}")
    return client


def is_name(text: str) -> bool:
    """Return whether a text is a valid name."""
    return _NAME.fullmatch(text) is not None


def checked(name: str, path: str) -> str:
    """Return a name. Raises ``DecodeError``, naming the place, for an invalid one."""
    if not is_name(name):
        reason = "expected 1 to 128 ASCII letters, digits and . _ ~ : @ + -"
        raise DecodeError(reason, path=path, source="request")
    return name


def checked_client(name: str) -> str:
    """Return the name of a client. Raises ``DecodeError`` for an invalid one."""
    if name == SHARED:
        raise DecodeError(f"a client cannot have the name {SHARED!r}", path="client", source="request")
    return checked(name, "client")


# --- named ------------------------------------------------------------------------------------------------------------


KNOWN: Final = 256
"""The number of turns whose answers are known."""
TURN: Final = "turn"
"""The key of the name in the metadata of a message."""

_KIND: Final = "answered"
_NEW: Final = object()


class NamedTurns:
    """The named turns of one client. Costs the length of the log once, and nothing for turns without a name."""

    def __init__(self, values: Values, messages: Iterable[Message]) -> None:
        """Read the messages of a log, oldest first."""
        self._values = values
        self._answers: OrderedDict[str, str | None] = OrderedDict()
        for message in messages:
            self._read(message)

    def known(self, turn: str | None) -> Any:
        """Return the answer of a turn; ``None`` for an interrupted one, ``NamedTurns.NEW`` for an unknown one."""
        return _NEW if turn is None else self._answers.get(turn, _NEW)

    NEW: Final = _NEW

    async def keep(self, turn: str | None, answer: str) -> None:
        """Store the answer of a turn when no message of the log is it. Raises ``StoreError``."""
        if turn is not None and self._answers.get(turn) is None:
            await self._values.put(_KIND, turn, answer)
            self._know(turn, answer)

    @staticmethod
    def records(messages: Iterable[Message]) -> Sequence[Message]:
        """Return records of the answers among messages removed from the log, so that their turns stay known."""
        made: list[Message] = []
        for message in messages:
            turn = message.metadata.get(TURN) if message.metadata else None
            if isinstance(turn, str) and isinstance(message, AssistantMessage) and _answers(message):
                made.append(record(_KIND, turn, message.text))
        return made

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
        """Read new messages of the log."""
        if message.metadata:
            self._read(message)


def _answers(message: AssistantMessage) -> bool:
    """Return whether an agent's message was shown, and has no calls."""
    return not (DISCARDED in message.tags or client_calls(message) or message.malformed_tool_calls)


def of_turn(turn: Turn, message: Any) -> Any:
    """Return a message that names its turn, if the caller named the turn."""
    return message.replace(metadata={**message.metadata, TURN: turn.id}) if turn.named else message
