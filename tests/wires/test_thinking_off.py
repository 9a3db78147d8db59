"""A field that switches thinking off wins, and stays where it stood."""

from __future__ import annotations

import json
from typing import Any

import pytest

import palaver as p
from palaver import wires

CASES = [
    ("compatible", "qwen3-32b", {"enable_thinking": False, "thinking_budget": 500}),
    ("compatible", "qwen3-32b", {"chat_template_kwargs": {"enable_thinking": False}}),
    ("compatible", "another", {"enable_thinking": False}),
    ("compatible", "another", {"chat_template_kwargs": {"enable_thinking": False}}),
    ("vllm", "qwen3-32b", {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"}),
    ("openrouter", "any", {"reasoning": {"effort": "none", "max_tokens": 200}}),
    ("openrouter", "any", {"reasoning": {"enabled": False, "max_tokens": 200}}),
]


def _decoded(variant: str, model: str, fields: dict[str, Any]) -> p.Request:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}
    return wires.get("openai_chat", variant).decode_request(json.dumps(body).encode())


@pytest.mark.finding("A-02")
@pytest.mark.parametrize(("variant", "model", "fields"), CASES)
def test_thinking_off_stays_where_it_stood_after_an_edit(variant: str, model: str, fields: dict[str, Any]) -> None:
    request = _decoded(variant, model, fields).append(p.assistant("yo"), p.user("more"))
    body = json.loads(wires.get("openai_chat", variant).encode_request(request).body)
    assert {key: held for key, held in body.items() if key not in {"model", "messages"}} == fields


@pytest.mark.finding("A-02")
@pytest.mark.parametrize(("variant", "model", "fields"), CASES)
def test_thinking_off_is_off_for_another_provider(variant: str, model: str, fields: dict[str, Any]) -> None:
    request = _decoded(variant, model, fields).replace(model="claude-sonnet-4-5")
    body = json.loads(wires.get("anthropic_messages").encode_request(request).body)
    assert body["thinking"] == {"type": "disabled"}


@pytest.mark.finding("A-02")
def test_what_stood_beside_off_is_on_the_receipt_of_another_vendor() -> None:
    request = _decoded("compatible", "qwen3-32b", {"enable_thinking": False, "thinking_budget": 500})
    encoded = wires.get("openai_chat").encode_request(request)
    assert "thinking_budget" not in json.loads(encoded.body)
    assert any("thinking_budget" in str(loss) for loss in encoded.losses)
