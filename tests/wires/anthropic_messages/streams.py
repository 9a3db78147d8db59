"""Streams of the Messages wire, written by hand after docs/spec/wires.md#4.5."""

from __future__ import annotations

import json
from typing import Any

from palaver.stream import sse

MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "cache_read_input_tokens": 4, "output_tokens": 1, "service_tier": "standard"},
}
TEXT = {"type": "text", "text": ""}
THINKING = {"type": "thinking", "thinking": "", "signature": ""}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}, "caller": {"type": "direct"}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
CITATION = {
    "type": "web_search_result_location",
    "url": "https://example.org/rain",
    "title": "Rain",
    "cited_text": "It will rain.",
    "encrypted_index": "RW5j",
}


def event(kind: str, **fields: Any) -> bytes:
    return sse.write(json.dumps({"type": kind, **fields}).encode(), kind)


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    """Return a block from its start to its stop."""
    grown = b"".join([event("content_block_delta", index=index, delta=delta) for delta in deltas])
    return (
        event("content_block_start", index=index, content_block=start)
        + grown
        + event("content_block_stop", index=index)
    )


def text(words: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": words}


def thought(words: str) -> dict[str, Any]:
    return {"type": "thinking_delta", "thinking": words}


def signed(proof: str) -> dict[str, Any]:
    return {"type": "signature_delta", "signature": proof}


def typed(words: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": words}


def cited(citation: dict[str, Any]) -> dict[str, Any]:
    return {"type": "citations_delta", "citation": citation}


START = event("message_start", message=MESSAGE)
PING = event("ping")


def end(word: str | None = "end_turn", **fields: Any) -> bytes:
    usage = fields.pop("usage", {"output_tokens": 25})
    delta = {"stop_reason": word, "stop_sequence": None, **fields}
    return event("message_delta", delta=delta, usage=usage) + event("message_stop")


RICH = b"".join(
    [
        START,
        PING,
        block(0, THINKING, thought("Hm"), thought("m."), signed("c2ln+/==")),
        block(1, {"type": "redacted_thinking", "data": "ZW5j"}),
        block(2, SEARCH, typed(""), typed('{"query": '), typed('"rain"}')),
        block(3, FOUND),
        block(4, {**TEXT, "citations": []}, text("It rains"), cited(CITATION), text(".")),
        block(5, TEXT, text("So:\u2028"), text(" odd \U0001f600")),
        block(6, CALL, typed('{"q": "a",'), typed(' "n": 2.0}')),
        block(7, {**CALL, "id": "toolu_2"}),
        end("tool_use", container={"id": "c1", "expires_at": "2026"}, usage={"output_tokens": 25, "input_tokens": 12}),
    ]
)
