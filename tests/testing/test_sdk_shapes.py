"""The official SDKs' types take recorded traffic, and refuse what is plainly wrong."""

import json
import os
from pathlib import Path

import pytest

from palaver.testing import rules
from tests import sdk_shapes

_ROOT = Path(__file__).resolve().parents[2]
_CORPUS = Path(os.environ.get("PALAVER_CORPUS") or _ROOT.parent / "shared" / "corpus") / "wires"

needs_corpus = pytest.mark.skipif(not _CORPUS.is_dir(), reason="the recorded corpus is absent")
every_wire = pytest.mark.parametrize("wire", rules.WIRES)
SIDES = {"request": sdk_shapes.accepts_request, "response": sdk_shapes.accepts_response}

# Single recordings that the SDK's types do not describe, although the provider took or sent them.
APART = {
    "test_invalid_response": "a 200 that holds no completion",
    "test_openai_responses_requires_function_call_status_none": "status null on a function call",
}

USER = {"role": "user", "content": "hi"}


def apart(name):
    return any(name.startswith(known) for known in APART)


def mismatches(wire, side):
    """Yield name, variant and mismatch of recorded bodies that the SDK's types do not describe."""
    for file in sorted((_CORPUS / wire).glob("*.json")):
        exchange = json.loads(file.read_bytes())
        if exchange["status"] != 200 or side not in exchange:
            continue
        try:
            SIDES[side](wire, exchange[side])
        except sdk_shapes.MismatchError as mismatch:
            yield file.stem, rules.variant_of(wire, exchange["path"]), str(mismatch)


@needs_corpus
@every_wire
@pytest.mark.parametrize("side", SIDES)
def test_an_sdk_takes_recorded_traffic(wire, side):
    found = {
        name: mismatch
        for name, variant, mismatch in mismatches(wire, side)
        if (wire, variant, side) not in sdk_shapes.VARIANTS_APART and not apart(name)
    }
    assert found == {}


@needs_corpus
@pytest.mark.parametrize("row", sdk_shapes.VARIANTS_APART, ids="-".join)
def test_a_variant_apart_is_really_apart(row):
    wire, variant, side = row
    assert variant in {found for _, found, _ in mismatches(wire, side)}


VALID = {
    "openai_chat": {"model": "m", "messages": [USER], "unheard_of": 1},
    "openai_responses": {"model": "m", "input": [USER], "unheard_of": 1},
    "anthropic_messages": {"model": "m", "max_tokens": 1, "messages": [USER], "unheard_of": 1},
    "google_generate": {"contents": [{"role": "user", "parts": [{"text": "hi", "unheard_of": 1}]}]},
    "bedrock_converse": {
        "messages": [{"role": "user", "content": [{"text": "hi"}, {"unheard_of": {}}]}],
        "unheard_of": 1,
    },
    "cohere_chat": {"model": "m", "messages": [USER], "unheard_of": 1},
    "ollama_chat": {"model": "m", "messages": [{**USER, "images": ["AA=="]}], "unheard_of": 1},
}


@every_wire
def test_an_sdk_allows_unknown_keys(wire):
    sdk_shapes.accepts_request(wire, VALID[wire])


def user(*content):
    return {"role": "user", "content": list(content)}


CALL = {"id": "a", "type": "function", "function": {"name": "x", "arguments": {}}}
OPENAI_CALL = {"role": "assistant", "content": None, "tool_calls": [CALL]}
NO_INPUT = {"type": "tool_use", "id": "a", "name": "x"}
ARGS = {"functionCall": {"name": "a", "args": []}}

WRONG = [
    ("openai_chat", {"model": "m", "messages": [{"role": "user", "content": 5}]}),
    ("openai_chat", {"model": "m", "messages": [user({"type": "text", "text": 5})]}),
    ("openai_chat", {"model": "m", "messages": [USER, OPENAI_CALL]}),
    ("openai_chat", {"messages": [USER]}),
    ("openai_responses", {"model": "m", "input": [user({"type": "input_text"})]}),
    ("openai_responses", {"model": "m", "input": [{"type": "reasoning", "id": "a"}]}),
    ("openai_responses", {"model": "m", "input": [{"type": "function_call", "call_id": "a"}]}),
    ("anthropic_messages", {"model": "m", "messages": [USER]}),
    ("anthropic_messages", {"model": "m", "max_tokens": "1", "messages": [USER]}),
    (
        "anthropic_messages",
        {"model": "m", "max_tokens": 1, "messages": [{"role": "assistant", "content": [NO_INPUT]}]},
    ),
    ("google_generate", {"contents": [{"role": "user", "parts": [{"text": 4}]}]}),
    ("google_generate", {"contents": [{"role": "model", "parts": [ARGS]}]}),
    ("bedrock_converse", {"messages": [user({"text": 4})]}),
    ("bedrock_converse", {"messages": [user({"text": "x", "image": {}})]}),
    ("bedrock_converse", {"messages": [user({"toolUse": {"toolUseId": "a", "name": "x"}})]}),
    (
        "bedrock_converse",
        {"messages": [user({"image": {"format": "png", "source": {"bytes": "%"}}})]},
    ),
    ("cohere_chat", {"model": "m", "messages": [{"role": "user", "content": 4}]}),
    ("cohere_chat", {"model": "m", "messages": [{"role": "assistant", "tool_calls": [CALL]}]}),
    ("cohere_chat", {"model": "m"}),
    ("ollama_chat", {"model": "m", "messages": [{"role": "user", "content": 4}]}),
    (
        "ollama_chat",
        {
            "model": "m",
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"function": {"name": "a", "arguments": "{}"}}],
                }
            ],
        },
    ),
]


@pytest.mark.parametrize(("wire", "body"), WRONG)
def test_an_sdk_refuses_a_wrong_request(wire, body):
    with pytest.raises(sdk_shapes.MismatchError):
        sdk_shapes.accepts_request(wire, body)


@pytest.mark.parametrize("wire", [wire for wire in rules.WIRES if wire != "google_generate"])
def test_an_sdk_refuses_a_reply_without_content(wire):
    with pytest.raises(sdk_shapes.MismatchError):
        sdk_shapes.accepts_response(wire, {"id": "x"})


@pytest.mark.parametrize("candidate", [{"finishReason": 1}, {"content": {"parts": [{"text": 1}]}}])
def test_google_refuses_a_reply_of_wrong_types(candidate):
    with pytest.raises(sdk_shapes.MismatchError):
        sdk_shapes.accepts_response("google_generate", {"candidates": [candidate]})


def test_google_takes_a_word_it_does_not_know():
    sdk_shapes.accepts_response("google_generate", {"candidates": [{"finishReason": "BORED"}]})
