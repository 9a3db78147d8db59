"""Writing Cohere v2 chat bodies: what the provider demands, and what is told about the rest.

Source: docs/spec/wires.md#7, #9.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import palaver as p
from palaver import wires
from palaver.core import jsontext
from palaver.core.tools import AnyTool
from palaver.testing import rules
from tests.wires.cohere_chat.bodies import ANSWER, CALLING, RICH, asking, assistant, call, cited, result, text, user

WIRE = wires.get("cohere_chat")
FIND = p.Tool.of("find", "Find.", {"type": "object", "properties": {}})


def _body(request: p.Request, *told: str) -> dict[str, Any]:
    """The body, which the provider would take; ``told`` are the losses, as ``kind what``."""
    encoded = WIRE.encode_request(request)
    assert rules.check_request("cohere_chat", encoded.body) == []
    assert [f"{loss.kind} {loss.what}" for loss in encoded.losses] == list(told)
    found: dict[str, Any] = json.loads(encoded.body)
    return found


def _sent(*messages: p.Message, told: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    return _body(p.Request(messages=messages, model="m", tools=(FIND,)), *told)["messages"]


def _head(told: tuple[str, ...] = (), tools: tuple[AnyTool, ...] = (FIND,), **settings: Any) -> dict[str, Any]:
    request = p.Request(messages=(p.user("hi"),), model="m", tools=tools, settings=p.Settings(**settings))
    body = _body(request, *told)
    return {key: value for key, value in body.items() if key not in ("messages", "model", "tools")}


# -- messages --


def test_text_beside_calls_is_the_plan() -> None:
    sent = _sent(
        p.user("go"),
        p.assistant("first", "then", tool_calls=[p.tool_call("find", {}, id="c1")]),
        p.tool("r", tool_call_id="c1"),
        told=("converted text",),
    )
    assert sent[1] == {"role": "assistant", "tool_plan": "first\n\nthen", "tool_calls": [call("c1")]}


def test_text_behind_a_call_goes_before_it() -> None:
    message = p.assistant(p.tool_call("find", {}, id="c1"), "after")
    told = ("converted order of parts", "converted text")
    sent = _sent(p.user("go"), message, p.tool("r", tool_call_id="c1"), told=told)
    assert sent[1]["tool_plan"] == "after"


def test_a_plan_goes_back_as_the_plan() -> None:
    answer = WIRE.decode_response(CALLING).message
    sent = _sent(p.user("go"), answer, p.tool("r", tool_call_id="find_1"))
    assert sent[1] == CALLING["message"]


def test_a_plan_without_calls_is_text() -> None:
    answer = WIRE.decode_response(CALLING).message
    sent = _sent(p.user("go"), answer.replace(content=answer.content[:1]), told=("converted tool_plan",))
    assert sent[1] == assistant("I will look.")


def test_an_assistant_that_says_nothing_is_left_out() -> None:
    assert _sent(p.user("go"), p.assistant(""), told=("dropped assistant message",)) == [user("go")]


def test_results_are_strings_and_errors_are_written_as_text() -> None:
    calls = [p.tool_call("find", {}, id=each) for each in "abc"]
    sent = _sent(
        p.user("go"),
        p.assistant(tool_calls=calls),
        p.tool(p.Json.of({"n": 1}), tool_call_id="a"),
        p.tool("no", tool_call_id="b", is_error=True),
        p.tool(tool_call_id="c"),
        told=("converted is_error",),
    )
    assert sent[2:] == [result('{"n":1}', "a"), result("Error: no", "b"), result("", "c")]


def test_images_are_urls() -> None:
    image = p.Image(p.Inline("iVBORw0KGgo="))
    sent = _sent(p.user("see", image, p.Image(p.Url("https://example.com/a.png"))))
    assert sent == [
        user(
            [
                text("see"),
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            ]
        )
    ]


def test_other_media_are_dropped() -> None:
    pdf = p.File(p.Inline("JVBERi0xLjc="), "application/pdf")
    tiff = p.Image(p.Inline("SUkqAA=="), "image/tiff")
    assert _sent(p.user("see", pdf, tiff), told=("dropped file", "dropped image")) == [user("see")]


def test_developers_and_refusals() -> None:
    told = ("converted developer message", "converted refusal")
    sent = _sent(p.developer("d"), p.user("go"), p.assistant(p.Refusal("no")), told=told)
    assert sent == [{"role": "system", "content": "d"}, user("go"), assistant("no")]


@pytest.mark.law(2)
def test_own_turns_come_back_byte_for_byte() -> None:
    """docs/spec/pains.md#7: A → B → A, with citations, plan and thinking in place."""
    request = WIRE.decode_request(RICH)
    wires.get("openai_chat").encode_request(request)
    before = WIRE.encode_request(request).body
    after = WIRE.encode_request(request.append(p.assistant("from elsewhere"), p.user("and?"))).body
    own, grown = (bytes(jsontext.fields(body)["messages"]) for body in (before, after))
    assert grown.startswith(own.rstrip(b"]"))


