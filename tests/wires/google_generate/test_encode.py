"""What becomes of a history that Gemini did not make, and of its own turns in one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

import palaver as p
from palaver import wires
from palaver.testing import rules
from palaver.testing.strategies import requests, responses
from tests.wires.google_generate.bodies import REQUEST, RESPONSE
from tests.wires.histories import histories

WIRE = wires.get("google_generate")
OTHER = "anthropic_messages"
STAND_IN = "skip_thought_signature_validator"


def encoded(*messages: p.Message, **fields: Any) -> tuple[dict[str, Any], p.Encoded]:
    made = WIRE.encode_request(p.Request(messages=messages, **fields))
    body = json.loads(made.body)
    assert rules.check_request("google_generate", made.body) == []
    return body, made


def told(made: p.Encoded) -> set[tuple[str, str]]:
    return {(loss.kind, loss.what) for loss in made.losses}


def calling(*calls: p.ToolCall, **fields: Any) -> p.AssistantMessage:
    return p.assistant(tool_calls=calls, **fields)


F = p.tool_call("f", {"a": 1}, id="c1")
G = p.tool_call("g", {}, id="c2")
GO = p.user("go")


def test_leading_system_messages_are_the_instruction() -> None:
    body, made = encoded(p.system("one"), p.developer("two"), GO, p.system("three"))
    assert body["systemInstruction"] == {"parts": [{"text": "one"}, {"text": "two"}]}
    assert [c["role"] for c in body["contents"]] == ["user", "user"]
    assert told(made) == {("converted", "developer message"), ("converted", "system message")}


def test_the_first_content_is_the_users() -> None:
    body, made = encoded(p.assistant("hello"))
    assert [c["role"] for c in body["contents"]] == ["user", "model"]
    assert ("converted", "first message") in told(made)


@pytest.mark.parametrize("messages", [(), (p.system("s"),), (p.rescue("x"),)])
def test_there_is_always_a_content(messages: tuple[p.Message, ...]) -> None:
    body, _ = encoded(*messages)
    assert len(body["contents"]) == 1


def test_results_stand_alone_in_one_content() -> None:
    body, _ = encoded(
        GO,
        calling(F, G),
        p.tool("two", tool_call_id="c2"),
        p.user("by the way"),
        p.tool({"x": 1}, tool_call_id="c1"),
    )
    _, _, results, text = body["contents"]
    named = {r["functionResponse"]["id"]: r["functionResponse"]["name"] for r in results["parts"]}
    assert named == {"c1": "f", "c2": "g"}
    assert text == {"parts": [{"text": "by the way"}], "role": "user"}


@pytest.mark.parametrize(
    ("result", "response", "loss"),
    [
        (p.tool("text", tool_call_id="c1"), {"output": "text"}, "tool result"),
        (p.tool({"a": 1}, tool_call_id="c1"), {"a": 1}, None),
        (p.tool(p.Json.of([1]), tool_call_id="c1"), {"output": [1]}, "tool result"),
        (p.tool("a", "b", tool_call_id="c1"), {"output": ["a", "b"]}, "tool result"),
        (p.tool(tool_call_id="c1"), {}, None),
        (p.tool("bad", tool_call_id="c1", is_error=True), {"error": "bad"}, "is_error"),
        (p.tool({"a": 1}, tool_call_id="c1", is_error=True), {"error": {"a": 1}}, "is_error"),
        (p.tool({"error": "bad"}, tool_call_id="c1", is_error=True), {"error": "bad"}, None),
        (p.tool(tool_call_id="c1", is_error=True), {"error": ""}, "is_error"),
    ],
)
def test_a_result_is_an_object(result: p.ToolMessage, response: Any, loss: str | None) -> None:
    body, made = encoded(GO, calling(F), result)
    assert body["contents"][2]["parts"][0]["functionResponse"]["response"] == response
    assert told(made) == {("converted", "tool call")} | ({("converted", loss)} if loss else set())


# -- signatures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "stands"), [(None, True), ("gemini-3-pro", True), ("gpt-x", True), ("gemini-2.5-pro", False)]
)
def test_a_foreign_call_gets_the_stand_in_where_it_is_needed(model: str | None, stands: bool) -> None:
    """docs/spec/wires.md#5.2.5: on the first call of the turn."""
    done = p.tool({}, tool_call_id="c1"), p.tool({}, tool_call_id="c2")
    body, made = encoded(GO, calling(F, G), *done, model=model)
    first, second = body["contents"][1]["parts"]
    assert first.get("thoughtSignature") == (STAND_IN if stands else None)
    assert "thoughtSignature" not in second
    assert told(made) == ({("converted", "tool call")} if stands else set())


