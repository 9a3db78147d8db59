"""Expiry: messages that are there for one step of an agent, or for one prompt of a user.

Rules (docs/spec/codebuff.md#9.1):

- A tag says how long a message is there: ``expires:agent-step`` to the end of the step, ``expires:user-prompt`` to the
  end of the prompt. With both, the shorter one counts; without any, it stays.
- A prompt ends its last step with it.
- The thread keeps what expired; ``expire`` makes the list without it, and gives the same object back when nothing
  expires. It parts pairs where only one side is tagged: ``repair`` comes after it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from palaver.core.messages import Message

EXPIRES_AGENT_STEP: Final = "expires:agent-step"
EXPIRES_USER_PROMPT: Final = "expires:user-prompt"

EndOf: TypeAlias = Literal["agent-step", "user-prompt"]

_EXPIRED: Final[dict[EndOf, frozenset[str]]] = {
    "agent-step": frozenset((EXPIRES_AGENT_STEP,)),
    "user-prompt": frozenset((EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT)),
}


def expire(messages: Sequence[Message], end_of: EndOf) -> Sequence[Message]:
    """The messages that are still there at the end of a step or prompt; the same object when all are."""
    expired = _EXPIRED[end_of]
    stay = tuple([message for message in messages if expired.isdisjoint(message.tags)])
    return stay if len(stay) < len(messages) else messages
