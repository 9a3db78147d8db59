"""What a Gemini body means."""

from __future__ import annotations

import json
from typing import Any

import pytest

import palaver as p
from palaver import wires
from tests.wires.google_generate.bodies import REQUEST, RESPONSE, snake

WIRE = wires.get("google_generate")


def request(*contents: Any, **fields: Any) -> p.Request:
    return WIRE.decode_request({"contents": list(contents), **fields})


def said(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def asked(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def answer(*parts: Any, **beside: Any) -> p.AssistantMessage:
    return WIRE.decode_response({"candidates": [{"content": said(*parts), **beside}]}).message


def call(name: str, **fields: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}, **fields}}


def gave(name: str, response: Any = None, **fields: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": response or {}, **fields}}


@pytest.mark.parametrize("every", [0, 1, 2, 3])
def test_a_request_means_the_same_in_every_spelling(every: int) -> None:
    decoded = WIRE.decode_request(snake(REQUEST, every=every) if every else REQUEST)
    assert [m.role for m in decoded.messages] == (
        ["system", "user", "assistant", "tool", "tool", "tool", "user", "assistant", "user"]
    )
    settings = decoded.settings
    assert (settings.max_tokens, settings.temperature, settings.top_p, settings.seed) == (100, 0.0, 0.95, 7)
    assert (settings.stop, settings.effort, settings.reasoning_tokens) == (("END",), "low", 512)
    assert settings.top_k is None  # 40.0 is no integer, and goes back as it was
    assert settings.tool_choice == p.ToolChoice("required", ("look", "wait"))
    assert settings.output is not None
    assert settings.output.schema == {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}]}}}
    assert decoded.origin == "google_generate"


def test_media_are_distinguished_by_their_type() -> None:
    _, image, film, document, unknown, sound = WIRE.decode_request(REQUEST).messages[1].content
    assert isinstance(image, p.Image)
    assert image.source == p.Inline("_9j-4A")
    assert isinstance(film, p.Video)
    assert film.source == p.Url("https://youtu.be/x")
    assert isinstance(document, p.File)
    assert document.source == p.FileId("gs://bucket/a.pdf", "google_generate")
    assert document.name == "a.pdf"
    assert isinstance(unknown, p.File)
    assert unknown.media_type is None
    assert isinstance(sound, p.Audio)


def test_thoughts_are_reasoning_and_signed_text_is_text() -> None:
    thought, signed, empty, plain = WIRE.decode_request(REQUEST).messages[2].content[:4]
    assert thought == p.Reasoning("I think.", wire="google_generate")
    assert signed == p.Reasoning("I think hard.", "c2ln", wire="google_generate")
    assert isinstance(empty, p.Text)
    assert (empty.text, empty.provider["google_generate"]) == ("", {"thoughtSignature": "c2lnMg=="})
    assert isinstance(plain, p.Text)
    assert plain.provider["google_generate"] == {"thought": False}


def test_arguments_keep_their_text() -> None:
    body = b'{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f","args":{"z":5e-06, "a":2.0}}}]}]}'
    (made,) = WIRE.decode_request(body).messages[0].tool_calls
    assert made.arguments_json == '{"z":5e-06, "a":2.0}'


def test_calls_without_ids_get_them_from_their_place_and_results_find_them() -> None:
    messages = WIRE.decode_request(REQUEST).messages
    calls = messages[2].tool_calls
    assert [each.id for each in calls] == ["call_1_4", "call_1_5", "c3"]
    results = [m for m in messages if isinstance(m, p.ToolMessage)]
    assert [m.tool_call_id for m in results] == ["call_1_4", "call_1_5", "c3"]
    assert [m.tool_name for m in results] == ["look", "look", "wait"]


def test_results_match_by_id_before_name_and_by_name_before_order() -> None:
    decoded = request(
        asked({"text": "go"}),
        said(call("a"), call("b"), call("a", id="x")),
        asked(gave("b"), gave("a", id="x"), gave("a")),
    )
    first, second, third = decoded.messages[1].tool_calls
    results = [m.tool_call_id for m in decoded.messages if isinstance(m, p.ToolMessage)]
    assert results == [second.id, third.id, first.id]


def test_a_result_with_an_id_answers_a_call_of_its_name_that_had_none() -> None:
    decoded = request(said(call("a")), asked(gave("a", id="given")))
    assert decoded.messages[1].tool_call_id == decoded.messages[0].tool_calls[0].id  # type: ignore[union-attr] (a result)


