"""Palaver: an agent message that every component speaks, kept without loss.

``dumps`` writes one message (or request, response, tool, part) as canonical JSON, ``loads`` reads
it back; ``dump_conversation`` and ``load_conversation`` do the same for a whole conversation, one
message a line. The rest of the canonical form is in ``palaver.core.canonical``.

``model``, ``Agent``, ``Swarm``, ``SwarmAgent`` and ``open_store`` are imported from their packages when they are first
used, so ``import palaver`` stays small.

Stability: stable.
"""

from typing import TYPE_CHECKING

from palaver.core.canonical import (
    content_hash,
    decode as loads,
    dump_conversation,
    encode as dumps,
    hash_chain,
    load_conversation,
)
from palaver.core.errors import (
    ArgumentsError,
    ConflictError,
    DamageError,
    DecodeError,
    EncodeError,
    LossError,
    LossWarning,
    MessageError,
    NotFoundError,
    PalaverError,
    ProviderError,
    StoreError,
    StreamError,
    UnavailableError,
    UnknownNameError,
)
from palaver.core.events import ReasoningDelta, TextDelta
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

if TYPE_CHECKING:
    from palaver.agent import Agent
    from palaver.models import model
    from palaver.store import open_store
    from palaver.swarm import Swarm, SwarmAgent

__all__ = [
    "Agent",
    "ArgumentsError",
    "AssistantMessage",
    "Audio",
    "Blob",
    "Citation",
    "ConflictError",
    "DamageError",
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
    "LossWarning",
    "MalformedToolCall",
    "Message",
    "MessageError",
    "NotFoundError",
    "Opaque",
    "OutputFormat",
    "PalaverError",
    "ProviderError",
    "ProviderTool",
    "Reasoning",
    "ReasoningDelta",
    "Refusal",
    "Request",
    "RescueMarker",
    "Response",
    "ServerToolResult",
    "Settings",
    "StoreError",
    "StreamError",
    "Swarm",
    "SwarmAgent",
    "SystemMessage",
    "Text",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolMessage",
    "UnavailableError",
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
    "hash_chain",
    "load_conversation",
    "loads",
    "model",
    "open_store",
    "rescue",
    "system",
    "tool",
    "tool_call",
    "user",
]

_PACKAGES = {"Agent": "agent", "Swarm": "swarm", "SwarmAgent": "swarm", "model": "models", "open_store": "store"}
"""The packages of names that are imported when they are first used."""


def __getattr__(name: str) -> object:
    """Import a name of ``_PACKAGES`` from its package."""
    if name not in _PACKAGES:
        raise AttributeError(f"module 'palaver' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 (most programs need nothing of it)

    found: object = getattr(import_module(f"palaver.{_PACKAGES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the names that are imported later too."""
    return sorted({*globals(), *_PACKAGES})
