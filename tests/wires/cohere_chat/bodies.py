"""Bodies of Cohere v2 chat, written by hand after its reference."""

from __future__ import annotations

from typing import Any

PNG = "data:image/png;base64,iVBORw0KGgo="


def asking(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "command-a", "messages": list(messages), **fields}


def user(content: Any = "hi") -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any = None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", **({} if content is None else {"content": content}), **fields}


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def thinking(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, **fields}


def call(call_id: str = "find_1", arguments: Any = "{}", **fields: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "find", "arguments": arguments}, **fields}


def result(content: Any = "found", call_id: str = "find_1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def cited(words: str, start: int, **fields: Any) -> dict[str, Any]:
    source = {"type": "tool", "id": "find_1:0", "tool_output": {"content": words}}
    return {"start": start, "end": start + len(words), "text": words, "sources": [source]} | fields


TOOL = {
    "type": "function",
    "function": {"name": "find", "description": "Find.", "parameters": {"type": "object", "properties": {}}},
}
DOCUMENT = {"type": "document", "document": {"id": "d1", "data": {"title": "T", "n": 1.50}}}

RICH = asking(
    {"role": "system", "content": "Be brief."},
    user([text("what is this?"), {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}]),
    assistant([thinking("let me look")], tool_plan="I will look it up.", tool_calls=[call(), call("find_2", "null")]),
    result(),
    result([text("a"), DOCUMENT], "find_2"),
    assistant(
        [thinking("so"), text("it was found")],
        citations=[cited("found", 7, type="TEXT_CONTENT", content_index=1)],
    ),
    {"role": "system", "content": [text("And kind.")]},
    user("go on"),
    tools=[TOOL],
    strict_tools=True,
    tool_choice="NONE",
    documents=["one", {"id": "d", "data": {"a": "b"}}],
    citation_options={"mode": "ACCURATE"},
    safety_mode="STRICT",
    thinking={"type": "enabled", "token_budget": 512},
    response_format={"type": "json_object", "json_schema": {"type": "object"}},
    max_tokens=100,
    stop_sequences=["END"],
    temperature=0.3,
    seed=7,
    frequency_penalty=0.1,
    presence_penalty=0.2,
    k=40,
    p=0.75,
    logprobs=False,
    priority=1,
    stream=True,
)

ANSWER: dict[str, Any] = {
    "id": "a1",
    "finish_reason": "COMPLETE",
    "message": {
        "role": "assistant",
        "content": [thinking("hm"), text("it was found")],
        "citations": [cited("was", 3, type="TEXT_CONTENT"), cited("found", 7, type="TEXT_CONTENT")],
    },
    "usage": {
        "billed_units": {"input_tokens": 4, "output_tokens": 3},
        "tokens": {"input_tokens": 100, "output_tokens": 20},
        "cached_tokens": 64,
    },
    "logprobs": [{"token_ids": [1], "text": "it", "logprobs": [-0.5]}],
}

CALLING: dict[str, Any] = {
    "id": "a2",
    "finish_reason": "TOOL_CALL",
    "message": {"role": "assistant", "tool_plan": "I will look.", "tool_calls": [call(arguments='{"q": 1e-06}')]},
    "usage": {"tokens": {"input_tokens": 10, "output_tokens": 5}},
}
