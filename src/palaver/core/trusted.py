"""Constructors of messages, parts and requests that check nothing, for decoders that have read the types already.

Rules:

- Each has the name and the parameters of its class. A value of a wrong type is taken as it is, so only values that were
  read by their type go in here; everybody else constructs the class itself.
- What decoders make is held to the checks by tests, with every value of their input replaced by values of other types.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.core import messages, parts, request, tools, usage
from palaver.core.type_checks import unchecked

SystemMessage: Final = unchecked(messages.SystemMessage)
DeveloperMessage: Final = unchecked(messages.DeveloperMessage)
UserMessage: Final = unchecked(messages.UserMessage)
AssistantMessage: Final = unchecked(messages.AssistantMessage)
ToolMessage: Final = unchecked(messages.ToolMessage)
RescueMarker: Final = unchecked(messages.RescueMarker)
FlushMarker: Final = unchecked(messages.FlushMarker)

Text: Final = unchecked(parts.Text)
Refusal: Final = unchecked(parts.Refusal)
Reasoning: Final = unchecked(parts.Reasoning)
ToolCall: Final = unchecked(parts.ToolCall)
MalformedToolCall: Final = unchecked(parts.MalformedToolCall)
Json: Final = unchecked(parts.Json)
Opaque: Final = unchecked(parts.Opaque)
Citation: Final = unchecked(parts.Citation)

Image: Final = unchecked(parts.Image)
Audio: Final = unchecked(parts.Audio)
Video: Final = unchecked(parts.Video)
File: Final = unchecked(parts.File)
Inline: Final = unchecked(parts.Inline)
Url: Final = unchecked(parts.Url)
FileId: Final = unchecked(parts.FileId)
Blob: Final = unchecked(parts.Blob)

Usage: Final = unchecked(usage.Usage)

Original: Final = unchecked(request.Original)
Request: Final = unchecked(request.Request)
Response: Final = unchecked(request.Response)
Settings: Final = unchecked(request.Settings)
ToolChoice: Final = unchecked(request.ToolChoice)
OutputFormat: Final = unchecked(request.OutputFormat)
Tool: Final = unchecked(tools.Tool)
ProviderTool: Final = unchecked(tools.ProviderTool)
