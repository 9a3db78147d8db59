"""What was said while calls wait for a decision, kept until it can join the conversation.

Rules:

- Nothing may stand between a call and its result. So what a user or middleware says while a run stops there is kept in
  a record, which no view shows and no wire sends; who goes on puts it behind the results.
- The last record behind a calling message holds all of it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palaver.core import canonical
from palaver.core.messages import Message, SystemMessage
from palaver.threads.view import RECORD

SOURCE: Final = "held"
"""The ``source`` of such a record."""


def held_record(messages: Sequence[Message]) -> SystemMessage:
    """Keep messages for later."""
    said = [canonical.encode(each).decode() for each in messages]
    return SystemMessage(source=SOURCE, tags=(RECORD,), mode="tool").replace(payload={"messages": said})


def held(messages: Sequence[Message]) -> tuple[Message, ...]:
    """What the last such record among messages holds."""
    for message in reversed(messages):
        if message.source == SOURCE and RECORD in message.tags:
            return tuple([canonical.decode(each.encode()) for each in message.payload["messages"]])
    return ()
