"""Messages to an agent: a text, parts, or a whole user message; and checks of values that must be text.

Rules:

- A text alone is trimmed when it is stored; parts and messages are stored as they are.
- A message of the client is not empty: the model would get an empty question, since it never sees a payload. A message
  of the program may be empty.
- Policies, hooks and events get its text.
- Anything else, such as bytes, raises ``MessageError`` at the call.

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
    """The checked input: its text, and the message that is stored."""

    text: str
    message: UserMessage

    def payload(self, given: Any) -> Any:
        """Return the payload: ``given``, or the message's own when that is ``None``."""
        own: Any = self.message.payload
        return own if given is None and own is not UNSET else given

    def check_says(self) -> None:
        """Raise ``MessageError`` when the message is empty."""
        if all(isinstance(part, Text) and not part.text.strip() for part in self.message.content):
            raise MessageError("message: the text is empty")

    def spoken(self, agent: str, mode: Mode) -> UserMessage:
        """Return the message, as it is sent to an agent."""
        return self.message.replace(agent=agent, mode=mode)


Content: TypeAlias = str | UserPart | Sequence[str | UserPart] | UserMessage | UserInput
"""A message to an agent: a text, a part, texts and parts, or a user message."""


def said(content: object, *, trim: bool = True) -> UserInput:
    """Check a message to an agent. Raises ``MessageError``."""
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
    """Return a text. Raises ``MessageError`` naming the field for anything else."""
    if not isinstance(text, str):
        raise MessageError(f"{name}: expected a string, not {type(text).__name__}")
    return text
