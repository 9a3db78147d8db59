"""What the Responses wire reads into the neutral message (docs/spec/wires.md#3)."""

import json
from typing import Any

import pytest

import palaver as p
from palaver import wires
from tests.wires.openai_responses.fixtures import HOSTED, INPUT, OUTPUT, PNG, REQUEST, RESPONSE, USAGE, answer, asked

WIRE = wires.get("openai_responses")


def request(*items: Any, **fields: Any) -> p.Request:
    return WIRE.decode_request(asked(*items, **fields))


def response(*items: Any, **fields: Any) -> p.Response:
    return WIRE.decode_response(answer(*items, **fields))


def test_items_of_the_model_in_a_row_are_one_message():
    messages = WIRE.decode_request(asked({"role": "user", "content": "hi"}, *OUTPUT)).messages
    assert [message.role for message in messages] == ["user", "assistant"]
    kinds = [type(part).__name__ for part in messages[1].content]
    assert kinds == ["Reasoning", "Text", "Text", "Refusal", "Opaque", "ToolCall", "ToolCall"]


def test_roles():
    roles = [message.role for message in WIRE.decode_request(REQUEST).messages]
    assert roles[:8] == ["system", "system", "developer", "developer", "user", "user", "assistant", "tool"]


def test_instructions_are_the_leading_system_message():
    first = WIRE.decode_request(REQUEST).messages[0]
    assert (first.role, first.text) == ("system", "You are kind.")
    assert request({"role": "user", "content": "hi"}, instructions=None).messages[0].role == "user"
    assert request(instructions="").messages[0].text == ""


def test_calls_keep_the_text_of_the_model():
    function, custom = response(*OUTPUT).message.tool_calls
    assert (function.id, function.name) == ("call_1", "look")
    assert function.arguments_json == '{"b": 1,  "a": 2.0}'
    assert function.provider["openai_responses"]["namespace"] == "eyes"
    assert custom.custom
    assert custom.arguments_json == r'"SELECT 1;\n"'


def test_arguments_that_are_no_json_are_malformed():
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{bad", "id": "fc_1"}
    (part,) = response(call).message.content
    assert isinstance(part, p.MalformedToolCall)
    assert (part.raw, part.name, part.id) == ("{bad", "f", "c")


def test_reasoning_carries_its_proof():
    part = response(OUTPUT[0]).message.content[0]
    assert isinstance(part, p.Reasoning)
    assert (part.wire, part.encrypted, part.text) == ("openai_responses", "gAAA+/=", "")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"summary": []}, ""),
        ({"summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]}, "a\n\nb"),
        ({"summary": [{"type": "summary_text", "text": "a"}], "content": []}, "a"),
        ({"summary": [], "content": [{"type": "reasoning_text", "text": "own"}]}, "own"),
        ({"summary": [{"type": "summary_text", "text": "a"}], "content": None}, "a"),
    ],
)
def test_reasoning_text(fields: dict[str, Any], text: str):
    assert response({"type": "reasoning", "id": "rs_1", **fields}).message.reasoning == text


def test_citations():
    text = next(part for part in response(*OUTPUT).message.content if isinstance(part, p.Text))
    url, file = text.citations
    assert (url.url, url.title, url.start, url.end) == ("https://a.example", "A", 4, 12)
    assert (file.url, file.title) == (None, "a.pdf")


def test_what_the_provider_ran():
    parts = response(*HOSTED).message.content
    calls = [part for part in parts if isinstance(part, p.ToolCall)]
    assert all(call.provider_executed and "openai_responses" in call.provider for call in calls)
    assert [call.name for call in calls] == (
        ["web_search"] * 2
        + ["file_search"] * 2
        + ["code_interpreter"] * 2
        + ["image_generation"] * 2
        + ["ask", "tool_search", "program", "shell"]
    )
    assert calls[0].arguments["query"] == "x"
    assert calls[2].arguments == {"queries": ["q"]}
    results = [part for part in parts if isinstance(part, p.ServerToolResult)]
    assert results[0].output == [{"file_id": "file_1", "score": 0.5}]
    assert results[1].output == [{"type": "logs", "logs": "2"}]
    assert results[2].output == "yes"
    assert [part.raw["type"] for part in parts if isinstance(part, p.Opaque)] == [
        "mcp_list_tools",
        "mcp_call",  # its arguments are no JSON
        "compaction",
        "telepathy_call",
    ]


def test_a_generated_image_is_an_image():
    (image,) = response(*HOSTED).message.images
    assert image == p.Image(p.Inline(PNG), "image/png", provider_json=image.provider_json)


