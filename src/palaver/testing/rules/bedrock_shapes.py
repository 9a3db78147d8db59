"""The shapes of `bedrock_converse` (docs/spec/wires.md#6.1, #6.3).

They follow the `bedrock-runtime` service model of botocore.

- A content block is a union: an object with one key. Unknown keys are allowed.
- Binary fields are base64 in the JSON body. Formats are closed lists: the service refuses any
  other word.
- Tool use ids are 1-64 of `[a-zA-Z0-9_.:-]`, names 1-64 of `[a-zA-Z0-9_-]` (docs/spec/wires.md#1.4).

Stability: experimental.
"""

from __future__ import annotations

from palaver.testing.rules.shapes import (
    ARRAY,
    BOOLEAN,
    OBJECT,
    STRING,
    array,
    base64_text,
    by_kind,
    cited,
    integer,
    json_text,
    number,
    record,
    text,
    union,
    word,
)

_SOURCE = "docs/spec/wires.md#6.1"
_NAME = cited("docs/spec/wires.md#1.4", text(like=r"[a-zA-Z0-9_-]{1,64}"))
_CALL_ID = cited("docs/spec/wires.md#1.4", text(like=r"[a-zA-Z0-9_.:-]{1,64}"))
_OBJECT = cited("docs/spec/wires.md#6.2.5", OBJECT)

_S3 = record(_SOURCE, {"uri": text(like=r"s3://.+")}, {"bucketOwner": STRING})
_BYTES = {"bytes": base64_text, "s3Location": _S3}
_MEDIA_SOURCE = union(_SOURCE, _BYTES)
_IMAGE = record(_SOURCE, {"format": word("png", "jpeg", "gif", "webp"), "source": _MEDIA_SOURCE})
_DOCUMENT = record(
    _SOURCE,
    {
        "name": text(least=1, most=200),
        "source": union(_SOURCE, {**_BYTES, "text": STRING, "content": array(union(_SOURCE, {"text": STRING}))}),
    },
    {
        "format": word("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"),
        "context": STRING,
        "citations": record(_SOURCE, {"enabled": BOOLEAN}),
    },
)
_VIDEO = record(
    _SOURCE,
    {
        "format": word("mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"),
        "source": _MEDIA_SOURCE,
    },
)
_AUDIO = record(_SOURCE, {"format": STRING, "source": _MEDIA_SOURCE})
_SEARCH_RESULT = record(
    _SOURCE,
    {"source": STRING, "title": STRING, "content": array(record(_SOURCE, {"text": STRING}))},
)
_CACHE_POINT = record(_SOURCE, {"type": word("default")}, {"ttl": word("5m", "1h")})
_RESULT_CONTENT = union(
    _SOURCE,
    {
        "text": STRING,
        "json": _OBJECT,
        "image": _IMAGE,
        "document": _DOCUMENT,
        "video": _VIDEO,
        "searchResult": _SEARCH_RESULT,
    },
)
_BLOCK = union(
    _SOURCE,
    {
        "text": STRING,
        "image": _IMAGE,
        "document": _DOCUMENT,
        "video": _VIDEO,
        "audio": _AUDIO,
        "toolUse": record(_SOURCE, {"toolUseId": _CALL_ID, "name": _NAME, "input": _OBJECT}, {"type": STRING}),
        "toolResult": record(
            _SOURCE,
            {"toolUseId": _CALL_ID, "content": array(_RESULT_CONTENT)},
            {"status": word("success", "error"), "type": STRING},
        ),
        "reasoningContent": union(
            _SOURCE,
            {
                "reasoningText": record(_SOURCE, {"text": STRING}, {"signature": STRING}),
                "redactedContent": base64_text,
            },
        ),
        "cachePoint": _CACHE_POINT,
        "guardContent": OBJECT,
        "citationsContent": record(_SOURCE, optional={"content": ARRAY, "citations": ARRAY}),
        "searchResult": _SEARCH_RESULT,
        "toolAddition": record(_SOURCE, {"tool": OBJECT}),
        "toolRemoval": record(_SOURCE, {"tool": OBJECT}),
    },
)
_CONTENT = cited("docs/spec/wires.md#6.2.3", array(_BLOCK, least=1))
_MESSAGE = record(_SOURCE, {"role": word("user", "assistant", "system"), "content": _CONTENT})
_TOOL = union(
    _SOURCE,
    {
        "toolSpec": record(
            _SOURCE,
            {"name": _NAME, "inputSchema": record(_SOURCE, {"json": OBJECT})},
            {"description": text(least=1), "strict": BOOLEAN},
        ),
        "systemTool": record(_SOURCE, {"name": _NAME}),
        "cachePoint": _CACHE_POINT,
    },
)
_EMPTY = record(_SOURCE, closed=True)
_TOOL_CHOICE = record(
    _SOURCE,
    optional={"auto": _EMPTY, "any": _EMPTY, "tool": record(_SOURCE, {"name": _NAME})},
    closed=True,
)
REQUEST = record(
    _SOURCE,
    {"messages": cited("docs/spec/wires.md#6.2.1", array(_MESSAGE, least=1))},
    {
        "system": array(union(_SOURCE, {"text": STRING, "cachePoint": _CACHE_POINT, "guardContent": OBJECT})),
        "toolConfig": record(_SOURCE, {"tools": array(_TOOL, least=1)}, {"toolChoice": _TOOL_CHOICE}),
        "inferenceConfig": record(
            _SOURCE,
            optional={
                "maxTokens": integer(1),
                "temperature": number(0, 1),
                "topP": number(0, 1),
                "stopSequences": array(STRING),
            },
        ),
        "additionalModelRequestFields": OBJECT,
        "additionalModelResponseFieldPaths": array(STRING, most=10),
        "outputConfig": record(
            _SOURCE,
            optional={
                "textFormat": record(
                    _SOURCE,
                    {
                        "type": STRING,
                        "structure": union(_SOURCE, {"jsonSchema": record(_SOURCE, {"schema": json_text})}),
                    },
                )
            },
        ),
        "guardrailConfig": OBJECT,
        "performanceConfig": OBJECT,
        "promptVariables": OBJECT,
        "requestMetadata": OBJECT,
        "serviceTier": record(_SOURCE, {"type": STRING}),
    },
)
_REPLY = "docs/spec/wires.md#6.3"
RESPONSE = record(
    _REPLY,
    {
        "output": union(
            _REPLY,
            {"message": record(_REPLY, {"role": word("assistant"), "content": cited(_REPLY, array(_BLOCK))})},
        ),
        "stopReason": STRING,
        "usage": record(
            "docs/spec/wires.md#1.2",
            {"inputTokens": integer(0), "outputTokens": integer(0), "totalTokens": integer(0)},
            {"cacheReadInputTokens": integer(0), "cacheWriteInputTokens": integer(0)},
        ),
    },
    {
        "metrics": record(_REPLY, {"latencyMs": integer(0)}),
        "trace": OBJECT,
        "additionalModelResponseFields": by_kind(object=OBJECT),
    },
)
