"""Palaver: an agent message that every component speaks, kept without loss.

``dumps`` writes one message (or request, response, tool, part) as canonical JSON, ``loads`` reads
it back; ``dump_conversation`` and ``load_conversation`` do the same for a whole conversation, one
message a line. The rest of the canonical form is in ``palaver.core.canonical``.

Stability: stable.
"""

from palaver.core.canonical import content_hash, dump_conversation, load_conversation
from palaver.core.canonical import decode as loads
from palaver.core.canonical import encode as dumps
from palaver.core.errors import (
    ArgumentsError,
    DecodeError,
    EncodeError,
    LossError,
    MessageError,
    PalaverError,
    ProviderError,
    UnknownNameError,
)
from palaver.core.factories import (
    assistant,
    developer,
    flush,
    rescue,
    system,
    tool,
    tool_call,
    user,
)
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    Message,
    RescueMarker,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import (
    Audio,
    Blob,
    Citation,
    File,
    FileId,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
    Video,
)
from palaver.core.request import (
    Encoded,
    Loss,
    OutputFormat,
    Request,
    Response,
    Settings,
    ToolChoice,
)
from palaver.core.tools import ProviderTool, Tool
from palaver.core.usage import Usage, UsagePass

__all__ = [
    "ArgumentsError",
    "AssistantMessage",
    "Audio",
    "Blob",
    "Citation",
    "DecodeError",
    "DeveloperMessage",
    "EncodeError",
    "Encoded",
    "File",
    "FileId",
    "FlushMarker",
    "Image",
    "Inline",
    "Json",
    "Loss",
    "LossError",
    "MalformedToolCall",
    "Message",
    "MessageError",
    "Opaque",
    "OutputFormat",
    "PalaverError",
    "ProviderError",
    "ProviderTool",
    "Reasoning",
    "Refusal",
    "Request",
    "RescueMarker",
    "Response",
    "ServerToolResult",
    "Settings",
    "SystemMessage",
    "Text",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolMessage",
    "UnknownNameError",
    "Url",
    "Usage",
    "UsagePass",
    "UserMessage",
    "Video",
    "assistant",
    "content_hash",
    "developer",
    "dump_conversation",
    "dumps",
    "flush",
    "load_conversation",
    "loads",
    "rescue",
    "system",
    "tool",
    "tool_call",
    "user",
]