@pytest.mark.parametrize(("model", "stands"), [(None, False), ("gemini-2.5-pro", False), ("gemini-3-pro", True)])
def test_a_call_that_gemini_left_unsigned_needs_none_but_for_a_newer_model(model: str | None, stands: bool) -> None:
    message = WIRE.decode_response({"candidates": [{"content": {"parts": [_call("f")], "role": "model"}}]}).message
    result = p.tool({}, tool_call_id=message.tool_calls[0].id)
    body, made = encoded(GO, message, result, model=model)
    assert ("thoughtSignature" in body["contents"][1]["parts"][0]) is stands
    assert bool(made.losses) is stands


def test_signed_parts_go_back_where_they_were() -> None:
    message = WIRE.decode_response(RESPONSE).message
    results = [p.tool({"r": n}, tool_call_id=c.id) for n, c in enumerate(message.tool_calls)]
    body, made = encoded(GO, message, *results)
    thought, *parts = RESPONSE["candidates"][0]["content"]["parts"]
    assert body["contents"][1] == {"role": "model", "parts": parts}
    only_in_answers = {("dropped", "groundingMetadata"), ("dropped", "citationMetadata")}
    assert told(made) - only_in_answers == {("dropped", "reasoning")}, thought  # it had no signature


def test_ids_that_were_made_up_are_not_sent() -> None:
    message = WIRE.decode_response(RESPONSE).message
    body, _ = encoded(GO, message, *(p.tool({}, tool_call_id=c.id) for c in reversed(message.tool_calls)))
    calls = [part["functionCall"] for part in body["contents"][1]["parts"] if "functionCall" in part]
    results = [part["functionResponse"] for part in body["contents"][2]["parts"]]
    assert not any("id" in each for each in (*calls, *results))


def test_grounding_is_not_sent_back() -> None:
    body, _ = encoded(GO, WIRE.decode_response(RESPONSE).message, p.user("on"))
    assert all(set(content) == {"role", "parts"} for content in body["contents"])


def test_results_without_ids_stand_in_the_order_of_the_calls() -> None:
    message = WIRE.decode_response(RESPONSE).message
    body, _ = encoded(GO, message, p.tool({"r": 2}, tool_call_id=message.tool_calls[1].id))
    results = [part["functionResponse"]["response"] for part in body["contents"][2]["parts"]]
    assert results[1] == {"r": 2}
    assert "error" in results[0]


def _call(name: str, **fields: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}, **fields}}


# -- other rules -----------------------------------------------------------------------------------


def test_a_content_of_calls_joins_what_the_model_said_before() -> None:
    body, _ = encoded(GO, p.assistant("I will."), p.assistant("Now."), calling(F), p.tool({}, tool_call_id="c1"))
    assert [c["role"] for c in body["contents"]] == ["user", "model", "user"]
    assert len(body["contents"][1]["parts"]) == 3


def test_calls_over_two_contents_go_back_so() -> None:
    contents = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [{**_call("a", id="1"), "thoughtSignature": "eA=="}]},
        {"role": "model", "parts": [{**_call("b", id="2"), "thoughtSignature": "eQ=="}], "x": 1},
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": i, "name": n, "response": {}}} for i, n in ("1a", "2b")],
        },
    ]
    made = WIRE.encode_request(WIRE.decode_request({"contents": contents}).replace())
    assert json.loads(made.body) == {"contents": contents}
    assert made.losses == ()


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_text_is_left_out_and_on_the_receipt(text: str) -> None:
    """Vertex AI refuses it, and OpenAI-compatible servers stream it beside calls."""
    empty = text == ""
    call = p.assistant(p.Text(text), F)
    body, made = encoded(
        p.system(text), GO, call, p.tool({}, tool_call_id="c1"), p.user(text, "on"), p.assistant(text), p.user("x")
    )
    parts = [each for content in body["contents"] for each in content["parts"]]
    assert ({"text": text} in parts) is not empty
    assert ("systemInstruction" in body) is not empty
    assert [list(each) for each in body["contents"][1]["parts"]][-1] == ["functionCall", "thoughtSignature"]
    assert [each["text"] for each in body["contents"][3]["parts"]] == (["on"] if empty else [text, "on"])
    assert body["contents"][4]["parts"] == [{"text": "." if empty else text}]
    lost = {("dropped", "system message"), ("dropped", "text"), ("converted", "message")}
    assert told(made) & lost == (lost if empty else set())


