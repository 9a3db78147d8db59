"""Bodies written by hand: requests and answers of Gemini, in both spellings, with unknown fields."""

from __future__ import annotations

import copy
import re
from typing import Any

REQUEST: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "Be brief."}], "role": "user"},
    "contents": [
        {
            "role": "user",
            "parts": [
                {"text": "What is in these?"},
                {"inlineData": {"mimeType": "image/png", "data": "_9j-4A"}, "mediaResolution": {"level": "HIGH"}},
                {"fileData": {"mimeType": "video/mp4", "fileUri": "https://youtu.be/x"}, "videoMetadata": {"fps": 0.2}},
                {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://bucket/a.pdf", "displayName": "a.pdf"}},
                {"fileData": {"fileUri": "https://example.com/unknown"}},
                {"inlineData": {"mimeType": "audio/mpeg", "data": "SUQz", "displayName": "a song"}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"text": "I think.", "thought": True},
                {"text": "I think hard.", "thought": True, "thoughtSignature": "c2ln"},
                {"text": "", "thoughtSignature": "c2lnMg=="},
                {"text": "Said.", "thought": False},
                {
                    "functionCall": {"name": "look", "args": {"q": 5e-06, "z": 2.0, "a": []}},
                    "thoughtSignature": "c2lnMw",
                },
                {"functionCall": {"name": "look", "args": {"q": "two"}}},
                {"functionCall": {"id": "c3", "name": "wait", "args": {}, "willContinue": True}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "look", "response": {"output": "one"}}},
                {"functionResponse": {"name": "look", "response": {"error": "none found"}, "scheduling": "SILENT"}},
                {
                    "functionResponse": {
                        "id": "c3",
                        "name": "wait",
                        "response": {},
                        "parts": [
                            {"inlineData": {"mimeType": "image/jpeg", "data": "_9j_"}},
                            {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.com/a.pdf"}},
                            {"unheardOf": 1},
                        ],
                    },
                    "partMetadata": {"k": 1},
                },
            ],
            "unheardOf": [1],
        },
        {"role": "user", "parts": [{"text": "And now?"}]},
        {
            "role": "model",
            "parts": [
                {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
                {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
                {
                    "toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s1", "args": {"q": ["x"]}},
                    "thoughtSignature": "eA==",
                },
                {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s1", "response": {"r": 1}}},
                {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
                {"hologram": {"x": 1}, "thought": True},
            ],
        },
        {"parts": [{"text": "no role"}]},
    ],
    "tools": [
        {
            "functionDeclarations": [
                {"name": "look", "description": "", "parametersJsonSchema": {"type": "object", "properties": {}}},
                {
                    "name": "wait",
                    "description": "Waits.",
                    "parameters": {"type": "OBJECT", "properties": {"n": {"type": "INTEGER", "nullable": True}}},
                    "behavior": "NON_BLOCKING",
                },
            ],
            "codeExecution": {},
        },
        {"functionDeclarations": [{"name": "third", "parameters": {"type": "object"}}]},
        {"googleSearch": {}},
    ],
    "toolConfig": {
        "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look", "wait"]},
        "includeServerSideToolInvocations": True,
    },
    "generationConfig": {
        "maxOutputTokens": 100,
        "temperature": 0.0,
        "topP": 0.95,
        "topK": 40.0,
        "seed": 7,
        "frequencyPenalty": 1,
        "stopSequences": ["END"],
        "responseMimeType": "application/json",
        "responseSchema": {"type": "OBJECT", "properties": {"a": {"any_of": [{"type": "STRING"}]}}},
        "responseModalities": ["TEXT"],
        "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low", "thinkingBudget": 512},
    },
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    "labels": {"team": "a"},
}

RESPONSE: dict[str, Any] = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "I search.", "thought": True},
                    {"text": "Found it.", "thoughtSignature": "c2ln"},
                    {"functionCall": {"name": "look", "args": {"q": 1e5}}, "thoughtSignature": "c2lnMg"},
                    {"functionCall": {"name": "look", "args": {"q": 2}}},
                ],
            },
            "finishReason": "STOP",
            "finishMessage": "Model generated function call(s).",
            "index": 0,
            "avgLogprobs": -0.25,
            "groundingMetadata": {"webSearchQueries": ["x"], "groundingChunks": [{"web": {"uri": "https://e.com"}}]},
            "citationMetadata": {"citations": [{"startIndex": 1, "endIndex": 4, "uri": "https://e.com"}]},
        },
        {"content": {"role": "model", "parts": [{"text": "Another."}]}, "finishReason": "MAX_TOKENS", "index": 1},
        {"finishReason": "SAFETY", "index": 2, "safetyRatings": []},
        {"content": {}, "finishReason": "NOVEL_WORD"},
        {"content": {"role": "model"}},
    ],
    "usageMetadata": {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 30,
        "toolUsePromptTokenCount": 5,
        "totalTokenCount": 155,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 100}],
        "serviceTier": "standard",
    },
    "modelVersion": "gemini-3-flash-preview",
    "responseId": "abc-123",
    "createTime": "2026-01-01T00:00:00.123456789Z",
}

_DATA = frozenset(
    [
        "args",
        "response",
        "parameters",
        "parametersJsonSchema",
        "responseSchema",
        "responseJsonSchema",
        "labels",
        "partMetadata",
    ]
)


def snake(value: Any, *, every: int = 1) -> Any:
    """Return the same body in snake_case; ``every`` leaves some names as they are, so that both are mixed."""
    count = 0

    def spell(item: Any) -> Any:
        nonlocal count
        if isinstance(item, list):
            return [spell(each) for each in item]
        if not isinstance(item, dict):
            return item
        out: dict[str, Any] = {}
        for key, each in item.items():
            count += 1
            name = re.sub(r"(?=[A-Z])", "_", key).lower() if count % every == 0 else key
            out[name] = each if key in _DATA else spell(each)
        return out

    return spell(copy.deepcopy(value))


def objects(value: Any) -> list[Any]:
    """Return every object and list of a body, except the data of users."""
    found: list[Any] = []
    if isinstance(value, dict):
        found.append(value)
        for key, each in value.items():
            if key not in _DATA:
                found += objects(each)
    elif isinstance(value, list):
        found.append(value)
        for each in value:
            found += objects(each)
    return found
