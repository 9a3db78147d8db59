"""Build messages: strings and parts in order, fields by keyword.

Rules (F90 to F94, R16):

- A string becomes a text part. Everything else must be a part the role can hold; else
  ``MessageError``.
- Factories are pure: they invent neither id nor time.
- ``metadata``, ``payload`` and ``provider`` take plain Python values and are kept as JSON text.

Stability: stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from palaver.core import jsontext
from palaver.core.errors import MessageError
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    RescueMarker,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import (
    AssistantPart,
    Json,
    Reasoning,
    TextPart,
    ToolCall,
    ToolPart,
    UserPart,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from palaver.core.parts import MalformedToolCall

_M = TypeVar(
    "_M",
    SystemMessage,
    DeveloperMessage,
    UserMessage,
    AssistantMessage,
    ToolMessage,
    RescueMarker,
    FlushMarker,
)


def _build(cls: type[_M], content: Iterable[object], fields: dict[str, Any]) -> _M:
    if "content" in fields:
        raise MessageError("content goes first, by position")
    return cls().replace(content=content, **fields)


def system(*content: str | TextPart, **fields: Any) -> SystemMessage:
    """Build a system message from strings and text parts."""
    return _build(SystemMessage, content, fields)


def developer(*content: str | TextPart, **fields: Any) -> DeveloperMessage:
    """Build a developer message from strings and text parts."""
    return _build(DeveloperMessage, content, fields)


def user(*content: str | UserPart, **fields: Any) -> UserMessage:
    """Build a user message: ``user("What is this?", Image.from_path("a.png"), agent="triage")``."""
    return _build(UserMessage, content, fields)


def assistant(
    *content: str | AssistantPart,
    tool_calls: Iterable[ToolCall | MalformedToolCall] = (),
    reasoning: str | Reasoning | None = None,
    **fields: Any,
) -> AssistantMessage:
    """Build an assistant message; parts stand in the order reasoning, content, calls."""
    before = () if reasoning is None else (Reasoning(reasoning) if isinstance(reasoning, str) else reasoning,)
    return _build(AssistantMessage, (*before, *content, *tool_calls), fields)


def tool(
    *outputs: str | ToolPart | Mapping[str, Any],
    tool_call_id: str | None = None,
    tool_name: str | None = None,
    is_error: bool = False,
    **fields: Any,
) -> ToolMessage:
    """Build the result of a tool call from strings, parts, and dicts (``Json`` parts)."""
    made = [Json.of(item) if isinstance(item, dict) else item for item in outputs]
    return _build(ToolMessage, made, fields).replace(tool_call_id=tool_call_id, tool_name=tool_name, is_error=is_error)


def rescue(reason: str = "", **fields: Any) -> RescueMarker:
    """Build the marker of a failed turn."""
    return _build(RescueMarker, (), {"reason": reason, **fields})


def flush(**fields: Any) -> FlushMarker:
    """Build the marker that hides all that came before it."""
    return _build(FlushMarker, (), fields)


def tool_call(
    name: str,
    arguments: Mapping[str, Any] | str = "",
    *,
    id: str,
    custom: bool = False,
    provider: Mapping[str, Any] | None = None,
) -> ToolCall:
    """Build a tool call from parsed arguments, or from the model's own text."""
    text = arguments if isinstance(arguments, str) else bytes(jsontext.checked(arguments, "arguments")).decode()
    if custom and isinstance(arguments, str):
        text = jsontext.encode(arguments).decode()
    call = ToolCall(id, name, text, custom)
    return call if provider is None else call.replace(provider=provider)
