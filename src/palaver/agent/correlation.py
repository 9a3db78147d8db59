"""Give answers the metadata of the message they answer, so that a session or trace id stands on both (C12).

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, UnsetType, structs

from palaver.context.rewriting import COMPACTION
from palaver.core.jsontext import raw, view
from palaver.core.messages import AssistantMessage, Message, UserMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.threads.thread import Entry


class Correlation:
    """What was said last by somebody outside the run. A message that a runtime made (``source``) is not that."""

    def __init__(self, path: Sequence[Entry]) -> None:
        """Go on behind a conversation; costs as much as is behind the last user message."""
        self._metadata: Raw | UnsetType = UNSET
        for index in range(len(path) - 1, -1, -1):
            message = path[index].message
            if _is_said(message):
                self._metadata = _own(message)
                break

    def joining(self, message: Message) -> Message:
        """A message as it joins the conversation. What an answer says itself stands before what it inherits."""
        if _is_said(message):
            self._metadata = _own(message)
        elif isinstance(message, AssistantMessage) and self._metadata is not UNSET:
            if message.metadata_json is UNSET:
                return structs.replace(message, metadata_json=self._metadata)
            return message.replace(metadata={**view(self._metadata), **message.metadata})
        return message


def _own(message: Message) -> Raw | UnsetType:
    """The metadata of a message without the mark that it was shortened by compaction."""
    if message.metadata_json is UNSET or COMPACTION not in message.metadata:
        return message.metadata_json
    return raw({key: value for key, value in message.metadata.items() if key != COMPACTION})


def _is_said(message: Message) -> bool:
    return isinstance(message, UserMessage) and message.source is None and message.mode != "tool"
