"""What a line of a rollout holds, and what it says of the messages around it.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw, structs

from palaver.core import trusted
from palaver.core.messages import AssistantMessage, Message, UserMessage
from palaver.core.parts import Text
from palaver.threads.view import PLACEHOLDER
from palaver.transcripts.codex.open_message import Open
from palaver.transcripts.codex.shapes import ITEMS, UNSAID, injected
from palaver.transcripts.fields import as_object, inner, listed, split, string, value
from palaver.transcripts.times import read_time

if TYPE_CHECKING:
    from palaver.core.jsontext import Fields


def shown(role: str, text: str, *, failed: bool = False) -> Message:
    """What people were shown, and no model sees."""
    content = (trusted.Text(text),)
    if role == "user":
        return trusted.UserMessage(content=content, tags=(PLACEHOLDER,))
    return trusted.AssistantMessage(content=content, tags=(PLACEHOLDER,), finish_reason="error" if failed else None)


def kind_and_payload(fields: Fields) -> tuple[str | None, Fields]:
    """The kind of a line and its payload; the oldest files have items, and a head without a type, bare."""
    kind = string(fields, "type")
    if "payload" in fields:
        return kind, inner(fields, "payload")
    if kind in ITEMS:
        return "response_item", fields
    return ("session_meta" if kind is None and "id" in fields and "timestamp" in fields else kind), fields


def timed(group: list[Any], fields: Fields) -> list[Any]:
    """Give messages without a time that of their line."""
    sent_at = read_time(value(fields, "timestamp"))
    return [structs.replace(each, sent_at=sent_at) if each.sent_at is None else each for each in group]


def answered(message: Message, model: str | None, usage: Any, opened: Open) -> Message:
    """Give an answer what the lines around it say."""
    if not isinstance(message, AssistantMessage):
        return message
    told = structs.replace(message, model=model, usage=usage, response_id=opened.response)
    if opened.aborted is None:
        return told
    return structs.replace(told, finish_reason="other", finish_reason_raw=opened.aborted)


def is_unsaid(item: Raw) -> bool:
    """Whether an item says nothing to a model."""
    return string(as_object(item), "type") in UNSAID


def begins_turn(message: UserMessage, source: str | None = None) -> bool:
    """Whether a rollback counts a prompt: it was typed, or another agent said it."""
    if message.source == "agent_message":
        return True
    texts = [part.text for part in message.content if isinstance(part, Text)]
    return message.source == source and (source is None or injected(texts) is None)


def event_text(fields: Fields) -> str:
    """The text of an event, or of the item that one says is complete."""
    message = string(fields, "message")
    if message is not None:
        return message
    return "".join(filter(None, [string(split(each), "text") for each in listed(fields, "content")]))
