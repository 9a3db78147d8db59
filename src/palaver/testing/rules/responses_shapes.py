"""The shapes of `openai_responses`.

Items, parts, tools, request and reply (docs/spec/wires.md#3.1, #3.2, #3.4).

- Items are an open list by `type`; an item without `type` is an easy message and has a `role`.
- Required fields follow the types of openai-python. Fields that replayed items lack in recorded
  traffic are optional: `status` everywhere, `id` of function calls and tool searches, `call_id:
  null` of searches that the service ran, `annotations` and `logprobs` of output text in requests.

Stability: experimental.
"""

from __future__ import annotations

from palaver.testing.rules.shapes import (
    ARRAY,
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    STRING,
    array,
    by_kind,
    cited,
    integer,
    nullable,
    number,
    record,
    tagged,
    text,
    word,
)

_ITEMS = "docs/spec/wires.md#3.1"
_TOOLS = "docs/spec/wires.md#3.2"
_REPLY = "docs/spec/wires.md#3.4"

_NAME = cited("docs/spec/wires.md#1.4", text(like=r"[a-zA-Z0-9_-]{1,64}"))
_CALL_ID = cited("docs/spec/wires.md#1.4", text(least=1, most=64))

PARTS = {
    "input_text": record(_ITEMS, {"text": STRING}),
    "input_image": record(
        _ITEMS,
        optional={"image_url": STRING, "file_id": STRING, "detail": STRING},
        some=("image_url", "file_id"),
    ),
    "input_file": record(
        _ITEMS,
        optional={"file_data": STRING, "filename": STRING, "file_id": STRING, "file_url": STRING},
        some=("file_data", "file_id", "file_url"),
    ),
    "output_text": record(_ITEMS, {"text": STRING}, {"annotations": array(OBJECT), "logprobs": ARRAY}),
    "refusal": record(_ITEMS, {"refusal": STRING}),
    "reasoning_text": record(_ITEMS, {"text": STRING}),
    "summary_text": record(_ITEMS, {"text": STRING}),
}
_CONTENT = by_kind(string=STRING, array=array(tagged(_ITEMS, PARTS)))
_MESSAGE = record(
    _ITEMS,
    {"role": word("user", "assistant", "system", "developer"), "content": _CONTENT},
    {"id": STRING, "status": STRING, "phase": STRING},
)
_REASONING = record(
    _ITEMS,
    {"summary": array(tagged(_ITEMS, PARTS))},
    {
        "id": STRING,
        "content": array(tagged(_ITEMS, PARTS)),
        "encrypted_content": STRING,
        "status": STRING,
    },
    some=("id", "encrypted_content"),
)
_FUNCTION_TOOL = record(
    _TOOLS,
    {"name": _NAME},
    {"description": STRING, "parameters": OBJECT, "strict": BOOLEAN, "defer_loading": BOOLEAN},
)
_INNER_TOOL = tagged(_TOOLS, {"function": _FUNCTION_TOOL, "custom": record(_TOOLS, {"name": _NAME})})
TOOL = tagged(
    _TOOLS,
    {
        "function": _FUNCTION_TOOL,
        "custom": record(_TOOLS, {"name": _NAME}, {"description": STRING, "format": OBJECT}),
        "namespace": record(_TOOLS, {"name": STRING, "description": STRING, "tools": array(_INNER_TOOL)}),
        "file_search": record(_TOOLS, {"vector_store_ids": array(STRING)}),
        "code_interpreter": record(_TOOLS, {"container": by_kind(string=STRING, object=OBJECT)}),
        "mcp": record(_TOOLS, {"server_label": STRING}),
    },
)
ITEMS = {
    "message": _MESSAGE,
    "reasoning": _REASONING,
    "function_call": record(
        _ITEMS,
        {"call_id": _CALL_ID, "name": _NAME, "arguments": STRING},
        {"id": STRING, "namespace": STRING, "status": STRING},
    ),
    "function_call_output": record(_ITEMS, {"call_id": _CALL_ID, "output": _CONTENT}, {"id": STRING, "status": STRING}),
    "custom_tool_call": record(_ITEMS, {"call_id": _CALL_ID, "name": STRING, "input": STRING}, {"id": STRING}),
    "custom_tool_call_output": record(_ITEMS, {"call_id": _CALL_ID, "output": _CONTENT}, {"id": STRING}),
    "item_reference": record(_ITEMS, {"id": STRING}),
    "additional_tools": record(_ITEMS, {"role": STRING, "tools": array(TOOL)}),
    "compaction": record(_ITEMS, {"encrypted_content": STRING}, {"id": STRING}),
    "file_search_call": record(_ITEMS, {"id": STRING, "queries": array(STRING)}),
    "web_search_call": record(_ITEMS, {"id": STRING}),
    "computer_call": record(_ITEMS, {"call_id": _CALL_ID}, {"id": STRING}),
    "computer_call_output": record(_ITEMS, {"call_id": _CALL_ID, "output": OBJECT}),
    "code_interpreter_call": record(_ITEMS, {"id": STRING, "container_id": STRING}, {"code": STRING, "outputs": ARRAY}),
    "image_generation_call": record(_ITEMS, {"id": STRING}, {"result": STRING}),
    "local_shell_call": record(_ITEMS, {"call_id": _CALL_ID, "action": OBJECT}, {"id": STRING}),
    "shell_call": record(_ITEMS, {"call_id": _CALL_ID, "action": OBJECT}),
    "shell_call_output": record(_ITEMS, {"call_id": _CALL_ID, "output": ARRAY}),
    "apply_patch_call": record(_ITEMS, {"call_id": _CALL_ID, "operation": OBJECT}),
    "apply_patch_call_output": record(_ITEMS, {"call_id": _CALL_ID}, {"output": STRING}),
    "mcp_list_tools": record(_ITEMS, {"id": STRING, "server_label": STRING, "tools": array(OBJECT)}),
    "mcp_call": record(
        _ITEMS,
        {"id": STRING, "server_label": STRING, "name": STRING, "arguments": STRING},
        {"output": STRING},
    ),
    "mcp_approval_request": record(_ITEMS, {"id": STRING, "server_label": STRING, "name": STRING, "arguments": STRING}),
    "mcp_approval_response": record(_ITEMS, {"approval_request_id": STRING, "approve": BOOLEAN}, {"reason": STRING}),
    "tool_search_call": record(_ITEMS, {"arguments": OBJECT}, {"id": STRING, "call_id": _CALL_ID, "execution": STRING}),
    "tool_search_output": record(_ITEMS, {"tools": array(TOOL)}, {"id": STRING, "call_id": _CALL_ID}),
}
_CHOICE = by_kind(
    string=word("auto", "none", "required"),
    object=tagged(
        _TOOLS,
        {
            "function": record(_TOOLS, {"name": STRING}),
            "custom": record(_TOOLS, {"name": STRING}),
            "mcp": record(_TOOLS, {"server_label": STRING}),
            "allowed_tools": record(_TOOLS, {"mode": word("auto", "required"), "tools": array(OBJECT)}),
        },
    ),
)
REQUEST = record(
    _ITEMS,
    optional={
        "model": STRING,
        "input": by_kind(string=STRING, array=array(tagged(_ITEMS, ITEMS, untagged=_MESSAGE))),
        "instructions": STRING,
        "previous_response_id": STRING,
        "conversation": by_kind(string=STRING, object=record(_ITEMS, {"id": STRING})),
        "store": BOOLEAN,
        "stream": BOOLEAN,
        "background": BOOLEAN,
        "include": array(STRING),
        "reasoning": record(_ITEMS, optional={"effort": STRING, "summary": STRING}),
        "text": record(
            _ITEMS,
            optional={
                "format": tagged(_ITEMS, {"json_schema": record(_ITEMS, {"name": STRING, "schema": OBJECT})}),
                "verbosity": STRING,
            },
        ),
        "tools": array(TOOL),
        "tool_choice": cited(_TOOLS, _CHOICE),
        "parallel_tool_calls": BOOLEAN,
        "truncation": STRING,
        "context_management": array(OBJECT),
        "prompt_cache_key": STRING,
        "metadata": OBJECT,
        "max_output_tokens": integer(1),
        "max_tool_calls": integer(1),
        "prompt": record(_ITEMS, {"id": STRING}),
        "service_tier": STRING,
        "temperature": cited("docs/spec/wires.md#3.3.9", number(0, 2)),
        "top_p": cited("docs/spec/wires.md#3.3.9", number(0, 1)),
    },
    some=("model", "prompt"),
)
_OUT_PARTS = {
    "output_text": record(_REPLY, {"text": STRING, "annotations": array(OBJECT)}, {"logprobs": ARRAY}),
    "refusal": record(_REPLY, {"refusal": STRING}),
}
_OUT_ITEMS = ITEMS | {
    "message": record(
        _REPLY,
        {"id": STRING, "role": word("assistant"), "content": array(tagged(_REPLY, _OUT_PARTS))},
        {"status": STRING, "phase": STRING},
    ),
}
RESPONSE = record(
    _REPLY,
    {
        "id": STRING,
        "object": word("response"),
        "created_at": by_kind(integer=INTEGER, number=NUMBER),
        "model": STRING,
        "status": word("completed", "incomplete", "failed", "cancelled", "queued", "in_progress"),
        "output": array(tagged(_REPLY, _OUT_ITEMS)),
        "error": nullable(record(_REPLY, {"code": STRING, "message": STRING})),
        "incomplete_details": nullable(record(_REPLY, {"reason": STRING})),
    },
    {
        "usage": record(
            "docs/spec/wires.md#1.2",
            {"input_tokens": integer(0), "output_tokens": integer(0), "total_tokens": integer(0)},
            {
                "input_tokens_details": record("docs/spec/wires.md#1.2", optional={"cached_tokens": integer(0)}),
                "output_tokens_details": record("docs/spec/wires.md#1.2", optional={"reasoning_tokens": integer(0)}),
            },
        ),
        "conversation": record(_REPLY, {"id": STRING}),
    },
)
