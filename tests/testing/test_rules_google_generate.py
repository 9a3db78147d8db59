"""Each rule of google_generate is broken once, alone, and named; bodies that keep them pass."""

import pytest

from palaver.testing.rules import google_generate

DECLARE = {"functionDeclarations": [{"name": "look", "parametersJsonSchema": {"type": "object"}}]}
SCHEMAS = {"name": "look", "parameters": {}, "parametersJsonSchema": {}}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}


def user(*parts):
    return {"role": "user", "parts": list(parts or [{"text": "hi"}])}


def model(*parts):
    return {"role": "model", "parts": list(parts or [{"text": "hello"}])}


def call(name="look", mark=None, **fields):
    return {"functionCall": {"name": name, "args": {}, **fields}, **(mark or {})}


def result(name="look", **fields):
    return {"functionResponse": {"name": name, "response": {"output": 1}, **fields}}


def body(*contents, **fields):
    return {"contents": list(contents), **fields}


def choice(**fields):
    return {"functionCallingConfig": fields}


SIGNED = {"thoughtSignature": "c2ln"}

VALID = {
    "no-role": (None, body({"parts": [{"text": ""}]})),
    "pair": (None, body(user(), model({"text": "x"}, call()), user(result()))),
    "ids-in-any-order": (
        None,
        body(user(), model(call(id="a"), call(id="b")), user(result(id="b"), result(id="a"))),
    ),
    "merged-model-turns": (
        None,
        body(user(), model(call("one")), model(call("two")), user(result("one"), result("two"))),
    ),
    "media-after-results": (
        None,
        body(user(), model(call()), user(result(parts=[IMAGE])), user(IMAGE)),
    ),
    "snake-case": (
        None,
        {
            "contents": [
                user(),
                model({"function_call": {"name": "look", "args": {"file_uri": 1, "fileUri": 2}}}),
                user({"function_response": {"name": "look", "response": {}}}),
            ],
            "system_instruction": {"parts": [{"text": "x"}]},
            "generation_config": {
                "max_output_tokens": 5,
                "thinking_config": {"include_thoughts": True},
            },
            "tools": {"function_declarations": [{"name": "look", "parameters_json_schema": {}}]},
        },
    ),
    "unknown-part": (None, body(user({"smell": "rose"}))),
    "choice": (
        None,
        body(user(), tools=[DECLARE], toolConfig=choice(mode="ANY", allowedFunctionNames=["look"])),
    ),
    "server-side": (
        None,
        body(
            user(),
            tools=[{"googleSearch": {}}],
            toolConfig={**choice(mode="AUTO"), "includeServerSideToolInvocations": True},
        ),
    ),
    "cached": (None, body(user(), cachedContent="cachedContents/1")),
    "signed": (
        "gemini-3",
        body(user(), model(call(mark=SIGNED), call()), user(result(), result())),
    ),
    "unsigned-earlier": ("gemini-3", body(user(), model(call()), user(result()), model(), user())),
}
BROKEN = {
    "no-contents": ("docs/spec/wires.md#5.1", None, body()),
    "no-parts": ("docs/spec/wires.md#5.1", None, body({"role": "user"})),
    "empty-parts": ("docs/spec/wires.md#5.1", None, body({"role": "user", "parts": []})),
    "role": ("docs/spec/wires.md#5.1", None, body({"role": "system", "parts": [{"text": "x"}]})),
    "two-data": ("docs/spec/wires.md#5.1", None, body(user({"text": "x", **IMAGE}))),
    "no-data": ("docs/spec/wires.md#5.1", None, body(user({"thought": False}))),
    "args-list": ("docs/spec/wires.md#5.1", None, body(user(), model(call(args=[])), user(result()))),
    "response-text": (
        "docs/spec/wires.md#5.1",
        None,
        body(user(), model(call()), user(result(response="ok"))),
    ),
    "file-without-type": ("docs/spec/wires.md#5.1", None, body(user({"fileData": {"fileUri": "gs://a/b"}}))),
    "snake-number": (
        "docs/spec/wires.md#5.1",
        None,
        body(user({"inline_data": {"mime_type": 1, "data": "AA=="}})),
    ),
    "both-spellings": (
        "docs/spec/wires.md#5",
        None,
        body(user({"inlineData": IMAGE["inlineData"], "inline_data": IMAGE["inlineData"]})),
    ),
    "name": ("docs/spec/wires.md#1.4", None, body(user(), model(call("9lives")), user(result("9lives")))),
    "first-model": ("docs/spec/wires.md#5.2.1", None, body(model(), user())),
    "unanswered": ("docs/spec/wires.md#5.2.2", None, body(user(), model(call()), user())),
    "unanswered-at-end": ("docs/spec/wires.md#5.2.2", None, body(user(), model(call()))),
    "fewer": ("docs/spec/wires.md#5.2.2", None, body(user(), model(call(), call()), user(result()))),
    "other-ids": ("docs/spec/wires.md#5.2.2", None, body(user(), model(call(id="a")), user(result(id="b")))),
    "other-order": (
        "docs/spec/wires.md#5.2.2",
        None,
        body(user(), model(call("one"), call("two")), user(result("two"), result("one"))),
    ),
    "orphan": ("docs/spec/wires.md#5.2.2", None, body(user(result()))),
    "beside-text": (
        "docs/spec/wires.md#5.2.3",
        None,
        body(user(), model(call()), user(result(), {"text": "x"})),
    ),
    "unsigned": ("docs/spec/wires.md#5.2.4", "gemini-3", body(user(), model(call()), user(result()))),
    "config-alone": ("docs/spec/wires.md#5.2.8", None, body(user(), toolConfig=choice(mode="AUTO"))),
    "names-with-auto": (
        "docs/spec/wires.md#5.2.8",
        None,
        body(user(), tools=[DECLARE], toolConfig=choice(mode="AUTO", allowedFunctionNames=["look"])),
    ),
    "two-schemas": (
        "docs/spec/wires.md#5.2.8",
        None,
        body(user(), tools=[{"functionDeclarations": [SCHEMAS]}]),
    ),
    "cached-with-tools": ("docs/spec/wires.md#5.2.9", None, body(user(), cachedContent="x", tools=[DECLARE])),
    "cached-with-system": (
        "docs/spec/wires.md#5.2.9",
        None,
        body(user(), cached_content="x", system_instruction={"parts": [{"text": "x"}]}),
    ),
}


