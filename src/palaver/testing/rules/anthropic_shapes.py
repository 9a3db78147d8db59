"""The shapes of `anthropic_messages`: blocks, tools, request and reply (docs/spec/wires.md#4.1, #4.2).

- Blocks are an open list; a known block has its fields. `PLACES` says in which role a known block
  may stand.
- Ids of calls are 1-64 of `[a-zA-Z0-9_-]`. Names are checked to 128 characters: docs/spec/wires.md#1.4 gives
  64, and 128 on newer models without proof, so only what is too long for both is refused.
- Inline images are jpeg, png, gif or webp; inline documents are PDF, or plain text as a `text`
  source (anthropic-sdk-python types).

Stability: experimental.
"""

from __future__ import annotations

from palaver.testing.rules.shapes import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    STRING,
    anything,
    array,
    base64_text,
    by_kind,
    cited,
    integer,
    nullable,
    record,
    tagged,
    text,
    word,
)

_BLOCKS = "docs/spec/wires.md#4.1"
_TOOLS = "docs/spec/wires.md#4.2"

_NAME = cited("docs/spec/wires.md#1.4", text(like=r"[a-zA-Z0-9_-]{1,128}"))
_CALL_ID = cited("docs/spec/wires.md#1.4", text(like=r"[a-zA-Z0-9_-]{1,64}"))
_SERVER_ID = cited("docs/spec/wires.md#4.1", text(like=r"srvtoolu_[a-zA-Z0-9_]+"))

_MARK = record("docs/spec/wires.md#4.3.7", {"type": word("ephemeral")}, {"ttl": STRING})
_SOURCES = {
    "url": record(_BLOCKS, {"url": STRING}),
    "file": record(_BLOCKS, {"file_id": STRING}),
    "text": record(_BLOCKS, {"media_type": word("text/plain"), "data": STRING}),
    "content": record(_BLOCKS, {"content": by_kind(string=STRING, array=array(OBJECT))}),
}
_IMAGE_SOURCE = tagged(
    _BLOCKS,
    _SOURCES
    | {
        "base64": record(
            _BLOCKS,
            {
                "media_type": word("image/jpeg", "image/png", "image/gif", "image/webp"),
                "data": base64_text,
            },
        )
    },
)
_DOCUMENT_SOURCE = tagged(
    _BLOCKS,
    _SOURCES | {"base64": record(_BLOCKS, {"media_type": word("application/pdf"), "data": base64_text})},
)
_TEXT = record(_BLOCKS, {"text": STRING}, {"citations": array(OBJECT), "cache_control": _MARK})
_IMAGE = record(_BLOCKS, {"source": _IMAGE_SOURCE}, {"cache_control": _MARK})
_DOCUMENT = record(
    _BLOCKS,
    {"source": _DOCUMENT_SOURCE},
    {
        "title": STRING,
        "context": STRING,
        "citations": record(_BLOCKS, optional={"enabled": BOOLEAN}),
        "cache_control": _MARK,
    },
)
_SEARCH_RESULT = record(
    _BLOCKS, {"source": STRING, "title": STRING, "content": array(tagged(_BLOCKS, {"text": _TEXT}))}
)
_REFERENCE = record(_BLOCKS, {"tool_name": STRING})
_RESULT_BLOCKS = {
    "text": _TEXT,
    "image": _IMAGE,
    "document": _DOCUMENT,
    "search_result": _SEARCH_RESULT,
    "tool_reference": _REFERENCE,
}
_RESULT = record(
    _BLOCKS,
    {"tool_use_id": _CALL_ID},
    {
        "content": by_kind(string=STRING, array=array(tagged(_BLOCKS, _RESULT_BLOCKS))),
        "is_error": BOOLEAN,
        "cache_control": _MARK,
    },
)
_CALL = record(
    _BLOCKS,
    {"id": _CALL_ID, "name": _NAME, "input": OBJECT},
    {"caller": OBJECT, "cache_control": _MARK},
)
_SERVER_CALL = record(_BLOCKS, {"id": _SERVER_ID, "name": STRING, "input": OBJECT}, {"caller": OBJECT})
_SERVER_RESULT = record(
    _BLOCKS,
    {"tool_use_id": STRING, "content": by_kind(object=OBJECT, array=array(OBJECT))},
    {"caller": OBJECT},
)
_SERVER_RESULTS = (
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "advisor_tool_result",
)
_TOOL_CHANGE = record(_BLOCKS, {"tool": tagged(_BLOCKS, {"tool_reference": record(_BLOCKS, {"name": STRING})})})
_ASSISTANT_ONLY = {
    "thinking": record(_BLOCKS, {"thinking": STRING, "signature": STRING}),
    "redacted_thinking": record(_BLOCKS, {"data": STRING}),
    "tool_use": _CALL,
    "server_tool_use": _SERVER_CALL,
    "mcp_tool_use": record(_BLOCKS, {"id": STRING, "name": STRING, "server_name": STRING, "input": OBJECT}),
    "mcp_tool_result": record(
        _BLOCKS,
        {"tool_use_id": STRING},
        {"content": by_kind(string=STRING, array=array(OBJECT)), "is_error": BOOLEAN},
    ),
    "compaction": record(_BLOCKS, optional={"content": STRING, "encrypted_content": STRING, "signature": STRING}),
    "fallback": record(_BLOCKS),
    **dict.fromkeys(_SERVER_RESULTS, _SERVER_RESULT),
}
_USER_ONLY = {
    "image": _IMAGE,
    "document": _DOCUMENT,
    "search_result": _SEARCH_RESULT,
    "tool_result": _RESULT,
}
_SYSTEM_ONLY = {"tool_addition": _TOOL_CHANGE, "tool_removal": _TOOL_CHANGE}
_BLOCK = tagged(
    _BLOCKS,
    {
        "text": _TEXT,
        "container_upload": record(_BLOCKS, {"file_id": STRING}),
        **_ASSISTANT_ONLY,
        **_USER_ONLY,
        **_SYSTEM_ONLY,
    },
)

