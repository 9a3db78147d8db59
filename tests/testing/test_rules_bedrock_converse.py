"""Each rule of bedrock_converse is broken once, alone, and named; bodies that keep them pass."""

import pytest

from palaver.testing.rules import bedrock_converse

TEXT = {"text": "hi"}
MARK = {"cachePoint": {"type": "default"}}
TOOLS = {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}}]}
S3 = {"s3Location": {"uri": "s3://bucket/file"}}
BYTES = {"bytes": "AA=="}


def user(*blocks):
    return {"role": "user", "content": list(blocks or [TEXT])}


def model(*blocks):
    return {"role": "assistant", "content": list(blocks or [TEXT])}


def call(call_id="t1", **fields):
    return {"toolUse": {"toolUseId": call_id, "name": "look", "input": {}, **fields}}


def result(call_id="t1", **fields):
    return {"toolResult": {"toolUseId": call_id, "content": [{"text": "ok"}], **fields}}


def document(name="Document 1", source=BYTES):
    return {"document": {"format": "pdf", "name": name, "source": source}}


def image(source=BYTES, kind="png"):
    return {"image": {"format": kind, "source": source}}


def video(source=BYTES):
    return {"video": {"format": "mp4", "source": source}}


def thought(**fields):
    return {"reasoningContent": {"reasoningText": {"text": "hm", **fields}}}


def body(*messages, **fields):
    return {"messages": list(messages), **fields}


def loop(*blocks, calls=()):
    return body(user(), model(*(calls or [call()])), user(*blocks), toolConfig=TOOLS)


SERVED = call("s1", type="server_tool_use")
JSON_FORMAT = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{}"}}}}

VALID = {
    "parallel": (None, loop(result("b"), result("a"), TEXT, calls=(call("a"), call("b")))),
    "served": (None, loop(result(), calls=(SERVED, result("s1"), call()))),
    "media": (None, body(user(TEXT, document(), document("Document 2"), image()))),
    "media-in-results": (None, loop(result(content=[document(), image(), {"json": {}}]))),
    "blank-result": (None, loop(result(content=[{"text": ""}]))),
    "empty-result": (None, loop(result(content=[]))),
    "mark-before-document": (None, body(user(TEXT, MARK, document()))),
    "unknown-block": (None, body(user({"smell": {}}))),
    "format": (None, body(user(), outputConfig=JSON_FORMAT)),
    "choice": (None, body(user(), toolConfig={**TOOLS, "toolChoice": {"any": {}}})),
    "claude-leading-assistant": ("anthropic", body(model(), user())),
    "claude-signed": ("anthropic", body(user(), model(thought(signature="s"), TEXT), user())),
    "claude-s3-in-result": ("anthropic", loop(result(content=[document(source=S3)]))),
    "nova-s3-document": ("amazon", body(user(TEXT, document(source=S3)))),
    "nova-s3-image-in-result": ("amazon", loop(result(content=[image(S3)]))),
    "unsigned-elsewhere": ("qwen", body(user(), model(thought(), TEXT), user())),
}
BROKEN = {
    "no-messages": ("docs/spec/wires.md#6.2.1", None, body()),
    "role": ("docs/spec/wires.md#6.1", None, body(user(), {"role": "tool", "content": [TEXT]})),
    "two-keys": ("docs/spec/wires.md#6.1", None, body(user({**TEXT, **image()}))),
    "bmp": ("docs/spec/wires.md#6.1", None, body(user(image(kind="bmp")))),
    "not-base64": ("docs/spec/wires.md#6.1", None, body(user(image({"bytes": "a"})))),
    "empty-description": (
        "docs/spec/wires.md#6.1",
        None,
        body(
            user(),
            toolConfig={"tools": [{"toolSpec": {**TOOLS["tools"][0]["toolSpec"], "description": ""}}]},
        ),
    ),
    "no-tools": ("docs/spec/wires.md#6.1", None, body(user(), toolConfig={"tools": []})),
    "choice-none": (
        "docs/spec/wires.md#6.1",
        None,
        body(user(), toolConfig={**TOOLS, "toolChoice": {"none": {}}}),
    ),
    "hot": ("docs/spec/wires.md#6.1", None, body(user(), inferenceConfig={"temperature": 1.5})),
    "schema-object": (
        "docs/spec/wires.md#6.1",
        None,
        body(
            user(),
            outputConfig={"textFormat": {"type": "x", "structure": {"jsonSchema": {"schema": {}}}}},
        ),
    ),
    "history-without-tools": ("docs/spec/wires.md#6.1", None, body(user(), model(call()), user(result()))),
    "call-id": ("docs/spec/wires.md#1.4", None, loop(result("a b"), calls=(call("a b"),))),
    "name": ("docs/spec/wires.md#1.4", None, loop(result(), calls=(call(name="a.b"),))),
    "two-users": ("docs/spec/wires.md#6.2.1", None, body(user(), user())),
    "first-assistant": ("docs/spec/wires.md#6.2.1", None, body(model(), user())),
    "first-assistant-nova": ("docs/spec/wires.md#6.2.1", "amazon", body(model(), user())),
    "unanswered": ("docs/spec/wires.md#6.2.2", None, loop(TEXT)),
    "one-of-two": ("docs/spec/wires.md#6.2.2", None, loop(result("a"), calls=(call("a"), call("b")))),
    "orphan": ("docs/spec/wires.md#6.2.2", None, body(user(result()), toolConfig=TOOLS)),
    "more-results": ("docs/spec/wires.md#6.2.2", None, loop(result(), result())),
    "blank": ("docs/spec/wires.md#6.2.3", None, body(user({"text": " "}))),
    "blank-system": ("docs/spec/wires.md#6.2.3", None, body(user(), system=[{"text": ""}])),
    "empty-content": ("docs/spec/wires.md#6.2.3", None, body({"role": "user", "content": []})),
    "document-alone": ("docs/spec/wires.md#6.2.4", None, body(user(document()))),
    "same-name": ("docs/spec/wires.md#6.2.4", None, loop(result(content=[document()]), TEXT, document())),
    "odd-name": ("docs/spec/wires.md#6.2.4", None, body(user(TEXT, document("a.pdf")))),
    "two-spaces": ("docs/spec/wires.md#6.2.4", None, body(user(TEXT, document("a  b")))),
    "input-list": ("docs/spec/wires.md#6.2.5", None, loop(result(), calls=(call(input=[]),))),
    "json-list": ("docs/spec/wires.md#6.2.5", None, loop(result(content=[{"json": []}]))),
    "empty-error": ("docs/spec/wires.md#6.2.5", None, loop(result(content=[], status="error"))),
    "five-marks": ("docs/spec/wires.md#6.2.7", None, body(user(TEXT, *[MARK] * 4), system=[TEXT, MARK])),
    "mark-first": ("docs/spec/wires.md#6.2.7", None, body(user(MARK, TEXT))),
    "claude-unsigned": (
        "docs/spec/wires.md#6.2.8",
        "anthropic",
        body(user(), model(thought(), TEXT), user()),
    ),
    "claude-s3": ("docs/spec/wires.md#6.2.9", "anthropic", body(user(TEXT, document(source=S3)))),
    "claude-s3-image-in-result": ("docs/spec/wires.md#6.2.9", "anthropic", loop(result(content=[image(S3)]))),
    "claude-video": ("docs/spec/wires.md#6.2.9", "anthropic", body(user(TEXT, video()))),
    "nova-s3-in-result": ("docs/spec/wires.md#6.2.9", "amazon", loop(result(content=[document(source=S3)]))),
    "nova-video-in-result": ("docs/spec/wires.md#6.2.9", "amazon", loop(result(content=[video(S3)]))),
    "palmyra-status": ("docs/spec/wires.md#6.2.9", "writer", loop(result(status="success"))),
}


