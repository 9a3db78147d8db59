"""Each rule of cohere_chat is broken once, alone, and found; bodies that keep them pass."""

import pytest

from palaver.testing.rules import cohere_chat

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
THINKING = {"type": "thinking", "thinking": "hm"}


def call(arguments="null", call_id="a"):
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}


def asks(**fields):
    return {"role": "assistant", "tool_calls": [call()], **fields}


RESULT = {"role": "tool", "tool_call_id": "a", "content": "done"}
DOCUMENT = {"type": "document", "document": {"id": "d", "data": {"text": "x"}}}


def body(*messages, **fields):
    return {"model": "m", "messages": list(messages), **fields}


VALID = {
    "plan": body(USER, asks(tool_plan="I will look"), RESULT, tools=[TOOL], tool_choice="REQUIRED"),
    "thinking-beside-calls": body(USER, asks(content=[THINKING]), RESULT),
    "documents": body(USER, asks(), {**RESULT, "content": [DOCUMENT]}),
    "unknown-part": body({"role": "user", "content": [{"type": "smell"}]}),
}
BROKEN = {
    "unknown-field": ("temprature", body(USER, temprature=1)),
    "unknown-message-field": ("messages[0].name", body({**USER, "name": "x"})),
    "role": ("messages[0].role", body({"role": "developer", "content": "x"})),
    "choice": ("tool_choice", body(USER, tools=[TOOL], tool_choice="AUTO")),
    "choice-alone": ("tool_choice", body(USER, tool_choice="REQUIRED")),
    "text-beside-calls": ("messages[1].content", body(USER, asks(content="x"), RESULT)),
    "text-part-beside-calls": (
        "messages[1].content",
        body(USER, asks(content=[{"type": "text", "text": "x"}]), RESULT),
    ),
    "silence": ("messages[1]", body(USER, {"role": "assistant", "content": ""})),
    "unanswered": ("messages[1].tool_calls[0]", body(USER, asks(), USER)),
    "orphan": ("messages[1]", body(USER, RESULT)),
    "arguments-object": (
        "messages[1].tool_calls[0].function.arguments",
        body(USER, {"role": "assistant", "tool_calls": [call({})]}, RESULT),
    ),
    "thinking-of-user": ("messages[0].content[0]", body({"role": "user", "content": [THINKING]})),
}


@pytest.mark.parametrize("request_body", VALID.values(), ids=VALID)
def test_a_valid_request_passes(request_body):
    assert cohere_chat.check_request(request_body) == []


@pytest.mark.parametrize(("where", "request_body"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_found_alone(where, request_body):
    found = cohere_chat.check_request(request_body)
    assert [(v.where, v.rule) for v in found] == [(where, "docs/spec/wires.md#7")]


def test_every_rule_has_a_body_that_breaks_it():
    fired = {r for r in cohere_chat.RULES for _, broken in BROKEN.values() if list(r(broken))}
    assert {r.__name__ for r in set(cohere_chat.RULES) - fired} == set()


def reply(**message):
    return {"id": "x", "finish_reason": "COMPLETE", "message": {"role": "assistant", **message}}


@pytest.mark.parametrize(
    "response",
    [
        reply(content=[THINKING, {"type": "text", "text": "x"}], citations=[{"start": 0, "end": 1}]),
        reply(tool_plan="x", tool_calls=[call()]),
    ],
)
def test_a_valid_response_passes(response):
    assert cohere_chat.check_response(response) == []


@pytest.mark.parametrize(
    "response",
    [{"message": "unknown field"}, reply(content="x"), reply(tool_calls=[{"id": "a"}])],
)
def test_a_broken_response_is_found(response):
    assert {v.rule for v in cohere_chat.check_response(response)} == {"docs/spec/wires.md#7"}
