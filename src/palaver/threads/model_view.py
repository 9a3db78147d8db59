"""What a model sees of a thread of one agent with its user.

Rules:

- All messages in order, without markers, what they hide, and messages tagged as unsent. A marker with scope ``agent``
  hides nothing here (``AgentView`` applies it).
- Nothing is repaired: ``threads.repair`` and the wires do that.
- ``keep`` is a window on the last messages other than system and developer messages, which always stay, as does the
  message that opened the user's last turn. A result without its call in the window is left out.
- Without ``keep``, a view after an append costs what was appended, and copies nothing; a hidden turn costs one copy of
  the references where an earlier view still holds them. With ``keep``, a view costs the window and system messages.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.messages import FlushMarker, Message, RescueMarker, ToolMessage
from palaver.core.type_checks import check_arguments
from palaver.threads.prefix import ListPrefix
from palaver.threads.thread import Entry
from palaver.threads.view import ModelsView, check_keep, is_sent


class ModelView(ModelsView):
    """The view of a single agent's model. Call it with a path, again and again: it reads each entry once.

    Raises ``StoreError`` when ``keep`` is negative.
    """

    def __init__(self, *, keep: int | None = None) -> None:
        """See everything, or the last ``keep`` messages."""
        check_arguments("ModelView", ModelView.__init__, locals())
        super().__init__()
        self._keep = check_keep(keep)

    def __call__(self, path: Sequence[Entry]) -> Sequence[Message]:
        """The messages for the model, at the end of a path; immutable."""
        self.follow(path)
        visible = self._visible
        if self._keep is None:
            self._shared_length = len(visible)
            return ListPrefix(visible)
        start = self._window(self._keep)
        before = [position for position in self._outside if position < start]
        if self._keep and self._turn < start and self._starts_turn(self._turn):
            before = sorted((*before, self._turn))
        return (*[visible[position] for position in before], *_without_partial_rounds(visible[start:]))

    def _applies(self, marker: RescueMarker | FlushMarker) -> bool:  # noqa: ARG002 (the contract of the base)
        return False

    def _includes(self, message: Message) -> bool:
        return is_sent(message)


def for_model(path: Sequence[Entry], *, keep: int | None = None) -> Sequence[Message]:
    """The messages for a single agent's model, at the end of a path; ``ModelView`` says more. Reads the whole path."""
    return ModelView(keep=keep)(path)


def _without_partial_rounds(window: Sequence[Message]) -> list[Message]:
    """Leave out results whose call was cut off. One that names no call stands free, and stays."""
    called: set[str | None] = {None}
    whole: list[Message] = []
    for message in window:
        if isinstance(message, ToolMessage) and message.tool_call_id not in called:
            continue
        called.update(call.id for call in message.tool_calls)
        called.update(call.id for call in message.malformed_tool_calls)
        whole.append(message)
    return whole
