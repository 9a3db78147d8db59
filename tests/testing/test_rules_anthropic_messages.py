"""Each rule of anthropic_messages is broken once, alone, and named; bodies that keep them pass."""

import pytest

from palaver.testing.rules import anthropic_messages

TEXT = {"type": "text", "text": "hi"}
THINKING = {"type": "thinking", "thinking": "", "signature": "sig"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://a.b/c.png"}}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "AA=="}
TOOL = {"name": "look", "input_schema": {"type": "object"}}
MARK = {"type": "ephemeral"}
ON = {"type": "enabled", "budget_tokens": 1024}
ADD = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "look"}}


def call(call_id="t1", **fields):
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}, **fields}


def result(call_id="t1", **fields):
    return {"type": "tool_result", "tool_use_id": call_id, **fields}


def user(*blocks):
    return {"role": "user", "content": list(blocks or [TEXT])}


def model(*blocks):
    return {"role": "assistant", "content": list(blocks or [TEXT])}


def system(*blocks):
    return {"role": "system", "content": list(blocks or [TEXT])}


def body(*messages, **fields):
    return {"model": "m", "max_tokens": 9, "messages": list(messages), **fields}


def marked(count):
    return user(*[TEXT | {"cache_control": MARK}] * count)


def image(media_type):
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": "AA=="}}


VALID = {
    "strings": (None, body({"role": "user", "content": "hi"}, system="be brief")),
    "parallel-calls": (
        None,
        body(user(), model(call("a"), call("b")), user(result("b"), result("a"))),
    ),
    "merged-turns": (
        None,
        body(user(), model(call("a")), model(call("b")), user(result("a")), user(result("b"), TEXT)),
    ),
    "result-contents": (
        None,
        body(user(), model(call()), user(result(content=[TEXT, IMAGE, {"type": "glow"}]), IMAGE)),
    ),
    "empty-result": (None, body(user(), model(call()), user(result(content="")))),
    "documents": (
        None,
        body(user(TEXT, {"type": "document", "source": PDF}, image("image/webp"))),
    ),
    "unknown-block": (None, body(user({"type": "smell"}))),
    "server-tools": (None, body(user(), model(THINKING, SEARCH, FOUND, TEXT), user())),
    "paused": (None, body(user(), model(SEARCH))),
    "only-results-follow": (None, body(user(), model(SEARCH, call()), user(result()))),
    "loop-with-thinking": (
        None,
        body(
            user(),
            model(THINKING, call()),
            user(result()),
            model(call("b")),
            user(result("b")),
            thinking=ON,
        ),
    ),
    "thinking-closed-loop": (
        None,
        body(user(), model(call()), user(result()), model(), user(), thinking=ON),
    ),
    "adaptive-forced": (
        None,
        body(user(), tools=[TOOL], thinking={"type": "adaptive"}, tool_choice={"type": "any"}),
    ),
    "system-at-end": (None, body(user(), user(), system(), system(ADD), tools=[TOOL])),
    "system-after-server-result": (None, body(user(), model(SEARCH, FOUND), system(), model())),
    "leading-assistant": (None, body(model(), user())),
    "prefill": (None, body(user(), model())),
    "empty-last-assistant": (None, body(user(), {"role": "assistant", "content": []})),
    "four-marks": (None, body(marked(3), cache_control=MARK)),
    "server-tool": (
        None,
        body(user(), tools=[{"type": "web_search_20250305", "name": "web_search"}]),
    ),
}
BROKEN = {
    "no-max-tokens": ("docs/spec/wires.md#4.1", None, {"model": "m", "messages": [user()]}),
    "role": ("docs/spec/wires.md#4.1", None, body({"role": "tool", "content": "x"})),
    "call-in-user": ("docs/spec/wires.md#4.1", None, body(user(THINKING))),
    "image-in-assistant": ("docs/spec/wires.md#4.1", None, body(user(), model(IMAGE), user())),
    "input-text": ("docs/spec/wires.md#4.1", None, body(user(), model(call(input="{}")), user(result()))),
    "input-list": ("docs/spec/wires.md#4.1", None, body(user(), model(call(input=[])), user(result()))),
    "bmp": ("docs/spec/wires.md#4.1", None, body(user(image("image/bmp")))),
    "thinking-without-signature": (
        "docs/spec/wires.md#4.1",
        None,
        body(user(), model({"type": "thinking", "thinking": "x"}, TEXT), user()),
    ),
    "small-budget": (
        "docs/spec/wires.md#4.1",
        None,
        body(user(), thinking={"type": "enabled", "budget_tokens": 1}),
    ),
    "server-id": ("docs/spec/wires.md#4.1", None, body(user(), model(SEARCH | {"id": "toolu_1"}))),
    "no-schema": ("docs/spec/wires.md#4.2", None, body(user(), tools=[{"name": "look"}])),
    "choice": ("docs/spec/wires.md#4.2", None, body(user(), tools=[TOOL], tool_choice={"type": "tool"})),
    "call-id": ("docs/spec/wires.md#1.4", None, body(user(), model(call("a.b")), user(result("a.b")))),
    "name": ("docs/spec/wires.md#1.4", None, body(user(), tools=[TOOL | {"name": "a b"}])),
    "empty-signature": (
        "docs/spec/wires.md#1.5",
        None,
        body(user(), model(THINKING | {"signature": ""}, TEXT), user()),
    ),
    "unanswered": ("docs/spec/wires.md#4.3.1", None, body(user(), model(call()), user())),
    "unanswered-at-end": ("docs/spec/wires.md#4.3.1", None, body(user(), model(call()))),
    "answered-late": (
        "docs/spec/wires.md#4.3.1",
        None,
        body(user(), model(call()), user(), model(), user(result())),
    ),
    "orphan": ("docs/spec/wires.md#4.3.1", None, body(user(result()))),
    "second-result": (
        "docs/spec/wires.md#4.3.1",
        None,
        body(user(), model(call()), user(result(), result())),
    ),
    "repeated-id": ("docs/spec/wires.md#4.3.1", None, body(user(), model(call(), call()), user(result()))),
    "text-before-result": (
        "docs/spec/wires.md#4.3.1",
        None,
        body(user(), model(call()), user(TEXT, result())),
    ),
    "loop-without-thinking": (
        "docs/spec/wires.md#4.3.4",
        None,
        body(user(), model(call()), user(result()), thinking=ON),
    ),
    "blank": ("docs/spec/wires.md#4.3.5", None, body(user({"type": "text", "text": " \n"}, TEXT))),
    "empty-system": ("docs/spec/wires.md#4.3.5", None, body(user(), system=[{"type": "text", "text": ""}])),
    "empty-user": ("docs/spec/wires.md#4.3.5", None, body({"role": "user", "content": ""})),
    "empty-assistant": (
        "docs/spec/wires.md#4.3.5",
        None,
        body(user(), {"role": "assistant", "content": []}, user()),
    ),
    "empty-result-list": (
        "docs/spec/wires.md#4.3.5",
        None,
        body(user(), model(call()), user(result(content=[]))),
    ),
    "prefill-space": ("docs/spec/wires.md#4.3.6", None, body(user(), model({"type": "text", "text": "so "}))),
    "five-marks": ("docs/spec/wires.md#4.3.7", None, body(marked(4), tools=[TOOL | {"cache_control": MARK}])),
    "marked-thinking": (
        "docs/spec/wires.md#4.3.7",
        None,
        body(user(), model(THINKING | {"cache_control": MARK}, TEXT), user()),
    ),
    "forced": (
        "docs/spec/wires.md#4.3.8",
        None,
        body(user(), tools=[TOOL], thinking=ON, tool_choice={"type": "any"}),
    ),
    "system-first": ("docs/spec/wires.md#4.3.9", None, body(system(), model(), user())),
    "system-before-user": ("docs/spec/wires.md#4.3.9", None, body(user(), system(), user())),
    "system-after-assistant": ("docs/spec/wires.md#4.3.9", None, body(user(), model(), system())),
    "unknown-tool": ("docs/spec/wires.md#4.3.10", None, body(user(), system(ADD))),
    "unknown-reference": (
        "docs/spec/wires.md#4.3.10",
        None,
        body(
            user(),
            model(call()),
            user(result(content=[{"type": "tool_reference", "tool_name": "lost"}])),
        ),
    ),
    "all-deferred": ("docs/spec/wires.md#4.3.10", None, body(user(), tools=[TOOL | {"defer_loading": True}])),
    "server-unanswered": ("docs/spec/wires.md#4.3.11", None, body(user(), model(SEARCH, TEXT), user())),
    "server-orphan": ("docs/spec/wires.md#4.3.11", None, body(user(), model(FOUND, TEXT), user())),
    "advisor": ("docs/spec/wires.md#4.3.11", None, body(user(), model(SEARCH | {"name": "advisor"}))),
    "first-assistant": ("docs/spec/wires.md#4.3.13", "claude-3", body(model(), user())),
}


