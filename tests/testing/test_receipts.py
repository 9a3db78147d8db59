"""Receipts are complete: what is neither sent nor on the receipt is found, and so is what nobody said."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import Raw

import palaver as p
from palaver import wires
from palaver.core import canonical
from palaver.testing import strategies
from palaver.testing.receipts import check_receipt
from tests.corpus import Exchange
from tests.wires.histories import histories

TARGETS = [name for wire in wires.names() for name in (wire, *(f"{wire}:{each}" for each in wires.variants(wire)))]
TOOLS = (p.Tool.of("search", "Find things.", {"type": "object", "properties": {"q": {"type": "string"}}}),)
CALL = p.tool_call("f", {"a": 1}, id="c12345678")
PNG = p.Image.from_bytes(b"\x89PNG\r\n\x1a\n")


def complaints(name: str, request: p.Request) -> list[str]:
    return check_receipt(name, request, wires.get(name).encode_request(request))


def checked(request: p.Request, body: dict[str, Any], *losses: p.Loss, name: str = "openai_chat") -> list[str]:
    """What the checker says of a body that was written by hand."""
    return check_receipt(name, request, p.Encoded([json.dumps(body).encode()], losses))


def chat(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": list(rows)}


def said(*messages: p.Message, **fields: Any) -> p.Request:
    return p.Request(messages=messages, model="m", **fields)


# -- what it finds ---------------------------------------------------------------------------------

USER = {"role": "user", "content": "hello"}


def test_a_whole_body_has_no_complaint():
    assert checked(said(p.user("hello")), chat(USER)) == []


def test_a_part_that_vanished_is_found():
    request = said(p.user("hello", PNG))
    assert len(checked(request, chat(USER))) == 1
    assert checked(request, chat(USER), p.Loss("dropped", "image", "not taken", 0, 1)) == []


def test_a_setting_that_vanished_is_found():
    request = said(p.user("hello"), settings=p.Settings(temperature=0.25))
    assert len(checked(request, chat(USER))) == 1
    assert checked(request, chat(USER), p.Loss("dropped", "temperature", "not taken")) == []


def test_a_text_that_nobody_said_is_found():
    extra = {"role": "user", "content": "Please continue exactly where you left off, and be brief."}
    assert len(checked(said(p.user("hello")), chat(USER, extra))) == 1


@pytest.mark.finding("F-30")
@pytest.mark.parametrize("field", ["tool_calls", "reasoning_content", "function_call"])
def test_an_empty_field_of_an_answer_is_found(field: str):
    kept = {"tool_calls": []} if field == "tool_calls" else {field: None}
    answer = p.assistant("hi", provider={"openai_chat": kept}, finish_reason="stop")
    body = chat(USER, {"role": "assistant", "content": "hi", **kept}, USER)
    assert len(checked(said(p.user("hello"), answer, p.user("hello")), body)) == 1


@pytest.mark.finding("F-30")
def test_a_field_of_another_vendor_is_found():
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi", "x_own": 1}}
    answer = wires.get("openai_chat:vllm").decode_response({"id": "r", "model": "m", "choices": [choice]}).message
    body = chat(USER, {"role": "assistant", "content": "hi", "x_own": 1}, USER)
    assert len(checked(said(p.user("hello"), answer, p.user("hello")), body, name="openai_chat:groq")) == 1


@pytest.mark.finding("F-31")
def test_an_address_of_this_machine_is_found():
    image = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}
    request = said(p.user(p.Image(p.Url("file:///etc/passwd"), "image/png")))
    assert len(checked(request, chat({"role": "user", "content": [image]}))) == 1


@pytest.mark.finding("F-31")
def test_other_bytes_than_those_that_were_given_are_found():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,nos="}}
    request = said(p.user(p.Image(p.Inline("!!!not"), "image/png")))
    assert checked(request, chat({"role": "user", "content": [image]}))


@pytest.mark.finding("F-32")
def test_an_empty_result_that_nobody_gave_is_found():
    call = {"id": CALL.id, "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    image = {"type": "image_url", "image_url": {"url": PNG.data_uri}}
    rows = (
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": CALL.id, "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "[Attached]"}, image]},
    )
    request = said(p.user("hello"), p.assistant(tool_calls=[CALL]), p.tool(PNG, tool_call_id=CALL.id))
    assert len(checked(request, chat(*rows), p.Loss("converted", "media", "moved", 2, 0))) == 1


@pytest.mark.finding("S-04")
def test_a_field_of_a_tool_that_vanished_is_found():
    tool = p.Tool("f", provider_json=Raw(b'{"elsewhere":{"cache_control":{"type":"ephemeral"}}}'))
    body = {**chat(USER), "tools": [{"type": "function", "function": {"name": "f"}}]}
    assert len(checked(said(p.user("hello"), tools=(tool,)), body)) == 1
    assert checked(said(p.user("hello"), tools=(tool,)), body, p.Loss("dropped", "cache_control", "none")) == []


@pytest.mark.finding("S-04")
@pytest.mark.parametrize("field", ["schema", "name", "description", "strict"])
def test_a_field_of_the_form_of_the_answer_that_vanished_is_found(field: str):
    form = {"name": "berth", "description": "in metres", "strict": True, "schema": {"type": "object"}}
    made = dict(form)
    schema = made.pop("schema")
    output = p.OutputFormat("json_schema", Raw(json.dumps(schema).encode()), **made)
    request = said(p.user("hello"), settings=p.Settings(output=output))
    whole = {**chat(USER), "response_format": {"type": "json_schema", "json_schema": form}}
    assert checked(request, whole) == []
    del form[field]
    assert len(checked(request, whole)) == 1


@pytest.mark.finding("S-04")
@pytest.mark.parametrize(
    "settings",
    [
        {"tool_choice": p.ToolChoice("required")},
        {"output": p.OutputFormat("json")},
        {"parallel_tool_calls": False},
        {"effort": "low"},
        {"reasoning_tokens": 512},
        {"stream": True},
    ],
    ids=str,
)
def test_a_word_among_the_settings_that_changes_nothing_is_found(settings: dict[str, Any]):
    request = said(p.user("hello"), tools=TOOLS, settings=p.Settings(**settings))
    for wire in wires.names():
        if settings == {"stream": True} and wire in {"google_generate", "bedrock_converse"}:  # their address says it
            continue
        whole, bare = (wires.get(wire).encode_request(each) for each in (request, said(p.user("hello"), tools=TOOLS)))
        assert check_receipt(wire, request, whole) == []
        named = {loss.what for loss in whole.losses} & settings.keys()
        assert len(check_receipt(wire, request, p.Encoded(bare.chunks))) >= (1 if not named else 0), wire


@pytest.mark.finding("S-04")
@pytest.mark.parametrize("part", ["name", "description", "parameters"])
def test_what_a_tool_says_is_compared(part: str):
    tool = {"name": "search", "description": "Find things.", "parameters": TOOLS[0].parameters}
    whole = {**chat(USER), "tools": [{"type": "function", "function": tool}]}
    assert checked(said(p.user("hello"), tools=TOOLS), whole) == []
    tool[part] = {} if part == "parameters" else "x"
    assert len(checked(said(p.user("hello"), tools=TOOLS), whole)) == 1


@pytest.mark.finding("S-04")
@pytest.mark.parametrize(
    "tool", [p.Tool("f", custom=True), p.ProviderTool("openai_chat", Raw(b'{"type":"web_search"}'))], ids=str
)
def test_a_tool_of_another_kind_that_vanished_is_found(tool: Any):
    body = {**chat(USER), "tools": [{"type": "function", "function": {"name": "f"}}]}
    assert len(checked(said(p.user("hello"), tools=(tool,)), body)) == 1


@pytest.mark.finding("S-04")
def test_a_field_of_the_request_that_vanished_is_found():
    request = said(p.user("hello")).replace(provider={"openai_chat": {"user": "ann"}})
    assert checked(request, {**chat(USER), "user": "ann"}) == []
    assert len(checked(request, chat(USER))) == 1


@pytest.mark.finding("S-04")
def test_a_message_that_vanished_is_found():
    spoken = p.assistant(provider={"openai_chat": {"audio": {"id": "audio_xyz"}}})
    request = said(p.user("hello"), spoken, p.user("hello"))
    assert len(checked(request, chat(USER, USER))) == 1
    assert len(checked(request, chat(USER, USER), name="cohere_chat")) == 1


# -- what the wires write --------------------------------------------------------------------------


_JSON = {"schema": {"type": "object", "properties": {"berth": {"type": "number"}}}}
_FREE = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: WORD"}}
_ASKED: list[tuple[str, dict[str, Any]]] = [
    ("openai_chat", chat(USER, {"role": "assistant", "content": None, "audio": {"id": "audio_xyz"}}, USER)),
    ("openai_chat", {**chat(USER), "tools": [{"type": "function", "function": {"name": "f", "strict": True, "x": 1}}]}),
    ("openai_chat", {**chat(USER), "tools": [{"type": "custom", "custom": {"name": "f", "format": _FREE}}]}),
    (
        "openai_chat",
        {
            **chat(USER),
            "response_format": {
                "type": "json_schema",
                "json_schema": {**_JSON, "name": "n", "description": "in metres", "strict": True},
            },
        },
    ),
    (
        "openai_responses",
        {
            "model": "m",
            "input": [USER],
            "text": {"format": {**_JSON, "type": "json_schema", "name": "n", "description": "in metres"}},
        },
    ),
    ("cohere_chat", {**chat(USER), "response_format": {**_JSON, "type": "json_object"}}),
    (
        "anthropic_messages",
        {
            **chat(USER),
            "max_tokens": 9,
            "tools": [
                {
                    "name": "f",
                    "input_schema": {"type": "object"},
                    "cache_control": {"type": "ephemeral"},
                    "defer_loading": False,
                    "input_examples": [{"a": 1}],
                }
            ],
        },
    ),
    (
        "google_generate",
        {
            "contents": [{"role": "user", "parts": [{"text": "hello"}]}],
            "tools": [
                {"functionDeclarations": [{"name": "f", "behavior": "NON_BLOCKING", "response": {"type": "OBJECT"}}]}
            ],
        },
    ),
]


@pytest.mark.finding("S-04")
@pytest.mark.parametrize("target", TARGETS)
def test_what_one_wire_says_is_accounted_for_on_every_other(target: str):
    for source, body in _ASKED:
        request = wires.get(source).decode_request(body)
        assert complaints(target, request.replace()) == [], body


@pytest.mark.finding("S-04")
@pytest.mark.parametrize("target", wires.names())
def test_text_beside_encrypted_reasoning_is_accounted_for(target: str):
    for fields in ({"encrypted": "proof"}, {"signature": "proof"}, {"encrypted": "proof", "signature": "other"}):
        answer = p.assistant(p.Reasoning("thought aloud", wire=target, **fields), "hi")
        assert complaints(target, said(p.user("hello"), answer, p.user("hello"))) == []


@pytest.mark.finding("S-04")
def test_a_form_of_the_answer_reads_alike_from_both_names_of_its_schema():
    forms = [{"type": "json_object", key: _JSON["schema"]} for key in ("schema", "json_schema")]
    asked = [{**chat(USER), "response_format": form} for form in forms]
    read = [wires.get("cohere_chat").decode_request(body) for body in asked]
    assert read[0].settings == read[1].settings
    assert [json.loads(wires.get("cohere_chat").encode_request(each).body) for each in read] == asked


@pytest.mark.finding("S-04")
@pytest.mark.parametrize(("cls", "word"), [(p.ToolChoice, "whatever"), (p.OutputFormat, "yaml")])
def test_a_word_that_no_wire_has_is_refused_where_it_is_made(cls: Any, word: str):
    with pytest.raises(p.MessageError, match=f"expected one of .*{word}"):
        cls(word)


HALF = "a\ude00x"


def _odd(wire: str) -> list[tuple[str, p.Message]]:
    """Messages with something that the wire itself has no place for, or can hardly write; and what that is called."""
    own = {wire: {"x": 1}}
    block = Raw(b'{"type":"none"}')
    return [
        ("x", p.system(provider=own)),
        ("x", p.system("one", provider=own)),
        ("x", p.developer("one", provider=own)),
        ("x", p.user(p.Text("one").replace(provider=own))),
        ("refusal", p.assistant(p.Refusal(HALF))),
        ("block", p.assistant("a", p.Opaque(wire, block))),
        ("server tool result", p.assistant("a", p.ServerToolResult("r", block, wire, "n"))),
        *(
            ("call", p.assistant("a", p.ToolCall("i", "n", text, ours, free).replace(provider={wire: {}})))
            for text in ("", "cut {", f'"{HALF}"', "[1]")
            for ours in (False, True)
            for free in (False, True)
        ),
    ]


@pytest.mark.finding("S-04")
@pytest.mark.parametrize("target", TARGETS)
def test_what_a_wire_has_no_place_for_is_accounted_for(target: str):
    for what, message in _odd(target.partition(":")[0]):
        for before in ((), (p.user("q"),)):
            request = said(*before, message, p.user("on"))
            encoded = wires.get(target).encode_request(request)
            json.loads(encoded.body)
            assert check_receipt(target, request, encoded) == [], what
            if what == "x":
                named = [loss for loss in encoded.losses if loss.what == "x" and loss.message == len(before)]
                assert (b'"x":1' in encoded.body) != bool(named), before
            if what == "refusal":
                assert b"\\ude00" not in encoded.body


@pytest.mark.finding("S-04")
@pytest.mark.parametrize("target", TARGETS)
def test_the_schema_of_a_free_text_tool_is_accounted_for(target: str):
    tool = p.Tool("f", None, Raw(b'{"type":"object"}'), custom=True)
    encoded = wires.get(target).encode_request(said(p.user("q"), tools=(tool,)))
    assert "parameters" in [loss.what for loss in encoded.losses]
    assert check_receipt(target, said(p.user("q"), tools=(tool,)), encoded) == []


def test_an_error_that_is_an_image_alone_is_accounted_for():
    image = p.Image.from_bytes(b"\x89PNG\r\n\x1a\n")
    result = p.ToolMessage(content=(image,), tool_call_id="c1", is_error=True)
    request = said(p.assistant(tool_calls=[p.tool_call("look", {}, id="c1")]), result, tools=TOOLS)
    for name in TARGETS:
        assert complaints(name, request) == []


@pytest.mark.finding("F-30")
@given(messages=histories(), name=st.sampled_from(TARGETS))
def test_generated_histories_are_accounted_for(messages: tuple[p.Message, ...], name: str):
    assert complaints(name, said(*messages, tools=TOOLS)) == []


@given(request=strategies.requests(), name=st.sampled_from(TARGETS))
def test_generated_requests_are_accounted_for(request: p.Request, name: str):
    assert complaints(name, request.replace()) == []


@given(request=strategies.requests(), name=st.sampled_from(TARGETS))
def test_generated_requests_with_data_of_the_wire_itself_are_accounted_for(request: p.Request, name: str):
    own = f'"{name.partition(":")[0]}"'.encode()
    written = canonical.encode(request.replace()).replace(b'"google_generate"', own)
    try:
        there = canonical.decode(written, p.Request)
    except p.DecodeError:  # one value has data of both wires: a name stands there twice
        return
    assert complaints(name, there) == []


def _some(exchange: Exchange) -> list[str]:
    """The wire itself and two others, not the same ones for each recording: all of them would take minutes."""
    return [exchange.wire, *random.Random(exchange.file.stem).sample(TARGETS, 2)]


@pytest.mark.recorded(share=8)
def test_recorded_requests_are_accounted_for(exchange: Exchange):
    if "request" not in exchange.record:
        return
    request = wires.get(exchange.wire).decode_request(exchange.record["request"])
    for each in (request, request.replace()):
        found = {name: complaints(name, each) for name in _some(exchange)}
        assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.recorded(share=4)
def test_recorded_answers_are_accounted_for(exchange: Exchange):
    if "response" not in exchange.record:
        return
    found: dict[str, list[str]] = {}
    for source in (exchange.wire, *(f"{exchange.wire}:{each}" for each in wires.variants(exchange.wire)[-1:])):
        try:
            answer = wires.get(source).decode_response(exchange.record["response"]).message
        except p.ProviderError:
            return
        request = said(p.user("q"), answer, p.user("on"))
        found |= {f"{source} to {name}": complaints(name, request) for name in _some(exchange)}
    assert {name: each for name, each in found.items() if each} == {}
