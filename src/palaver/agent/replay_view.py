"""What is replayed to the model: the view of a thread, with what a broken turn left behind repaired.

Rules:

- As long as nothing is broken, it is the view itself, and costs what is new.
- A turn that broke off is repaired once (``threads.repair``); what follows is added behind the repaired list, so that
  the encoder of a session goes on with what it wrote.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.messages import AssistantMessage, Message
from palaver.threads.growing import Beginning
from palaver.threads.model_view import ModelView
from palaver.threads.repair import repair
from palaver.threads.thread import Entry


class ReplayView:
    """The messages for the model. Call it with a path, again and again."""

    def __init__(self) -> None:
        """See everything that is visible."""
        self._view = ModelView()
        self._visible: Beginning[Message] | None = None
        self._own: list[Message] | None = None

    def __call__(self, path: Sequence[Entry]) -> Sequence[Message]:
        """The messages at the end of a path; immutable."""
        visible = self._view(path)
        assert isinstance(visible, Beginning)  # noqa: S101 (it is, without ``keep``)
        before, self._visible = self._visible, visible
        new = visible[len(before) :] if before is not None and visible.continues(before) else None
        if new is None or any(map(_broke_off, new)):
            repaired = repair(visible).messages
            self._own = None if repaired is visible else list(repaired)
        elif self._own is not None:
            self._own += new
        return visible if self._own is None else Beginning(self._own)


def _broke_off(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and message.finish_reason == "error"
