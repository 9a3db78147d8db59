"""Each rule of ollama_chat is broken once, alone, and found; bodies that keep them pass."""

import pytest

from palaver.testing.rules import ollama_chat

USER = {"role": "user", "content": "hi"}


def call(name="look", **fields):
    return {"function": {"name": name, "arguments": {}}, **fields}


def asks(*calls):
    return {"role": "assistant", "content": "", "tool_calls": list(calls or [call()])}


def result(**fields):
    return {"role": "tool", "content": "done", **fields}


def body(*messages, **fields):
    return {"model": "m", "messages": list(messages), **fields}


VALID = {
    "empty": body(),
    "null-content": body(USER, {"role": "assistant", "content": None}),
    "by-order": body(USER, asks(call("a"), call("b")), result(), result()),
    "by-name": body(USER, asks(call("a"), call("b")), result(tool_name="b"), result(tool_name="a")),
    "by-id": body(USER, asks(call(id="1"), call(id="2")), result(tool_call_id="2"), result(tool_call_id="1")),
    "image": body({**USER, "images": ["AA=="]}, format="json", think="low", options={"num_ctx": 1}),
}
BROKEN = {
    "no-model": ("model", {"messages": []}),
    "role": ("messages[0].role", body({"role": "developer", "content": "x"})),
    "content-list": ("messages[0].content", body({"role": "user", "content": []})),
    "image-data-url": (
        "messages[0].images[0]",
        body({**USER, "images": ["data:image/png;base64,AA=="]}),
    ),
    "arguments-text": (
        "messages[1].tool_calls[0].function.arguments",
        body(USER, asks({"function": {"name": "look", "arguments": "{}"}}), result()),
    ),
    "think": ("think", body(USER, think="hard")),
    "format": ("format", body(USER, format="xml")),
    "context": ("options.num_ctx", body(USER, options={"num_ctx": 1.5})),
    "choice": ("tool_choice", body(USER, tool_choice="auto")),
    "unanswered": ("messages[1].tool_calls[0]", body(USER, asks(), USER)),
    "orphan": ("messages[1]", body(USER, result())),
    "second-result": ("messages[3]", body(USER, asks(), result(), result())),
    "calls-of-user": ("messages[0].tool_calls", body({**USER, "tool_calls": [call()]}, result())),
}


@pytest.mark.parametrize("request_body", VALID.values(), ids=VALID)
def test_a_valid_request_passes(request_body):
    assert ollama_chat.check_request(request_body) == []


@pytest.mark.parametrize(("where", "request_body"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_found_alone(where, request_body):
    found = ollama_chat.check_request(request_body)
    assert [(v.where, v.rule) for v in found] == [(where, "docs/spec/wires.md#8")]


def test_a_result_with_another_id_leaves_its_call_open():
    found = ollama_chat.check_request(body(USER, asks(call(id="1")), result(tool_call_id="2")))
    assert [v.where for v in found] == ["messages[2]", "messages[1].tool_calls[0]"]


def test_every_rule_has_a_body_that_breaks_it():
    fired = {r for r in ollama_chat.RULES for _, broken in BROKEN.values() if list(r(broken))}
    assert {r.__name__ for r in set(ollama_chat.RULES) - fired} == set()


def reply(**fields):
    message = {"role": "assistant", "content": "hi", "tool_calls": [call()]}
    return {"model": "m", "created_at": "t", "message": message, "done": True, **fields}


@pytest.mark.parametrize("response", [reply(), reply(done_reason="stop", eval_count=3)])
def test_a_valid_response_passes(response):
    assert ollama_chat.check_response(response) == []


@pytest.mark.parametrize("response", [{"error": "no"}, reply(done="yes"), reply(eval_count=-1)])
def test_a_broken_response_is_found(response):
    assert {v.rule for v in ollama_chat.check_response(response)} == {"docs/spec/wires.md#8"}