def test_an_error_of_a_server_tool():
    error = {"type": "mcp_call", "id": "m", "server_label": "s", "name": "ask", "arguments": "{}", "error": "boom"}
    result = response(error).message.content[1]
    assert isinstance(result, p.ServerToolResult)
    assert result.is_error
    assert result.output == "boom"


def test_what_the_application_runs_is_a_call_with_a_result():
    messages = WIRE.decode_request(REQUEST).messages
    results = {m.tool_call_id: m for m in messages if isinstance(m, p.ToolMessage)}
    calls = {call.id: call for m in messages for call in m.tool_calls if not call.provider_executed}
    assert set(results) == set(calls)
    assert calls["sh2"].arguments == {"commands": ["ls"]}
    assert results["cu1"].images[0].data_uri == f"data:image/png;base64,{PNG}"
    assert results["ap1"].text == "no such file"
    assert results["ap2"].content == ()


def test_media():
    user = WIRE.decode_request(REQUEST).messages[5]
    sources = [part.source for part in user.content if isinstance(part, (p.Image, p.File))]
    assert sources == [
        p.Inline(PNG),
        p.Url("https://a.example/a.png"),
        p.FileId("file_1", "openai_responses"),
        p.Inline("JVBERi0="),
        p.Inline("YQ=="),
        p.Url("https://a.example/a.pdf"),
        p.FileId("file_2", "openai_responses"),
    ]


@pytest.mark.parametrize("value", ["hi", ""])
def test_input_as_a_string(value: str):
    assert WIRE.decode_request({"input": value}).messages == (p.user(value),)


@pytest.mark.parametrize("body", [{}, {"input": None}, {"input": []}])
def test_no_input(body: dict[str, Any]):
    assert WIRE.decode_request(body).messages == ()


def test_settings():
    settings = WIRE.decode_request({**REQUEST, "temperature": 0, "top_p": 0.50}).settings
    assert (settings.max_tokens, settings.temperature, settings.top_p, settings.effort) == (100, 0, 0.5, "low")
    assert (settings.parallel_tool_calls, settings.stream) == (False, False)
    assert settings.output is not None
    assert (settings.output.kind, settings.output.name, settings.output.strict) == ("json_schema", "answer", True)


@pytest.mark.parametrize(
    ("choice", "mode", "names"),
    [
        ("auto", "auto", ()),
        ("required", "required", ()),
        ({"type": "function", "name": "look"}, "required", ("look",)),
        ({"type": "custom", "name": "sql"}, "required", ("sql",)),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]},
            "auto",
            ("look",),
        ),
    ],
)
def test_tool_choice(choice: Any, mode: Any, names: tuple[str, ...]):
    assert request(tool_choice=choice).settings.tool_choice == p.ToolChoice(mode, names)


@pytest.mark.parametrize("choice", ["sometimes", {"type": "mcp", "server_label": "wiki"}, 5, {"type": "web_search"}])
def test_a_tool_choice_without_neutral_meaning_is_kept(choice: Any):
    decoded = request(tool_choice=choice)
    assert decoded.settings.tool_choice is None
    assert decoded.provider["openai_responses"]["tool_choice"] == choice


def test_tools():
    look, bare, _, sql, *provider = WIRE.decode_request(REQUEST).tools
    assert isinstance(look, p.Tool)
    assert (look.name, look.description, look.strict) == ("look", "Look.", True)
    assert isinstance(bare, p.Tool)
    assert (bare.parameters, bare.strict) == (None, None)
    assert isinstance(sql, p.Tool)
    assert sql.custom
    assert all(isinstance(tool, p.ProviderTool) for tool in provider)


# -- responses -------------------------------------------------------------------------------------

CALL = OUTPUT[2]
TEXT = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": []}
REFUSAL = {**TEXT, "content": [{"type": "refusal", "refusal": "No."}]}
APPROVAL = {"type": "mcp_approval_request", "id": "a", "server_label": "s", "name": "n", "arguments": "{}"}


