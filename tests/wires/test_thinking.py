"""One table for thinking: effort, budget, on and off, from every wire to every other.

Source: docs/spec/wires.md#1.6.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import palaver as p
from palaver import wires
from palaver.testing.tables import row
from palaver.wires._engine import thinking

pytestmark = [pytest.mark.finding("F-34")]

SAID: dict[str, list[tuple[dict[str, Any], str | None, int | None]]] = {
    "anthropic_messages": [
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, None, 2048),
        ({"thinking": {"type": "adaptive"}}, None, -1),
        ({"thinking": {"type": "disabled"}}, None, 0),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "max", -1),
        ({"output_config": {"effort": "low"}}, "low", None),
    ],
    "openai_chat": [
        ({"reasoning_effort": "high"}, "high", None),
        ({"reasoning": {"effort": "low", "exclude": True}}, "low", None),
        ({"reasoning": {"max_tokens": 2000}}, None, 2000),
        ({"reasoning": {"enabled": True}}, None, -1),
        ({"enable_thinking": False}, None, 0),
        ({"enable_thinking": True, "thinking_budget": 500}, None, 500),
        ({"chat_template_kwargs": {"enable_thinking": False, "add_generation_prompt": True}}, None, 0),
        ({"thinking": {"type": "disabled"}}, None, 0),
        ({"thinking": {"type": "enabled", "clear_thinking": False}}, None, -1),
    ],
    "openai_responses": [({"reasoning": {"effort": "xhigh", "summary": "auto"}}, "xhigh", None)],
    "google_generate": [
        ({"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}, None, 0),
        ({"generationConfig": {"thinkingConfig": {"thinkingBudget": -1, "includeThoughts": True}}}, None, -1),
        ({"generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH"}}}, "high", None),
    ],
    "bedrock_converse": [
        ({"additionalModelRequestFields": {"thinking": {"type": "disabled"}}}, None, 0),
        ({"additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 2048}}}, None, 2048),
        (
            {"additionalModelRequestFields": {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}},
            "low",
            None,
        ),
    ],
    "cohere_chat": [
        ({"thinking": {"type": "enabled", "token_budget": 700}}, None, 700),
        ({"thinking": {"type": "enabled"}}, None, -1),
        ({"thinking": {"type": "disabled"}}, None, 0),
    ],
    "ollama_chat": [({"think": True}, None, -1), ({"think": False}, None, 0), ({"think": "low"}, "low", None)],
}
"""What a body says, and the neutral settings that it is read as."""

EMPTY: dict[str, dict[str, Any]] = {
    "google_generate": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    "bedrock_converse": {"messages": [{"role": "user", "content": [{"text": "hi"}]}]},
    "openai_responses": {"model": "m", "input": "hi"},
}
TALK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 32000}


@pytest.mark.parametrize("wire", wires.names())
def test_every_form_is_read_and_goes_back_as_it_came(wire: str) -> None:
    for fields, effort, budget in row(SAID, wire, "SAID in tests/wires/test_thinking.py"):
        body = {**EMPTY.get(wire, TALK), **fields}
        request = wires.get(wire).decode_request(body)
        assert (request.settings.effort, request.settings.reasoning_tokens) == (effort, budget)
        encoded = wires.get(wire).encode_request(request)
        assert json.loads(encoded.body) == body
        assert encoded.losses == ()


TARGETS: list[tuple[str, str, dict[str, Any], dict[str, Any], tuple[str, ...]]] = [
    # wire, model, settings, the fields of the body, the receipt
    (
        "anthropic_messages",
        "claude-opus-4-7",
        {"effort": "high"},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        (),
    ),
    (
        "anthropic_messages",
        "claude-opus-4-7",
        {"reasoning_tokens": 9000},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        ("approximated reasoning_tokens",),
    ),
    (
        "anthropic_messages",
        "claude-sonnet-4-5-20250929",
        {"effort": "medium"},
        {"thinking": {"type": "enabled", "budget_tokens": 8192}},
        ("approximated effort",),
    ),
    ("anthropic_messages", "claude-3-7-sonnet-latest", {"effort": "none"}, {"thinking": {"type": "disabled"}}, ()),
    ("anthropic_messages", "claude-sonnet-4-20250514", {"reasoning_tokens": -1}, {}, ("dropped reasoning_tokens",)),
    (
        "openai_chat",
        "m",
        {"reasoning_tokens": 2048},
        {"reasoning_effort": "medium"},
        ("approximated reasoning_tokens",),
    ),
    ("openai_chat", "m", {"reasoning_tokens": 0}, {"reasoning_effort": "none"}, ()),
    (
        "openai_chat",
        "m",
        {"reasoning_tokens": -1, "effort": "max"},
        {"reasoning_effort": "xhigh"},
        ("approximated effort",),
    ),
    ("openai_chat:openrouter", "m", {"reasoning_tokens": 2048}, {"reasoning": {"max_tokens": 2048}}, ()),
    ("openai_chat:openrouter", "m", {"effort": "low"}, {"reasoning": {"effort": "low"}}, ()),
    ("openai_chat:openrouter", "m", {"reasoning_tokens": -1}, {"reasoning": {"enabled": True}}, ()),
    (
        "openai_chat:groq",
        "qwen/qwen3-32b",
        {"effort": "high"},
        {"reasoning_effort": "default"},
        ("approximated effort",),
    ),
    (
        "openai_chat:groq",
        "openai/gpt-oss-120b",
        {"effort": "xhigh"},
        {"reasoning_effort": "high"},
        ("approximated effort",),
    ),
    ("openai_chat:vllm", "Qwen/Qwen3-8B", {"effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}, ()),
    (
        "openai_chat:compatible",
        "qwen-plus",
        {"reasoning_tokens": 500},
        {"thinking_budget": 500, "enable_thinking": True},
        (),
    ),
    (
        "openai_chat:deepseek",
        "deepseek-chat",
        {"effort": "low"},
        {"thinking": {"type": "enabled"}},
        ("approximated effort",),
    ),
    (
        "openai_responses",
        "m",
        {"reasoning_tokens": 30000},
        {"reasoning": {"effort": "xhigh"}},
        ("approximated reasoning_tokens",),
    ),
    (
        "google_generate",
        "gemini-2.5-flash",
        {"effort": "low"},
        {"thinkingConfig": {"thinkingBudget": 1024}},
        ("approximated effort",),
    ),
    ("google_generate", "gemini-2.5-flash", {"effort": "none"}, {"thinkingConfig": {"thinkingBudget": 0}}, ()),
    (
        "google_generate",
        "gemini-2.5-pro",
        {"reasoning_tokens": 0},
        {"thinkingConfig": {"thinkingBudget": 128}},
        ("approximated reasoning_tokens",),
    ),
    (
        "google_generate",
        "gemini-3-pro",
        {"effort": "none"},
        {"thinkingConfig": {"thinkingLevel": "LOW"}},
        ("approximated effort",),
    ),
    (
        "bedrock_converse",
        "us.anthropic.claude-sonnet-4-5-v1:0",
        {"effort": "low"},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        ("approximated effort",),
    ),
    (
        "bedrock_converse",
        "us.anthropic.claude-opus-4-6-v1",
        {"effort": "low"},
        {"thinking": {"type": "adaptive"}, "outputConfig": {"effort": "low"}},
        (),
    ),
    (
        "bedrock_converse",
        "amazon.nova-2-lite-v1:0",
        {"effort": "high"},
        {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}},
        (),
    ),
    (
        "cohere_chat",
        "command-a-reasoning",
        {"effort": "low"},
        {"thinking": {"type": "enabled", "token_budget": 1024}},
        ("approximated effort",),
    ),
    ("ollama_chat", "m", {"reasoning_tokens": 0}, {"think": False}, ()),
    ("ollama_chat", "m", {"reasoning_tokens": 5000}, {"think": "medium"}, ("approximated reasoning_tokens",)),
]


@pytest.mark.parametrize(("wire", "model", "settings", "fields", "told"), TARGETS)
def test_a_target_gets_what_it_can_say(
    wire: str, model: str, settings: dict[str, Any], fields: dict[str, Any], told: tuple[str, ...]
) -> None:
    request = p.Request(messages=(p.user("hi"),), model=model, settings=p.Settings(max_tokens=64000, **settings))
    encoded = wires.get(wire).encode_request(request)
    body = json.loads(encoded.body)
    flat = {**body, **body.get("generationConfig", {}), **body.get("additionalModelRequestFields", {})}
    names = {place.path[0] for place in thinking.CHAT_PLACES} | {"thinkingConfig", "output_config", "outputConfig"}
    names |= {"reasoningConfig", "think"}
    assert {key: value for key, value in flat.items() if key in names} == fields
    assert tuple(f"{loss.kind} {loss.what}" for loss in encoded.losses) == told


FAMILIES: list[tuple[str, str, dict[str, Any], Any]] = [
    # wire, model, settings, what is written
    ("google_generate", "gemini-2.5-pro", {"effort": "high"}, {"thinkingBudget": 24_576}),
    ("google_generate", "gemini-2.5-pro", {"reasoning_tokens": 50_000}, {"thinkingBudget": 32_768}),
    ("google_generate", "gemini-2.5-flash", {"reasoning_tokens": 50_000}, {"thinkingBudget": 24_576}),
    ("google_generate", "gemini-2.5-flash-lite", {"effort": "low"}, {"thinkingBudget": 1024}),
    ("google_generate", "gemini-2.5-flash-lite", {"reasoning_tokens": 100}, {"thinkingBudget": 512}),
    ("google_generate", "gemini-2.5-flash", {"effort": "xhigh"}, {"thinkingBudget": 24_576}),
    ("google_generate", "gemini-3-pro-preview", {"effort": "minimal"}, {"thinkingLevel": "LOW"}),
    ("google_generate", "gemini-3-pro-preview", {"effort": "medium"}, {"thinkingLevel": "LOW"}),
    ("google_generate", "gemini-3-pro-preview", {"effort": "max"}, {"thinkingLevel": "HIGH"}),
    ("google_generate", "gemini-3.1-pro-preview", {"effort": "medium"}, {"thinkingLevel": "MEDIUM"}),
    ("google_generate", "gemini-3.1-pro-preview", {"effort": "minimal"}, {"thinkingLevel": "LOW"}),
    ("google_generate", "gemini-3.1-pro-preview", {"reasoning_tokens": 0}, {"thinkingLevel": "LOW"}),
    ("google_generate", "gemini-3-flash-preview", {"effort": "minimal"}, {"thinkingLevel": "MINIMAL"}),
    ("google_generate", "gemini-3-flash-preview", {"effort": "none"}, {"thinkingLevel": "MINIMAL"}),
    ("google_generate", "gemini-3.8-flash", {"effort": "none"}, {"thinkingLevel": "LOW"}),
    ("google_generate", "gemini-3.5-flash", {"effort": "xhigh"}, {"thinkingLevel": "HIGH"}),
    ("google_generate", "some-model", {"effort": "minimal"}, {"thinkingLevel": "MINIMAL"}),
    ("openai_responses", "o3", {"reasoning_tokens": 0}, {"effort": "low"}),
    ("openai_responses", "o3-2025-04-16", {"effort": "xhigh"}, {"effort": "high"}),
    ("openai_responses", "gpt-5", {"reasoning_tokens": 0}, {"effort": "minimal"}),
    ("openai_responses", "gpt-5-mini", {"effort": "minimal"}, {"effort": "minimal"}),
    ("openai_responses", "gpt-5-pro", {"effort": "low"}, {"effort": "high"}),
    ("openai_responses", "gpt-5-chat-latest", {"effort": "high"}, {"effort": "medium"}),
    ("openai_responses", "gpt-5-codex", {"effort": "minimal"}, {"effort": "low"}),
    ("openai_responses", "gpt-5.1", {"effort": "none"}, {"effort": "none"}),
    ("openai_responses", "gpt-5.1", {"effort": "xhigh"}, {"effort": "high"}),
    ("openai_responses", "gpt-5.1-codex-max", {"effort": "max"}, {"effort": "xhigh"}),
    ("openai_responses", "gpt-5.4-mini", {"effort": "xhigh"}, {"effort": "xhigh"}),
    ("openai_responses", "gpt-5.4-pro", {"effort": "none"}, {"effort": "medium"}),
    ("openai_responses", "gpt-5.6-sol", {"effort": "max"}, {"effort": "max"}),
    ("openai_responses", "gpt-6-astra", {"effort": "none"}, {"effort": "low"}),
    ("openai_responses", "gpt-6-luna", {"effort": "none"}, {"effort": "none"}),
    ("openai_responses", "some-model", {"effort": "max"}, {"effort": "max"}),
    ("openai_chat", "o4-mini", {"effort": "none"}, "low"),
    ("openai_chat", "gpt-5-nano", {"effort": "none"}, "minimal"),
    ("openai_chat", "gpt-5.6", {"effort": "max"}, "max"),
]


@pytest.mark.parametrize(("wire", "model", "settings", "written"), FAMILIES)
def test_a_family_of_models_gets_only_what_it_takes(
    wire: str, model: str, settings: dict[str, Any], written: Any
) -> None:
    request = p.Request(messages=(p.user("hi"),), settings=p.Settings(max_tokens=64_000, **settings))
    encoder = wires.get(wire).request_encoder(request, model=model)
    body = json.loads(encoder.encoded().body)
    config = body.get("generationConfig", {})
    assert written == config.get("thinkingConfig", body.get("reasoning", body.get("reasoning_effort")))
    (value,) = written.values() if isinstance(written, dict) else (written,)
    kept = str(value).lower() in {str(each) for each in settings.values()}
    receipt = {loss.what for loss in encoder.losses} & {"effort", "reasoning_tokens"}
    assert (receipt == set()) == kept


def test_an_effort_alone_does_not_switch_thinking_on_after_an_edit() -> None:
    wire = wires.get("anthropic_messages")
    body = {**TALK, "model": "claude-opus-4-7", "output_config": {"effort": "low"}}
    edited = wire.decode_request(body).append(p.assistant("a"), p.user("b"))
    assert "thinking" not in json.loads(wire.encode_request(edited).body)


def test_an_edit_keeps_where_a_setting_stood() -> None:
    wire = wires.get("openai_chat", "openrouter")
    request = wire.decode_request({**TALK, "reasoning": {"max_tokens": 2000, "exclude": True}})
    body = json.loads(wire.encode_request(request.append(p.assistant("a"), p.user("b"))).body)
    assert body["reasoning"] == {"max_tokens": 2000, "exclude": True}


@pytest.mark.parametrize("wire", wires.names())
def test_a_wire_has_a_row(wire: str) -> None:
    assert wire in thinking.ROWS, f"add a row for {wire} to palaver.wires._engine.thinking.ROWS"
    assert thinking.ROWS[wire][-1].models is None, "the last row holds for models that no row names"


@pytest.mark.finding("F-102")
@pytest.mark.parametrize("budget", [10**5000, -(10**5000)], ids=["much", "negative"])
@pytest.mark.parametrize("wire", wires.names())
def test_a_budget_of_any_length_is_a_line_on_the_receipt(wire: str, budget: int) -> None:
    request = p.Request((p.user("x"),), model="m", settings=p.Settings(reasoning_tokens=budget))
    losses = wires.get(wire).encode_request(request).losses
    assert any(loss.what == "reasoning_tokens" and len(loss.why) < 200 for loss in losses)
