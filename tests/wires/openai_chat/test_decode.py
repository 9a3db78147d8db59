"""Reading Chat Completions bodies (docs/spec/wires.md#2.1 to #2.7, #1.2). Every body read here is written again as it
was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, structs

import palaver as p
from palaver import wires
from palaver.core.pairs import TIED
from palaver.core.parts import Media

NAME = "openai_chat"
WIRE = wires.get(NAME)
PNG = "iVBORw0KGgo="
FUNCTION = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{ "a" : 1E2 }'}}


def read(*messages: dict[str, Any], **fields: Any) -> p.Request:
    body = {"model": "m", "messages": list(messages), **fields}
    request = WIRE.decode_request(body)
    written = WIRE.encode_request(request)
    assert json.loads(written.body) == body
    assert written.losses == ()
    return request


def one(role: str, **fields: Any) -> p.Message:
    return read({"role": role, **fields}).messages[0]


def replied(*messages: dict[str, Any], finish_reason: str | None = "stop", **fields: Any) -> p.Response:
    choices = [
        {"index": index, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
        for index, message in enumerate(messages)
    ]
    body = {"id": "r1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, **fields}
    response = WIRE.decode_response(body)
    written = WIRE.encode_response(response)
    assert json.loads(written.body) == body
    assert written.losses == ()
    return response


def refused(body: Any, what: str = "request") -> p.DecodeError:
    with pytest.raises(p.DecodeError) as caught:
        getattr(WIRE, f"decode_{what}")(body)
    assert NAME in str(caught.value)
    return caught.value


# -- roles and the forms of content ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "cls"),
    [
        ("system", p.SystemMessage),
        ("developer", p.DeveloperMessage),
        ("user", p.UserMessage),
        ("assistant", p.AssistantMessage),
        ("tool", p.ToolMessage),
    ],
)
@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ({"content": "hi"}, (p.Text("hi"),)),
        ({"content": ""}, (p.Text(""),)),
        ({"content": None}, ()),
        ({}, ()),
        ({"content": []}, ()),
        ({"content": [{"type": "text", "text": "hi"}]}, (p.Text("hi"),)),
        ({"content": [{"type": "text", "text": ""}, {"type": "text", "text": "b"}]}, (p.Text(""), p.Text("b"))),
    ],
    ids=["string", "empty string", "null", "absent", "empty list", "list of one", "list of two"],
)
def test_roles_and_content(role: str, cls: type, content: dict[str, Any], parts: tuple[p.Part, ...]):
    message = one(role, **content)
    assert isinstance(message, cls)
    assert message.content == parts


def test_fields_without_a_place_stay_with_the_message():
    message = one("user", content="hi", name="ann", x_new={"deep": [1.0]}, tool_calls=None)
    assert message.provider[NAME]["name"] == "ann"
    assert message.provider[NAME]["x_new"] == {"deep": [1.0]}
    assert message.provider[NAME]["tool_calls"] is None


def test_a_result_names_its_call():
    message = one("tool", content="r", tool_call_id="c1")
    assert isinstance(message, p.ToolMessage)
    assert message.tool_call_id == "c1"


def test_the_function_role_answers_the_call_of_its_name():
    asked, answer = read(
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "r"},
    ).messages
    (call,) = asked.tool_calls
    assert (call.name, call.arguments_json) == ("f", "{}")
    assert isinstance(answer, p.ToolMessage)
    assert (answer.tool_call_id, answer.tool_name, answer.text) == (call.id, "f", "r")


def test_a_function_result_without_a_call_is_kept():
    message = one("function", name="f", content="r")
    assert isinstance(message, p.ToolMessage)
    assert (message.tool_call_id, message.tool_name) == (None, "f")


# -- parts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "cls", "source", "media_type"),
    [
        (
            {"type": "image_url", "image_url": {"url": "https://a.example/a.png", "detail": "low"}},
            p.Image,
            p.Url("https://a.example/a.png"),
            None,
        ),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            p.Image,
            p.Inline(PNG),
            "image/png",
        ),
        (
            {"type": "image_url", "image_url": "https://a.example/a.png"},
            p.Image,
            p.Url("https://a.example/a.png"),
            None,
        ),
        (
            {"type": "image_url", "image_url": {"url": "data:image/svg+xml,<svg/>"}},
            p.Image,
            p.Url("data:image/svg+xml,<svg/>"),
            None,
        ),
        (
            {"type": "video_url", "video_url": {"url": "https://a.example/a.mp4"}},
            p.Video,
            p.Url("https://a.example/a.mp4"),
            None,
        ),
        (
            {"type": "document_url", "document_url": "https://a.example/a.pdf", "document_name": "a"},
            p.File,
            p.Url("https://a.example/a.pdf"),
            None,
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
            p.Audio,
            p.Inline("AA=="),
            "audio/wav",
        ),
        ({"type": "input_audio", "input_audio": {"data": "AA==", "format": "opus"}}, p.Audio, p.Inline("AA=="), None),
        ({"type": "file", "file": {"file_id": "file_1"}}, p.File, p.FileId("file_1", NAME), None),
        (
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}},
            p.File,
            p.Inline("JVBERi0="),
            "application/pdf",
        ),
    ],
)
def test_media(block: dict[str, Any], cls: type, source: Any, media_type: str | None):
    message = one("user", content=[{"type": "text", "text": "see"}, block])
    part: Any = message.content[1]
    assert isinstance(part, Media)
    assert isinstance(part, cls)
    assert (part.source, part.media_type) == (source, media_type)


def test_the_name_of_a_file():
    block = {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}}
    (part,) = one("user", content=[block]).content
    assert isinstance(part, p.File)
    assert part.name == "a.pdf"


def test_marks_on_a_part_stay_with_it():
    (part,) = one("user", content=[{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]).content
    assert isinstance(part, p.Text)
    assert part.provider[NAME]["cache_control"] == {"type": "ephemeral"}


def test_a_part_of_an_unknown_type_is_opaque():
    block = {"type": "hologram", "x": [1.0]}
    (part,) = one("user", content=[block]).content
    assert isinstance(part, p.Opaque)
    assert (part.wire, json.loads(bytes(part.raw_json))) == (NAME, block)


@pytest.mark.parametrize("role", ["system", "tool"])
def test_a_part_that_the_role_cannot_hold_is_kept_unread(role: str):
    (part,) = one(role, content=[{"type": "refusal", "refusal": "no"}]).content
    assert isinstance(part, p.Opaque)


def test_refusals():
    assert one("assistant", content=[{"type": "refusal", "refusal": "no"}]).content[0].text == "no"
    assert one("assistant", content=None, refusal="no").content == (p.Refusal("no"),)
    assert one("assistant", content="hi", refusal=None).content == (p.Text("hi"),)
    assert one("assistant", content="hi", refusal="").content == (p.Text("hi"),)


def test_annotations_are_citations_of_the_text():
    cited = {
        "type": "url_citation",
        "url_citation": {"url": "https://a.example", "title": "T", "start_index": 0, "end_index": 2, "content": "q"},
    }
    file = {"type": "file", "file": {"name": "a", "hash": "h", "content": []}}
    (part,) = replied({"content": "hi", "annotations": [cited, file]}).message.content
    assert isinstance(part, p.Text)
    first, second = part.citations
    assert (first.url, first.title, first.quote, first.start, first.end) == ("https://a.example", "T", "q", 0, 2)
    assert (second.wire, second.url) == (NAME, None)
    assert json.loads(bytes(second.raw_json)) == file


def test_annotations_without_a_text_stay_with_the_message():
    assert "annotations" in replied({"content": None, "annotations": [{"a": 1}]}).message.provider[NAME]


@pytest.mark.parametrize("value", [None, []])
@pytest.mark.parametrize("field", ["annotations", "tool_calls", "refusal", "audio", "function_call"])
def test_known_fields_that_say_nothing_are_not_kept(field: str, value: Any):
    if field == "refusal" and value == []:
        return
    assert replied({"content": "hi", field: value}).message.provider_json is UNSET


def test_audio():
    audio = {"id": "audio_1", "data": "AA==", "expires_at": 9, "transcript": "hi"}
    (part,) = replied({"content": None, "audio": audio}).message.content
    assert isinstance(part, p.Audio)
    assert part.source == p.Inline("AA==")
    asked = one("assistant", audio={"id": "audio_1"})
    assert asked.content == ()
    assert asked.provider[NAME]["audio"] == {"id": "audio_1"}


# -- reasoning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_text(field: str):
    reasoning, text = replied({"content": "hi", field: "because"}).message.content
    assert isinstance(reasoning, p.Reasoning)
    assert (reasoning.text, reasoning.wire) == ("because", NAME)
    assert text == p.Text("hi")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
@pytest.mark.parametrize("value", [None, "", [], {"odd": 1}])
def test_reasoning_that_says_nothing_is_no_part(field: str, value: Any):
    assert replied({"content": "hi", field: value}).message.content == (p.Text("hi"),)


def test_reasoning_details_come_before_the_text_that_copies_them():
    details = [
        {"type": "reasoning.text", "text": "t", "signature": "c2ln", "index": 0},
        {"type": "reasoning.summary", "summary": "s", "index": 1},
        {"type": "reasoning.encrypted", "data": "ZW5j", "id": "d", "index": 2},
    ]
    text, summary, encrypted, said = replied(
        {"content": "hi", "reasoning": "t", "reasoning_details": details}
    ).message.content
    assert isinstance(text, p.Reasoning)
    assert isinstance(summary, p.Reasoning)
    assert isinstance(encrypted, p.Reasoning)
    assert (text.text, text.signature) == ("t", "c2ln")
    assert (summary.text, encrypted.text, encrypted.encrypted) == ("s", "", "ZW5j")
    assert said == p.Text("hi")


def test_thinking_blocks():
    block = {"type": "thinking", "thinking": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    reasoning, _ = replied({"content": [block, {"type": "text", "text": "hi"}]}).message.content
    assert isinstance(reasoning, p.Reasoning)
    assert reasoning.text == "ab"


# -- tool calls ------------------------------------------------------------------------------------


def test_arguments_are_the_text_of_the_model():
    (call,) = one("assistant", content=None, tool_calls=[FUNCTION]).tool_calls
    assert (call.id, call.name, call.arguments_json) == ("c1", "f", '{ "a" : 1E2 }')


@pytest.mark.parametrize("arguments", ['{"a": ', "no JSON", '{"a":1}{"b":2}'])
def test_malformed_arguments(arguments: str):
    made = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    (call,) = one("assistant", content=None, tool_calls=[made]).content
    assert isinstance(call, p.MalformedToolCall)
    assert (call.raw, call.name, call.id) == (arguments, "f", "c1")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ({"name": "f", "arguments": {"a": 1}}, '{"a":1}'),
        ({"name": "f", "arguments": ""}, ""),
        ({"name": "f", "arguments": None}, ""),
        ({"name": "f"}, ""),
        ({"name": "f", "arguments": '"text"'}, '"text"'),
    ],
)
def test_odd_arguments(function: dict[str, Any], text: str):
    call = one("assistant", tool_calls=[{"id": "c1", "type": "function", "function": function}]).content[0]
    assert isinstance(call, p.ToolCall)
    assert call.arguments_json == text


def test_calls_without_id_or_type_and_with_more_fields():
    made = [{"function": {"name": "f", "arguments": "{}"}}, {**FUNCTION, "index": 1, "x_new": {}}]
    first, second = one("assistant", tool_calls=made).tool_calls
    assert first.id
    assert first.id != second.id
    assert second.provider[NAME]["index"] == 1


@pytest.mark.parametrize("calls", [[], None])
def test_no_calls(calls: Any):
    assert one("assistant", content="hi", tool_calls=calls).tool_calls == ()


def test_custom_calls():
    made = {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": 'SELECT "a"'}}
    (call,) = one("assistant", content=None, tool_calls=[made]).tool_calls
    assert call.custom
    assert json.loads(call.arguments_json) == 'SELECT "a"'


# -- tools and settings ----------------------------------------------------------------------------


def test_tools():
    schema = {"type": "object", "properties": {"a": {"type": "number", "minimum": 1.0}}}
    tools = [
        {"type": "function", "function": {"name": "f", "description": "", "parameters": schema, "strict": True}},
        {"function": {"name": "g"}},
        {"type": "custom", "custom": {"name": "sql", "description": "d", "format": {"type": "text"}}},
        {"type": "openrouter:web_search", "x": 1},
    ]
    first, second, third, fourth = read(tools=tools).tools
    assert isinstance(first, p.Tool)
    assert (first.name, first.description, first.strict, first.parameters) == ("f", "", True, schema)
    assert isinstance(second, p.Tool)
    assert (second.name, second.description) == ("g", None)
    assert isinstance(third, p.Tool)
    assert (third.name, third.custom) == ("sql", True)
    assert isinstance(fourth, p.ProviderTool)
    assert fourth.wire == NAME


def test_no_tools():
    assert read(tools=[]).tools == ()


@pytest.mark.parametrize(
    ("raw", "choice"),
    [
        ("auto", p.ToolChoice("auto")),
        ("none", p.ToolChoice("none")),
        ("required", p.ToolChoice("required")),
        ("any", p.ToolChoice("required")),
        ({"type": "function", "function": {"name": "f"}}, p.ToolChoice("required", ("f",))),
        ({"type": "custom", "custom": {"name": "f"}}, p.ToolChoice("required", ("f",))),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
            },
            p.ToolChoice("auto", ("f",)),
        ),
        ("perhaps", None),
        ({"type": "perhaps"}, None),
        (None, None),
    ],
)
def test_tool_choice(raw: Any, choice: p.ToolChoice | None):
    assert read(tool_choice=raw).settings.tool_choice == choice


@pytest.mark.parametrize(
    ("field", "value", "name", "setting"),
    [
        ("max_tokens", 7, "max_tokens", 7),
        ("max_completion_tokens", 7, "max_tokens", 7),
        ("temperature", 1, "temperature", 1),
        ("temperature", 0.5, "temperature", 0.5),
        ("top_p", 0.5, "top_p", 0.5),
        ("stop", "a", "stop", ("a",)),
        ("stop", ["a", "b"], "stop", ("a", "b")),
        ("stop", None, "stop", None),
        ("seed", 7, "seed", 7),
        ("frequency_penalty", 0.5, "frequency_penalty", 0.5),
        ("presence_penalty", 0.5, "presence_penalty", 0.5),
        ("parallel_tool_calls", False, "parallel_tool_calls", False),
        ("reasoning_effort", "low", "effort", "low"),
        ("stream", True, "stream", True),
    ],
)
def test_settings(field: str, value: Any, name: str, setting: Any):
    assert getattr(read(**{field: value}).settings, name) == setting


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ({"type": "text"}, "text"),
        ({"type": "json_object"}, "json"),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True}},
            "json_schema",
        ),
        ({"type": "grammar", "x": 1}, None),
    ],
)
def test_output_format(raw: Any, kind: str | None):
    output = read(response_format=raw).settings.output
    assert (None if output is None else output.kind) == kind


# -- responses -------------------------------------------------------------------------------------


def test_several_choices():
    response = replied({"content": "a"}, {"content": "b", "tool_calls": [FUNCTION]}, {"content": None, "refusal": "no"})
    assert response.message.text == "a"
    assert [each.text for each in response.alternatives[:1]] == ["b"]
    assert [each.finish_reason for each in response.alternatives] == ["stop", "refusal"]
    assert (response.message.model, response.message.response_id) == ("m", "r1")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("content_filter", "content_filter"),
        ("error", "error"),
        ("insufficient_system_resource", "error"),
        ("network_error", "error"),
        ("model_length", "length"),
        ("sensitive", "content_filter"),
        ("tired", "other"),
        ("", "stop"),
        (None, "stop"),
    ],
)
def test_finish_reasons(word: str | None, reason: str):
    response = replied({"content": "hi"}, finish_reason=word)
    assert (response.finish_reason, response.message.finish_reason_raw) == (reason, word)


@pytest.mark.parametrize("word", ["", None])
def test_a_finish_reason_is_derived_from_calls(word: str | None):
    assert replied({"content": None, "tool_calls": [FUNCTION]}, finish_reason=word).finish_reason == "tool_calls"


def test_stopping_with_a_refusal_is_a_refusal():
    assert replied({"content": None, "refusal": "no"}).finish_reason == "refusal"


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}, p.Usage(input=10, output=5)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            p.Usage(input=4, cache_read=4, cache_write=2, output=2, reasoning=3),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0}},
            p.Usage(input=10, cache_read=0, output=0),
        ),
        ({"prompt_tokens": 10, "prompt_tokens_details": None}, p.Usage(input=10)),
        ({"prompt_tokens": "many"}, p.Usage()),
        ({}, p.Usage()),
    ],
)
def test_usage(raw: dict[str, Any], usage: p.Usage):
    found = replied({"content": "hi"}, usage=raw).usage
    assert found is not None
    assert structs.replace(found, raw_json=usage.raw_json) == usage
    assert found.raw == raw


@pytest.mark.parametrize("fields", [{}, {"usage": None}])
def test_no_usage(fields: dict[str, Any]):
    assert replied({"content": "hi"}, **fields).usage is None


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "bad key", "code": "invalid_api_key"}},
        {"error": "bad key"},
        {"message": "bad key"},
        {"detail": "bad key"},
        {"choices": [], "error": {"message": "bad key"}},
    ],
)
def test_errors_of_the_provider(body: dict[str, Any]):
    with pytest.raises(p.ProviderError, match="bad key"):
        WIRE.decode_response(body)


@pytest.mark.parametrize("body", [{}, {"choices": None}, {"choices": []}])
def test_no_completion(body: dict[str, Any]):
    with pytest.raises(p.ProviderError, match="no completion"):
        WIRE.decode_response(body)


# -- wrong bodies ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({}, "messages[0].role"),
        ({"role": 7}, "messages[0].role"),
        ({"role": "prophet"}, "messages[0].role"),
        ({"role": "user", "content": 7}, "messages[0].content"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"text": "a"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": "text", "text": 7}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0].image_url"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "messages[0].content[0].image_url.url"),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
            "messages[0].content[0].input_audio.data",
        ),
        ({"role": "user", "content": [{"type": "file"}]}, "messages[0].content[0].file"),
        ({"role": "user", "content": [{"type": "file", "file": {}}]}, "messages[0].content[0].file"),
        ({"role": "assistant", "content": [{"type": "refusal"}]}, "messages[0].content[0].refusal"),
        ({"role": "assistant", "content": [{"type": "thinking"}]}, "messages[0].content[0].thinking"),
        ({"role": "assistant", "refusal": 7}, "messages[0].refusal"),
        ({"role": "assistant", "tool_calls": 7}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": [7]}, "messages[0].tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "messages[0].tool_calls[0].function.name"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 7}}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"role": "tool", "content": "r", "tool_call_id": 7}, "messages[0].tool_call_id"),
    ],
)
def test_a_wrong_message_is_named(message: dict[str, Any], path: str):
    assert refused({"messages": [message]}).path == path


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": [], "model": 7}, "model"),
        ({"messages": [], "temperature": "hot"}, "temperature"),
        ({"messages": [], "max_tokens": 1.5}, "max_tokens"),
        ({"messages": [], "tools": {}}, "tools"),
        ({"messages": [], "tools": [{"type": "function"}]}, "tools[0].function"),
        ({"messages": [], "tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ],
)
def test_a_wrong_request_is_named(body: dict[str, Any], path: str):
    assert refused(body).path == path


@pytest.mark.parametrize(
    ("choice", "path"),
    [
        (7, "choices[0]"),
        ({}, "choices[0].message"),
        ({"message": {}, "finish_reason": 7}, "choices[0].finish_reason"),
        ({"message": {"content": 7}}, "choices[0].message.content"),
    ],
)
def test_a_wrong_response_is_named(choice: Any, path: str):
    assert refused({"choices": [choice]}, "response").path == path


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff", "7"])
def test_what_is_no_object_is_refused(body: Any):
    refused(body)
    refused(body, "response")


@pytest.mark.finding("S-11")
@pytest.mark.parametrize("target", wires.names())
def test_results_without_ids_answer_the_calls_of_the_tools_they_name(target: str):
    calls = [{"type": "function", "function": {"name": name, "arguments": "{}"}} for name in ("f", "g")]
    results = [{"role": "tool", "name": name, "content": f"result of {name}"} for name in ("g", "f")]
    user = {"role": "user", "content": "q"}
    body = {"model": "m", "messages": [user, {"role": "assistant", "content": None, "tool_calls": calls}, *results]}
    request = wires.get("openai_chat").decode_request(body)
    assert [message.tool_name for message in request.messages[2:]] == ["g", "f"]
    assert json.loads(wires.get("openai_chat").encode_request(request).body) == body
    encoded = wires.get(target).encode_request(request.replace())
    assert "not executed" not in encoded.body.decode()
    assert {loss.why for loss in encoded.losses if loss.what == "tool result" and loss.message is not None} >= {TIED}
    if target == "openai_chat":
        sent = json.loads(encoded.body)["messages"]
        assert {call["id"] for call in sent[1]["tool_calls"]} == {each["tool_call_id"] for each in sent[2:]}
    assert not [loss for loss in encoded.losses if "answers no call" in loss.why or loss.what == "name"]
    read = wires.get(target).decode_request(encoded.body).messages
    named = {call.id: call.name for message in read for call in message.tool_calls}
    told = [(named[each.tool_call_id], str(each.content)) for each in read if each.role == "tool"]
    assert len(told) == 2
    assert all(f"result of {name}" in text for name, text in told)
