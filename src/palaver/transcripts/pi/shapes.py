"""The entries of a pi session and their keys (docs/spec/dialects.md#6).

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.core.messages import (
    FinishReason,
)
from palaver.transcripts import extension_slot

NAME: Final = "pi"
VERSION: Final = 3

WIRES: Final = {
    "anthropic-messages": "anthropic_messages",
    "openai-completions": "openai_chat",
    "openai-responses": "openai_responses",
    "openai-codex-responses": "openai_responses",
    "azure-openai-responses": "openai_responses",
    "google-generative-ai": "google_generate",
    "google-gemini-cli": "google_generate",
    "google-vertex": "google_generate",
    "bedrock-converse-stream": "bedrock_converse",
}
APIS: Final = {wire: api for api, wire in reversed(WIRES.items())}
PROVIDERS: Final = {
    "anthropic_messages": "anthropic",
    "openai_responses": "openai",
    "google_generate": "google",
    "bedrock_converse": "amazon-bedrock",
}
FINISH: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "toolUse": "tool_calls",
    "error": "error",
    "aborted": "other",
}
STOPS: Final = {"length": "length", "tool_calls": "toolUse", "error": "error"}

_ENTRY: Final = frozenset(("type", "id", "parentId", "timestamp", extension_slot.SLOT))
KEYS: Final = {
    "session": _ENTRY | {"version", "cwd", "parentSession", "provider", "modelId", "thinkingLevel"},
    "message": _ENTRY | {"message"},
    "model_change": _ENTRY | {"provider", "modelId"},
    "thinking_level_change": _ENTRY | {"thinkingLevel"},
    "compaction": _ENTRY
    | {"summary", "firstKeptEntryId", "firstKeptEntryIndex", "tokensBefore", "details", "fromHook"},
    "branch_summary": _ENTRY | {"fromId", "summary", "details", "fromHook"},
    "custom": _ENTRY | {"customType", "data"},
    "custom_message": _ENTRY | {"customType", "content", "display", "details"},
    "label": _ENTRY | {"targetId", "label"},
    "session_info": _ENTRY | {"name"},
}
ROLES: Final = {
    "user": frozenset(("role", "content", "timestamp")),
    "assistant": frozenset(
        (
            "role",
            "content",
            "api",
            "provider",
            "model",
            "usage",
            "stopReason",
            "errorMessage",
            "timestamp",
            "responseId",
        )
    ),
    "toolResult": frozenset(("role", "toolCallId", "toolName", "content", "details", "isError", "timestamp")),
    "bashExecution": frozenset(
        (
            "role",
            "command",
            "output",
            "exitCode",
            "cancelled",
            "truncated",
            "fullOutputPath",
            "timestamp",
            "excludeFromContext",
        )
    ),
    "custom": frozenset(("role", "customType", "content", "display", "details", "timestamp")),
    "hookMessage": frozenset(("role", "customType", "content", "display", "details", "timestamp")),
    "branchSummary": frozenset(("role", "summary", "fromId", "timestamp")),
    "compactionSummary": frozenset(("role", "summary", "tokensBefore", "timestamp")),
}
BLOCKS: Final = {
    "text": frozenset(("type", "text", "textSignature")),
    "thinking": frozenset(("type", "thinking", "thinkingSignature", "redacted")),
    "image": frozenset(("type", "data", "mimeType")),
    "toolCall": frozenset(("type", "id", "name", "arguments", "thoughtSignature", "partialJson")),
}
