"""What one vendor writes into its answers reaches no other vendor of the same wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

import palaver as p
from palaver import wires
from palaver.wires._engine import vendors

VARIANTS = wires.variants("openai_chat")
TARGETS = ["openai_chat", *(f"openai_chat:{name}" for name in VARIANTS)]
EMPTY = {
    "refusal": None,
    "annotations": None,
    "audio": None,
    "function_call": None,
    "tool_calls": [],
    "reasoning_content": None,
    "reasoning": None,
    "x_new": [],
}
CALL = {"id": "c12345678", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def read(wire: str, **message: Any) -> p.AssistantMessage:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi", **message}}
    body = {"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return wires.get(wire).decode_response(body).message


def streamed(wire: str, *deltas: dict[str, Any]) -> p.AssistantMessage:
    decoder = wires.get(wire).stream_decoder()
    head = {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    for delta in deltas:
        chunk = {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        decoder.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    end = {**head, "choices": [{"index": 0, "delta": {"tool_calls": []}, "finish_reason": "stop"}]}
    decoder.feed(b"data: " + json.dumps(end).encode() + b"\n\ndata: [DONE]\n\n")
    return decoder.finish().message


def sent(target: str, answer: p.AssistantMessage, *more: p.Message) -> tuple[dict[str, Any], list[str]]:
    request = p.Request(messages=(p.user("a"), answer, *(more or (p.user("b"),))), model="m")
    encoded = wires.get(target).encode_request(request)
    rows = json.loads(encoded.body)["messages"]
    return next(row for row in rows if row["role"] == "assistant"), [loss.what for loss in encoded.losses]


@pytest.mark.finding("F-30")
@pytest.mark.parametrize("source", ["openai_chat", "openai_chat:vllm", "openai_chat:compatible"])
@pytest.mark.parametrize("target", TARGETS)
def test_empty_fields_of_an_answer_are_not_sent(source: str, target: str):
    answer = read(source, **EMPTY)
    body, losses = sent(target, answer)
    body.pop("reasoning", None)
    assert body == {"role": "assistant", "content": "hi"}
    assert losses == []
    again = streamed(source, {**EMPTY, "role": "assistant", "content": ""}, {**EMPTY, "content": "hi"})
    assert sent(target, again)[0] == {"role": "assistant", "content": "hi"}


@pytest.mark.finding("F-30")
@pytest.mark.parametrize("target", TARGETS)
def test_a_field_of_one_vendor_goes_back_to_that_vendor_only(target: str):
    answers = (
        read("openai_chat:vllm", x_own={"n": 1}),
        streamed("openai_chat:vllm", {"role": "assistant", "content": "hi", "x_own": {"n": 1}}),
    )
    for answer in answers:
        body, losses = sent(target, answer)
        assert ("x_own" in body) == (target == "openai_chat:vllm")
        assert losses == ([] if target == "openai_chat:vllm" else ["x_own.n"])


@pytest.mark.finding("F-30")
@pytest.mark.parametrize("target", [name for name in TARGETS if name != "openai_chat:mistral"])
def test_a_field_of_a_call_goes_back_to_its_vendor_only(target: str):
    call = {**CALL, "extra_content": {"google": {"thought_signature": "sig"}}}
    result = p.tool("r", tool_call_id=CALL["id"])
    body, losses = sent(target, read("openai_chat:compatible", tool_calls=[call]), result)
    own = target == "openai_chat:compatible"
    assert ("extra_content" in body["tool_calls"][0]) == own
    assert losses == ([] if own else ["extra_content.google"])


@pytest.mark.finding("F-30")
@pytest.mark.parametrize("target", TARGETS)
def test_a_field_of_the_wires_own_provider_reaches_no_variant(target: str):
    body, losses = sent(target, read("openai_chat", x_own="new"))
    assert ("x_own" in body) == (target == "openai_chat")
    assert losses == ([] if target == "openai_chat" else ["x_own"])


@pytest.mark.finding("F-30")
def test_reasoning_of_a_vendor_does_not_reach_the_wires_own_provider():
    body, losses = sent("openai_chat", read("openai_chat:vllm", reasoning_content="because"))
    assert body == {"role": "assistant", "content": "hi"}
    assert losses == ["reasoning"]


@pytest.mark.finding("F-30")
def test_citations_of_one_vendor_do_not_reach_another():
    note = {"type": "url_citation", "url_citation": {"url": "https://a.example", "start_index": 0, "end_index": 1}}
    answer = read("openai_chat:openrouter", annotations=[note])
    assert sent("openai_chat:openrouter", answer)[0]["annotations"] == [note]
    body, losses = sent("openai_chat:groq", answer)
    assert "annotations" not in body
    assert losses == ["citations"]


def test_fields_that_a_caller_sets_on_a_message_are_sent():
    message = p.assistant("hi", provider={"openai_chat": {"prefix": True}})
    assert sent("openai_chat:deepseek", message)[0]["prefix"] is True


def test_an_answer_says_the_same_streamed_and_whole():
    fields = {"reasoning_content": "because", "x_own": 1}
    whole = read("openai_chat:vllm", **fields, tool_calls=[])
    assert streamed("openai_chat:vllm", {"role": "assistant", **fields}, {"content": "hi"}).provider == whole.provider


def test_a_signed_answer_is_written_as_it_was():
    wire = wires.get("openai_chat:vllm")
    message = {"role": "assistant", "content": "hi", **EMPTY, "x_own": 1}
    body = {"id": "r", "model": "m", "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
    assert json.loads(wire.encode_response(wire.decode_response(body)).body) == body


def test_a_message_that_keeps_nothing_stays_as_it_is():
    message = p.assistant("hi", finish_reason_raw="stop")
    assert vendors.signed_message(message, message.content, "openai_chat", "groq") is message


# -- requests --------------------------------------------------------------------------------------


OWN = {
    "store": True,
    "metadata": {"ticket": "9"},
    "logit_bias": {"1": 2},
    "n": 2,
    "stream_options": {"include_usage": True},
    "seed": None,
}


def request_of(source: str, **fields: Any) -> p.Request:
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], **fields}
    return wires.get(source).decode_request(json.dumps(body))


@pytest.mark.finding("F-30")
@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize(
    ("vendor", "taken"),
    [
        ("deepseek", {"stream_options"}),
        ("mistral", {"n"}),
        ("groq", {"stream_options"}),
        ("vllm", {"logit_bias", "n", "stream_options"}),
    ],
)
def test_fields_of_a_request_go_to_vendors_that_document_them(vendor: str, taken: set[str], *, edited: bool):
    request = request_of("openai_chat", **OWN)
    encoded = wires.get(f"openai_chat:{vendor}").encode_request(request.replace(model="o") if edited else request)
    assert json.loads(encoded.body).keys() == {"model", "messages", *taken}
    lost = {loss.what.partition(".")[0] for loss in encoded.losses}
    assert lost == OWN.keys() - taken - {"seed"}


@pytest.mark.finding("F-30")
@pytest.mark.parametrize("variant", VARIANTS)
def test_metadata_of_another_vendor_are_not_sent(variant: str):
    encoded = wires.get(f"openai_chat:{variant}").encode_request(request_of("openai_chat", **OWN), metadata={"ticket"})
    assert json.loads(encoded.body).keys().isdisjoint({"store", "metadata"})
    assert p.Loss("dropped", "metadata", "'ticket': the wire has no field for it") in encoded.losses


def test_metadata_of_another_vendor_go_to_the_own_provider_by_name():
    request = request_of("openai_chat:mistral", metadata={"a": "1", "b": "2"}, safe_prompt=True, store=True)
    encoded = wires.get("openai_chat").encode_request(request, metadata={"a"})
    assert json.loads(encoded.body)["metadata"] == {"a": "1"}
    assert [loss.why for loss in encoded.losses] == [
        "a field of openai_chat:mistral",
        "'b': not among the keys that may leave",
    ]


def test_metadata_of_claude_do_not_go_to_a_cloud():
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "q"}], "metadata": {"user_id": "u"}}
    request = wires.get("anthropic_messages").decode_request(json.dumps(body))
    encoded = wires.get("anthropic_messages:vertex").encode_request(request)
    assert "metadata" not in json.loads(encoded.body)
    assert [loss.what for loss in encoded.losses] == ["metadata"]


def test_fields_that_the_caller_adds_go_to_any_vendor():
    request = request_of("openai_chat", store=True).replace(provider={"openai_chat": {"store": True, "min_p": 0.1}})
    encoded = wires.get("openai_chat:vllm").encode_request(request)
    assert json.loads(encoded.body).keys() == {"model", "messages", "min_p"}
    assert [loss.what for loss in encoded.losses] == ["store"]


def test_fields_of_a_request_go_back_to_their_vendor():
    request = request_of("openai_chat:mistral", metadata={"a": "1"}, safe_prompt=True).replace(model="o")
    encoded = wires.get("openai_chat:mistral").encode_request(request, losses="raise")
    assert json.loads(encoded.body).keys() == {"model", "messages", "metadata", "safe_prompt"}
