"""The three forms of a LangChain message, and the words in them.

Rules (docs/spec/dialects.md#15):

- ``dict``: ``{type, data}`` of ``messages_to_dict``. ``flat``: the fields beside ``type``. ``lc``: the constructor form
  ``{lc: 1, type: "constructor", id: [path], kwargs}``, of which only the last name of the path is used; no class is
  ever constructed.
- A type is a short word (``ai``) or a class name (``AIMessageChunk``).

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from palaver.core import jsontext
from palaver.transcripts.fields import inner, listed, string

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.core.jsontext import Fields
    from palaver.core.messages import FinishReason

NAME: Final = "langchain"
Form: TypeAlias = Literal["dict", "flat", "lc"]

KINDS: Final = frozenset(("human", "ai", "system", "tool", "function", "chat", "remove"))
CLASSES: Final = {
    "human": "HumanMessage",
    "ai": "AIMessage",
    "system": "SystemMessage",
    "tool": "ToolMessage",
    "function": "FunctionMessage",
    "chat": "ChatMessage",
    "remove": "RemoveMessage",
}
REMOVE_ALL: Final = "__remove_all__"
DEVELOPER: Final = "__openai_role__"
THOUGHTS: Final = "__gemini_function_call_thought_signatures__"
ROOTS: Final = (("messages",), ("values", "messages"), ("channel_values", "messages"), ("kwargs", "messages"))
"""The path of the list in a document that is an object: a state, a snapshot of one, a checkpoint, a prompt value."""

WIRES: Final = {
    "openai": "openai_chat",
    "azure": "openai_chat",
    "anthropic": "anthropic_messages",
    "google_genai": "google_generate",
    "google_vertexai": "google_generate",
    "bedrock_converse": "bedrock_converse",
    "bedrock": "anthropic_messages",
    "cohere": "cohere_chat",
    "ollama": "ollama_chat",
    "groq": "openai_chat",
    "deepseek": "openai_chat",
    "mistralai": "openai_chat",
    "xai": "openai_chat",
    "openrouter": "openai_chat",
}
PROVIDERS: Final = {
    "openai_chat": "openai",
    "openai_responses": "openai",
    "anthropic_messages": "anthropic",
    "google_generate": "google_genai",
    "bedrock_converse": "bedrock_converse",
    "cohere_chat": "cohere",
    "ollama_chat": "ollama",
}
FINISH: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "complete": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "refusal": "refusal",
    "pause_turn": "pause",
    "error": "error",
}
STOPS: Final = {"pause": "pause_turn", "other": "unknown"}

_DATA: Final = frozenset(
    ("content", "additional_kwargs", "response_metadata", "type", "name", "id", "example", "lc_attributes")
)
KEYS: Final = {
    "human": _DATA,
    "system": _DATA,
    "ai": _DATA
    | {"tool_calls", "invalid_tool_calls", "usage_metadata", "tool_call_chunks", "chunk_position", "reasoning_content"},
    "tool": _DATA | {"tool_call_id", "artifact", "status"},
    "function": _DATA,
    "chat": _DATA | {"role"},
    "remove": _DATA,
}
_EXTRAS: Final = frozenset(("type", "id", "index", "extras", "metadata", "cache_control"))
_MEDIA: Final = _EXTRAS | {
    "url",
    "base64",
    "mime_type",
    "file_id",
    "source_type",
    "data",
    "filename",
    "title",
    "context",
    "text",
    "file_uri",
    "detail",
}
BLOCKS: Final = {
    "text": _EXTRAS | {"text", "annotations", "citations", "phase"},
    "reasoning": _EXTRAS | {"reasoning", "signature", "encrypted_content", "summary", "content", "status"},
    "thinking": _EXTRAS | {"thinking", "signature"},
    "redacted_thinking": _EXTRAS | {"data"},
    "reasoning_content": _EXTRAS | {"reasoning_content"},
    "tool_use": _EXTRAS | {"name", "input", "partial_json", "caller"},
    "tool_call": _EXTRAS | {"name", "args"},
    "tool_call_chunk": _EXTRAS | {"name", "args"},
    "invalid_tool_call": _EXTRAS | {"name", "args", "error"},
    "function_call": _EXTRAS | {"name", "arguments", "call_id", "status", "namespace"},
    "custom_tool_call": _EXTRAS | {"name", "input", "call_id", "status"},
    "server_tool_call": _EXTRAS | {"name", "args"},
    "server_tool_call_chunk": _EXTRAS | {"name", "args"},
    "server_tool_result": _EXTRAS | {"tool_call_id", "status", "output", "name"},
    "refusal": _EXTRAS | {"refusal"},
    "image": _MEDIA,
    "audio": _MEDIA,
    "video": _MEDIA,
    "file": _MEDIA,
    "text-plain": _MEDIA,
    "media": _MEDIA,
    "non_standard": _EXTRAS | {"value"},
}
NATIVE: Final = {
    "image_url": "openai_chat",
    "input_audio": "openai_chat",
    "document": "anthropic_messages",
    "search_result": "anthropic_messages",
    "server_tool_use": "anthropic_messages",
    "web_search_tool_result": "anthropic_messages",
    "web_fetch_tool_result": "anthropic_messages",
    "code_execution_tool_result": "anthropic_messages",
    "bash_code_execution_tool_result": "anthropic_messages",
    "text_editor_code_execution_tool_result": "anthropic_messages",
    "mcp_tool_use": "anthropic_messages",
    "mcp_tool_result": "anthropic_messages",
    "container_upload": "anthropic_messages",
    "web_search_call": "openai_responses",
    "file_search_call": "openai_responses",
    "code_interpreter_call": "openai_responses",
    "computer_call": "openai_responses",
    "image_generation_call": "openai_responses",
    "mcp_call": "openai_responses",
    "mcp_list_tools": "openai_responses",
    "mcp_approval_request": "openai_responses",
}
"""Blocks of a provider, and the wire whose codec reads them."""


class Shape(NamedTuple):
    """A message as a record has it: its form, its kind, whether it is a piece of a stream, and its fields."""

    form: Form
    kind: str
    chunk: bool
    data: Fields


def shape(fields: Fields) -> Shape | None:
    """Return the shape of a record; ``None`` when it is not a message."""
    named = string(fields, "type")
    if named == "constructor" and "lc" in fields:
        path = listed(fields, "id")
        named = jsontext.text(path[-1]) if path and jsontext.kind(path[-1]) == "a string" else ""
        form: Form = "lc"
        data = inner(fields, "kwargs")
    elif "data" in fields and ("content" not in fields or jsontext.kind(fields["data"]) == "an object"):
        form, data = "dict", inner(fields, "data")
    else:
        form, data = "flat", fields
    kind = kind_of(named or "")
    if kind is None or (form == "flat" and "content" not in fields and kind != "remove"):
        return None
    return Shape(form, kind, (named or "").endswith("Chunk"), data)


def kind_of(name: str) -> str | None:
    """Return the kind of a type: ``AIMessageChunk`` and ``ai`` are ``ai``."""
    kind = name.removesuffix("Chunk").removesuffix("Message").lower()
    return kind if kind in KINDS and (name == kind or name[:1].isupper()) else None


def shaped(form: Form, kind: str, data: Mapping[str, Any], *, chunk: bool = False) -> dict[str, Any]:
    """Return the fields of a message in a form."""
    named = CLASSES[kind] + ("Chunk" if chunk else "")
    match form:
        case "dict":
            return {"type": named if chunk else kind, "data": dict(data)}
        case "flat":
            return dict(data)
        case "lc":
            path = ["langchain", "schema", "messages", named]
            return {"lc": 1, "type": "constructor", "id": path, "kwargs": dict(data)}