def test_citations_of_text_that_moved_are_dropped() -> None:
    answer = WIRE.decode_request(asking(user(), assistant("found", citations=[cited("found", 0)]))).messages[1]
    grown = answer.replace(content=(*answer.content, p.tool_call("find", {}, id="c1")))
    told = ("converted text", "dropped citations")
    sent = _sent(p.user("go"), grown, p.tool("r", tool_call_id="c1"), told=told)
    assert sent[1] == assistant(tool_plan="found", tool_calls=[call("c1")])


def test_an_edit_wins_over_a_null_that_was_found() -> None:
    request = WIRE.decode_request(
        asking(user(), assistant("a", tool_calls=None, tool_plan=None), temperature=None, k=None)
    )
    asked, answer = request.messages
    grown = answer.replace(content=(*answer.content, p.tool_call("find", {}, id="c1")))
    messages = (asked, grown, p.tool("r", tool_call_id="c1"))
    body = _body(request.replace(messages=messages, settings=p.Settings(temperature=1, top_k=2)), "converted text")
    assert (body["temperature"], body["k"]) == (1, 2)
    assert body["messages"][1] == assistant(tool_plan="a", tool_calls=[call("c1")])


# -- the head --


@pytest.mark.parametrize(
    ("choice", "told", "word"),
    [
        (p.ToolChoice("auto"), (), None),
        (p.ToolChoice("none"), (), "NONE"),
        (p.ToolChoice("required"), (), "REQUIRED"),
        (p.ToolChoice("required", ("find",)), ("converted tool_choice",), "REQUIRED"),
    ],
)
def test_tool_choice(choice: p.ToolChoice, told: tuple[str, ...], word: str | None) -> None:
    assert _head(told, tool_choice=choice).get("tool_choice") == word


def test_a_choice_among_no_tools_is_dropped() -> None:
    assert _head(("dropped tool_choice",), (), tool_choice=p.ToolChoice("required")) == {}


@pytest.mark.parametrize(
    ("settings", "told", "sent"),
    [
        ({"reasoning_tokens": 9}, (), {"thinking": {"type": "enabled", "token_budget": 9}}),
        ({"reasoning_tokens": 0}, (), {"thinking": {"type": "disabled"}}),
        ({"reasoning_tokens": -1}, (), {"thinking": {"type": "enabled"}}),
        ({"reasoning_tokens": -2}, ("dropped reasoning_tokens",), {}),
        ({"effort": "none"}, (), {"thinking": {"type": "disabled"}}),
        ({"effort": "high"}, ("approximated effort",), {"thinking": {"type": "enabled", "token_budget": 24576}}),
        ({"parallel_tool_calls": False}, ("dropped parallel_tool_calls",), {}),
        ({"top_p": 1, "top_k": 0}, ("approximated top_p",), {"p": 0.99, "k": 0}),
        ({"frequency_penalty": -0.5}, ("approximated frequency_penalty",), {"frequency_penalty": 0}),
        ({"temperature": 1.5, "stop": ("a",)}, (), {"temperature": 1.5, "stop_sequences": ["a"]}),
        ({"stop": tuple("abcdef")}, ("approximated stop",), {"stop_sequences": list("abcde")}),
        ({"output": p.OutputFormat(kind="json")}, (), {"response_format": {"type": "json_object"}}),
        (
            {"output": p.OutputFormat(kind="json_schema", name="n", schema_json=p.Json.of({}).value_json)},
            ("dropped output name",),
            {"response_format": {"type": "json_object", "json_schema": {}}},
        ),
    ],
)
def test_settings(settings: dict[str, Any], told: tuple[str, ...], sent: dict[str, Any]) -> None:
    assert _head(told, **settings) == sent