@pytest.mark.parametrize(("variant", "request_body"), VALID.values(), ids=VALID)
def test_a_valid_request_passes(variant, request_body):
    assert anthropic_messages.check_request(request_body, variant) == []


@pytest.mark.parametrize(("rule", "variant", "request_body"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_named_alone(rule, variant, request_body):
    assert {v.rule for v in anthropic_messages.check_request(request_body, variant)} == {rule}


def test_every_rule_has_a_body_that_breaks_it():
    rows = anthropic_messages.VARIANTS.values()
    rules = {*anthropic_messages.SHARED, *(r for row in rows for r in row)}
    fired = {r for r in rules for _, _, broken in BROKEN.values() if list(r(broken))}
    assert {r.__name__ for r in rules - fired} == set()


def reply(*content, **fields):
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = {"id": "x", "type": "message", "role": "assistant", "model": "m", "usage": usage}
    return start | {"content": list(content), "stop_reason": "end_turn"} | fields


@pytest.mark.parametrize(
    "response",
    [reply(THINKING, TEXT, call(), SEARCH, FOUND), reply(stop_reason=None, stop_sequence=None)],
)
def test_a_valid_response_passes(response):
    assert anthropic_messages.check_response(response) == []


@pytest.mark.parametrize(
    ("rule", "response"),
    [
        ("docs/spec/wires.md#4.1", {"type": "error", "error": {}, "role": "assistant"}),
        ("docs/spec/wires.md#4.1", reply(call(input=None))),
        ("docs/spec/wires.md#4.4", reply(stop_reason=1)),
        ("docs/spec/wires.md#1.2", reply(usage={"input_tokens": True, "output_tokens": 1})),
    ],
)
def test_a_broken_response_is_named(rule, response):
    assert rule in {v.rule for v in anthropic_messages.check_response(response)}
