"""The validators as a whole: recorded traffic, variants, and that no JSON value makes them raise."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from palaver.testing import rules
from tests.folding import over

_ROOT = Path(__file__).resolve().parents[2]
_CORPUS = Path(os.environ.get("PALAVER_CORPUS") or _ROOT.parent / "shared" / "corpus") / "wires"

needs_corpus = pytest.mark.skipif(not _CORPUS.is_dir(), reason="the recorded corpus is absent")
every_wire = pytest.mark.parametrize("wire", rules.WIRES)


def recorded(wire):
    """Yield the name and the content of each recorded exchange of a wire."""
    for file in sorted((_CORPUS / wire).glob("*.json")):
        yield file.stem, json.loads(file.read_bytes())


def is_about_the_body(wire, exchange):
    """Refusals that say nothing about the body's own shape: models, fetches, generation."""
    said = json.dumps(exchange["response"])
    outside = {
        "bedrock_converse": ["model identifier is invalid"],
        "google_generate": ["URL_ROBOTED"],
        # Audio in a user message: the model has no ears.
        "openai_chat": ["does not exist", "did not call a tool", "text or image_url type"],
    }
    return not any(words in said for words in outside.get(wire, ()))


@needs_corpus
@every_wire
def test_what_a_provider_accepted_breaks_no_rule(wire):
    found = {
        name: violations
        for name, exchange in recorded(wire)
        if exchange["status"] == 200
        and (violations := rules.check_request(wire, exchange["request"], rules.variant_of(wire, exchange["path"])))
    }
    assert found == {}


@needs_corpus
@every_wire
def test_what_a_provider_sent_breaks_no_rule(wire):
    found = {
        name: violations
        for name, exchange in recorded(wire)
        if exchange["status"] == 200
        and "response" in exchange
        and (violations := rules.check_response(wire, exchange["response"]))
    }
    # One recorded 200 holds no completion at all (docs/spec/wires.md#1.3).
    not_a_completion = [name for name in found if name.startswith("test_invalid_response")]
    assert list(found) == not_a_completion


@needs_corpus
@every_wire
def test_what_a_provider_refused_for_its_shape_breaks_a_rule(wire):
    missed = [
        name
        for name, exchange in recorded(wire)
        if exchange["status"] != 200
        and is_about_the_body(wire, exchange)
        and not rules.check_request(wire, exchange["request"], rules.variant_of(wire, exchange["path"]))
    ]
    assert missed == []


@needs_corpus
@every_wire
def test_an_error_body_is_no_response(wire):
    passed = [
        name
        for name, exchange in recorded(wire)
        if exchange["status"] != 200 and not rules.check_response(wire, exchange["response"])
    ]
    assert passed == []


@pytest.mark.parametrize(
    ("wire", "address", "variant"),
    [
        ("openai_chat", "api.mistral.ai/v1/chat/completions", "mistral"),
        ("openai_chat", "localhost:11434/v1/chat/completions", "ollama"),
        ("openai_chat", "example.org/v1/chat/completions", "other"),
        ("openai_responses", "api.deepseek.com/responses", "deepseek"),
        ("anthropic_messages", "api.anthropic.com/v1/messages", None),
        ("google_generate", "x.googleapis.com/v1/models/gemini-3-pro:generateContent", "gemini-3"),
        ("google_generate", "x.googleapis.com/v1/models/gemini-2.5-pro:generateContent", None),
        ("bedrock_converse", "x.amazonaws.com/model/us.anthropic.claude/converse", "anthropic"),
        ("bedrock_converse", "x.amazonaws.com/model/us.amazon.nova/converse", "amazon"),
        ("cohere_chat", "api.cohere.com/v2/chat", None),
    ],
)
def test_an_address_has_a_variant(wire, address, variant):
    assert rules.variant_of(wire, address) == variant


def test_a_variant_without_rules_has_those_that_all_share():
    body = {"model": "m", "messages": [{"role": "tool", "content": "x", "tool_call_id": "a" * 50}]}
    found = rules.check_request("openai_chat", body, variant="nobody")
    assert [v.rule for v in found] == ["docs/spec/wires.md#2.4.2"]


def test_an_unknown_wire_is_a_key_error():
    with pytest.raises(KeyError):
        rules.check_request("telegraph", {})


_WORDS = st.sampled_from(
    """
    role content parts type text messages contents input tools tool_calls tool_call_id id function
    name arguments user assistant model tool system tool_use tool_result thinking functionCall
    functionResponse toolUse toolResult toolUseId tool_use_id document cachePoint cache_control
    reasoning function_call function_call_output call_id output server_tool_use usage totalTokens
    source file input_file input_text output_text image_url
    """.split()  # noqa: SIM905 - a list of fifty words reads worse
)
_LEAVES = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(0, 2) | _WORDS | st.just("")
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=5),
    max_leaves=25,
)


@every_wire
@pytest.mark.parametrize("odd", [[], {}, None, 1, True])
def test_a_tag_of_any_type_is_looked_at(wire, odd):
    block = {"type": odd, "role": odd, "id": odd, "name": odd, "call_id": odd, "tool_call_id": odd}
    call = {"type": "function_call_output", "output": [block], "content": [block]}
    messages = [
        {**block, "content": [block], "parts": [block], "tool_calls": [block]},
        {"role": "assistant", "content": [block], "parts": [block], "tool_calls": [block]},
        {"role": "user", "content": [block, {"toolResult": block}], "parts": [block]},
        {"role": "tool", **call, "tool_call_id": odd},
        {"role": "system", "content": [{"type": "tool_addition", "tool": block}]},
        call,
    ]
    body = dict.fromkeys(("messages", "contents", "input", "system", "tools"), messages)
    body |= {"tool_choice": block, "thinking": block, "reasoning": {"effort": odd}, "model": odd}
    for variant in (None, "mistral", "deepseek", "ollama", "azure", "anthropic", "amazon", "writer"):
        assert rules.check_request(wire, body, variant) != []


@given(value=_VALUES)
@over("wire", rules.WIRES)
def test_no_json_value_makes_a_validator_raise(wire, value):
    body = json.dumps({"messages": value, "contents": value, "input": value, "system": value})
    for variant in (None, "mistral", "deepseek", "anthropic", "amazon", "gemini-3", "claude-3"):
        rules.check_request(wire, body, variant)
    rules.check_response(wire, json.dumps(value))


@given(value=st.dictionaries(_WORDS, _VALUES))
@over("wire", rules.WIRES)
def test_checking_changes_nothing(wire, value):
    before = json.dumps(value)
    rules.check_request(wire, value)
    assert json.dumps(value) == before