def test_a_result_that_matches_no_call_is_paired_with_none() -> None:
    decoded = request(said(call("a")), asked(gave("b"), gave("a"), gave("a")))
    assert [m.tool_call_id for m in decoded.messages if isinstance(m, p.ToolMessage)] == [None, "call_0_0", None]


def test_results_are_json_and_media() -> None:
    *_, third = (m for m in WIRE.decode_request(REQUEST).messages if isinstance(m, p.ToolMessage))
    json_part, image, document, odd = third.content
    assert isinstance(json_part, p.Json)
    assert json_part.value == {}
    assert isinstance(image, p.Image)
    assert isinstance(document, p.File)
    assert isinstance(odd, p.Opaque)


@pytest.mark.parametrize(
    ("response", "flag"),
    [({"error": "no"}, True), ({"error": None}, False), ({"error": "no", "code": 1}, False), ({"output": "x"}, False)],
)
def test_an_error_is_one_when_it_is_the_whole_result(response: Any, flag: bool) -> None:
    (result,) = request(asked(gave("f", response))).messages
    assert isinstance(result, p.ToolMessage)
    assert result.is_error is flag
    assert isinstance(result.content[0], p.Json)
    assert result.content[0].value == response


def test_what_google_ran_is_executed_by_the_provider() -> None:
    code, result, search, found, image, odd = WIRE.decode_request(REQUEST).messages[7].content
    assert isinstance(code, p.ToolCall)
    assert code.provider_executed
    assert code.name == "code_execution"
    assert code.arguments == {"language": "PYTHON", "code": "print(1)"}
    assert isinstance(result, p.ServerToolResult)
    assert result.tool_call_id == code.id
    assert not result.is_error
    assert isinstance(search, p.ToolCall)
    assert (search.id, search.name, search.arguments) == ("s1", "GOOGLE_SEARCH_WEB", {"q": ["x"]})
    assert isinstance(found, p.ServerToolResult)
    assert found.tool_call_id == "s1"
    assert isinstance(image, p.Image)
    assert isinstance(odd, p.Opaque)
    assert odd.raw == {"hologram": {"x": 1}, "thought": True}
    assert [part.provider["@google_generate"]["part"] for part in (code, result, search, found)] == (
        ["executableCode", "codeExecutionResult", "toolCall", "toolResponse"]
    )


def test_calls_over_two_contents_are_one_message() -> None:
    """Seen in recorded traffic: two contents of the model, answered by one of the user."""
    decoded = request(said(call("a", id="1")), said(call("b", id="2")), asked(gave("a", id="1"), gave("b", id="2")))
    assert [m.role for m in decoded.messages] == ["assistant", "tool", "tool"]
    assert [c.id for c in decoded.messages[0].tool_calls] == ["1", "2"]


def test_tools_are_one_each() -> None:
    look, wait, code, third, search = WIRE.decode_request(REQUEST).tools
    assert isinstance(look, p.Tool)
    assert isinstance(wait, p.Tool)
    assert wait.parameters == {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}}
    assert isinstance(code, p.ProviderTool)
    assert code.raw == {"codeExecution": {}}
    assert isinstance(third, p.Tool)
    assert isinstance(search, p.ProviderTool)


@pytest.mark.parametrize(
    ("config", "choice"),
    [
        ({"mode": "AUTO"}, p.ToolChoice("auto")),
        ({"mode": "VALIDATED"}, p.ToolChoice("auto")),
        ({"mode": "NONE"}, p.ToolChoice("none")),
        ({"mode": "ANY"}, p.ToolChoice("required")),
        ({"mode": "ANY", "allowed_function_names": ["f"]}, p.ToolChoice("required", ("f",))),
        ({"mode": "NOVEL"}, None),
        ({}, None),
    ],
)
def test_tool_choice(config: Any, choice: p.ToolChoice | None) -> None:
    body = {"contents": [], "toolConfig": {"functionCallingConfig": config}}
    decoded = WIRE.decode_request(body)
    assert decoded.settings.tool_choice == choice
    assert json.loads(WIRE.encode_request(decoded).body) == body


# -- responses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [0, 1, 2])
def test_a_response_means_the_same_in_every_spelling(every: int) -> None:
    decoded = WIRE.decode_response(snake(RESPONSE, every=every) if every else RESPONSE)
    message = decoded.message
    assert message.text == "Found it."
    assert message.reasoning == "I search."
    assert [each.id for each in message.tool_calls] == ["call_abc-123_2", "call_abc-123_3"]
    assert (decoded.model, decoded.id) == ("gemini-3-flash-preview", "abc-123")
    assert (message.finish_reason, message.finish_reason_raw) == ("tool_calls", "STOP")
    reasons = [each.finish_reason for each in decoded.alternatives]
    assert reasons == ["length", "content_filter", "other", None]


