"""Cache marks go from one wire to another, wherever both can say them.

Source: docs/spec/wires.md#4.3.7, #6.2.7; docs/spec/codebuff.md#2.4.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import palaver as p
from palaver import wires
from palaver.testing import rules

pytestmark = [pytest.mark.finding("F-34")]

HOUR = {"type": "ephemeral", "ttl": "1h"}
MARK = {"type": "ephemeral"}
MESSAGES: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 64,
    "system": [{"type": "text", "text": "Be short.", "cache_control": HOUR}],
    "tools": [{"name": "look", "input_schema": {"type": "object"}, "cache_control": HOUR}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "seen", "cache_control": MARK},
                {"type": "text", "text": "go on", "cache_control": MARK},
            ],
        },
    ],
}
CONVERSE: dict[str, Any] = {
    "system": [{"text": "Be short."}, {"cachePoint": {"type": "default", "ttl": "1h"}}],
    "toolConfig": {
        "tools": [
            {"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}},
            {"cachePoint": {"type": "default", "ttl": "1h"}},
        ]
    },
    "messages": [
        {"role": "user", "content": [{"text": "hi"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "toolu_1", "name": "look", "input": {}}}]},
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "toolu_1", "content": [{"text": "seen"}], "status": "success"}},
                {"cachePoint": {"type": "default"}},
                {"text": "go on"},
                {"cachePoint": {"type": "default"}},
            ],
        },
    ],
}


def sent(source: str, body: dict[str, Any], target: str, model: str | None) -> tuple[dict[str, Any], list[str]]:
    request = wires.get(source).decode_request(body).replace(model=model)
    encoded = wires.get(target).encode_request(request)
    assert rules.check_request(target, encoded.body, None) == []
    return json.loads(encoded.body), [f"{loss.kind} {loss.what}" for loss in encoded.losses]


@pytest.mark.row("CBF-15")
@pytest.mark.parametrize("model", ["us.anthropic.claude-sonnet-4-5-v1:0", "claude-sonnet-4-5", None])
def test_marks_go_to_converse_behind_tools_system_and_messages(model: str | None) -> None:
    body, losses = sent("anthropic_messages", MESSAGES, "bedrock_converse", model)
    assert body["system"] == CONVERSE["system"]
    assert body["toolConfig"]["tools"] == CONVERSE["toolConfig"]["tools"]
    assert [[next(iter(block)) for block in each["content"]] for each in body["messages"]] == [
        ["text"],
        ["toolUse"],
        ["toolResult", "cachePoint", "text", "cachePoint"],
    ]
    assert losses == []


def test_marks_come_back_from_converse() -> None:
    body, losses = sent("bedrock_converse", CONVERSE, "anthropic_messages", "claude-sonnet-4-5")
    assert body["system"][-1]["cache_control"] == HOUR
    assert body["tools"][0]["cache_control"] == HOUR
    *_, result, text = [block for message in body["messages"] for block in message["content"]]
    assert (result["cache_control"], text["cache_control"]) == (MARK, MARK)
    assert losses == ["approximated max_tokens"]


def test_a_fifth_mark_is_on_the_receipt() -> None:
    text = {"type": "text", "text": "x", "cache_control": MARK}
    body = {**MESSAGES, "messages": [{"role": "user", "content": [text, text, text]}]}
    encoded, losses = sent("anthropic_messages", body, "bedrock_converse", "us.anthropic.claude-sonnet-4-5-v1:0")
    assert json.dumps(encoded).count("cachePoint") == 4
    assert losses == ["dropped cachePoint"]


def test_a_model_without_long_marks_gets_short_ones_and_a_line_on_the_receipt() -> None:
    body, losses = sent("anthropic_messages", MESSAGES, "bedrock_converse", "us.amazon.nova-pro-v1:0")
    assert body["system"][-1] == {"cachePoint": {"type": "default"}}
    assert losses == ["dropped cache mark", "approximated cache mark"]


@pytest.mark.parametrize("target", ["openai_responses", "google_generate", "cohere_chat", "ollama_chat"])
def test_a_wire_without_marks_names_them_on_the_receipt(target: str) -> None:
    body, losses = sent("anthropic_messages", MESSAGES, target, "m")
    assert "cache" not in json.dumps(body)
    assert losses.count("dropped cache_control") >= 1


def test_a_mark_goes_to_a_router_and_stands_on_the_text() -> None:
    request = wires.get("anthropic_messages").decode_request(MESSAGES).replace(model="anthropic/claude-sonnet-4.5")
    body = json.loads(wires.get("openai_chat", "openrouter").encode_request(request).body)
    assert body["messages"][0]["content"] == [{"type": "text", "text": "Be short.", "cache_control": HOUR}]


def test_a_growing_request_keeps_its_marks() -> None:
    request = wires.get("anthropic_messages").decode_request(MESSAGES).replace()
    wire = wires.get("bedrock_converse")
    encoder = wire.request_encoder(request)
    more = (p.assistant("a"), p.user("b"))
    encoder.append(*more)
    assert b"".join(encoder.chunks()) == wire.encode_request(request.append(*more)).body


def test_a_loss_behind_a_mark_names_its_own_place() -> None:
    block = p.Opaque("anthropic_messages", p.Json.of({"type": "container_upload", "file_id": "f"}).value_json)
    text = p.Text("x").replace(provider={"anthropic_messages": {"cache_control": MARK}})
    request = p.Request(messages=(p.user(text, block),), model="us.anthropic.claude-sonnet-4-5-v1:0")
    losses = wires.get("bedrock_converse").encode_request(request).losses
    assert [(loss.what, loss.message, loss.part) for loss in losses] == [("opaque block", 0, 1)]
