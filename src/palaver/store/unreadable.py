"""What stands in a thread for a message that is stored and cannot be decoded, or is not as it was written.

Rules:

- The entry keeps its place, so all other messages of the thread are read, and its path is whole. Its message is a
  record: it is never sent to a model, and no view of the conversation shows it.
- ``payload`` says why (``reason``), and has the stored bytes, as ``text`` where they are UTF-8, else as ``base64``.
- ``verify`` reports the entry as ``unreadable``, and a body that is not as it was written as ``altered`` or
  ``missing``.

Stability: experimental.
"""

from __future__ import annotations

import binascii
from typing import Final

from palaver.core.messages import Message, SystemMessage
from palaver.core.value import json_text
from palaver.threads.view import RECORD

SOURCE: Final = "unreadable"
"""The ``source`` of such a record."""


def unreadable(data: bytes, reason: str, *, id: str | None = None, sent_at: int | None = None) -> Message:
    """Make the record that stands for stored bytes. ``id`` and ``sent_at`` are those of the entry, where known."""
    try:
        stored = {"text": data.decode()}
    except UnicodeDecodeError:
        stored = {"base64": binascii.b2a_base64(data, newline=False).decode()}
    payload = json_text({"reason": reason, **stored}, "payload")
    return SystemMessage(source=SOURCE, tags=(RECORD,), mode="tool", id=id, sent_at=sent_at, payload_json=payload)


def is_unreadable(message: Message) -> bool:
    """Whether a message stands for one that cannot be decoded."""
    return isinstance(message, SystemMessage) and message.source == SOURCE and RECORD in message.tags
