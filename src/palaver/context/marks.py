"""Cache marks: the messages behind which a provider is asked to cache the prompt. Plans only; a wire writes them.

Rules (docs/spec/codebuff.md#2.4, #9.4, CBF-15; docs/spec/pains.md#10; docs/adr/0021-cache-marks.md):

- Places are indexes of messages in ascending order, as ``CachePlan`` takes them.
- ``turn_marks`` are Codebuff's four places: behind the message before the last answer, behind the last user prompt and
  the last step prompt, and at the end. They move with every turn.
- ``StableMarks`` stay in place. A new one is added at the end of a request after ``step`` tokens, and the oldest beyond
  ``keep`` is dropped, so the provider finds the cache entry of the request before.
- ``BridgeMarks`` are for a provider that marks the end of each request by itself and finds an earlier entry only within
  a few blocks: a request that adds many blocks gets a mark where the one before it ended.
- A request ends where an answer follows, so the places depend on the messages alone.
- The cache is warm since the last answer, and cold after 5 minutes. ``cold_stages`` lets stages run early then, since
  no cached prefix is lost.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from operator import is_
from typing import Final, final

from msgspec import structs

from palaver.context.plan import Plan, Stage
from palaver.core.errors import MessageError
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.threads.thread import ListPrefix
from palaver.tokens.estimate import estimate
from palaver.wires._engine.cache_marks import CachePlan

# --- marks ------------------------------------------------------------------------------------------------------------


__all__ = ["KEEP", "NEAR", "STEP", "BridgeMarks", "CachePlan", "StableMarks", "stable_marks", "turn_marks"]

STEP: Final = 1024
"""The least tokens that providers cache, and that one of them requires between two marks.

https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html
"""
KEEP: Final = 2
"""Marks in the messages: the head has two of the four."""
NEAR: Final = 16
"""As many blocks are near. Providers look at 20; a wire may make a few more blocks of a message than it has parts.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching
"""
_PROMPTS: Final = ("USER_PROMPT", "STEP_PROMPT")
"""The tags that agents give to prompts."""


def turn_marks(messages: Sequence[Message]) -> tuple[int, ...]:
    """Return Codebuff's four places. Costs one pass."""
    if not messages:
        return ()
    ends = {len(messages) - 1}
    for wanted in (None, *_PROMPTS):
        for place in range(len(messages) - 1, 0, -1):
            message = messages[place]
            if isinstance(message, AssistantMessage) if wanted is None else wanted in message.tags:
                ends.add(place - 1)
                break
    return tuple(sorted(ends))


def stable_marks(messages: Sequence[Message], *, step: int = STEP, keep: int = KEEP) -> tuple[int, ...]:
    """Return places that do not move. Costs one pass; ``StableMarks`` is incremental. Raises ``MessageError``."""
    return StableMarks(step=step, keep=keep)(messages)


class _IncrementalMarks:
    """Places of one growing list of messages: a call costs only the new messages."""

    __slots__ = ("_last", "_places", "_seen")

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._seen: Sequence[Message] = ()
        self._places: tuple[int, ...] = ()
        self._last: Message | None = None

    def __call__(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the places for these messages."""
        if not self._extends(messages):
            self._reset()
        for place in range(len(self._seen), len(messages)):
            message = messages[place]
            if isinstance(message, AssistantMessage) and place and not isinstance(self._last, AssistantMessage):
                self._places = self._request_ended(place - 1)
                self._request_started(place - 1)
            self._add(message)
            self._last = message
        self._seen = messages
        if messages and not isinstance(self._last, AssistantMessage):
            return self._request_ended(len(messages) - 1)
        return self._places

    def _extends(self, messages: Sequence[Message]) -> bool:
        seen = self._seen
        if isinstance(messages, ListPrefix) and messages.continues(seen):
            return True
        return len(messages) >= len(seen) and all(map(is_, seen, messages))

    @abstractmethod
    def _add(self, message: Message) -> None:
        """Count a message."""

    @abstractmethod
    def _request_ended(self, place: int) -> tuple[int, ...]:
        """Return the places, when a request ends with the message at ``place``."""

    @abstractmethod
    def _request_started(self, place: int) -> None:
        """Count from here: a request ended with the message at ``place``, and its places are known."""


@final
class StableMarks(_IncrementalMarks):
    """``stable_marks`` of one growing list of messages: a call costs only the new messages."""

    __slots__ = ("_keep", "_since", "_step")

    def __init__(self, *, step: int = STEP, keep: int = KEEP) -> None:
        """Start without messages. ``step`` is estimated tokens. Raises ``MessageError`` when either is below 1."""
        if step < 1 or keep < 1:
            raise MessageError("step and keep of cache marks must be at least 1")
        self._step, self._keep = step, keep
        super().__init__()

    def _reset(self) -> None:
        super()._reset()
        self._since = 0

    def _add(self, message: Message) -> None:
        self._since += estimate(message)

    def _request_ended(self, place: int) -> tuple[int, ...]:
        return (*self._places, place)[-self._keep :] if self._since >= self._step else self._places

    def _request_started(self, place: int) -> None:
        if self._places[-1:] == (place,):
            self._since = 0


@final
class BridgeMarks(_IncrementalMarks):
    """The last place where a request ended and was followed by more blocks than the provider looks back."""

    __slots__ = ("_blocks", "_end")

    def _reset(self) -> None:
        super()._reset()
        self._blocks = 0
        self._end: int | None = None

    def _add(self, message: Message) -> None:
        self._blocks += 1 if isinstance(message, ToolMessage) else len(message.content)

    def _request_ended(self, place: int) -> tuple[int, ...]:  # noqa: ARG002 (it is the end before that is marked)
        return (self._end,) if self._end is not None and self._blocks >= NEAR else self._places

    def _request_started(self, place: int) -> None:
        self._end, self._blocks = place, 0


# --- cold -------------------------------------------------------------------------------------------------------------


TTL: Final = 5 * 60 * 1000
"""The milliseconds for which providers usually cache a prompt."""


def idle(plan: Plan) -> int:
    """Return the milliseconds since the last answer; 0 when they are not known."""
    latest = plan.now
    for item in reversed(plan.items):
        sent = item.message.sent_at
        if sent is None:
            continue
        latest = latest or sent
        if isinstance(item.message, AssistantMessage):
            return max(latest - sent, 0)
    return 0


def is_cold(plan: Plan, ttl: int = TTL) -> bool:
    """Return whether the provider's cache of the prompt has expired."""
    return idle(plan) > ttl


def cold_stages(stages: Sequence[Stage], share: float = 0.5, *, ttl: int = TTL) -> tuple[Stage, ...]:
    """Return the stages; each also runs from a share of the capacity on while the cache is cold.

    Raises ``MessageError`` for a value that is not a share.
    """
    if not 0 < share <= 1:
        raise MessageError(f"share: expected a number above 0 and up to 1, got {share!r}")
    return tuple([structs.replace(stage, early=partial(_early, share, ttl, stage.early)) for stage in stages])


def _early(share: float, ttl: int, early: Callable[[Plan], bool] | None, plan: Plan) -> bool:
    if early is not None and early(plan):
        return True
    return plan.tokens >= int(share * plan.capacity) and is_cold(plan, ttl)