@pytest.mark.parametrize(("variant", "request_body"), VALID.values(), ids=VALID)
def test_a_valid_request_passes(variant, request_body):
    assert bedrock_converse.check_request(request_body, variant) == []


@pytest.mark.parametrize(("rule", "variant", "request_body"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_named_alone(rule, variant, request_body):
    assert {v.rule for v in bedrock_converse.check_request(request_body, variant)} == {rule}


def test_every_rule_has_a_body_that_breaks_it():
    rows = bedrock_converse.VARIANTS.values()
    rules = {*bedrock_converse.SHARED, *(r for row in rows for r in row)}
    fired = {r for r in rules for _, _, broken in BROKEN.values() if list(r(broken))}
    assert {r.__name__ for r in rules - fired} == set()


def reply(*blocks, total=3, **fields):
    usage = {"inputTokens": 1, "outputTokens": 1, "cacheReadInputTokens": 1, "totalTokens": total}
    message = {"role": "assistant", "content": list(blocks)}
    return {"output": {"message": message}, "stopReason": "end_turn", "usage": usage, **fields}


@pytest.mark.parametrize("response", [reply(TEXT, call(type="tool_use"), thought()), reply()])
def test_a_valid_response_passes(response):
    assert bedrock_converse.check_response(response) == []


@pytest.mark.parametrize(
    ("rule", "response"),
    [
        ("docs/spec/wires.md#6.3", {"message": "The provided model identifier is invalid."}),
        ("docs/spec/wires.md#6.3", reply(metrics={"latencyMs": 1.5})),
        ("docs/spec/wires.md#6.2.5", reply(call(input=1))),
        ("docs/spec/wires.md#1.2", reply(total=2)),
    ],
)
def test_a_broken_response_is_named(rule, response):
    assert rule in {v.rule for v in bedrock_converse.check_response(response)}
