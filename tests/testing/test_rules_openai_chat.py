"""Each rule of openai_chat is broken once, alone, and named; bodies that keep them all pass."""

import json

import pytest

from palaver.testing.rules import openai_chat

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
OK_ID = "abcdef123"


def body(*messages, **fields):
    return {"model": "m", "messages": list(messages), **fields}


def call(call_id=OK_ID, arguments="{}", name="look"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*calls, **fields):
    return {"role": "assistant", "content": None, "tool_calls": list(calls or [call()]), **fields}


def result(call_id=OK_ID, content="done"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def says(*parts, role="user"):
    return {"role": role, "content": list(parts)}


def named(fields):
    return {"role": "assistant", "content": "a", **fields}


AUDIO = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
FILE = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "a"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
TEXT = {"type": "text", "text": ""}
DEVELOPER = {"role": "developer", "content": "be brief"}

VALID = {
    "all-parts": (None, body(DEVELOPER, says(TEXT, IMAGE, AUDIO, FILE), tools=[TOOL])),
    "parallel-calls": (
        None,
        body(USER, asks(call("a"), call("b")), result("b"), result("a"), tools=[TOOL]),
    ),
    "arguments-are-any-text": (None, body(USER, asks(call(arguments="{oops")), result())),
    "custom-call": (
        None,
        body(
            USER,
            asks({"id": "c", "type": "custom", "custom": {"name": "x", "input": "y"}}),
            result("c"),
        ),
    ),
    "unknown-part": (None, body(says({"type": "hologram"}))),
    "nulls": ("huggingface", body({**USER, "name": None, "tool_calls": None}, tools=[])),
    "refusal": (None, body(USER, {"role": "assistant", "content": None, "refusal": "no"})),
    "leading-assistant": (None, body({"role": "assistant", "content": "hello"}, USER)),
    "openrouter-long-id": ("openrouter", body(USER, asks(call("x" * 50)), result("x" * 50))),
    "mistral": (
        "mistral",
        body(USER, asks(), result(), named({}), USER, tool_choice="any", tools=[TOOL]),
    ),
    "mistral-prefix": ("mistral", body(USER, named({"prefix": True}))),
    "deepseek": (
        "deepseek",
        body(USER, asks(reasoning_content=""), result(), thinking={"type": "enabled"}),
    ),
    "ollama": ("ollama", body(USER, asks(), result())),
}
BROKEN = {
    "no-model": ("docs/spec/wires.md#2", None, {"messages": [USER]}),
    "no-messages": ("docs/spec/wires.md#2.1", None, body()),
    "unknown-role": ("docs/spec/wires.md#2.1", None, body({"role": "robot", "content": "x"})),
    "content-null": ("docs/spec/wires.md#2.1", None, body({"role": "user", "content": None})),
    "assistant-says-nothing": (
        "docs/spec/wires.md#2.1",
        None,
        body(USER, {"role": "assistant", "content": None}),
    ),
    "text-without-text": ("docs/spec/wires.md#2.2", None, body(says({"type": "text"}))),
    "number-as-text": ("docs/spec/wires.md#2.2", None, body(says({"type": "text", "text": 1}))),
    "part-without-type": ("docs/spec/wires.md#2.2", None, body(says({"text": "x"}))),
    "image-in-system": ("docs/spec/wires.md#2.2", None, body(says(IMAGE, role="system"), USER)),
    "incomplete-file": (
        "docs/spec/wires.md#2.2",
        None,
        body(says({"type": "file", "file": {"file_data": "data:"}})),
    ),
    "image-as-string": (
        "docs/spec/wires.md#2.2",
        None,
        body(says({"type": "image_url", "image_url": "http://x"})),
    ),
    "bare-file-data": (
        "docs/spec/wires.md#2.2",
        None,
        body(says({"type": "file", "file": {"file_data": "AA==", "filename": "a"}})),
    ),
    "ogg": (
        "docs/spec/wires.md#2.2",
        None,
        body(says({"type": "input_audio", "input_audio": {"data": "AA==", "format": "ogg"}})),
    ),
    "arguments-object": (
        "docs/spec/wires.md#2.3",
        None,
        body(USER, asks(call(arguments={})), result()),
    ),
    "call-without-type": (
        "docs/spec/wires.md#2.3",
        None,
        body(USER, asks({"id": "a", "function": {"name": "look", "arguments": ""}}), result("a")),
    ),
    "choice-any": ("docs/spec/wires.md#2.3", None, body(USER, tools=[TOOL], tool_choice="any")),
    "parallel-number": ("docs/spec/wires.md#2.3", None, body(USER, parallel_tool_calls=1)),
    "unanswered": ("docs/spec/wires.md#2.4.1", None, body(USER, asks(), USER)),
    "unanswered-at-end": ("docs/spec/wires.md#2.4.1", None, body(USER, asks())),
    "one-of-two-answered": (
        "docs/spec/wires.md#2.4.1",
        None,
        body(USER, asks(call("a"), call("b")), result("a")),
    ),
    "repeated-id": ("docs/spec/wires.md#2.4.1", None, body(USER, asks(call("a"), call("a")), result("a"))),
    "orphan": ("docs/spec/wires.md#2.4.2", None, body(USER, result())),
    "second-result": ("docs/spec/wires.md#2.4.2", None, body(USER, asks(), result(), result())),
    "audio-from-tool": ("docs/spec/wires.md#2.4.3", None, body(USER, asks(), result(content=[AUDIO]))),
    "file-from-tool": ("docs/spec/wires.md#2.4.3", None, body(USER, asks(), result(content=[FILE]))),
    "sampling": ("docs/spec/wires.md#2.4.5", None, body(USER, reasoning_effort="low", temperature=0.5)),
    "long-id": ("docs/spec/wires.md#1.4", None, body(USER, asks(call("x" * 41)), result("x" * 41))),
    "odd-name": ("docs/spec/wires.md#1.4", None, body(USER, asks(call(name="a.b")), result())),
    "empty-calls": ("openai/openai-python#2061", None, body(USER, named({"tool_calls": []}))),
    "empty-tools": ("openai/openai-python#2061", None, body(USER, tools=[])),
    "choice-alone": ("anomalyco/opencode#48857", None, body(USER, tool_choice="auto")),
    "hot": ("docs/spec/wires.md#2", None, body(USER, temperature=-1)),
    "azure-file": ("docs/spec/wires.md#2.9", "azure", body(says(FILE))),
    "mistral-id": ("docs/spec/wires.md#1.4", "mistral", body(USER, asks(call("call_1")), result("call_1"))),
    "mistral-user-after-tool": ("docs/spec/wires.md#2.9", "mistral", body(USER, asks(), result(), USER)),
    "mistral-last": ("docs/spec/wires.md#2.9", "mistral", body(USER, named({}))),
    "mistral-prefix-inside": ("docs/spec/wires.md#2.9", "mistral", body(named({"prefix": True}), USER)),
    "mistral-silence": (
        "docs/spec/wires.md#2.9",
        "mistral",
        body(USER, {"role": "assistant", "content": ""}, USER),
    ),
    "deepseek-reasoning": (
        "docs/spec/wires.md#2.9",
        "deepseek",
        body(USER, asks(), result(), thinking={"type": "enabled"}),
    ),
    "deepseek-developer": ("docs/spec/wires.md#2.10", "deepseek", body(DEVELOPER, USER)),
    "ollama-arguments": (
        "docs/spec/wires.md#2.9",
        "ollama",
        body(USER, asks(call(arguments="[]")), result()),
    ),
    "moonshot-required": (
        "docs/spec/wires.md#2.9",
        "moonshot",
        body(USER, tools=[TOOL], tool_choice="required"),
    ),
}


@pytest.mark.parametrize(("variant", "request_body"), VALID.values(), ids=VALID)
def test_a_valid_request_passes(variant, request_body):
    assert openai_chat.check_request(request_body, variant) == []


@pytest.mark.parametrize(("rule", "variant", "request_body"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_named_alone(rule, variant, request_body):
    assert {v.rule for v in openai_chat.check_request(request_body, variant)} == {rule}


def test_every_rule_has_a_body_that_breaks_it():
    rules = {*openai_chat.SHARED, *(r for row in openai_chat.VARIANTS.values() for r in row)}
    fired = {r for r in rules for _, _, broken in BROKEN.values() if list(r(broken))}
    assert {r.__name__ for r in rules - fired} == set()


def reply(message=None, **fields):
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", **(message or {})},
    }
    start = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }
    return start | fields


def usage(total):
    return {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": total}


@pytest.mark.parametrize(
    "response",
    [
        reply({"content": None}),
        reply({"content": "hi", "tool_calls": [call()]}, usage=usage(3)),
        reply(
            {"content": ""},
            usage={**usage(7), "completion_tokens_details": {"reasoning_tokens": 4}},
        ),
    ],
)
def test_a_valid_response_passes(response):
    assert openai_chat.check_response(response) == []


@pytest.mark.parametrize(
    ("rule", "response"),
    [
        ("docs/spec/wires.md#2.5", {"error": {"message": "no"}}),
        ("docs/spec/wires.md#2.5", reply({"role": "user"})),
        ("docs/spec/wires.md#2.5", reply({"tool_calls": [{"id": "a"}]})),
        ("docs/spec/wires.md#2.5", reply(created=True)),
        ("docs/spec/wires.md#1.2", reply(usage=usage(4))),
    ],
)
def test_a_broken_response_is_named(rule, response):
    assert {v.rule for v in openai_chat.check_response(response)} == {rule}


def test_a_body_may_be_bytes_or_text():
    text = json.dumps(body(USER))
    assert openai_chat.check_request(text) == openai_chat.check_request(text.encode()) == []


@pytest.mark.parametrize("text", ["", "{", '{"model": NaN}', b"\xff\xfe\x00"])
def test_what_is_not_json_is_said_so(text):
    assert [v.rule for v in openai_chat.check_request(text)] == ["RFC 8259"]


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"'])
def test_what_is_no_object_is_said_so(text):
    assert [v.where for v in openai_chat.check_request(text)] == [""]
