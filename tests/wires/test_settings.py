"""What becomes of settings that a wire does not take, and of the provider's own settings on another wire.

Source: docs/reference/wires.md, "What becomes of what a wire cannot say".
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import palaver as p
from palaver import wires

pytestmark = pytest.mark.finding("F-120")

MANY = tuple(f"stop{number}" for number in range(3000))
RANGES: dict[str, dict[str, tuple[Any, Any]]] = {
    "openai_chat": {
        "max_completion_tokens": (-5, 1),
        "temperature": (3, 2),
        "top_p": (2, 1),
        "frequency_penalty": (-3, -2),
        "stop": (MANY, list(MANY[:4])),
    },
    "openai_chat:groq": {"max_completion_tokens": (-5, 1), "stop": (MANY, list(MANY[:4]))},
    "openai_responses": {"max_output_tokens": (3, 16), "temperature": (-1, 0), "top_p": (2, 1)},
    "anthropic_messages": {"max_tokens": (-5, 1), "temperature": (3, 1), "top_p": (2, 1), "top_k": (-1, 0)},
    "google_generate": {
        "maxOutputTokens": (-5, 1),
        "temperature": (3, 2),
        "topP": (-1, 0),
        "topK": (0, 1),
        "stopSequences": (MANY, list(MANY[:5])),
    },
    "bedrock_converse": {
        "maxTokens": (-5, 1),
        "temperature": (3, 1),
        "topP": (-1, 0),
        "stopSequences": (MANY, list(MANY[:2500])),
    },
    "cohere_chat": {
        "max_tokens": (-5, 1),
        "p": (0, 0.01),
        "k": (900, 500),
        "frequency_penalty": (-1, 0),
        "stop_sequences": (MANY, list(MANY[:5])),
    },
}
"""For each wire the name of a field, what was asked for, and what is sent: the nearest that the provider takes."""
NEUTRAL = {
    **dict.fromkeys(("max_completion_tokens", "max_output_tokens", "maxOutputTokens", "maxTokens"), "max_tokens"),
    **dict.fromkeys(("topP", "p"), "top_p"),
    **dict.fromkeys(("topK", "k"), "top_k"),
    **dict.fromkeys(("stopSequences", "stop_sequences"), "stop"),
}


@pytest.mark.parametrize(
    ("name", "field", "asked", "sent"),
    [(name, field, *pair) for name, fields in RANGES.items() for field, pair in fields.items()],
)
def test_the_nearest_that_is_taken_is_sent_and_the_receipt_says_so(
    name: str, field: str, asked: Any, sent: Any
) -> None:
    key = NEUTRAL.get(field, field)
    made = wires.get(name).encode_request(p.Request((p.user("x"),), "m", settings=p.Settings(**{key: asked})))
    body = json.loads(made.body)
    where = {**body, **body.get("generationConfig", {}), **body.get("inferenceConfig", {})}
    assert where[field] == sent
    assert [each.kind for each in made.losses if each.what == key] == ["approximated"]


@pytest.mark.parametrize("name", wires.names())
def test_settings_within_the_range_have_no_line(name: str) -> None:
    settings = p.Settings(max_tokens=100, temperature=0.5, top_p=0.5)
    made = wires.get(name).encode_request(p.Request((p.user("x"),), "m", settings=settings))
    assert not [each for each in made.losses if each.what in {"max_tokens", "temperature", "top_p"}]


LEFT: dict[str, tuple[dict[str, Any], list[str]]] = {
    "google_generate": (
        {
            "contents": [{"role": "user", "parts": [{"text": "x"}]}],
            "generationConfig": {
                "thinkingConfig": {"thinkingBudget": 0, "includeThoughts": False},
                "temperature": 0,
                "candidateCount": 2,
            },
        },
        ["generationConfig.candidateCount", "generationConfig.thinkingConfig.includeThoughts"],
    ),
    "openai_chat": (
        {"messages": [{"role": "user", "content": "x"}], "stream_options": {"include_usage": True, "other": 1}},
        ["stream_options.include_usage", "stream_options.other"],
    ),
    "openai_responses": (
        {"input": "x", "text": {"verbosity": "low", "other": 1}, "reasoning": {"effort": "low", "summary": "auto"}},
        ["text.verbosity", "text.other", "reasoning.summary"],
    ),
    "anthropic_messages": (
        {
            "max_tokens": 9,
            "messages": [{"role": "user", "content": "x"}],
            "output_config": {"effort": "low", "one": 1, "other": None, "two": 2},
        },
        ["output_config.one", "output_config.two"],
    ),
    "bedrock_converse": (
        {
            "messages": [{"role": "user", "content": [{"text": "x"}]}],
            "inferenceConfig": {"maxTokens": 9, "one": 1, "two": 2},
            "additionalModelRequestFields": {"one": 1, "two": {"a": 1, "b": 2}},
        },
        [
            "inferenceConfig.one",
            "inferenceConfig.two",
            "additionalModelRequestFields.one",
            "additionalModelRequestFields.two",
        ],
    ),
    "ollama_chat": (
        {"messages": [{"role": "user", "content": "x"}], "options": {"num_ctx": 9, "mirostat": 1, "temperature": 0}},
        ["options.num_ctx", "options.mirostat"],
    ),
}


@pytest.mark.parametrize("source", LEFT)
def test_each_field_that_was_left_of_an_object_has_its_own_line(source: str) -> None:
    body, names = LEFT[source]
    request = wires.get(source).decode_request(json.dumps(body))
    made = wires.get("cohere_chat").encode_request(request)
    assert sorted(each.what for each in made.losses if each.why == f"a field of {source}") == sorted(names)


@pytest.mark.parametrize("name", wires.names())
def test_a_strict_schema_is_sent_or_on_the_receipt(name: str) -> None:
    output = p.OutputFormat("json_schema", p.Json.of({"type": "object"}).value_json, strict=True)
    made = wires.get(name).encode_request(p.Request((p.user("x"),), "m", settings=p.Settings(output=output)))
    said = b'"strict":true' in made.body.replace(b" ", b"")
    assert said != any(each.what == "output strict" for each in made.losses)