@pytest.mark.parametrize(("variant", "request_body"), VALID.values(), ids=VALID)
def test_a_valid_request_passes(variant, request_body):
    assert google_generate.check_request(request_body, variant) == []


@pytest.mark.parametrize(("rule", "variant", "request_body"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_named_alone(rule, variant, request_body):
    assert {v.rule for v in google_generate.check_request(request_body, variant)} == {rule}


def test_every_rule_has_a_body_that_breaks_it():
    rows = google_generate.VARIANTS.values()
    rules = {*google_generate.SHARED, *(r for row in rows for r in row)}
    fired = {r for r in rules for _, _, broken in BROKEN.values() if list(r(broken))}
    assert {r.__name__ for r in rules - fired} == set()


def test_the_callers_own_keys_keep_their_spelling():
    args = {"file_uri": 1, "function_call": {"mime_type": 2}}
    clashes = []
    assert google_generate.camel({"args": args}, "", clashes) == {"args": args}
    assert clashes == []


def reply(*parts, **fields):
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}
    return {"candidates": [candidate], **fields}


USAGE = {"promptTokenCount": 5, "candidatesTokenCount": 3, "thoughtsTokenCount": 2}


@pytest.mark.parametrize(
    "response",
    [
        reply({"text": "", **SIGNED}, call(), usageMetadata={**USAGE, "totalTokenCount": 10}),
        {"candidates": [{"content": {}, "finishReason": "STOP"}]},
        {"candidates": [{"finishReason": "SAFETY"}]},
        {"promptFeedback": {"blockReason": "SAFETY"}},
    ],
)
def test_a_valid_response_passes(response):
    assert google_generate.check_response(response) == []


@pytest.mark.parametrize(
    ("rule", "response"),
    [
        ("docs/spec/wires.md#5.3", {"error": {"code": 400}}),
        ("docs/spec/wires.md#5.1", reply({"text": 1})),
        ("docs/spec/wires.md#1.2", reply(usageMetadata={**USAGE, "totalTokenCount": 8})),
    ],
)
def test_a_broken_response_is_named(rule, response):
    assert {v.rule for v in google_generate.check_response(response)} == {rule}
