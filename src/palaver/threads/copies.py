"""Messages that a compaction repeated in a thread.

Rules:

- Readers of session files append, behind a compaction, the summary and copies of the messages that it kept, with
  ``source="compaction"``. Our own compaction lets a message stand on another branch again, with its id.
- A copy has the role, the parts and the answered call of an earlier message of its thread. A summary is no copy.
- Models need the copies; ``without_copies`` gives readers and searches each message once.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final, TypeAlias

from palaver.core import canonical
from palaver.core.messages import Message, ToolMessage
from palaver.threads.thread import Entry

COMPACTION: Final = "compaction"
"""The ``source`` of what a compaction put into a thread."""

Fingerprint: TypeAlias = tuple[str, str | None, bytes]


def fingerprint(message: Message) -> Fingerprint:
    """What a message says, whoever repeats it, in a form that can be compared."""
    digest = sha256()
    for part in message.content:
        text = canonical.encode(part)
        digest.update(b"%d:" % len(text))
        digest.update(text)
    return message.role, message.tool_call_id if isinstance(message, ToolMessage) else None, digest.digest()


def without_copies(entries: Iterable[Entry]) -> list[Entry]:
    """Entries in their order, without copies of earlier ones. Costs nothing where no compaction put anything in."""
    every = list(entries)
    if not any(entry.message.source == COMPACTION for entry in every):
        return every
    seen: set[Fingerprint] = set()
    kept: list[Entry] = []
    for entry in every:
        message = entry.message
        if message.content:
            what = fingerprint(message)
            if message.source == COMPACTION and what in seen:
                continue
            seen.add(what)
        kept.append(entry)
    return kept
