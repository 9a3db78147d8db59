"""What a prompt can be: a text, parts, a message, or several messages.

A text, a part, or a sequence of texts and parts is one user message. A message, or a sequence of messages, is used as
it is.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, cast, get_args

from palaver.core.errors import MessageError
from palaver.core.factories import user
from palaver.core.messages import MESSAGE_CLASSES, Message, UserMessage
from palaver.core.parts import AnyPart, UserPart

PromptInput: TypeAlias = str | UserPart | Message | Sequence[str | UserPart] | Sequence[Message]
"""A text, a part, a message, texts and parts of one user message, or messages."""

_PLAIN: Final = UserMessage()
_CONTENT: Final[tuple[type, ...]] = (str, *get_args(UserPart))


def prompt_messages(prompt: object, *, template: UserMessage = _PLAIN) -> tuple[Message, ...]:
    """Return the messages that ``prompt`` stands for.

    ``prompt`` is a ``PromptInput``. ``template`` has the fields of the user message that is made of texts and parts.
    Raises ``MessageError`` for anything else, and for messages beside parts.
    """
    items: tuple[object, ...] = (prompt,)
    if isinstance(prompt, Sequence) and not isinstance(prompt, str | bytes):
        items = tuple(cast("Sequence[object]", prompt))
    found = [each for each in items if isinstance(each, MESSAGE_CLASSES)]
    if found and len(found) == len(items):
        return tuple(found)
    if found:
        raise MessageError("a prompt is a list of messages or a list of parts, not a mixture")
    for at, each in enumerate(items):
        if not isinstance(each, _CONTENT):
            place = "prompt" if items == (prompt,) else f"prompt[{at}]"
            kind = type(each).__name__
            raise MessageError(f"{place}: expected a string, a part, a message, or a list of these, got {kind}")
    return (template.replace(content=cast("tuple[str | AnyPart, ...]", items)),)


def as_messages(messages: Iterable[Message | str]) -> tuple[Message, ...]:
    """Return messages; a text among ``messages`` stands for a user message. Anything else is left to be checked."""
    return tuple([user(each) if isinstance(each, str) else each for each in messages])