def test_counters_are_disjoint() -> None:
    usage = WIRE.decode_response(RESPONSE).usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning) == (45, 60, 20, 30)
    assert usage.total == 155
    assert usage.raw["serviceTier"] == "standard"


def test_absent_counters_are_not_zero() -> None:
    usage = WIRE.decode_response({"candidates": [], "usageMetadata": {"promptTokenCount": 3}}).usage
    assert usage is not None
    assert (usage.input, usage.output, usage.reasoning, usage.cache_read) == (3, None, None, None)


@pytest.mark.parametrize(
    ("word", "parts", "reason"),
    [
        ("STOP", [], "stop"),
        ("STOP", [call("f")], "tool_calls"),
        ("STOP", [{"toolCall": {"toolType": "GOOGLE_MAPS", "id": "1"}}], "stop"),
        ("UNEXPECTED_TOOL_CALL", [call("f")], "error"),
        ("MODEL_ARMOR", [], "content_filter"),
        ("CONTINUATION", [], "pause"),
        ("", [], "other"),
        ("SOMETHING_NEW", [], "other"),
    ],
)
def test_finish_reasons(word: str, parts: list[Any], reason: str) -> None:
    message = answer(*parts, finishReason=word)
    assert (message.finish_reason, message.finish_reason_raw) == (reason, word)
    assert len(message.tool_calls) == len(parts)


def test_a_blocked_prompt_is_an_answer() -> None:
    decoded = WIRE.decode_response({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}})
    assert decoded.finish_reason == "content_filter"
    assert decoded.message.content == ()


def test_grounding_stays_whole_with_the_message() -> None:
    kept = WIRE.decode_response(RESPONSE).message.provider["google_generate"]
    assert kept["groundingMetadata"] == RESPONSE["candidates"][0]["groundingMetadata"]
    assert kept["citationMetadata"] == RESPONSE["candidates"][0]["citationMetadata"]


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x]])
def test_an_error_is_the_providers(wrap: Any) -> None:
    error = {"error": {"code": 400, "message": "Bad.", "status": "INVALID_ARGUMENT", "details": []}}
    with pytest.raises(p.ProviderError) as caught:
        WIRE.decode_response(json.dumps(wrap(error)))
    assert (caught.value.message, caught.value.code) == ("Bad.", "INVALID_ARGUMENT")


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contents", "path"),
    [
        ([{"role": "user", "parts": [{"text": 1}]}], "contents[0].parts[0].text"),
        ([asked(), said({"functionCall": {"args": {}}})], "contents[1].parts[0].functionCall.name"),
        ([said({"functionCall": 7})], "contents[0].parts[0].functionCall"),
        (
            [asked({"functionResponse": {"name": "f", "response": "x"}})],
            "contents[0].parts[0].functionResponse.response",
        ),
        ([asked({"functionResponse": {"response": {}}})], "contents[0].parts[0].functionResponse.name"),
        ([asked({"inlineData": {"mimeType": "image/png"}})], "contents[0].parts[0].inlineData.data"),
        ([asked({"fileData": {"mimeType": "image/png"}})], "contents[0].parts[0].fileData.fileUri"),
        ([said({"executableCode": {"language": "PYTHON"}})], "contents[0].parts[0].executableCode.code"),
        ([said({"toolCall": {"id": "1"}})], "contents[0].parts[0].toolCall.toolType"),
        ([{"role": "narrator", "parts": []}], "contents[0].role"),
        ([{"role": "user", "parts": "text"}], "contents[0]"),
        (["text"], "contents[0]"),
        ("text", "contents"),
        (None, "contents"),
    ],
)
def test_a_known_field_of_the_wrong_type_names_its_path(contents: Any, path: str) -> None:
    with pytest.raises(p.DecodeError) as caught:
        WIRE.decode_request({"contents": contents})
    assert caught.value.path.startswith(path)
    assert caught.value.source == "google_generate"


def test_a_broken_answer_names_its_path() -> None:
    with pytest.raises(p.DecodeError) as caught:
        answer({"functionCall": {"name": 1}})
    assert caught.value.path == "candidates[0].content.parts[0].functionCall.name"
