"""What the model of one agent sees of a thread that many agents share.

Rules (docs/spec/agent-swarm-kit.md#2.5, with the deviations a to f):

- First the prompt, then the instructions in the order given (global, static, dynamic, flags), then the system messages
  committed for this agent, then the dialogue. System messages are not counted by the window.
- The dialogue is what all agents said, in order, developer messages among it. Tool calls and their results are seen by
  the agent that they belong to, and by no other: a message with a call is that agent's alone, its text too.
- Left out are markers and what they hide, messages with a tag that keeps them from models, messages that say nothing
  (no parts, or none but empty text, which for the result of a tool is an answer), and what ``where`` refuses. When
  ``where`` raises, the message stays.
- The last ``keep`` messages of the dialogue are the window: 0 gives none, ``None`` all. The message that the turn began
  with stays where the window does not reach back to it, in front of the window and not counted by it: however many
  tools a turn calls, the model sees what it was asked. The turn begins with the last user message whose mode is not
  ``"tool"``, or with the one at ``since``, for a turn that a program began.
- Inside the window a call without a result is left out, and so is a result without a call; a message keeps its other
  calls and its text. So a window that would part a call from its result holds neither. Calls that the provider
  answers itself stay. Neither order nor number of results is judged: that is repair's work, and the wires'.
- A view after an append costs what was appended and the window. Memory: a reference to each message of the dialogue
  since the last marker that hid everything.

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
from palaver.threads.view import ModelsView, checked_keep, is_sent

KEEP: Final = 15
"""How many messages of the dialogue an agent sees, where nothing else is said."""

_EMPTY: Final = Text("")


class AgentView(ModelsView):
    """The view of one agent. Call it with a path, again and again: it reads each entry once.

    ``where`` is asked once for each message of the dialogue that the rules admit, and must always give the same answer.
    Raises ``StoreError`` when ``keep`` is negative.
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
        """See as ``agent`` does."""
        check_arguments("AgentView", AgentView.__init__, locals())
        super().__init__()
        self.agent = agent
        self._keep = checked_keep(keep)
        self._where = where
        self.instruct(prompt, instructions)

    def instruct(self, prompt: str, instructions: Iterable[str] = ()) -> None:
        """Change what stands before everything else; what was read stays read."""
        texts = [text for text in (prompt, *instructions) if text]
        self._prefix = [SystemMessage(content=(Text(text),), agent=self.agent, mode="tool") for text in texts]

    @property
    def prefix(self) -> Sequence[SystemMessage]:
        """The prompt and the instructions, which stand before everything else."""
        return self._prefix

    def __call__(self, path: Sequence[Entry], *, since: int | None = None) -> Sequence[Message]:
        """The messages for the model, at the end of a path. ``since``: where in the path the turn began."""
        self.follow(path)
        visible = self._visible
        start = self._window(self._keep)
        window: list[Message] = [each for each in visible[start:] if not isinstance(each, SystemMessage)]
        opening = self._opening(path, since)
        if self._keep != 0 and opening is not None and opening < start:
            window.insert(0, visible[opening])
        return (*self._prefix, *[visible[position] for position in self._outside], *_paired(window))

    def _opening(self, path: Sequence[Entry], since: int | None) -> int | None:
        """Where the turn's own message is visible; ``None`` where it is not."""
        count = len(self._visible)
        if since is None:
            return self._turn if self._turn < count and self._opens(self._turn) else None
        asked = path[since].message.id
        earliest = max(count - (len(path) - since), 0)  # each visible message is one of the path
        return next((place for place in range(earliest, count) if self._visible[place].id == asked), None)

    def _heeds(self, marker: RescueMarker | FlushMarker) -> bool:
        return marker.agent == self.agent

    def _answers(self, message: Message) -> bool:
        return message.agent == self.agent and super()._answers(message)

    def _admits(self, message: Message) -> bool:
        if not is_sent(message) or not _says(message):
            return False
        if isinstance(message, SystemMessage):
            return message.agent == self.agent
        if (isinstance(message, ToolMessage) or _calls(message)) and message.agent != self.agent:
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
    """The messages for the model of ``agent``, at the end of a path; ``AgentView`` says more. Reads the whole path."""
    return AgentView(agent, keep=keep, prompt=prompt, instructions=instructions, where=where)(path)


def _says(message: Message) -> bool:
    """Whether a message has something to say."""
    if isinstance(message, ToolMessage):
        return bool(message.content)
    return any(part != _EMPTY for part in message.content)


def _calls(message: Message) -> bool:
    """Whether a message calls a tool, or tried to."""
    return any(isinstance(part, (ToolCall, MalformedToolCall)) for part in message.content)


def _paired(window: Sequence[Message]) -> list[Message]:
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