def test_an_empty_text_with_a_signature_goes_back() -> None:
    signed = {"text": "", "thoughtSignature": "c2lnMg=="}
    contents = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [{"text": "a"}, {"text": ""}, signed]},
        {"role": "user", "parts": [{"text": "on"}]},
    ]
    read = WIRE.decode_request({"contents": contents})
    assert json.loads(WIRE.encode_request(read).body) == {"contents": contents}
    made = WIRE.encode_request(read.replace(messages=(*read.messages[:2], p.user("more"))))
    assert json.loads(made.body)["contents"][1]["parts"] == [{"text": "a"}, signed]


def test_a_content_that_has_nothing_left_gets_a_fixed_text() -> None:
    thought = p.assistant(p.Reasoning("unsigned", wire="google_generate"))
    body, made = encoded(GO, thought, p.user("x"))
    assert [c["parts"] for c in body["contents"]] == [[{"text": "go"}], [{"text": "."}], [{"text": "x"}]]
    assert told(made) == {("dropped", "reasoning"), ("converted", "message")}


@pytest.mark.parametrize(
    ("model", "inside"), [(None, True), ("gemini-3-pro", True), ("models/gemini-2.5-flash", False)]
)
def test_media_in_results_go_where_the_model_takes_them(model: str | None, inside: bool) -> None:
    image = p.Image(p.Inline("iVBORw0KGgo="), "image/png")
    sound = p.Audio(p.Inline("SUQz"), "audio/mpeg")
    body, made = encoded(GO, calling(F), p.tool({"a": 1}, image, sound, tool_call_id="c1"), model=model)
    response = body["contents"][2]["parts"][0]["functionResponse"]
    assert ("parts" in response) is inside
    assert response["response"] == {"a": 1}
    assert "SUQz" in json.dumps(body["contents"][3:])
    assert ("iVBORw0KGgo=" in json.dumps(body["contents"][3:])) is not inside
    assert ("converted", "media") in told(made)


def test_a_cache_holds_the_setup() -> None:
    """docs/spec/wires.md#5.2.9."""
    request = WIRE.decode_request({"contents": [{"parts": [{"text": "hi"}]}], "cachedContent": "cachedContents/x"})
    grown = request.replace(
        messages=(p.system("s"), *request.messages),
        tools=(p.Tool.of("f"),),
        settings=p.Settings(tool_choice=p.ToolChoice("auto")),
    )
    made = WIRE.encode_request(grown)
    assert rules.check_request("google_generate", made.body) == []
    assert told(made) == {("dropped", "tools"), ("dropped", "toolConfig"), ("dropped", "system message")}


def test_settings() -> None:
    settings = p.Settings(
        max_tokens=5,
        top_k=3,
        stop=("a",),
        effort="high",
        reasoning_tokens=9,
        parallel_tool_calls=True,
        tool_choice=p.ToolChoice("auto", ("f",)),
        output=p.OutputFormat("json_schema", name="n").replace(schema={"type": "object"}),
        stream=True,
    )
    body, made = encoded(GO, settings=settings, tools=(p.Tool.of("f", strict=True),), model="gemini-3-pro")
    assert body["generationConfig"] == {
        "maxOutputTokens": 5,
        "topK": 3,
        "stopSequences": ["a"],
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
        "thinkingConfig": {"thinkingLevel": "HIGH"},
    }
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "VALIDATED", "allowedFunctionNames": ["f"]}}
    lost = {"parallel_tool_calls", "strict", "reasoning_tokens", "output name"}
    assert told(made) == {("dropped", name) for name in lost}
    assert "model" not in body
    assert "stream" not in body


def test_tool_choice_needs_a_declaration() -> None:
    """docs/spec/wires.md#5.2.8."""
    body, made = encoded(GO, settings=p.Settings(tool_choice=p.ToolChoice("required")))
    assert "toolConfig" not in body
    assert told(made) == {("dropped", "tool_choice")}


