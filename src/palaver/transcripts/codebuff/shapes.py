"""The keys and parts of a Codebuff message (docs/spec/codebuff.md#1).

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.core.messages import (
    AssistantMessage,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import (
    Audio,
    Image,
    Video,
)
from palaver.threads.view import EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT
from palaver.transcripts.message_list import message_classes

NAME: Final = "codebuff"
EXTRA: Final = "codebuff_fields"
ERROR: Final = "TOOL_CALL_ERROR"
"""The tag of the note to the model about a malformed call."""

CLASSES: Final = message_classes()
OWN_KEYS: Final = frozenset(("sentAt", "tags", "timeToLive", "keepDuringTruncation", "keepLastTags"))
LIFETIMES: Final = {"agentStep": EXPIRES_AGENT_STEP, "userPrompt": EXPIRES_USER_PROMPT}
DEPRECATED: Final = ("timeToLive", "keepDuringTruncation", "keepLastTags")
PART_KEYS: Final = {
    "text": frozenset(("type", "text", "providerOptions")),
    "reasoning": frozenset(("type", "text", "providerOptions")),
    "image": frozenset(("type", "image", "mediaType", "providerOptions")),
    "file": frozenset(("type", "data", "mediaType", "filename", "providerOptions")),
    "tool-call": frozenset(("type", "toolCallId", "toolName", "input", "providerExecuted", "providerOptions")),
    "json": frozenset(("type", "value")),
    "media": frozenset(("type", "data", "mediaType")),
}
NEEDS: Final = {
    "text": ("text",),
    "reasoning": ("text",),
    "image": ("image",),
    "file": ("data", "mediaType"),
    "tool-call": ("toolCallId", "toolName"),
    "json": (),
    "media": ("data", "mediaType"),
}
ALLOWED: Final = {
    SystemMessage: ("text",),
    UserMessage: ("text", "image", "file"),
    AssistantMessage: ("text", "reasoning", "tool-call"),
    ToolMessage: ("json", "media"),
}
MEDIA: Final[dict[str, type[Image | Audio | Video]]] = {"image": Image, "audio": Audio, "video": Video}


def base64_prefix(kind: str, media_type: str | None) -> str:
    """Return the text before base64 in our records: an image is a data URI, a file is plain."""
    return f"data:{media_type};base64," if kind == "image" and media_type is not None else ""
