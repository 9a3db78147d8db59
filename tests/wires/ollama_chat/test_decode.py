"""Reading Ollama chat bodies (docs/spec/wires.md#8). Every body read here is written again as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

import palaver as p
from palaver import wires
from tests.wires.ollama_chat.forms import normal

NAME = "ollama_chat"
WIRE = wires.get(NAME)
PNG = "iVBORw0KGgo="
CALL = {"function": {"name": "f", "arguments": {"b": 1.0, "a": [2]}}}


def read(*messages: dict[str, Any], **fields: Any) -> p.Request:
    body = {"model": "m", "messages": list(messages), **fields}
    request = WIRE.decode_request(body)
    written = WIRE.encode_request(request)
    assert json.loads(written.body) == body
    assert written.losses == ()
    bare = WIRE.encode_request(structs.replace(request, original=None))
    assert normal(json.loads(bare.body)) == normal(body)
    assert bare.losses == ()
    return request


def one(role: str, **fields: Any) -> p.Message:
    return read({"role": role, **fields}).messages[0]


def replied(message: dict[str, Any], **fields: Any) -> p.Response:
    body = {
        "model": "m",
        "created_at": "2025-01-01T00:00:00Z",
        "message": {"role": "assistant", **message},
        "done": True,
        **fields,
    }
    response = WIRE.decode_response(body)
    written = WIRE.encode_response(response)
    assert json.loads(written.body) == body
    assert written.losses == ()
    bare = WIRE.encode_response(structs.replace(response, original=None))
    assert normal(json.loads(bare.body)) == normal(body)
    assert bare.losses == ()
    return response


def refused(body: Any, what: str = "request") -> p.DecodeError:
    with pytest.raises(p.DecodeError) as caught:
        getattr(WIRE, f"decode_{what}")(body)
    assert NAME in str(caught.value)
    return caught.value


# -- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "cls"),
    [
        ("system", p.SystemMessage),
        ("user", p.UserMessage),
        ("assistant", p.AssistantMessage),
        ("tool", p.ToolMessage),
    ],
)
@pytest.mark.parametrize(
    ("content", "parts"),
    [({"content": "hi"}, (p.Text("hi"),)), ({"content": ""}, (p.Text(""),)), ({}, ())],
    ids=["text", "empty", "absent"],
)
def test_roles_and_content(role: str, cls: type, content: dict[str, Any], parts: tuple[p.Part, ...]):
    message = one(role, **content)
    assert isinstance(message, cls)
    assert message.content == parts


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_images_stand_behind_the_text(role: str):
    text, image = one(role, content="see", images=[PNG]).content
    assert text == p.Text("see")
    assert isinstance(image, p.Image)
    assert image.source == p.Inline(PNG)


@pytest.mark.parametrize("images", [[], [PNG]])
def test_images_of_a_system_message_stay_with_it(images: list[str]):
    message = one("system", content="see", images=images)
    assert message.content == (p.Text("see"),)
    assert message.provider[NAME]["images"] == images


def test_thinking_is_apart_from_the_answer():
    reasoning, text = one("assistant", content="hi", thinking="because").content
    assert isinstance(reasoning, p.Reasoning)
    assert (reasoning.text, reasoning.wire) == ("because", NAME)
    assert text == p.Text("hi")


@pytest.mark.parametrize("thinking", ["", None])
def test_no_thinking(thinking: str | None):
    assert one("assistant", content="hi", thinking=thinking).content == (p.Text("hi"),)


def test_fields_without_a_place_stay_with_the_message():
    assert one("user", content="hi", x_new={"deep": [1.0]}).provider[NAME]["x_new"] == {"deep": [1.0]}


# -- calls and results -----------------------------------------------------------------------------


def test_arguments_keep_numbers_and_order():
    body = b'{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"b":1.0,"a":1E2}}}]}]}'
    (call,) = WIRE.decode_request(body).messages[0].tool_calls
    assert (call.name, call.arguments_json) == ("f", '{"b":1.0,"a":1E2}')


def test_calls_without_an_id_get_one_each():
    first, second = one("assistant", content="", tool_calls=[CALL, {"id": "own", **CALL}]).tool_calls
    assert first.id
    assert second.id == "own"


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ({"name": "f"}, ""),
        ({"name": "f", "arguments": None}, ""),
        ({"name": "f", "arguments": {}}, "{}"),
        ({"name": "f", "arguments": '{"a":1}'}, '{"a":1}'),
        ({"name": "f", "arguments": [1]}, "[1]"),
        ({"name": "f", "index": 3, "arguments": {"a": 1}}, '{"a":1}'),
    ],
)
def test_odd_arguments(function: dict[str, Any], text: str):
    (call,) = one("assistant", content="", tool_calls=[{"function": function}]).tool_calls
    assert call.arguments_json == text


def test_malformed_arguments():
    made = {"function": {"name": "f", "arguments": '{"a":'}}
    (call,) = one("assistant", tool_calls=[made]).content
    assert isinstance(call, p.MalformedToolCall)
    assert (call.raw, call.name) == ('{"a":', "f")


def test_no_calls():
    assert one("assistant", content="hi", tool_calls=[]).tool_calls == ()


def test_results_match_by_id_then_name_then_order():
    calls = [
        {"id": "x", "function": {"name": "f", "arguments": {}}},
        {"id": "y", "function": {"name": "g", "arguments": {}}},
        {"id": "z", "function": {"name": "g", "arguments": {}}},
    ]
    _, *results = read(
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "1", "tool_call_id": "y"},
        {"role": "tool", "content": "2", "tool_name": "g"},
        {"role": "tool", "content": "3"},
        {"role": "tool", "content": "4"},
    ).messages
    assert [each.tool_call_id for each in results if isinstance(each, p.ToolMessage)] == ["y", "z", "x", None]


def test_notes_say_what_had_no_name() -> None:
    calling, unnamed, named = read(
        {"role": "assistant", "tool_calls": [CALL, {"id": "x", "function": {"name": "g", "arguments": "{}"}}]},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2", "tool_name": "g", "tool_call_id": "x"},
    ).messages
    made, text = calling.tool_calls
    assert made.provider == {"@ollama_chat": {"id": "made"}}
    assert text.provider == {"@ollama_chat": {"arguments": "text"}}
    assert unnamed.provider == {"@ollama_chat": {"name": "absent", "id": "made"}}
    assert named.provider == {}


# -- the head --------------------------------------------------------------------------------------


def test_options_are_settings():
    options = {
        "num_predict": 7,
        "temperature": 0.5,
        "top_p": 0.5,
        "top_k": 3,
        "seed": 1,
        "stop": ["a"],
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "num_ctx": 4096,
    }
    request = read(options=options, stream=False, think="low", keep_alive="5m")
    settings = request.settings
    assert (settings.max_tokens, settings.temperature, settings.top_p, settings.top_k) == (7, 0.5, 0.5, 3)
    assert (settings.seed, settings.stop, settings.stream, settings.effort) == (1, ("a",), False, "low")
    assert (settings.frequency_penalty, settings.presence_penalty) == (0.1, 0.2)
    assert request.provider[NAME]["keep_alive"] == "5m"


@pytest.mark.parametrize(
    "fields", [{"options": {}}, {"options": None}, {"think": True}, {"think": False}, {"tools": []}]
)
def test_empty_and_odd_fields_are_kept(fields: dict[str, Any]):
    assert read(**fields).settings.effort is None


@pytest.mark.parametrize(
    ("raw", "kind"),
    [("json", "json"), ({"type": "object"}, "json_schema"), ("", None), (None, None)],
)
def test_format(raw: Any, kind: str | None):
    output = read(format=raw).settings.output
    assert (None if output is None else output.kind) == kind


def test_tools():
    schema = {"type": "object", "properties": {"a": {"minimum": 1.0}}}
    tools = [
        {"type": "function", "function": {"name": "f", "description": "", "parameters": schema}},
        {"function": {"name": "g"}},
        {"type": "odd", "x": 1},
    ]
    first, second, third = read(tools=tools).tools
    assert isinstance(first, p.Tool)
    assert (first.name, first.description, first.parameters) == ("f", "", schema)
    assert isinstance(second, p.Tool)
    assert second.name == "g"
    assert isinstance(third, p.ProviderTool)


# -- responses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "fields", "reason", "raw"),
    [
        ({"content": "hi"}, {"done_reason": "stop"}, "stop", "stop"),
        ({"content": "", "tool_calls": [CALL]}, {"done_reason": "stop"}, "tool_calls", "stop"),
        ({"content": "hi"}, {"done_reason": "length"}, "length", "length"),
        ({"content": ""}, {"done_reason": "load"}, "other", "load"),
        ({"content": ""}, {"done_reason": "unload"}, "other", "unload"),
        ({"content": "hi"}, {"done_reason": ""}, "other", ""),
        ({"content": "hi"}, {"done_reason": None}, "other", None),
    ],
)
def test_finish_reasons(message: dict[str, Any], fields: dict[str, Any], reason: str, raw: str | None):
    response = replied(message, **fields)
    assert (response.finish_reason, response.message.finish_reason_raw) == (reason, raw)


def test_no_finish_reason():
    assert replied({"content": "hi"}).finish_reason == "other"


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({"prompt_eval_count": 10, "eval_count": 5}, p.Usage(input=10, output=5)),
        ({"eval_count": 5}, p.Usage(output=5)),
        ({"prompt_eval_count": 10}, p.Usage(input=10)),
    ],
)
def test_usage(counts: dict[str, int], usage: p.Usage):
    found = replied({"content": "hi"}, total_duration=12, **counts).usage
    assert found is not None
    assert structs.replace(found, raw_json=usage.raw_json) == usage
    assert found.raw == counts


def test_no_usage():
    assert replied({"content": "hi"}).usage is None


def test_an_answer_has_thinking_text_and_calls():
    message = replied({"content": "hi", "thinking": "because", "tool_calls": [CALL]}).message
    assert [type(part) for part in message.content] == [p.Reasoning, p.Text, p.ToolCall]
    assert message.model == "m"


@pytest.mark.parametrize("body", [{"error": "model not found"}, {"error": {"message": "model not found"}}])
def test_errors_of_the_provider(body: dict[str, Any]):
    with pytest.raises(p.ProviderError, match="model not found"):
        WIRE.decode_response(body)


def test_arguments_that_are_text_and_no_json_go_back_as_text():
    call = {"function": {"name": "f", "arguments": "{broken"}}
    (part,) = replied({"content": "", "tool_calls": [call]}).message.malformed_tool_calls
    assert part.raw == "{broken"


def test_no_message():
    with pytest.raises(p.ProviderError, match="no message"):
        WIRE.decode_response({"model": "m", "done": True})


# -- wrong bodies ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({}, "messages[0].role"),
        ({"role": "prophet"}, "messages[0].role"),
        ({"role": "developer", "content": "d"}, "messages[0].role"),
        ({"role": "user", "content": []}, "messages[0].content"),
        ({"role": "user", "content": 7}, "messages[0].content"),
        ({"role": "user", "images": "x"}, "messages[0].images"),
        ({"role": "user", "images": [7]}, "messages[0].images[0]"),
        ({"role": "assistant", "tool_calls": {}}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "messages[0].tool_calls[0].function.name"),
        ({"role": "tool", "tool_name": 7}, "messages[0].tool_name"),
    ],
)
def test_a_wrong_message_is_named(message: dict[str, Any], path: str):
    assert refused({"messages": [message]}).path == path


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "messages"),
        ({"messages": 7}, "messages"),
        ({"messages": [], "model": 7}, "model"),
        ({"messages": [], "options": 7}, "options"),
        ({"messages": [], "tools": [{}]}, "tools[0].function"),
        ({"messages": [], "tools": [{"function": {}}]}, "tools[0].function.name"),
    ],
)
def test_a_wrong_request_is_named(body: dict[str, Any], path: str):
    assert refused(body).path == path


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"message": 7}, "message"),
        ({"message": {"content": 7}}, "message.content"),
        ({"message": {}, "done_reason": 7}, "done_reason"),
        ({"message": {}, "eval_count": "many"}, "eval_count"),
    ],
)
def test_a_wrong_response_is_named(body: dict[str, Any], path: str):
    assert refused(body, "response").path == path
