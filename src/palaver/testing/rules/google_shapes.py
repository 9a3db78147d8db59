"""The shapes of `google_generate` (docs/spec/wires.md#5.1, #5.3), in camelCase.

- `SPELLINGS` maps the snake_case spelling of every known field to its camelCase one.
- `OPAQUE` names the fields whose content is the caller's own: their keys are never respelled.

Stability: experimental.
"""

from __future__ import annotations

import re

from palaver.testing.rules.shapes import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    STRING,
    anything,
    array,
    by_kind,
    cited,
    integer,
    record,
    text,
    word,
)

_PARTS = "docs/spec/wires.md#5.1"
_REPLY = "docs/spec/wires.md#5.3"

DATA_FIELDS = frozenset(
    {
        "text",
        "functionCall",
        "functionResponse",
        "toolCall",
        "toolResponse",
        "executableCode",
        "codeExecutionResult",
        "inlineData",
        "fileData",
    }
)
MARKS = frozenset({"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"})
OPAQUE = frozenset(
    {
        "args",
        "response",
        "parameters",
        "parametersJsonSchema",
        "responseSchema",
        "responseJsonSchema",
        "labels",
        "partMetadata",
    }
)
_OTHER_FIELDS = (
    "mimeType",
    "fileUri",
    "displayName",
    "partialArgs",
    "willContinue",
    "toolType",
    "systemInstruction",
    "generationConfig",
    "safetySettings",
    "cachedContent",
    "toolConfig",
    "functionCallingConfig",
    "allowedFunctionNames",
    "streamFunctionCallArguments",
    "includeServerSideToolInvocations",
    "retrievalConfig",
    "functionDeclarations",
    "googleSearch",
    "googleSearchRetrieval",
    "urlContext",
    "codeExecution",
    "fileSearch",
    "googleMaps",
    "computerUse",
    "maxOutputTokens",
    "topP",
    "topK",
    "candidateCount",
    "stopSequences",
    "responseMimeType",
    "responseModalities",
    "responseLogprobs",
    "thinkingConfig",
    "includeThoughts",
    "thinkingBudget",
    "thinkingLevel",
)
_KNOWN = DATA_FIELDS | MARKS | OPAQUE | set(_OTHER_FIELDS)
SPELLINGS: dict[str, str] = {re.sub(r"(?=[A-Z])", "_", name).lower(): name for name in _KNOWN}

_NAME = cited("docs/spec/wires.md#1.4", text(like=r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}"))
_INLINE = record(_PARTS, {"mimeType": STRING, "data": text(like=r"[A-Za-z0-9+/_=-]+")}, {"displayName": STRING})
_FILE = record(_PARTS, {"mimeType": STRING, "fileUri": STRING}, {"displayName": STRING})
_PART = record(
    _PARTS,
    optional={
        "text": STRING,
        "functionCall": record(_PARTS, {"name": _NAME}, {"args": OBJECT, "id": STRING, "willContinue": BOOLEAN}),
        "functionResponse": record(
            _PARTS,
            {"name": _NAME, "response": OBJECT},
            {
                "id": STRING,
                "parts": array(
                    record(
                        _PARTS,
                        optional={"inlineData": _INLINE, "fileData": _FILE},
                        some=("inlineData", "fileData"),
                    )
                ),
                "willContinue": BOOLEAN,
                "scheduling": STRING,
            },
        ),
        "toolCall": record(_PARTS, {"toolType": STRING, "id": STRING}, {"args": OBJECT}),
        "toolResponse": record(_PARTS, {"toolType": STRING, "id": STRING}, {"response": OBJECT}),
        "executableCode": record(_PARTS, {"language": STRING, "code": STRING}, {"id": STRING}),
        "codeExecutionResult": record(_PARTS, {"outcome": STRING}, {"output": STRING, "id": STRING}),
        "inlineData": _INLINE,
        "fileData": _FILE,
        "thought": BOOLEAN,
        "thoughtSignature": text(like=r"[A-Za-z0-9+/_=-]+"),
        "videoMetadata": OBJECT,
        "mediaResolution": anything,
        "partMetadata": OBJECT,
    },
)
_CONTENT = record(_PARTS, {"parts": array(_PART, least=1)}, {"role": word("user", "model")})
_DECLARATION = record(
    _PARTS,
    {"name": _NAME},
    {"description": STRING, "parameters": OBJECT, "parametersJsonSchema": anything},
)
_TOOL = record(
    _PARTS,
    optional={
        "functionDeclarations": array(_DECLARATION),
        "googleSearch": OBJECT,
        "urlContext": OBJECT,
        "codeExecution": OBJECT,
    },
)
_CALLING = record(
    _PARTS,
    optional={
        "mode": word("AUTO", "ANY", "NONE", "VALIDATED", "MODE_UNSPECIFIED"),
        "allowedFunctionNames": array(STRING),
        "streamFunctionCallArguments": BOOLEAN,
    },
)
REQUEST = record(
    _PARTS,
    {"contents": array(_CONTENT, least=1)},
    {
        "systemInstruction": record(_PARTS, {"parts": by_kind(array=array(_PART), object=_PART)}, {"role": STRING}),
        "tools": by_kind(array=array(_TOOL), object=_TOOL),
        "toolConfig": record(
            _PARTS,
            optional={
                "functionCallingConfig": _CALLING,
                "includeServerSideToolInvocations": BOOLEAN,
            },
        ),
        "generationConfig": record(
            _PARTS,
            optional={
                "maxOutputTokens": integer(1),
                "temperature": NUMBER,
                "topP": NUMBER,
                "topK": NUMBER,
                "candidateCount": integer(1),
                "stopSequences": array(STRING),
                "responseMimeType": STRING,
                "responseSchema": OBJECT,
                "responseModalities": array(STRING),
                "thinkingConfig": record(
                    _PARTS,
                    optional={
                        "includeThoughts": BOOLEAN,
                        "thinkingBudget": INTEGER,
                        "thinkingLevel": STRING,
                    },
                ),
            },
        ),
        "safetySettings": array(OBJECT),
        "cachedContent": STRING,
        "labels": OBJECT,
    },
)
_COUNTS = (
    "promptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "toolUsePromptTokenCount",
    "cachedContentTokenCount",
    "totalTokenCount",
)
_CANDIDATE = record(
    _REPLY,
    optional={
        "content": record(_REPLY, optional={"parts": array(_PART), "role": word("model", "user")}),
        "finishReason": STRING,
        "finishMessage": STRING,
        "index": INTEGER,
        "safetyRatings": array(OBJECT),
        "citationMetadata": OBJECT,
        "groundingMetadata": OBJECT,
        "urlContextMetadata": OBJECT,
        "avgLogprobs": NUMBER,
        "logprobsResult": OBJECT,
    },
)
RESPONSE = record(
    _REPLY,
    optional={
        "candidates": array(_CANDIDATE),
        "promptFeedback": record(_REPLY, optional={"blockReason": STRING}),
        "usageMetadata": record("docs/spec/wires.md#1.2", optional=dict.fromkeys(_COUNTS, integer(0))),
        "modelVersion": STRING,
        "responseId": STRING,
        "createTime": STRING,
    },
    some=("candidates", "promptFeedback"),
)