def test_tools() -> None:
    tools = (p.Tool("bare"), p.Tool("free", custom=True), FIND.replace(strict=True))
    body = _body(p.Request(messages=(p.user("hi"),), model="m", tools=tools), "converted custom tool", "dropped strict")
    bare, free, find = (tool["function"] for tool in body["tools"])
    assert bare == {"name": "bare", "parameters": {"type": "object", "properties": {}}}
    assert free["parameters"]["required"] == ["input"]
    assert "strict" not in find


# -- responses --


def test_a_foreign_answer_gets_what_the_client_requires() -> None:
    message = p.assistant("let me see", tool_calls=[p.tool_call("find", {}, id="c1")]).replace(
        model="other", finish_reason="tool_calls", usage=p.Usage(input=3, cache_read=2, output=4, reasoning=1)
    )
    encoded = WIRE.encode_response(p.Response(message=message))
    assert json.loads(encoded.body) == {
        "id": "",
        "finish_reason": "TOOL_CALL",
        "message": {"role": "assistant", "tool_plan": "let me see", "tool_calls": [call("c1")]},
        "usage": {"tokens": {"input_tokens": 5, "output_tokens": 5}, "cached_tokens": 2},
    }
    assert rules.check_response("cohere_chat", encoded.body) == []
    assert [f"{loss.kind} {loss.what}" for loss in encoded.losses] == ["converted text", "dropped model"]


@pytest.mark.parametrize("body", [ANSWER, CALLING])
def test_an_edited_answer_keeps_everything_else(body: dict[str, Any]) -> None:
    encoded = WIRE.encode_response(WIRE.decode_response(body).replace())
    assert json.loads(encoded.body) == body
    assert encoded.losses == ()


def test_content_of_an_answer_is_a_list() -> None:
    encoded = WIRE.encode_response(p.Response(message=p.assistant("hi")))
    assert json.loads(encoded.body)["message"]["content"] == [text("hi")]


DOCUMENTS = [
    {"type": "document", "document": {"id": "d", "data": '{"r":1}'}},
    {"type": "document", "document": {"data": {"r": 2}}},
]


def with_documents() -> p.Request:
    """A request whose tool result is given as documents."""
    return WIRE.decode_request(asking(user("q"), assistant(tool_calls=[call()]), result(DOCUMENTS)))


@pytest.mark.parametrize("name", [name for name in wires.names() if name != "cohere_chat"])
def test_the_documents_of_a_result_reach_other_wires(name: str) -> None:
    encoded = wires.get(name).encode_request(with_documents())
    body = encoded.body.replace(b"\\", b"").replace(b" ", b"")
    assert b'{"r":1}' in body
    assert b'{"r":2}' in body
    assert p.Loss("dropped", "document.id", "a field of cohere_chat", 2, 0) in encoded.losses
    assert "opaque block" not in {loss.what for loss in encoded.losses}


def test_the_documents_of_a_result_go_back_as_documents() -> None:
    request = with_documents()
    for sent in (request, request.replace(messages=(*request.messages, p.user("on"))), request.replace(original=None)):
        assert _body(sent)["messages"][2]["content"] == DOCUMENTS


def test_a_document_of_a_result_without_a_call_is_text() -> None:
    asked, _, answered = with_documents().messages
    rows = _sent(asked, p.assistant("so"), answered, told=("converted tool result", "dropped document.id"))
    assert rows[2]["content"] == [text("[Tool result]"), text('{"r":1}'), text('{"r":2}')]
    unread = answered.replace(
        content=(p.Opaque("cohere_chat", jsontext.raw({"type": "document", "document": {"id": "d"}})),)
    )
    rows = _sent(asked, p.assistant("so"), unread, told=("converted tool result", "dropped document"))
    assert rows[2]["content"] == "[Tool result]"
