"""What a person reads of a thread.

Rules:

- The whole conversation in order, each message once: tool calls and results stay, and so do markers and what they hide
  from models.
- System and developer messages (C7), user messages with mode ``"tool"`` or a ``source`` (F25), compaction summaries and
  discarded answers are left out.
- Texts shown in place of an answer stay: placeholders, and texts that the runtime emitted (K13).
- A view after an append costs what was appended.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palaver.core.messages import DeveloperMessage, Message, SystemMessage, UserMessage
from palaver.threads.prefix import ListPrefix
from palaver.threads.thread import Entry
from palaver.threads.view import DISCARDED, RECORD, View

_HIDDEN: Final = frozenset((DISCARDED, RECORD))


class PeopleView(View):
    """The view of a person. Call it with a path, again and again: it reads each entry once."""

    def __call__(self, path: Sequence[Entry]) -> Sequence[Message]:
        """The messages for a person, at the end of a path; immutable."""
        self.follow(path)
        return ListPrefix(self._shown)

    def _reset(self) -> None:
        self._shown: list[Message] = []

    def _read_message(self, message: Message) -> None:
        if is_shown(message):
            self._shown.append(message)


def is_shown(message: Message) -> bool:
    """Whether a person reads a message."""
    if (
        isinstance(message, (SystemMessage, DeveloperMessage))
        or message.is_summary
        or not _HIDDEN.isdisjoint(message.tags)
    ):
        return False
    return not (isinstance(message, UserMessage) and (message.mode == "tool" or message.source is not None))


def for_people(path: Sequence[Entry]) -> Sequence[Message]:
    """The messages for a person, at the end of a path. Reads the whole path."""
    return PeopleView()(path)
