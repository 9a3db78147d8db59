"""What the result of a tool says, read as JSON where it is JSON.

Rules:

- Outputs are read one by one: a JSON part by its value, a text by the value that it spells, when it spells an object or
  a list. Any other text is no JSON, and a tool may well have written it.
- A result is an error when it is marked as one, or when an object in it has an ``errorMessage``.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.messages import ToolMessage
from palaver.core.parts import Json, Text, ToolPart

TERMINAL: Final = frozenset(
    ("run_terminal_command", "run_command", "run_shell_command", "execute_command", "exec_command", "bash", "shell")
)
"""Tools that run commands, by the usual names."""


def values(message: ToolMessage) -> list[Any]:
    """The values that a result holds as JSON."""
    return [value for part in message.content if (value := _value(part)) is not None]


def objects(message: ToolMessage) -> list[dict[str, Any]]:
    """The objects among its values."""
    return [value for value in values(message) if isinstance(value, dict)]


def failed(message: ToolMessage) -> bool:
    """Whether it is an error."""
    return message.is_error or any("errorMessage" in each for each in objects(message))


def said(message: ToolMessage) -> str:
    """All that it says, as text; media and unknown blocks say nothing."""
    return "\n".join([_text(part) for part in message.content if isinstance(part, Text | Json)])


def _value(part: ToolPart) -> Any:
    if isinstance(part, Json):
        return part.value
    if not isinstance(part, Text) or not part.text.lstrip().startswith(("{", "[")):
        return None
    try:
        return jsontext.view(part.text)
    except DecodeError:
        return None


def _text(part: Text | Json) -> str:
    if isinstance(part, Text):
        return part.text
    value = part.value
    return value if isinstance(value, str) else bytes(part.value_json).decode()