def test_edited_settings_replace_the_form_that_was_found() -> None:
    request = WIRE.decode_request(REQUEST)
    settings = p.Settings(max_tokens=1, effort="high", tool_choice=p.ToolChoice("auto"))
    body = json.loads(WIRE.encode_request(request.replace(settings=settings)).body)
    assert body["toolConfig"]["functionCallingConfig"] == {"mode": "AUTO"}
    assert body["generationConfig"]["thinkingConfig"] == {"thinkingLevel": "HIGH", "includeThoughts": True}
    assert body["generationConfig"]["maxOutputTokens"] == 1
    assert "responseSchema" not in body["generationConfig"]


def test_an_own_request_comes_back_after_an_edit() -> None:
    """What changes are repairs: results leave the company of other parts, unsigned thoughts stay behind."""
    request = WIRE.decode_request(REQUEST)
    body = json.loads(WIRE.encode_request(request.replace()).body)
    assert body["contents"][0] == REQUEST["contents"][0]
    assert body["contents"][1]["parts"] == REQUEST["contents"][1]["parts"][1:]
    assert body["contents"][2:] == REQUEST["contents"][2:]
    assert {key: body[key] for key in body if key not in ("contents", "generationConfig")} == (
        {key: REQUEST[key] for key in REQUEST if key not in ("contents", "generationConfig")}
    )


# -- responses -------------------------------------------------------------------------------------


def _fits_the_client(body: bytes) -> None:
    types = pytest.importorskip("google.genai.types")
    types.GenerateContentResponse.model_validate_json(body)


def test_a_foreign_response_is_one_of_geminis() -> None:
    message = p.assistant(
        "text",
        p.Reasoning("r", "s", wire=OTHER),
        p.Refusal("no"),
        tool_calls=[p.tool_call("f g", "[1]", id="c1")],
        model="m",
        usage=p.Usage(input=1, cache_read=2, cache_write=3, output=4, reasoning=5),
        finish_reason="refusal",
        response_id="r1",
    )
    made = WIRE.encode_response(p.Response(message, (p.assistant("b"),)))
    body = json.loads(made.body)
    _fits_the_client(made.body)
    assert rules.check_response("google_generate", made.body) == []
    assert body["candidates"][0]["content"]["parts"][2]["functionCall"] == (
        {"name": "f_g", "id": "c1", "args": {"value": [1]}}
    )
    assert body["usageMetadata"]["totalTokenCount"] == 15
    assert body["candidates"][1]["index"] == 1
    assert ("approximated", "finish_reason") in told(made)
    assert ("dropped", "reasoning") in told(made)


@pytest.mark.law(5)
@given(response=responses())
def test_any_response_can_be_written(response: p.Response) -> None:
    json.loads(WIRE.encode_response(response.replace()).body)


@pytest.mark.law(5)
@given(messages=histories())
def test_any_foreign_answer_fits_the_client(messages: tuple[p.Message, ...]) -> None:
    for message in messages:
        if isinstance(message, p.AssistantMessage):
            made = WIRE.encode_response(p.Response(message))
            _fits_the_client(made.body)
            assert rules.check_response("google_generate", made.body) == []


@pytest.mark.law(5)
@given(request=requests())
def test_any_request_can_be_written(request: p.Request) -> None:
    json.loads(WIRE.encode_request(request.replace()).body)


def test_the_name_of_a_file_is_dropped_unless_it_came_from_google() -> None:
    """The Gemini API answers with an error to ``displayName``."""
    body, made = encoded(p.user("go", p.File(p.Inline("aGk="), "text/plain", "note.txt")))
    assert body["contents"][0]["parts"][1] == {"inlineData": {"mimeType": "text/plain", "data": "aGk="}}
    assert [(each.kind, each.what, each.part) for each in made.losses] == [("dropped", "file name", 1)]
    named = {"inlineData": {"mimeType": "text/plain", "data": "aGk=", "displayName": "note.txt"}}
    read = WIRE.decode_request(json.dumps({"contents": [{"role": "user", "parts": [named]}]}).encode())
    again = WIRE.encode_request(read.replace(messages=(*read.messages, p.user("more"))))
    assert json.loads(again.body)["contents"][0]["parts"] == [named]
    assert again.losses == ()
