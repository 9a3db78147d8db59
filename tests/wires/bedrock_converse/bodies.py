"""Bodies of our own, for the tests of this folder."""

from __future__ import annotations

from typing import Any

PNG = "iVBORw0KGgoAAAA="
PDF = "JVBERi0xLjcK"


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"text": words}


def call(call_id: str = "t1", name: str = "search", **arguments: Any) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments}}


def result(call_id: str = "t1", *content: Any, **fields: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": call_id, "content": list(content), **fields}}


def document(name: str = "Plan 1", data: str = PDF, **fields: Any) -> dict[str, Any]:
    return {"document": {"format": "pdf", "name": name, "source": {"bytes": data}, **fields}}


def image(**source: Any) -> dict[str, Any]:
    return {"image": {"format": "png", "source": source or {"bytes": PNG}}}


MARK = {"cachePoint": {"type": "default"}}
SEARCH = {"toolSpec": {"name": "search", "description": "Find.", "inputSchema": {"json": {"type": "object"}}}}


def asking(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages), **fields}


RICH = asking(
    user(text("Look at this."), image(), document(context="a draft", citations={"enabled": True}), MARK),
    assistant(
        {"reasoningContent": {"reasoningText": {"text": "Hm. ", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": "cmVk"}},
        text("I search."),
        {"toolUse": {"toolUseId": "t1", "name": "search", "input": {"q": 1e-6, "n": [2.0]}, "type": "tool_use"}},
        call("t2", q="b"),
    ),
    user(
        result(
            "t1", text(""), {"json": {"a": None}}, image(), document("Found", data="JVBERi0xLjQK"), status="success"
        ),
        MARK,
        result("t2", text("none"), status="error"),
        text("Well?"),
    ),
    assistant(
        {
            "citationsContent": {
                "content": [text("It is so.")],
                "citations": [{"title": "T", "location": {"web": {"url": "u"}}}],
            }
        },
        {"toolUse": {"toolUseId": "s1", "name": "code", "input": {"x": 1}, "type": "server_tool_use"}},
        result("s1", {"json": {"out": "2"}}, type="code_result", status="success"),
    ),
    user(text("Go on."), image(s3Location={"uri": "s3://bucket/a.png", "bucketOwner": "123456789012"})),
    system=[text("Be brief."), MARK, {"guardContent": {"text": {"text": "x"}}}],
    inferenceConfig={"maxTokens": 100, "temperature": 0.0, "topP": 1, "stopSequences": ["END"]},
    toolConfig={"tools": [SEARCH, MARK, {"systemTool": {"name": "code"}}], "toolChoice": {"auto": {}}},
    additionalModelRequestFields={
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"effort": "high"},
        "top_k": 5,
        "anthropic_beta": ["x"],
    },
    outputConfig={
        "textFormat": {
            "type": "json_schema",
            "structure": {"jsonSchema": {"schema": '{ "type":"object" }', "name": "N", "description": "D"}},
        }
    },
    guardrailConfig={"guardrailIdentifier": "g", "guardrailVersion": "1"},
    requestMetadata={"who": "me"},
)
"""A request with everything that the service accepts."""

ANSWER: dict[str, Any] = {
    "output": {"message": assistant(text("Hello"), call("t1", city="Bern"))},
    "stopReason": "tool_use",
    "usage": {
        "inputTokens": 10,
        "outputTokens": 5,
        "totalTokens": 22,
        "cacheReadInputTokens": 4,
        "cacheWriteInputTokens": 3,
        "serverToolUsage": {},
    },
    "metrics": {"latencyMs": 210},
}
"""A response of the common shape."""