PLACES: dict[str, set[str]] = {
    "container_upload": {"user", "assistant"},
    **{kind: {"assistant"} for kind in _ASSISTANT_ONLY},
    **{kind: {"user"} for kind in _USER_ONLY},
    **{kind: {"system"} for kind in _SYSTEM_ONLY},
}
SERVER_CALLS = ("server_tool_use", "mcp_tool_use")

_MESSAGE = record(
    _BLOCKS,
    {
        "role": word("user", "assistant", "system"),
        "content": by_kind(string=STRING, array=array(_BLOCK)),
    },
)
_CLIENT_TOOL = record(
    _TOOLS,
    {"name": _NAME, "input_schema": record(_TOOLS, {"type": word("object")})},
    {
        "description": STRING,
        "strict": BOOLEAN,
        "defer_loading": BOOLEAN,
        "allowed_callers": array(STRING),
        "input_examples": array(OBJECT),
        "eager_input_streaming": BOOLEAN,
        "cache_control": _MARK,
    },
)
_CHOICE_OPTIONS = {"disable_parallel_tool_use": BOOLEAN}
REQUEST = record(
    _BLOCKS,
    {"model": STRING, "max_tokens": integer(1), "messages": array(_MESSAGE, least=1)},
    {
        "system": by_kind(string=STRING, array=array(tagged(_BLOCKS, {"text": _TEXT}))),
        "tools": array(tagged(_TOOLS, {"custom": _CLIENT_TOOL}, untagged=_CLIENT_TOOL)),
        "tool_choice": tagged(
            _TOOLS,
            {
                "auto": record(_TOOLS, optional=_CHOICE_OPTIONS),
                "any": record(_TOOLS, optional=_CHOICE_OPTIONS),
                "tool": record(_TOOLS, {"name": STRING}, _CHOICE_OPTIONS),
                "none": record(_TOOLS, {"type": STRING}, closed=True),
            },
        ),
        "thinking": tagged(
            _BLOCKS,
            {"enabled": record(_BLOCKS, {"budget_tokens": integer(1024)}, {"display": STRING})},
        ),
        "output_config": OBJECT,
        "container": by_kind(string=STRING, object=OBJECT),
        "mcp_servers": array(record(_BLOCKS, {"name": STRING, "url": STRING})),
        "context_management": OBJECT,
        "cache_control": _MARK,
        "stop_sequences": array(STRING),
        "metadata": OBJECT,
        "stream": BOOLEAN,
        "temperature": NUMBER,
        "top_p": NUMBER,
        "top_k": INTEGER,
        "service_tier": STRING,
    },
)
RESPONSE = record(
    _BLOCKS,
    {
        "id": STRING,
        "type": word("message"),
        "role": word("assistant"),
        "model": STRING,
        "content": array(_BLOCK),
        "stop_reason": cited("docs/spec/wires.md#4.4", nullable(STRING)),
        "usage": record(
            "docs/spec/wires.md#1.2",
            {"input_tokens": integer(0), "output_tokens": integer(0)},
            {"cache_read_input_tokens": integer(0), "cache_creation_input_tokens": integer(0)},
        ),
    },
    {
        "stop_sequence": STRING,
        "container": record(_BLOCKS, {"id": STRING, "expires_at": STRING}),
        "context_management": OBJECT,
        "stop_details": anything,
    },
)
