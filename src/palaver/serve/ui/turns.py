"""A turn of a conversation: what a client asks for, and the events that every protocol of ``palaver.serve.ui`` writes.

Rules:

- ``AgentTurns`` and ``SwarmTurns`` answer requests (``turns_of``).
- Calls and results are shown where ``show_tools`` says so. A call that the client decides is always shown, and so is
  its result.
- The events are those of ``palaver.turn.events``; the last one is ``Ended``. Nothing is raised but cancellation: an
  error is the outcome ``failed``. State and progress that are no JSON are left out, and a warning goes to the log.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import Struct

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import Message
from palaver.core.tools import Tool
from palaver.core.usage import Usage
from palaver.serve.ui.history import History
from palaver.swarm.call import LOGGER
from palaver.turn.approvals import ApprovalRequest, Decision

if TYPE_CHECKING:
    from palaver.turn.events import AgentEvent


class UiRequest(Struct, frozen=True, kw_only=True):
    """What a request asks for.

    ``id`` names the conversation. ``messages`` are all that the client has, the newest last. ``decisions`` decide calls
    that wait, by the id of the call; ``earlier`` are those that stand in the history before a message of the user: what
    they decide may have been decided by a request before, and is left out then. ``again`` asks for another answer to
    the last user message. ``message_id`` is the client's id of the answer that goes on. ``results`` answer calls that
    the client ran, by the id of the call. ``tools`` are further ones that the client runs, ``context`` is
    a section for the system prompt, and ``state`` what the client and the tools share (``values["state"]``); ``None``
    is an empty object.
    """

    id: str
    messages: tuple[Message, ...] = ()
    decisions: Mapping[str, Decision] = {}
    earlier: Mapping[str, Decision] = {}
    again: bool = False
    message_id: str | None = None
    results: Mapping[str, Decision] = {}
    tools: tuple[Tool, ...] = ()
    context: str = ""
    state: Any = None


class StateChanged(Struct, frozen=True, kw_only=True):
    """A tool has changed what it shares with the client."""

    state: Any


class Ignored(Struct, frozen=True, kw_only=True):
    """Fields of the request that nobody uses."""

    fields: tuple[str, ...]


class Placed(Struct, frozen=True, kw_only=True):
    """The message of the user has its place: the answer follows the first ``length`` entries of the conversation."""

    length: int


class Ended(Struct, frozen=True, kw_only=True):
    """A turn is over. ``pending`` are the calls that wait for a decision."""

    outcome: str
    error: Exception | None = None
    pending: tuple[ApprovalRequest, ...] = ()
    usage: Usage | None = None
    model: str | None = None
    cost: float | None = None
    finish_reason: str | None = None


Turn: TypeAlias = "AgentEvent | StateChanged | Ignored | Placed | Ended"


class Turns(Protocol):
    """Answers requests.

    ``owner`` has the conversations: a store, a swarm, or nobody. ``prefix`` begins the names that clients give them.
    """

    owner: object | None
    prefix: str

    @abstractmethod
    async def check(self, request: UiRequest) -> None:
        """Raise ``DecodeError`` for a request that cannot be answered, ``DecisionError`` for decisions that do not fit.

        It is as things are now: whatever another process does then is found when the answer begins.
        """
        ...

    @abstractmethod
    def check_name(self, id: str) -> None:
        """Raise ``DecodeError`` for an ``id`` by which no client may call a conversation."""
        ...

    @abstractmethod
    def answer(self, request: UiRequest) -> AsyncGenerator[Turn]:
        """Answer a request, as events; the last one is ``Ended``. Closing the generator cancels the turn."""
        ...

    @abstractmethod
    async def history(self, conversation: str, began: int | None) -> History:
        """Return what a page shows of a conversation; nothing of one that is not kept.

        ``began`` is how many entries it had when the answer began that is under way.
        """
        ...


def shown_json(value: object, name: str) -> bytes | None:
    """Return what a tool shows to the client as JSON; ``None``, and a warning in the log, for what is none."""
    try:
        return bytes(jsontext.checked(value, name))
    except (PalaverError, RuntimeError) as error:  # RuntimeError: a worker thread changes it just now
        LOGGER.warning("not sent to the client: %s", error)
        return None
