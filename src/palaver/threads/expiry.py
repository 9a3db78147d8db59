"""Expiry: messages that last for one step of an agent, or for one user prompt.

Rules (docs/spec/codebuff.md#9.1):

- The tag ``expires:agent-step`` lasts to the end of the step, ``expires:user-prompt`` to the end of the prompt. With
  both, the shorter one counts. The end of a prompt ends its last step.
- The thread keeps expired messages. ``expire`` returns the list without them, or the same object when nothing expires.
  Views for models leave them out (``threads.view``).
- Pairs stay whole: a result that expires takes its call with it, and an answer its results. An answer of which only
  reasoning is left goes too.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

from palaver.core.errors import MessageError
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.pairs import client_calls
from palaver.core.parts import MalformedToolCall, Reasoning, Text, ToolCall

EXPIRES_AGENT_STEP: Final = "expires:agent-step"
EXPIRES_USER_PROMPT: Final = "expires:user-prompt"

EndOf: TypeAlias = Literal["agent-step", "user-prompt", "agentStep", "userPrompt"]
"""The end of what; the names of Codebuff are taken too."""

_STEP: Final = frozenset((EXPIRES_AGENT_STEP,))
_PROMPT: Final = frozenset((EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT))
_EXPIRED: Final[dict[str, frozenset[str]]] = {
    "agent-step": _STEP,
    "user-prompt": _PROMPT,
    "agentStep": _STEP,
    "userPrompt": _PROMPT,
}
_EMPTY: Final = Text("")


def expire(messages: Sequence[Message], end_of: EndOf) -> Sequence[Message]:
    """The messages that are still there at the end of a step or prompt; the same object when all are.

    Raises ``MessageError`` for an end that there is not.
    """
    if not any(map(has_lifetime, messages)):
        _tags(end_of)
        return messages
    left = drop_expired(messages, end_of)
    if all(mine is its for mine, its in zip(left, messages, strict=True)):
        return messages
    return tuple([message for message in left if message is not None])


def has_lifetime(message: Message) -> bool:
    """Whether a tag says how long a message is there."""
    return bool(message.tags) and not _PROMPT.isdisjoint(message.tags)


def drop_expired(messages: Sequence[Message], end_of: EndOf) -> list[Message | None]:
    """For each message what is left of it; ``None`` where it expired."""
    tags = _tags(end_of)
    left: list[Message | None] = list(messages)
    answer = -1
    gone: set[str] = set()
    lost: dict[int, set[str | None]] = {}
    for place, message in enumerate(messages):
        over = not tags.isdisjoint(message.tags)
        if isinstance(message, AssistantMessage):
            answer = place
            gone = {call.id for call in client_calls(message)} if over else set[str]()
        elif isinstance(message, ToolMessage) and message.tool_call_id in gone:
            over = True
        elif isinstance(message, ToolMessage) and over and answer >= 0:
            lost.setdefault(answer, set()).add(message.tool_call_id)
        if over:
            left[place] = None
    for place, calls in lost.items():
        left[place] = _without(messages[place], calls)
    return left


def _without(answer: Message, calls: Collection[str | None]) -> Message | None:
    """An answer without calls; ``None`` where nothing is said in it then."""
    rest = [
        part for part in answer.content if not (isinstance(part, ToolCall | MalformedToolCall) and part.id in calls)
    ]
    if not any(part != _EMPTY and not isinstance(part, Reasoning) for part in rest):
        return None
    return answer.replace(content=cast("Any", tuple(rest)))


def _tags(end_of: str) -> frozenset[str]:
    tags = _EXPIRED.get(end_of)
    if tags is None:
        raise MessageError(f"end_of: {end_of!r}: expected one of {', '.join(map(repr, _EXPIRED))}")
    return tags
