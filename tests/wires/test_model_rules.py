"""What families of models refuse of a request, though their wire can express it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import palaver as p
from palaver import wires
from palaver.models.catalogue import Capabilities
from palaver.models.encoded_prompt import PromptEncoder
from palaver.models.endpoint import Endpoint
from palaver.models.language_model import Prompt

SAMPLING = {"temperature": 0.2, "top_p": 0.9}
CHAT, RESPONSES, MESSAGES, CONVERSE = "openai_chat", "openai_responses", "anthropic_messages", "bedrock_converse"


def _sent(wire: str, model: str, **settings: Any) -> tuple[dict[str, Any], set[str]]:
    request = p.Request(messages=(p.user("hi"),), settings=p.Settings(max_tokens=5000, **settings))
    named = request.replace(model=model) if wire in {CHAT, RESPONSES, MESSAGES} else request
    encoder = wires.get(wire).request_encoder(named, model=model)
    body = json.loads(encoder.encoded().body)
    return {**body, **body.get("inferenceConfig", {})}, {loss.what for loss in encoder.losses}


@pytest.mark.parametrize(
    ("wire", "model", "settings", "refused"),
    [
        (MESSAGES, "claude-opus-4-7", SAMPLING, {"temperature", "top_p"}),
        (MESSAGES, "claude-opus-4-8", {"temperature": 0.2}, {"temperature"}),
        (MESSAGES, "claude-sonnet-5", {"top_k": 4}, {"top_k"}),
        (MESSAGES, "claude-opus-5-5", {"temperature": 0.2}, {"temperature"}),
        (MESSAGES, "claude-haiku-5-5", {"temperature": 0.2}, {"temperature"}),
        (MESSAGES, "claude-fable-5", {"temperature": 0.2}, {"temperature"}),
        (MESSAGES, "claude-sonnet-4-5-20250929", SAMPLING, {"top_p"}),
        (MESSAGES, "claude-haiku-4-5", SAMPLING, {"top_p"}),
        (MESSAGES, "claude-opus-4-6", {"top_p": 0.9}, set()),
        (MESSAGES, "claude-haiku-4-5", {}, set()),
        (MESSAGES, "claude-opus-4-8", {}, set()),
        (MESSAGES, "claude-3-7-sonnet-latest", SAMPLING, set()),
        (MESSAGES, "claude-sonnet-4-20250514", SAMPLING, set()),
        (MESSAGES, "some-model", SAMPLING, set()),
        (CONVERSE, "us.anthropic.claude-opus-4-8-v1:0", {"temperature": 0.2}, {"temperature"}),
        (CONVERSE, "amazon.nova-pro-v1:0", {"temperature": 0.2}, set()),
        (RESPONSES, "o3", {"temperature": 0.3, "reasoning_tokens": 0}, {"temperature"}),
        (RESPONSES, "gpt-5", SAMPLING, {"temperature", "top_p"}),
        (RESPONSES, "gpt-5-chat-latest", SAMPLING, set()),
        (RESPONSES, "gpt-5.1", SAMPLING, set()),
        (RESPONSES, "gpt-5.4-pro", {"temperature": 0.3}, {"temperature"}),
        (RESPONSES, "gpt-6-luna", {"temperature": 0.3}, {"temperature"}),
        (RESPONSES, "gpt-6-luna", {"temperature": 0.3, "effort": "none"}, set()),
        (RESPONSES, "gpt-4.1", SAMPLING, set()),
        (CHAT, "o4-mini", {"stop": ("x",), "presence_penalty": 0.5}, {"stop", "presence_penalty"}),
        (CHAT, "gpt-4o", {"stop": ("x",), "presence_penalty": 0.5}, set()),
    ],
)
def test_settings_that_a_model_refuses_are_left_out(
    wire: str, model: str, settings: dict[str, Any], refused: set[str]
) -> None:
    body, lost = _sent(wire, model, **settings)
    names = {"temperature", "top_p", "top_k", "stop", "presence_penalty"} & settings.keys()
    fields = {name: {"top_p": "topP"}.get(name, name) if wire == CONVERSE else name for name in names}
    assert {name for name, field in fields.items() if field not in body} == refused
    assert lost & names == refused


def test_other_vendors_of_a_wire_have_models_of_their_own() -> None:
    request = p.Request(messages=(p.user("hi"),), model="o3", settings=p.Settings(temperature=0.2))
    assert json.loads(wires.get(CHAT, "groq").encode_request(request).body)["temperature"] == 0.2


@pytest.mark.parametrize(
    ("model", "role"),
    [
        ("claude-sonnet-4-5", "user"),
        ("claude-haiku-4-5-20251001", "user"),
        ("claude-sonnet-4-20250514", "user"),
        ("claude-opus-4-6", "user"),
        ("claude-opus-4-7", "user"),
        ("claude-3-5-haiku-latest", "user"),
        ("deepseek-chat", "user"),
        ("claude-opus-4-8", "system"),
        ("claude-opus-5", "system"),
        ("claude-haiku-5-5", "system"),
        ("some-model", "system"),
    ],
)
@pytest.mark.parametrize("late", [p.system("D"), p.developer("D")], ids=["system", "developer"])
def test_a_late_system_message_is_user_text_for_models_without_them(model: str, role: str, late: p.Message) -> None:
    request = p.Request(messages=(p.user("c"), late), model=model, settings=p.Settings(max_tokens=10))
    encoded = wires.get(MESSAGES).encode_request(request)
    last = json.loads(encoded.body)["messages"][-1]
    assert last["role"] == role
    assert last["content"][-1]["text"] == "D"


def test_the_model_decides_where_only_the_address_names_it() -> None:
    endpoint = Endpoint(provider_name="google", wire="google_generate", url="http://x/{model}", names_model=False)
    encoder = PromptEncoder(
        wires.get("google_generate"),
        endpoint,
        id="gemini-2.5-pro",
        settings=p.Settings(),
        capabilities=Capabilities(),
    )
    prompt = Prompt(messages=(p.user("hi"),), settings=p.Settings(effort="low"))
    body = json.loads(encoder.encode(prompt, stream=False).body)
    assert body["generationConfig"] == {"thinkingConfig": {"thinkingBudget": 1024}}


@pytest.mark.parametrize(
    ("settings", "budget"),
    [
        ({"effort": "high", "max_tokens": 5000}, 3750),
        ({"effort": "high", "max_tokens": 64_000}, 24_576),
        ({"reasoning_tokens": 4000, "max_tokens": 5000}, 4000),
        ({"reasoning_tokens": 8000, "max_tokens": 5000}, 3750),
        ({"effort": "high", "max_tokens": 1200}, None),
    ],
)
def test_a_budget_leaves_tokens_for_the_answer(settings: dict[str, Any], budget: int | None) -> None:
    request = p.Request(messages=(p.user("hi"),), model="claude-sonnet-4-5", settings=p.Settings(**settings))
    body = json.loads(wires.get(MESSAGES).encode_request(request).body)
    assert body.get("thinking", {}).get("budget_tokens") == budget
