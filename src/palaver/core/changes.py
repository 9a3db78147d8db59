"""What ``replace`` can change in each message, part, tool, request and response.

Rules:

- Each class has the names of the fields of its value, and for a field of JSON text also its name without ``_json``,
  which takes Python values.
- ``Value.__replace__`` checks names and values as it runs; these classes are for editors and type checkers.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from msgspec import Raw, UnsetType

    from palaver.core.messages import AssistantMessage, FinishReason, Message, Mode, Scope
    from palaver.core.parts import AnyPart, Citation, MediaSource
    from palaver.core.request import Original, OutputFormat, Settings, ToolChoice
    from palaver.core.slow_path import Extra
    from palaver.core.tools import AnyTool
    from palaver.core.usage import Usage


class ValueChanges(TypedDict, total=False):
    """Changes of any value."""

    extra: Extra | UnsetType
    provider: Mapping[str, Any] | UnsetType
    provider_json: Raw | UnsetType


# -- messages ------------------------------------------------------------------------------------------------------


class MessageChanges(ValueChanges, total=False):
    """Changes of any message. ``content`` takes strings and parts."""

    content: Iterable[str | AnyPart]
    id: str | None
    agent: str | None
    mode: Mode | None
    tags: Sequence[str]
    sent_at: int | None
    source: str | None
    verbatim: bool
    payload: Any
    payload_json: Raw | UnsetType
    metadata: Mapping[str, Any] | UnsetType
    metadata_json: Raw | UnsetType


class AssistantChanges(MessageChanges, total=False):
    """Changes of an assistant message."""

    model: str | None
    usage: Usage | None
    finish_reason: FinishReason | None
    finish_reason_raw: str | UnsetType | None
    response_id: str | None


class ToolMessageChanges(MessageChanges, total=False):
    """Changes of a tool message."""

    tool_call_id: str | None
    tool_name: str | None
    is_error: bool


class MarkerChanges(MessageChanges, total=False):
    """Changes of a rescue or flush marker."""

    reason: str
    scope: Scope | None


# -- parts ---------------------------------------------------------------------------------------------------------


class TextChanges(ValueChanges, total=False):
    """Changes of a text."""

    text: str
    citations: Sequence[Citation]


class ReasoningChanges(ValueChanges, total=False):
    """Changes of reasoning."""

    text: str
    signature: str | None
    encrypted: str | None
    wire: str | None


class RefusalChanges(ValueChanges, total=False):
    """Changes of a refusal."""

    text: str


class MediaChanges(ValueChanges, total=False):
    """Changes of an image, a recording or a film."""

    source: MediaSource
    media_type: str | None


class FileChanges(MediaChanges, total=False):
    """Changes of a document."""

    name: str | None


class ToolCallChanges(ValueChanges, total=False):
    """Changes of a tool call. ``arguments`` takes Python values."""

    id: str
    name: str
    arguments: Any
    arguments_json: str
    custom: bool
    provider_executed: bool


class MalformedToolCallChanges(ValueChanges, total=False):
    """Changes of a tool call that did not parse."""

    raw: str
    reason: str
    name: str | None
    id: str | None


class ServerToolResultChanges(ValueChanges, total=False):
    """Changes of the result of a tool that the provider ran."""

    tool_call_id: str
    output: Any
    output_json: Raw
    wire: str
    tool_name: str | None
    is_error: bool


class JsonChanges(ValueChanges, total=False):
    """Changes of a JSON output."""

    value: Any
    value_json: Raw


class RawChanges(ValueChanges, total=False):
    """Changes of an opaque part or a provider's tool."""

    wire: str
    raw: Any
    raw_json: Raw


# -- requests ------------------------------------------------------------------------------------------------------


class ToolChanges(ValueChanges, total=False):
    """Changes of a tool definition."""

    name: str
    description: str | None
    parameters: Any
    parameters_json: Raw | UnsetType
    strict: bool | None
    custom: bool


class OutputFormatChanges(ValueChanges, total=False):
    """Changes of an output format."""

    kind: Literal["text", "json", "json_schema"]
    schema: Any
    schema_json: Raw | UnsetType
    name: str | None
    description: str | None
    strict: bool | None


class SettingsChanges(TypedDict, total=False):
    """Changes of settings; ``None`` leaves a setting to the provider."""

    extra: Extra | UnsetType
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    stop: Sequence[str] | None
    seed: int | None
    frequency_penalty: float | None
    presence_penalty: float | None
    tool_choice: ToolChoice | None
    parallel_tool_calls: bool | None
    output: OutputFormat | None
    effort: str | None
    reasoning_tokens: int | None
    stream: bool | None


class RequestChanges(ValueChanges, total=False):
    """Changes of a request."""

    messages: Sequence[Message]
    model: str | None
    tools: Sequence[AnyTool]
    settings: Settings
    origin: str | None
    original: Original | None


class ResponseChanges(ValueChanges, total=False):
    """Changes of a response."""

    message: AssistantMessage
    alternatives: Sequence[AssistantMessage]
    origin: str | None
    original: Original | None