@pytest.mark.parametrize(
    ("items", "fields", "reason"),
    [
        ([TEXT], {}, "stop"),
        ([TEXT, CALL], {}, "tool_calls"),
        ([HOSTED[0]], {}, "stop"),
        ([{**CALL, "arguments": "{bad"}], {}, "tool_calls"),
        ([REFUSAL], {}, "refusal"),
        ([APPROVAL], {}, "pause"),
        ([CALL], {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ([], {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ([], {"status": "incomplete", "incomplete_details": {"reason": "steered"}}, "other"),
        ([], {"status": "incomplete", "incomplete_details": None}, "other"),
        ([], {"status": "failed", "error": {"code": "server_error", "message": "boom"}}, "error"),
        ([], {"status": "cancelled"}, "error"),
        ([], {"status": "queued"}, "pause"),
        ([], {"status": "in_progress"}, "pause"),
        ([], {"status": "dreaming"}, "other"),
        ([], {"status": None}, "stop"),
    ],
)
def test_finish_reason(items: list[Any], fields: dict[str, Any], reason: str):
    decoded = response(*items, **fields)
    assert decoded.finish_reason == reason
    if fields.get("status", "completed") is not None:
        assert decoded.message.finish_reason_raw == fields.get("status", "completed")


def test_usage_is_disjoint():
    usage = WIRE.decode_response(RESPONSE).usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning) == (30, 60, 10, 30, 20)
    assert usage.total == USAGE["total_tokens"]
    assert usage.raw == USAGE


def test_absent_counters_are_not_zero():
    usage = response(usage={"input_tokens": 5, "output_tokens": 0}).usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning) == (5, None, 0, None)


def test_response_fields():
    decoded = WIRE.decode_response(RESPONSE)
    assert (decoded.id, decoded.model) == ("resp_1", "gpt-x-2026")
    assert decoded.provider["openai_responses"]["created_at"] == 1700000000


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ({"error": {"message": "bad", "code": "invalid_value", "type": "t"}}, "bad", "invalid_value"),
        ({"error": {"message": "bad", "code": None, "type": "t"}}, "bad", "t"),
        ({"error": "bad"}, "bad", None),
        ({"detail": "bad"}, "bad", None),
        ({}, "no response in the body", None),
        ({"error": None}, "no response in the body", None),
    ],
)
def test_an_error_is_the_providers_word(body: Any, message: str, code: str | None):
    with pytest.raises(p.ProviderError) as caught:
        WIRE.decode_response(body)
    assert (caught.value.message, caught.value.code) == (message, code)
    assert json.loads(caught.value.body) == body


# -- errors name the path --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"input": 5}, "input"),
        ({"input": ["hi"]}, "input[0]"),
        (asked({"type": 5}), "input[0].type"),
        (asked({"role": "user"}), "input[0].content"),
        (asked({"role": 5, "content": "x"}), "input[0].role"),
        (asked({"type": "message", "content": "x"}), "input[0].role"),
        (asked({"role": "user", "content": 5}), "input[0].content"),
        (asked({"role": "user", "content": ["x"]}), "input[0].content[0]"),
        (asked({"role": "user", "content": [{"type": "input_text"}]}), "input[0].content[0].text"),
        (asked({"role": "assistant", "content": [{"type": "output_text", "text": 5}]}), "input[0].content[0].text"),
        (asked({"type": "function_call", "call_id": "c", "name": "f"}), "input[0].arguments"),
        (asked({"type": "function_call", "call_id": None, "name": "f", "arguments": ""}), "input[0].call_id"),
        (asked({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": {}}), "input[0].input"),
        (asked({"type": "function_call_output", "call_id": "c"}), "input[0].output"),
        (asked({"type": "function_call_output", "call_id": "c", "output": [1]}), "input[0].output[0]"),
        (asked({"type": "reasoning", "id": "r"}), "input[0].summary"),
        (asked({"type": "reasoning", "id": "r", "summary": "s"}), "input[0].summary"),
        (asked({"type": "mcp_call", "name": "n"}), "input[0].arguments"),
        (asked({"type": "shell_call", "action": {}}), "input[0].call_id"),
        (asked(tools=[{"type": "function"}]), "tools[0].name"),
    ],
)
def test_a_broken_request_names_the_place(body: Any, path: str):
    with pytest.raises(p.DecodeError) as caught:
        WIRE.decode_request(body)
    assert (caught.value.source, caught.value.path) == ("openai_responses", path)


def test_a_broken_response_names_the_place():
    with pytest.raises(p.DecodeError, match=r"openai_responses: output\[1\]\.name: missing"):
        response(TEXT, {"type": "function_call", "call_id": "c", "arguments": ""})
    with pytest.raises(p.DecodeError, match="openai_responses: output: expected an array"):
        WIRE.decode_response({"object": "response", "output": {}})


def test_optional_fields_of_an_odd_type_are_kept():
    body = asked(
        {"role": "user", "content": [{"type": "input_image", "image_url": 5}, {"type": "input_file"}]},
        {"type": "reasoning", "id": 5, "summary": [], "encrypted_content": {}},
        temperature="hot",
        stream="yes",
        max_output_tokens=5.0,
        tools={},
        reasoning="much",
        text=[],
    )
    decoded = WIRE.decode_request(body)
    assert decoded.settings == p.Settings()
    assert isinstance(decoded.messages[0].content[0], p.Opaque)
    assert json.loads(WIRE.encode_request(decoded).body) == body


def test_every_item_of_the_fixture_is_a_message():
    assert len(WIRE.decode_request({"input": INPUT}).messages) > 20
