"""What was said between a client and a swarm, as people may see it.

Rules:

- What a person reads is said by ``palaver.threads.people_view``; of that, what users said and what they were answered.
  Tool calls, their results and markers are left out.
- Reading begins no thread.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from palaver.core.errors import NotFoundError
from palaver.core.messages import AssistantMessage, Message, UserMessage
from palaver.store.in_thread import in_thread
from palaver.swarm.names import client_thread
from palaver.threads.people_view import is_shown

if TYPE_CHECKING:
    from palaver.store.store import Store
    from palaver.swarm.live import LiveSwarm
    from palaver.swarm.swarm import Swarm

History: TypeAlias = "Callable[[str], Awaitable[Sequence[Message]]]"
"""Gives the messages of a client."""


def stored_history(store: Store, swarm: Swarm) -> History:
    """The messages that a store holds of the clients of a swarm. Raises ``StoreError`` when it is asked."""

    async def messages(client: str) -> Sequence[Message]:
        try:
            entries = await in_thread(store.path, client_thread(swarm.realm, client))
        except NotFoundError:
            return ()
        return tuple([entry.message for entry in entries])

    return messages


def live_history(live: LiveSwarm) -> History:
    """The messages of a swarm at work in this process: of its store, or else of the sessions that are open."""
    if live.store is not None:
        return stored_history(live.store, live.swarm)

    async def messages(client: str) -> Sequence[Message]:
        session = live.get(client)
        return () if session is None else session.messages

    return messages


def told(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Messages as people may see them."""
    return [
        {"role": each.role, "agent": each.agent, "text": each.text, "sent_at": each.sent_at}
        for each in messages
        if isinstance(each, UserMessage | AssistantMessage) and is_shown(each) and _spoken(each)
    ]


def _spoken(message: UserMessage | AssistantMessage) -> bool:
    return bool(message.text) and not (isinstance(message, AssistantMessage) and message.tool_calls)
