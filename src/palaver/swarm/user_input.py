"""What is said to an agent: a text, parts, or a whole user message; and the checks of what is given for a text.

Rules:

- A text that is given alone is trimmed when it is kept; parts and messages are kept as they are.
- What a client says is not empty: the model would be asked with nothing, for it never sees a payload. A program may
  say nothing.
- Policies, hooks and events get the text of it.
- Anything else, bytes among it, raises ``MessageError`` at the call.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, get_args

from msgspec import UNSET, Struct

from palaver.core.errors import MessageError
from palaver.core.messages import UserMessage
from palaver.core.parts import Text, UserPart

if TYPE_CHECKING:
    from palaver.core.messages import Mode

_PARTS: Final[tuple[type, ...]] = get_args(UserPart)


class UserInput(Struct, frozen=True):
    """What was given, checked: its text, and the message that is kept of it."""

    text: str
    message: UserMessage

    def payload(self, given: Any) -> Any:
        """The payload beside it: ``given``, or where that is ``None``, what the message brings."""
        own: Any = self.message.payload
        return own if given is None and own is not UNSET else given

    def check_says(self) -> None:
        """Raise ``MessageError`` where the message says nothing."""
        if all(isinstance(part, Text) and not part.text.strip() for part in self.message.content):
            raise MessageError("message: the text is empty")

    def spoken(self, agent: str, mode: Mode) -> UserMessage:
        """The message, as it is said to an agent."""
        return self.message.replace(agent=agent, mode=mode)


Content: TypeAlias = str | UserPart | Sequence[str | UserPart] | UserMessage | UserInput
"""What may be said: a text, a part, texts and parts, or a user message."""


def said(content: object, *, trim: bool = True) -> UserInput:
    """Check what is said to an agent. Raises ``MessageError``."""
    match content:
        case UserInput():
            return content
        case str():
            return UserInput(content, UserMessage(content=(Text(content.strip() if trim else content),)))
        case UserMessage():
            return UserInput(content.text, content)
        case list() | tuple():
            given = cast("Sequence[object]", content)
            if not given:
                raise MessageError("message: the list is empty")
            message = UserMessage(content=tuple([_part(each, at) for at, each in enumerate(given)]))
            return UserInput(message.text, message)
        case _:
            message = UserMessage(content=(_part(content, None),))
            return UserInput(message.text, message)


def _part(given: object, at: int | None) -> UserPart:
    if at is not None and isinstance(given, str):
        return Text(given)
    if not isinstance(given, _PARTS):
        where = "message" if at is None else f"message[{at}]"
        raise MessageError(f"{where}: expected a string, a part or a user message, not {type(given).__name__}")
    return cast("UserPart", given)


def checked_text(text: object, name: str) -> str:
    """Give a text back. Raises ``MessageError`` naming the field for anything else."""
    if not isinstance(text, str):
        raise MessageError(f"{name}: expected a string, not {type(text).__name__}")
    return text
