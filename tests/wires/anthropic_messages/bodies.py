"""Bodies of the Messages wire, written by hand after docs/spec/wires.md#4."""

from __future__ import annotations

from typing import Any

CACHED: dict[str, Any] = {"cache_control": {"type": "ephemeral", "ttl": "5m"}}
TOOL: dict[str, Any] = {
    "name": "look_up",
    "description": "Looks things up.",
    "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}, "additionalProperties": False},
}


def body(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a request with the required fields."""
    return {"model": "claude-x", "max_tokens": 64, "messages": list(messages), **fields}


def said(role: str, *blocks: Any, **fields: Any) -> dict[str, Any]:
    """Return a wire message with a list of blocks; strings are texts."""
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return {"role": role, "content": content, **fields}


def use(call_id: str = "toolu_1", name: str = "look_up", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}, **fields}


def result(call_id: str = "toolu_1", content: Any = "found", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


THINKING: dict[str, Any] = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln+/=="}
SEARCH: dict[str, Any] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
ADDED: dict[str, Any] = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "look_up"}}
CITED: dict[str, Any] = {
    "type": "text",
    "text": "It rains.",
    "citations": [
        {
            "type": "web_search_result_location",
            "url": "https://example.org/rain",
            "title": "Rain",
            "cited_text": "It will rain.",
            "encrypted_index": "RW5j",
        }
    ],
}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": source}


def document(source: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "document", "source": source, **fields}


VALID: dict[str, dict[str, Any]] = {
    "text": body(said("user", "Hi.")),
    "string": body({"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}, said("user", "?")),
    "system string": body(said("user", "Hi."), system="Be kind."),
    "system list": body(said("user", "Hi."), system=[{"type": "text", "text": "Be kind.", **CACHED}]),
    "system blocks": body(
        said("user", "Hi."), system=[{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief."}]
    ),
    "tool loop": body(
        said("user", "Hi."),
        said("assistant", THINKING, "I look.", use(), use("toolu_2", caller={"type": "direct"})),
        said("user", result(is_error=False), result("toolu_2", [{"type": "text", "text": "no"}], is_error=True), "So?"),
        said("assistant", "So."),
        said("user", "Thanks."),
        tools=[TOOL],
        thinking={"type": "enabled", "budget_tokens": 1024},
        max_tokens=4096,
    ),
    "results apart": body(
        said("user", "Hi."),
        said("assistant", use(), use("toolu_2")),
        said("user", result()),
        said("user", result("toolu_2")),
        said("user", "More."),
        tools=[TOOL],
    ),
    "a run of assistants": body(
        said("user", "Hi."),
        said("assistant", use()),
        said("assistant", use("toolu_2")),
        said("user", result(), result("toolu_2")),
        tools=[TOOL],
    ),
    "empty results": body(
        said("user", "Hi."),
        said("assistant", use(), use("toolu_2"), use("toolu_3")),
        said("user", result(content=""), {"type": "tool_result", "tool_use_id": "toolu_2"}, result("toolu_3", " ")),
        tools=[TOOL],
    ),
    "later system": body(
        said("user", "Hi."),
        said("assistant", use()),
        said("user", result()),
        said("system", "Be brief.", ADDED, clear_at="never"),
        said("system", "Be kind."),
        tools=[TOOL],
    ),
    "system behind a server result": body(
        said("user", "Hi."), said("assistant", SEARCH, FOUND), said("system", "Be brief."), said("assistant", "Yes.")
    ),
    "server tools": body(
        said("user", "Hi."),
        said("assistant", SEARCH, FOUND, CITED, {"type": "container_upload", "file_id": "file_1"}),
        said("user", "More."),
        container="container_1",
    ),
    "paused": body(said("user", "Hi."), said("assistant", "I look.", SEARCH)),
    "media": body(
        said(
            "user",
            image(type="base64", media_type="image/png", data=PNG),
            image(type="url", url="https://example.org/a"),
            image(type="file", file_id="file_1"),
            document({"type": "url", "url": "https://example.org/a.pdf"}, title=None),
            document({"type": "text", "media_type": "text/plain", "data": "Grüße"}, title="A", context="c"),
            document({"type": "content", "content": "inside"}, citations={"enabled": True}),
            {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "x"}]},
        )
    ),
    "redacted": body(said("user", "Hi."), said("assistant", {"type": "redacted_thinking", "data": "ZW4="}, "Yes.")),
    "settings": body(
        said("user", "Hi."),
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        stop_sequences=["END"],
        stream=True,
        tools=[
            {"type": "custom", **TOOL, "strict": True, **CACHED},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        tool_choice={"type": "auto", "disable_parallel_tool_use": False},
        output_config={
            "effort": "low",
            "format": {"type": "json_schema", "schema": {"type": "object"}},
            "task_budget": 1,
        },
        metadata={"user_id": "u"},
        mcp_servers=[{"type": "url", "name": "m", "url": "https://example.org"}],
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
        cache_control={"type": "ephemeral"},
    ),
    "adaptive": body(said("user", "Hi."), thinking={"type": "adaptive", "display": "summarized"}),
    "shown": body(
        said("user", "Hi."), thinking={"type": "enabled", "budget_tokens": 1024, "display": "omitted"}, max_tokens=2048
    ),
    "interleaved": body(said("user", "Hi."), thinking={"type": "enabled", "budget_tokens": 5000}, max_tokens=4096),
    "warm": body(said("user", "Hi."), max_tokens=0),
    "forced": body(said("user", "Hi."), tools=[TOOL], tool_choice={"type": "tool", "name": "look_up"}),
    "unknown": body(
        said("user", "Hi.", {"type": "hologram", "beam": [1, 2.0, 5e-06]}, x_message=None),
        said(
            "assistant",
            {"type": "text", "text": "Yes.", "citations": None, "x": {}},
            {"type": "dream_tool_use", "id": 1},
        ),
        said("user", {**result(), "type": "dream", "x": ""}),
        x_body={"a": [None, "", {}]},
    ),
}
"""Requests that the provider accepts."""

REFUSED: dict[str, dict[str, Any]] = {
    "no max_tokens": {"model": "claude-x", "messages": []},
    "nothing": {"messages": []},
    "broken pairs": body(said("assistant", use()), said("user", "Hi."), said("user", result("toolu_9", []))),
    "odd order": body(said("user", "a", result(), "b", result("toolu_2"))),
    "blank": body(said("user", "", " "), said("assistant"), {"role": "user", "content": ""}, said("user")),
    "odd content": body({"role": "user"}, {"role": "assistant", "content": None}, {"role": "system", "content": None}),
    "system first": body(said("system", "a", ADDED), said("user", "b"), said("system"), system="c"),
    "system null": body(said("user", "b"), system=None),
    "system empty": body(said("user", "b"), system=[]),
    "system blank": body(said("user", "b"), system=""),
    "wrong roles": body(
        said("user", use(), THINKING, SEARCH, FOUND, ADDED), said("assistant", result(), image(type="url", url="u"))
    ),
    "unsigned": body(said("assistant", {"type": "thinking", "thinking": ""}, {**THINKING, "signature": ""}, "x ")),
    "null signature": body(said("assistant", {"type": "thinking", "thinking": "", "signature": None})),
    "odd results": body(said("user", result(content=None), result(content=[], is_error=None, **CACHED), y=1)),
    "odd citations": body(said("assistant", {**CITED, "citations": []}, {**CITED, "citations": [5, {"url": 5}]})),
    "odd fields": body(
        said("user", {"type": "text", "text": "x", "cache_control": 5, "citations": {"enabled": 1}}),
        tools=[],
        tool_choice={"type": "pick"},
        thinking=None,
        output_config={},
        stop_sequences=None,
    ),
    "odd tools": body(
        tools=[{"name": "f"}, {"name": "g", "input_schema": None, "type": None}, {"name": "h", "input_schema": []}]
    ),
    "odd sources": body(
        said("user", image(type="hologram"), document({"type": "text", "media_type": "text/csv", "data": "a,b"})),
        said("user", document({"type": "base64", "media_type": "text/plain", "data": "aGk=", "x": 1})),
    ),
    "odd effort": body(said("user", "x"), output_config={"effort": "colossal", "format": {"type": "xml"}}),
}
"""Requests that the provider refuses; they are written as they were, too."""


def answer(*blocks: Any, **fields: Any) -> dict[str, Any]:
    """Return a response."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": said("assistant", *blocks)["content"],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 5},
        **fields,
    }


ANSWERS: dict[str, dict[str, Any]] = {
    "text": answer("Hello."),
    "tools": answer(THINKING, "I look.", use(caller={"type": "direct"}), stop_reason="tool_use"),
    "search": answer(SEARCH, FOUND, CITED, {"type": "text", "text": "Bye.", "citations": None}),
    "mcp": answer(
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "ask", "server_name": "wiki", "input": {"q": 2.0}},
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": True, "content": []},
    ),
    "compaction": answer({"type": "compaction", "content": None, "signature": "s"}, stop_reason="compaction"),
    "unknown": answer({"type": "hologram"}, stop_reason="bored", x_new={"a": 1}, usage={"input_tokens": "many"}),
    "refusal": answer(stop_reason="refusal", stop_details={"type": "refusal", "category": None}),
    "bare": {"content": []},
    "nulls": answer(stop_reason=None, usage=None, type=None, role="robot", container=None, model=None, id=None),
    "container": answer("x", container={"id": "container_1", "expires_at": "2030-01-01T00:00:00Z"}),
}
