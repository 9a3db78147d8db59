"""The words of the OpenTelemetry conventions for generative AI, and what they are here.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.core.messages import FinishReason

NAME: Final = "otel_genai"

SYSTEM: Final = "gen_ai.system_instructions"
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
CONVERSATION: Final = "gen_ai.conversation.id"
LISTS: Final = (SYSTEM, INPUT, OUTPUT)

PROVIDERS: Final = {
    "openai": "openai_chat",
    "azure.ai.openai": "openai_chat",
    "azure.ai.inference": "openai_chat",
    "az.ai.openai": "openai_chat",
    "anthropic": "anthropic_messages",
    "gcp.gemini": "google_generate",
    "gcp.gen_ai": "google_generate",
    "gcp.vertex_ai": "google_generate",
    "aws.bedrock": "bedrock_converse",
    "cohere": "cohere_chat",
    "ollama": "ollama_chat",
    "mistral_ai": "openai_chat",
    "groq": "openai_chat",
    "deepseek": "openai_chat",
    "x_ai": "openai_chat",
}
FINISH: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_call": "tool_calls",
    "tool_calls": "tool_calls",
    "error": "error",
}
STOPS: Final = {"tool_calls": "tool_call", "refusal": "content_filter", "pause": "stop"}

MESSAGE: Final = frozenset(("role", "parts", "name", "finish_reason", "palaver"))
PARTS: Final = {
    "text": frozenset(("type", "content")),
    "tool_call": frozenset(("type", "id", "name", "arguments")),
    "tool_call_response": frozenset(("type", "id", "response", "result", "name", "is_error")),
    "server_tool_call": frozenset(("type", "id", "name", "server_tool_call")),
    "server_tool_call_response": frozenset(("type", "id", "server_tool_call_response")),
    "reasoning": frozenset(("type", "content", "signature", "encrypted_content")),
    "compaction": frozenset(("type", "id", "content")),
    "blob": frozenset(("type", "modality", "mime_type", "content", "name")),
    "file": frozenset(("type", "modality", "mime_type", "file_id", "name")),
    "uri": frozenset(("type", "modality", "mime_type", "uri", "name")),
    "refusal": frozenset(("type", "content")),
    "palaver": frozenset(("type", "content")),
}
"""``refusal`` and ``palaver`` are generic parts of ours: the conventions allow any type."""
MODALITIES: Final = {"image": "image", "audio": "audio", "video": "video", "document": "file", "file": "file"}
