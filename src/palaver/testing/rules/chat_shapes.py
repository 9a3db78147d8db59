"""The shapes of `openai_chat`: messages, parts, tools, request and reply (docs/spec/wires.md#2.1-2.3, 2.5).

- Roles are a closed list; parts and tools are open ones. Which of the shapes a variant narrows is a
  rule, not a shape.
- A tool without `type` is a function (Mistral's own clients leave it out).

Stability: experimental.
"""

from __future__ import annotations

from palaver.testing.rules.shapes import (
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

_NAME = cited("docs/spec/wires.md#1.4", text(like=r"[a-zA-Z0-9_-]{1,64}"))
_PARTS = "docs/spec/wires.md#2.2"

_TEXT = record(_PARTS, {"text": STRING})
_REFUSAL = record(_PARTS, {"refusal": STRING})
_IMAGE = record(
    _PARTS,
    {"image_url": by_kind(string=STRING, object=record(_PARTS, {"url": STRING}, {"detail": STRING}))},
)
_AUDIO = record(_PARTS, {"input_audio": record(_PARTS, {"data": STRING, "format": STRING})})
_FILE = record(
    _PARTS,
    {"file": record(_PARTS, optional={"file_id": STRING, "file_data": STRING, "filename": STRING})},
)


_PART_SHAPES = {
    "text": _TEXT,
    "refusal": _REFUSAL,
    "image_url": _IMAGE,
    "input_audio": _AUDIO,
    "file": _FILE,
}
_CONTENT = by_kind(string=STRING, array=array(tagged(_PARTS, _PART_SHAPES)))

_CALL = record(
    "docs/spec/wires.md#2.3",
    {"id": STRING},
    {
        "type": STRING,
        "index": INTEGER,
        "function": record("docs/spec/wires.md#2.3", {"name": _NAME, "arguments": STRING}),
        "custom": record("docs/spec/wires.md#2.3", {"name": STRING, "input": STRING}),
    },
    some=("function", "custom"),
)
_MESSAGES = {
    "system": record("docs/spec/wires.md#2.1", {"content": _CONTENT}, {"name": STRING}),
    "developer": record("docs/spec/wires.md#2.1", {"content": _CONTENT}, {"name": STRING}),
    "user": record("docs/spec/wires.md#2.1", {"content": _CONTENT}, {"name": STRING}),
    "assistant": record(
        "docs/spec/wires.md#2.1",
        optional={
            "content": _CONTENT,
            "tool_calls": array(_CALL),
            "refusal": STRING,
            "name": STRING,
            "audio": record("docs/spec/wires.md#2.1", {"id": STRING}),
            "function_call": record("docs/spec/wires.md#2.1", {"name": STRING, "arguments": STRING}),
        },
    ),
    "tool": record("docs/spec/wires.md#2.1", {"content": _CONTENT, "tool_call_id": STRING}),
    "function": record("docs/spec/wires.md#2.1", {"name": STRING}, {"content": STRING}),
}
_FUNCTION_TOOL = record(
    "docs/spec/wires.md#2.3",
    {
        "function": record(
            "docs/spec/wires.md#2.3",
            {"name": _NAME},
            {"description": STRING, "parameters": OBJECT, "strict": BOOLEAN},
        )
    },
)
_TOOL = tagged(
    "docs/spec/wires.md#2.3",
    {
        "function": _FUNCTION_TOOL,
        "custom": record(
            "docs/spec/wires.md#2.3",
            {"custom": record("docs/spec/wires.md#2.3", {"name": _NAME}, {"description": STRING})},
        ),
    },
    untagged=_FUNCTION_TOOL,
)
_NAMED = record("docs/spec/wires.md#2.3", {"name": STRING})
_CHOICE = by_kind(
    string=word("auto", "none", "required", "any"),
    object=tagged(
        "docs/spec/wires.md#2.3",
        {
            "function": record("docs/spec/wires.md#2.3", {"function": _NAMED}),
            "custom": record("docs/spec/wires.md#2.3", {"custom": _NAMED}),
            "allowed_tools": record(
                "docs/spec/wires.md#2.3",
                {
                    "allowed_tools": record(
                        "docs/spec/wires.md#2.3", {"mode": word("auto", "required"), "tools": array(OBJECT)}
                    )
                },
            ),
        },
    ),
)
REQUEST = record(
    "docs/spec/wires.md#2",
    {
        "model": STRING,
        "messages": cited(
            "docs/spec/wires.md#2.1",
            array(tagged("docs/spec/wires.md#2.1", _MESSAGES, key="role", closed=True), least=1),
        ),
    },
    {
        "tools": array(_TOOL),
        "tool_choice": cited("docs/spec/wires.md#2.3", _CHOICE),
        "parallel_tool_calls": cited("docs/spec/wires.md#2.3", BOOLEAN),
        "stream": BOOLEAN,
        "stream_options": OBJECT,
        "temperature": number(0, 2),
        "top_p": number(0, 1),
        "frequency_penalty": NUMBER,
        "presence_penalty": NUMBER,
        "max_tokens": integer(1),
        "max_completion_tokens": integer(1),
        "n": integer(1),
        "seed": INTEGER,
        "stop": by_kind(string=STRING, array=array(STRING)),
        "logprobs": BOOLEAN,
        "reasoning_effort": STRING,
        "response_format": tagged(
            "docs/spec/wires.md#2",
            {
                "json_schema": record(
                    "docs/spec/wires.md#2", {"json_schema": record("docs/spec/wires.md#2", {"name": STRING})}
                )
            },
        ),
    },
)

_RESPONSE_CALL = record(
    "docs/spec/wires.md#2.5",
    {"id": STRING},
    {
        "type": STRING,
        "index": INTEGER,
        "function": record("docs/spec/wires.md#2.5", {"name": STRING, "arguments": STRING}),
        "custom": record("docs/spec/wires.md#2.5", {"name": STRING, "input": STRING}),
    },
    some=("function", "custom"),
)
_ANNOTATION = tagged(
    "docs/spec/wires.md#2.5",
    {
        "url_citation": record(
            "docs/spec/wires.md#2.5", {"url_citation": record("docs/spec/wires.md#2.5", {"url": STRING})}
        )
    },
)
_CHOICE_OUT = record(
    "docs/spec/wires.md#2.5",
    {
        "index": INTEGER,
        "finish_reason": nullable(STRING),
        "message": record(
            "docs/spec/wires.md#2.5",
            {"role": word("assistant")},
            {
                "content": _CONTENT,
                "refusal": STRING,
                "tool_calls": array(_RESPONSE_CALL),
                "annotations": array(_ANNOTATION),
                "audio": OBJECT,
                "function_call": OBJECT,
            },
        ),
    },
    {"logprobs": OBJECT},
)
RESPONSE = record(
    "docs/spec/wires.md#2.5",
    {
        "id": STRING,
        "object": word("chat.completion"),
        "created": INTEGER,
        "model": STRING,
        "choices": array(_CHOICE_OUT),
    },
    {
        "usage": record(
            "docs/spec/wires.md#1.2",
            {
                "prompt_tokens": integer(0),
                "completion_tokens": integer(0),
                "total_tokens": integer(0),
            },
            {
                "prompt_tokens_details": record("docs/spec/wires.md#1.2", optional={"cached_tokens": integer(0)}),
                "completion_tokens_details": record(
                    "docs/spec/wires.md#1.2", optional={"reasoning_tokens": integer(0)}
                ),
            },
        )
    },
)
