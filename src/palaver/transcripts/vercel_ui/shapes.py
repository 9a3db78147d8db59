"""The tables of UI messages: their parts and keys, and the place of a provider's proofs.

Rules (docs/spec/dialects.md#10):

- Provider data and file names of a part without a field of ours stay with it, under ``provider["@vercel_ui"]``
  (``packages``).
- The name of a tool is the type of its part without ``tool-``, dashes included.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from palaver.core.messages import FinishReason

NAME: Final = "vercel_ui"
TOOL: Final = "tool-"
DYNAMIC: Final = "dynamic-tool"
"""The type of a call of a tool that is not among those of the application, with the tool's name beside it."""
DATA: Final = "data-"
OURS: Final = "data-palaver"
"""The type of a part for content that no model may be sent."""
DENIED: Final = "Tool call execution denied."

MESSAGE: Final = frozenset(("id", "role", "metadata", "parts"))
OLD_MESSAGE: Final = MESSAGE | {
    "annotations",
    "content",
    "createdAt",
    "data",
    "experimental_attachments",
    "reasoning",
    "revisionId",
    "toolInvocations",
}
"""Keys of version 4."""

_PROVIDER: Final = frozenset(("type", "providerMetadata"))
TOOL_KEYS: Final = frozenset(
    (
        "type",
        "toolCallId",
        "title",
        "toolMetadata",
        "state",
        "input",
        "rawInput",
        "inputEncoding",
        "output",
        "errorText",
        "providerExecuted",
        "callProviderMetadata",
        "resultProviderMetadata",
        "preliminary",
        "approval",
    )
)
PARTS: Final = {
    "text": _PROVIDER | {"text", "state", "citations"},
    "reasoning": _PROVIDER | {"id", "text", "state", "reasoning", "details"},
    "reasoning-file": _PROVIDER | {"mediaType", "url"},
    "file": _PROVIDER | {"mediaType", "filename", "url", "providerReference", "mimeType", "data"},
    "source-url": _PROVIDER | {"sourceId", "url", "title"},
    "source-document": _PROVIDER | {"sourceId", "mediaType", "title", "filename"},
    "source": frozenset(("type", "source")),
    "custom": _PROVIDER | {"kind"},
    "step-start": frozenset(("type",)),
    "steering-message": frozenset(("type", "id", "parts")),
    DYNAMIC: TOOL_KEYS | {"toolName", "dynamic"},
    "tool-invocation": frozenset(("type", "toolInvocation")),
}
OPAQUE: Final = {
    "source-url": ("sourceId", "url"),
    "source-document": ("sourceId", "mediaType", "title"),
    "custom": ("kind",),
    "reasoning-file": ("mediaType", "url"),
}
"""Parts that are kept as they are, with their required keys; ``data-…`` are others."""
UNFINISHED: Final = frozenset(("input-available", "approval-requested", "approval-responded"))

FINISH: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool-calls": "tool_calls",
    "content-filter": "content_filter",
    "error": "error",
    "other": "other",
    "unknown": "other",
}
