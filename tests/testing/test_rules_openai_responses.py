"""Each rule of openai_responses is broken once, alone, and named; bodies that keep them pass."""

import pytest

from palaver.testing.rules import openai_responses

USER = {"role": "user", "content": "hi"}
ANSWER = {"role": "assistant", "content": "hello"}
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
CALL = {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{oops"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "done"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
NO_TOOLS = "anomalyco/opencode#48857"
B = {"call_id": "b"}


def body(*items, **fields):
    return {"model": "m", "input": list(items), **fields}


def says(part, role="user"):
    return {"role": role, "content": [part]}


def file(**fields):
    return says({"type": "input_file", **fields})


VALID = {
    "text": (None, {"model": "m", "input": "hi"}),
    "stored-prompt": (None, {"prompt": {"id": "p"}}),
    "pair": (None, body(USER, REASONING, CALL, OUTPUT, ANSWER, USER, tools=[TOOL])),
    "parallel": (None, body(USER, CALL, CALL | B, OUTPUT | B, OUTPUT)),
    "output-parts": (None, body(CALL, OUTPUT | {"output": [{"type": "input_text", "text": "x"}]})),
    "call-on-server": (None, body(OUTPUT, previous_response_id="resp_1")),
    "reasoning-twice": (None, body(USER, REASONING, REASONING | {"id": "rs_2"}, ANSWER)),
    "reasoning-without-id": (
        None,
        body(USER, {"type": "reasoning", "summary": [], "encrypted_content": "x"}, ANSWER),
    ),
    "searched-by-the-service": (
        None,
        body(USER, {"type": "tool_search_call", "call_id": None, "arguments": {}}, CALL, OUTPUT),
    ),
    "unknown-item": (None, body(USER, {"type": "daydream"})),
    "empty-easy-message": (None, body(USER, {"role": "assistant", "content": ""}, USER)),
    "json": (
        None,
        body({"role": "user", "content": "as JSON"}, text={"format": {"type": "json_object"}}),
    ),
    "file": (None, body(file(file_data="data:application/pdf;base64,AA==", filename="a.pdf"))),
    "other-host-ids": ("openrouter", body(CALL | {"id": "call_1"}, OUTPUT)),
    "deepseek-calls-last": ("deepseek", body(USER, ANSWER, CALL, CALL | B, OUTPUT, OUTPUT | B)),
}
BROKEN = {
    "no-model": ("docs/spec/wires.md#3.1", None, {"input": "hi"}),
    "item-without-role": ("docs/spec/wires.md#3.1", None, body({"content": "x"})),
    "reasoning-without-summary": (
        "docs/spec/wires.md#3.1",
        None,
        body({"type": "reasoning", "id": "rs_1"}, ANSWER),
    ),
    "call-without-name": (
        "docs/spec/wires.md#3.1",
        None,
        body({k: v for k, v in CALL.items() if k != "name"}, OUTPUT),
    ),
    "arguments-object": ("docs/spec/wires.md#3.1", None, body(CALL | {"arguments": {}}, OUTPUT)),
    "image-of-nothing": ("docs/spec/wires.md#3.1", None, body(says({"type": "input_image"}))),
    "input-part-of-assistant": (
        "docs/spec/wires.md#3.1",
        None,
        body(USER, says({"type": "input_text", "text": "x"}, "assistant")),
    ),
    "output-part-of-user": ("docs/spec/wires.md#3.1", None, body(says({"type": "output_text", "text": "x"}))),
    "tool-without-name": ("docs/spec/wires.md#3.2", None, body(USER, tools=[{"type": "function"}])),
    "choice": ("docs/spec/wires.md#3.2", None, body(USER, tools=[TOOL], tool_choice="any")),
    "long-call-id": (
        "docs/spec/wires.md#1.4",
        None,
        body(CALL | {"call_id": "x" * 65}, OUTPUT | {"call_id": "x" * 65}),
    ),
    "item-id": ("docs/spec/wires.md#1.4", None, body(CALL | {"id": "call_1"}, OUTPUT)),
    "unanswered": ("docs/spec/wires.md#3.3.1", None, body(USER, CALL)),
    "answered-before": ("docs/spec/wires.md#3.3.1", None, body(OUTPUT, CALL)),
    "orphan": ("docs/spec/wires.md#3.3.1", None, body(USER, OUTPUT)),
    "second-output": ("docs/spec/wires.md#3.3.1", None, body(CALL, OUTPUT, OUTPUT)),
    "repeated-id": ("docs/spec/wires.md#3.3.1", None, body(CALL, CALL, OUTPUT)),
    "reasoning-at-end": ("docs/spec/wires.md#3.3.2", None, body(USER, REASONING)),
    "reasoning-before-user": ("docs/spec/wires.md#3.3.2", None, body(USER, REASONING, USER)),
    "reasoning-before-output": ("docs/spec/wires.md#3.3.2", None, body(CALL, REASONING, OUTPUT)),
    "reference-to-call": (
        "docs/spec/wires.md#3.3.5",
        None,
        body(USER, {"type": "item_reference", "id": "fc_1"}),
    ),
    "no-input": ("docs/spec/wires.md#3.3.7", None, {"model": "m", "instructions": "x"}),
    "empty-input": ("docs/spec/wires.md#3.3.7", None, body(instructions="x")),
    "json-unasked": (
        "docs/spec/wires.md#3.3.7",
        None,
        body(USER, instructions="as JSON", text={"format": {"type": "json_object"}}),
    ),
    "cold": ("docs/spec/wires.md#3.3.9", None, body(USER, temperature=-1)),
    "sampling": ("docs/spec/wires.md#3.3.9", None, body(USER, reasoning={"effort": "low"}, top_p=0.5)),
    "audio-data": (
        "docs/spec/wires.md#3.3.10",
        None,
        body(file(file_data="data:audio/mpeg;base64,AA==", filename="a")),
    ),
    "audio-url": ("docs/spec/wires.md#3.3.10", None, body(file(file_url="https://a.b/c.mp3"))),
    "bare-data": ("docs/spec/wires.md#3.3.10", None, body(file(file_data="AA==", filename="a"))),
    "forced-alone": (NO_TOOLS, None, body(USER, tool_choice="required")),
    "deepseek-between": (
        "docs/spec/wires.md#3.3.8",
        "deepseek",
        body(CALL, ANSWER, CALL | B, OUTPUT, OUTPUT | B),
    ),
}


@pytest.mark.parametrize(("variant", "request_body"), VALID.values(), ids=VALID)
def test_a_valid_request_passes(variant, request_body):
    assert openai_responses.check_request(request_body, variant) == []


@pytest.mark.parametrize(("rule", "variant", "request_body"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_named_alone(rule, variant, request_body):
    assert {v.rule for v in openai_responses.check_request(request_body, variant)} == {rule}


def test_every_rule_has_a_body_that_breaks_it():
    rows = openai_responses.VARIANTS.values()
    rules = {*openai_responses.SHARED, *(r for row in rows for r in row)}
    fired = {r for r in rules for _, _, broken in BROKEN.values() if list(r(broken))}
    assert {r.__name__ for r in rules - fired} == set()


def reply(*output, **fields):
    start = {
        "id": "r",
        "object": "response",
        "created_at": 1.0,
        "model": "m",
        "status": "completed",
    }
    return start | {"output": list(output), "error": None, "incomplete_details": None} | fields


MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [],
    "status": "completed",
}


@pytest.mark.parametrize(
    "response",
    [
        reply(MESSAGE, REASONING, CALL, {"type": "daydream"}),
        reply(status="queued"),
        reply(usage={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    ],
)
def test_a_valid_response_passes(response):
    assert openai_responses.check_response(response) == []


@pytest.mark.parametrize(
    ("rule", "response"),
    [
        ("docs/spec/wires.md#3.4", {"error": {"message": "no"}}),
        ("docs/spec/wires.md#3.4", reply(status="done")),
        ("docs/spec/wires.md#3.4", reply(MESSAGE | {"content": [{"type": "output_text", "text": "x"}]})),
        ("docs/spec/wires.md#3.1", reply({"type": "function_call", "call_id": "a", "name": "look"})),
        ("docs/spec/wires.md#1.2", reply(usage={"input_tokens": 1, "output_tokens": 2, "total_tokens": 4})),
    ],
)
def test_a_broken_response_is_named(rule, response):
    assert {v.rule for v in openai_responses.check_response(response)} == {rule}
