"""What one agent's model sees of a thread that several agents share.

Rules (docs/spec/agent-swarm-kit.md#2.5, with the deviations a to f):

- The view is the prompt, the instructions in order (global, static, dynamic, flags), the system messages committed for
  this agent, and the dialogue. The window does not count system messages.
- The dialogue is the text of all agents in order, developer messages included. A message with a tool call, and each
  tool result, is visible to its own agent only.
- Markers and what they hide, messages tagged as unsent, empty messages (a tool result with empty text is not one) and
  those that ``where`` rejects are left out. When ``where`` raises, the message stays.
- The window is the last ``keep`` messages of the dialogue; ``None`` keeps all. The message that opened the turn always
  stays, before the window and not counted: the last user message whose mode is not ``"tool"``, or the one at ``since``.
- A call without a result in the window is left out, and so is a result without a call; a message keeps its other parts.
  Calls that the provider runs stay. Order and number of results are left to ``repair`` and the wires.
- A view after an append costs what was appended and the window.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, cast

from palaver.core.messages import (
    AssistantMessage,
    FlushMarker,
    Message,
    RescueMarker,
    SystemMessage,
    ToolMessage,
)
from palaver.core.pairs import client_calls
from palaver.core.parts import AnyPart, MalformedToolCall, Reasoning, Text, ToolCall
from palaver.core.type_checks import check_arguments
from palaver.threads.thread import Entry
from palaver.threads.view import ModelsView, check_keep, is_sent

KEEP: Final = 15
"""The default number of dialogue messages that an agent sees."""

_EMPTY: Final = Text("")


class AgentView(ModelsView):
    """The view of one agent. Call it with each new path: it reads each entry once.

    ``agent`` is the name of the agent, and ``keep`` the number of dialogue messages in its window; ``None`` keeps all.
    ``prompt`` is the text of the first system message and ``instructions`` are those of the next ones; empty texts are
    left out. ``where`` is called once for each message of the dialogue that the rules admit, and must always return
    the same answer for it. Raises ``StoreError`` when ``keep`` is negative.
    """

    _OUTSIDE: ClassVar[tuple[type[Message], ...]] = (SystemMessage,)

    def __init__(
        self,
        agent: str,
        *,
        keep: int | None = KEEP,
        prompt: str = "",
        instructions: Iterable[str] = (),
        where: Callable[[Message], bool] | None = None,
    ) -> None:
        """Make a view that has read nothing yet."""
        check_arguments("AgentView", AgentView.__init__, locals())
        super().__init__()
        self.agent = agent
        self._keep = check_keep(keep)
        self._where = where
        self.instruct(prompt, instructions)

    def instruct(self, prompt: str, instructions: Iterable[str] = ()) -> None:
        """Replace ``prompt`` and ``instructions``. The view does not read the path again."""
        texts = [text for text in (prompt, *instructions) if text]
        self._prefix = [SystemMessage(content=(Text(text),), agent=self.agent, mode="tool") for text in texts]

    @property
    def prefix(self) -> Sequence[SystemMessage]:
        """The prompt and the instructions, which stand before everything else."""
        return self._prefix

    def __call__(self, path: Sequence[Entry], *, since: int | None = None) -> Sequence[Message]:
        """Return the messages for the model, at the end of ``path``.

        ``since`` is the position in the path of the message that opened the turn; without it, the last user message
        whose mode is not ``"tool"`` opened it.
        """
        self.follow(path)
        visible = self._visible
        start = self._window(self._keep)
        window: list[Message] = [each for each in visible[start:] if not isinstance(each, SystemMessage)]
        opening = self._opening(path, since)
        if self._keep != 0 and opening is not None and opening < start:
            window.insert(0, visible[opening])
        return (*self._prefix, *[visible[position] for position in self._outside], *_without_unpaired(window))

    def _opening(self, path: Sequence[Entry], since: int | None) -> int | None:
        """Return the position of the turn's own message among the visible ones; ``None`` when it is not visible."""
        count = len(self._visible)
        if since is None:
            return self._turn if self._turn < count and self._starts_turn(self._turn) else None
        asked = path[since].message.id
        earliest = max(count - (len(path) - since), 0)  # each visible message is one of the path
        return next((place for place in range(earliest, count) if self._visible[place].id == asked), None)

    def _applies(self, marker: RescueMarker | FlushMarker) -> bool:
        return marker.agent == self.agent

    def _ends_step(self, message: Message) -> bool:
        return message.agent == self.agent and super()._ends_step(message)

    def _includes(self, message: Message) -> bool:
        if not is_sent(message) or not _has_content(message):
            return False
        if isinstance(message, SystemMessage):
            return message.agent == self.agent
        if (isinstance(message, ToolMessage) or _has_calls(message)) and message.agent != self.agent:
            return False
        try:
            return self._where is None or self._where(message)
        except Exception:  # noqa: BLE001 (a filter that fails must not empty the conversation; 2.5, step 4)
            return True


def for_agent(
    path: Sequence[Entry],
    agent: str,
    *,
    keep: int | None = KEEP,
    prompt: str = "",
    instructions: Iterable[str] = (),
    where: Callable[[Message], bool] | None = None,
) -> Sequence[Message]:
    """Return the messages for the model of ``agent``, at the end of ``path``. Reads the whole path.

    ``keep``, ``prompt``, ``instructions`` and ``where`` are those of ``AgentView``. Raises ``StoreError`` when ``keep``
    is negative.
    """
    return AgentView(agent, keep=keep, prompt=prompt, instructions=instructions, where=where)(path)


def _has_content(message: Message) -> bool:
    """Whether a message is not empty."""
    if isinstance(message, ToolMessage):
        return bool(message.content)
    return any(part != _EMPTY for part in message.content)


def _has_calls(message: Message) -> bool:
    """Whether a message calls a tool, or tried to."""
    return any(isinstance(part, (ToolCall, MalformedToolCall)) for part in message.content)


def _without_unpaired(window: Sequence[Message]) -> list[Message]:
    """Leave out calls without a result, then results without a call."""
    answered = {each.tool_call_id for each in window if isinstance(each, ToolMessage)}
    requested = {call.id for each in window for call in client_calls(each)} & answered
    requested |= {call.id for each in window for call in each.malformed_tool_calls if call.id} & answered
    paired: list[Message] = []
    for message in window:
        if isinstance(message, ToolMessage):
            if message.tool_call_id in requested:
                paired.append(message)
        elif isinstance(message, AssistantMessage) and any(call.id not in answered for call in client_calls(message)):
            rest = [part for part in message.content if not _unanswered(part, requested)]
            # reasoning that led to nothing but the calls goes with them
            if any(part != _EMPTY and not isinstance(part, Reasoning) for part in rest):
                paired.append(message.replace(content=cast("Any", rest)))
        else:
            paired.append(message)
    return paired


def _unanswered(part: AnyPart, requested: set[str]) -> bool:
    return isinstance(part, ToolCall) and not part.provider_executed and part.id not in requested
