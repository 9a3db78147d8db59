"""Reading Converse bodies (docs/spec/wires.md#6.1, #6.3, #6.4)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

import palaver as p
from palaver import wires
from palaver.core.parts import Media
from tests.wires.bedrock_converse.bodies import (
    ANSWER,
    MARK,
    PDF,
    RICH,
    asking,
    assistant,
    call,
    document,
    image,
    result,
    text,
    user,
)

WIRE = wires.get("bedrock_converse")


def _messages(*given: Any, **fields: Any) -> tuple[p.Message, ...]:
    return WIRE.decode_request(asking(*given, **fields)).messages


def _answered(*blocks: Any, **fields: Any) -> p.Response:
    return WIRE.decode_response({**ANSWER, "output": {"message": assistant(*blocks)}, **fields})


# -- messages --


def test_system_stands_first_with_its_cache_points_in_place() -> None:
    system, said = _messages(user(text("hi")), system=[text("a"), MARK, text("b")])
    assert isinstance(system, p.SystemMessage)
    assert system.text == "ab"
    assert system.content[1] == p.Opaque("bedrock_converse", system.content[1].raw_json)  # type: ignore[union-attr]
    assert said.text == "hi"


def test_a_user_message_with_results_becomes_one_message_each() -> None:
    messages = _messages(
        assistant(call("a"), call("b")), user(result("a", text("1")), result("b"), text("and?"), image())
    )
    assert [m.role for m in messages] == ["assistant", "tool", "tool", "user"]
    first, second, third = messages[1:]
    assert isinstance(first, p.ToolMessage)
    assert isinstance(second, p.ToolMessage)
    assert (first.tool_call_id, first.text, second.tool_call_id, second.content) == ("a", "1", "b", ())
    assert [type(part) for part in third.content] == [p.Text, p.Image]


def test_results_keep_status_apart_from_its_absence() -> None:
    found = _messages(user(result("a", status="error"), result("b", status="success"), result("c")))
    assert [m.is_error for m in found if isinstance(m, p.ToolMessage)] == [True, False, False]
    assert found[1].provider["bedrock_converse"]["status"] == "success"
    assert "bedrock_converse" not in found[2].provider


def test_a_cache_point_behind_a_result_stays_with_it() -> None:
    (message,) = _messages(user(result("a", text("1")), MARK))
    assert message.provider["bedrock_converse"]["cachePoint"] == {"type": "default"}


def test_arguments_are_the_text_that_stood_there() -> None:
    use = b'{"toolUse":{"toolUseId":"a","name":"f","input":{ "x" : 1E2 }}}'
    body = b'{"messages":[{"role":"assistant","content":[%b]}]}' % use
    (message,) = WIRE.decode_request(body).messages
    assert message.tool_calls[0].arguments_json == '{ "x" : 1E2 }'


def test_calls_that_the_service_runs_are_marked_and_so_are_their_results() -> None:
    response = _answered(
        {"toolUse": {"toolUseId": "s", "name": "code", "input": {}, "type": "server_tool_use"}},
        result("s", {"json": {}}, type="code_result", status="error"),
    )
    served, answer = response.message.content
    assert isinstance(served, p.ToolCall)
    assert served.provider_executed
    assert "bedrock_converse" in served.provider
    assert isinstance(answer, p.ServerToolResult)
    assert (answer.tool_call_id, answer.is_error, answer.wire) == ("s", True, "bedrock_converse")
    assert response.finish_reason == "other"  # nobody asks the client for anything


def test_reasoning_keeps_its_proofs() -> None:
    signed, bare, hidden = _answered(
        {"reasoningContent": {"reasoningText": {"text": "a ", "signature": ""}}},
        {"reasoningContent": {"reasoningText": {"text": "b"}}},
        {"reasoningContent": {"redactedContent": "cmVk"}},
    ).message.content
    assert signed == p.Reasoning("a ", "", wire="bedrock_converse")
    assert bare == p.Reasoning("b", wire="bedrock_converse")
    assert isinstance(hidden, p.Reasoning)
    assert hidden.encrypted == "cmVk"


def test_cited_text_is_text_with_citations() -> None:
    cited = {"title": "T", "sourceContent": [text("q1"), text("q2")], "location": {"web": {"url": "https://e.org"}}}
    (part,) = _answered({"citationsContent": {"content": [text("a"), text("b")], "citations": [cited]}}).message.content
    assert isinstance(part, p.Text)
    assert part.text == "ab"
    (citation,) = part.citations
    assert (citation.title, citation.url, citation.quote) == ("T", "https://e.org", "q1q2")


def test_media_have_their_types_and_sources() -> None:
    (message,) = _messages(
        user(
            image(),
            image(s3Location={"uri": "s3://b/k"}),
            document("Plan"),
            {"document": {"name": "Note", "source": {"text": "é"}}},
            {"video": {"format": "three_gp", "source": {"bytes": ""}}},
            {"audio": {"format": "mpga", "source": {"bytes": ""}}},
        )
    )
    found = [(type(part), part.media_type) for part in message.content if isinstance(part, Media)]
    assert found == [
        (p.Image, "image/png"),
        (p.Image, "image/png"),
        (p.File, "application/pdf"),
        (p.File, "text/plain"),
        (p.Video, "video/3gpp"),
        (p.Audio, "audio/mpeg"),
    ]
    assert message.content[1].source == p.Url("s3://b/k")  # type: ignore[union-attr]
    parts: list[Any] = list(message.content)
    plan, note = parts[2:4]
    assert isinstance(plan, p.File)
    assert (plan.name, plan.source) == ("Plan", p.Inline(PDF))
    assert isinstance(note, p.File)
    assert note.source.bytes == "é".encode()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "block",
    [
        {"hologram": {"x": 1}},
        {},
        MARK,
        {"image": {"format": "tiff", "source": {"bytes": ""}}},
        {"image": {"format": "png", "source": {"ftp": {}}}},
        {"document": {"name": "x", "source": {"bytes": PDF}}},
        {"document": {"name": "x", "source": {"content": [text("a")]}}},
        {"toolUse": {"toolUseId": "a", "name": "f", "input": {}}},  # not the user's
    ],
)
def test_a_block_of_unknown_kind_is_opaque(block: dict[str, Any]) -> None:
    (message,) = _messages(user(block))
    parts: list[Any] = list(message.content)
    (part,) = parts
    assert isinstance(part, p.Opaque)
    assert part.raw == block


# -- errors --


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (asking({"content": []}), "messages[0].role"),
        (asking({"role": "user"}), "messages[0].content"),
        (asking({"role": "tool", "content": []}), "messages[0].role"),
        (asking(user({"text": 5})), "messages[0].content[0].text"),
        (asking(user({"text": None})), "messages[0].content[0].text"),
        (asking(user(text("a"), {"image": {"source": {}}})), "messages[0].content[1].image.format"),
        (asking(user({"image": {"format": "png"}})), "messages[0].content[0].image.source"),
        (asking(user(image(bytes=5))), "messages[0].content[0].image.source.bytes"),
        (asking(user(image(s3Location={}))), "messages[0].content[0].image.source.s3Location.uri"),
        (asking(user({"document": {"source": {"bytes": ""}}})), "messages[0].content[0].document.name"),
        (asking(assistant({"toolUse": {"name": "f", "input": {}}})), "messages[0].content[0].toolUse.toolUseId"),
        (asking(assistant({"toolUse": {"toolUseId": "a", "name": "f"}})), "messages[0].content[0].toolUse.input"),
        (
            asking(assistant({"reasoningContent": {"reasoningText": {}}})),
            "messages[0].content[0].reasoningContent.reasoningText.text",
        ),
        (asking(user({"toolResult": {"toolUseId": "a"}})), "messages[0].content[0].toolResult.content"),
        (asking(user(result("a", {"text": []}))), "messages[0].content[0].toolResult.content[0].text"),
        (asking(system=[{"text": 1}]), "system[0].text"),
        (asking(toolConfig={"tools": [{"toolSpec": {"name": "f"}}]}), "toolConfig.tools[0].toolSpec.inputSchema"),
        ({"messages": {}}, "messages"),
    ],
)
def test_a_known_block_with_a_wrong_field_is_an_error_with_its_path(body: dict[str, Any], path: str) -> None:
    with pytest.raises(p.DecodeError) as caught:
        WIRE.decode_request(body)
    assert (caught.value.path, caught.value.source) == (path, "bedrock_converse")


def test_response_errors_name_their_path() -> None:
    bad: list[tuple[Any, str]] = [({}, "output.message"), ({"message": {}}, "output.message.content"), (5, "output")]
    for output, path in bad:
        with pytest.raises(p.DecodeError) as caught:
            WIRE.decode_response({**ANSWER, "output": output})
        assert caught.value.path == path


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"message": "denied"}, None),
        ({"Message": "denied", "__type": "AccessDeniedException"}, "AccessDeniedException"),
    ],
)
def test_an_error_body_is_the_providers_error(body: dict[str, Any], code: str | None) -> None:
    with pytest.raises(p.ProviderError, match="denied") as caught:
        WIRE.decode_response(body)
    assert caught.value.code == code
    assert json.loads(caught.value.body) == body


# -- settings and tools --


def test_settings_are_found_wherever_they_stand() -> None:
    request = WIRE.decode_request(RICH)
    settings = request.settings
    assert (settings.max_tokens, settings.temperature, settings.top_p, settings.stop) == (100, 0.0, 1, ("END",))
    assert (settings.effort, settings.reasoning_tokens, settings.top_k) == ("high", 1024, 5)
    assert settings.tool_choice == p.ToolChoice("auto")
    assert settings.output is not None
    assert settings.output.schema == {"type": "object"}
    assert request.provider["bedrock_converse"]["additionalModelRequestFields"] == {"anthropic_beta": ["x"]}
    assert (request.model, settings.stream) == (None, None)  # both stand in the URL


@pytest.mark.parametrize(
    ("fields", "effort", "budget"),
    [
        ({"outputConfig": {"effort": "low"}}, "low", None),
        ({"additionalModelRequestFields": {"reasoning_effort": "high"}}, "high", None),
        ({"additionalModelRequestFields": {"reasoning_config": "high"}}, "high", None),
        ({"additionalModelRequestFields": {"reasoning_config": {"type": "enabled", "budget_tokens": 9}}}, None, 9),
        (
            {"additionalModelRequestFields": {"reasoningConfig": {"maxReasoningEffort": "low", "type": "enabled"}}},
            "low",
            None,
        ),
        ({"additionalModelRequestFields": {"thinking": {"type": "adaptive"}}}, None, -1),
        ({"additionalModelRequestFields": None}, None, None),
        ({"inferenceConfig": {"maxTokens": "many", "temperature": True, "stopSequences": [1]}}, None, None),
        (
            {"outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{"}}}}},
            None,
            None,
        ),
    ],
)
def test_settings_of_many_spellings_go_back_as_they_were(fields: dict[str, Any], effort: str, budget: int) -> None:
    body = asking(user(text("hi")), **fields)
    request = WIRE.decode_request(body)
    assert (request.settings.effort, request.settings.reasoning_tokens) == (effort, budget)
    assert json.loads(WIRE.encode_request(request).body) == body
    assert json.loads(WIRE.encode_request(request.replace()).body) == body


def test_tools_and_what_the_service_defines_itself() -> None:
    request = WIRE.decode_request(RICH)
    tool, mark, served = request.tools
    assert isinstance(tool, p.Tool)
    assert (tool.name, tool.description, tool.parameters) == ("search", "Find.", {"type": "object"})
    assert isinstance(mark, p.ProviderTool)
    assert isinstance(served, p.ProviderTool)
    assert served.raw == {"systemTool": {"name": "code"}}


# -- responses --


def test_usage_is_disjoint_and_raw() -> None:
    usage = WIRE.decode_response(ANSWER).usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning) == (10, 4, 3, 5, None)
    assert usage.total == usage.raw["totalTokens"]
    counted = _answered(usage={"inputTokens": 1, "cacheReadInputTokenCount": 2}).usage
    assert counted is not None
    assert (counted.cache_read, counted.output) == (2, None)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
        ("malformed_tool_use", "error"),
        ("brand_new", "other"),
        ("", "other"),
    ],
)
def test_stop_reasons(word: str, reason: str) -> None:
    response = _answered(text("x"), stopReason=word)
    assert (response.finish_reason, response.message.finish_reason_raw) == (reason, word)


def test_tool_use_asks_for_something_only_with_a_call() -> None:
    assert WIRE.decode_response(ANSWER).finish_reason == "tool_calls"
    assert _answered(text("x"), stopReason="tool_use").finish_reason == "other"


@pytest.mark.parametrize(
    "blocks",
    [
        [text("a"), text("")],
        [call("a", q=1), {"toolUse": {"toolUseId": "b", "name": "f", "input": [1], "type": "tool_use"}}],
        [
            {"reasoningContent": {"reasoningText": {"text": "r"}}},
            {"reasoningContent": {"reasoningText": {"text": "r", "signature": ""}}},
        ],
        [],
    ],
)
def test_an_unknown_field_changes_nothing_else(blocks: list[Any]) -> None:
    """A body with unknown fields is read another way, with the same result."""
    plain = _answered(*blocks)
    odd = WIRE.decode_response({**ANSWER, "output": {"message": {**assistant(*blocks), "x": 1}}, "y": 2})
    assert odd.message.replace(provider={}) == plain.message.replace(provider={})
    assert odd.message.provider == {"bedrock_converse": {"x": 1}}
    assert odd.provider["bedrock_converse"] == {**plain.provider["bedrock_converse"], "y": 2}


CHANGES: list[Callable[[dict[str, Any]], object]] = [
    lambda body: body["output"]["message"]["content"].append({"text": "a", "x": 1}),
    lambda body: body["output"]["message"]["content"].append({}),
    lambda body: body["output"]["message"]["content"].append({"text": "a", "toolUse": None}),
    lambda body: body["output"]["message"].update(role="model"),
    lambda body: body["output"]["message"].update(role=5),
    lambda body: body.update(trace={}),
    lambda body: body.update(usage=None),
    lambda body: body.update(stopReason=None),
    lambda body: body.pop("metrics"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_body_of_another_shape_goes_back_as_it_came(change: Any) -> None:
    body = copy.deepcopy(ANSWER)
    change(body)
    response = WIRE.decode_response(body)
    assert json.loads(WIRE.encode_response(response).body) == body
    assert json.loads(WIRE.encode_response(structs.replace(response, original=None)).body) == body


@pytest.mark.parametrize(
    "block",
    [
        {"text": "a", "toolUse": call()["toolUse"]},
        {"reasoningContent": {"reasoningText": {"text": "a"}, "redactedContent": ""}},
        {"image": {"format": "png", "source": {"bytes": "", "s3Location": {"uri": "s3://a/b"}}}},
    ],
)
def test_a_block_has_one_kind(block: dict[str, Any]) -> None:
    with pytest.raises(p.DecodeError, match="expected one kind"):
        _messages(assistant(block))


def test_notes_say_what_a_value_is() -> None:
    text_of_result, _, plan, clip = (
        part
        for message in _messages(
            user(result("a", text("")), {"text": "b", "x": 1}),
            user({"document": {"name": "Plan", "source": {"text": "c"}}}),
            user({"video": {"format": "mpg", "source": {"bytes": ""}}}),
        )
        for part in message.content
    )
    assert text_of_result.provider == {"@bedrock_converse": {"blank": True}}
    assert plan.provider == {"@bedrock_converse": {"source": "text"}}
    assert clip.provider == {"@bedrock_converse": {"format": "mpg"}}


def test_a_tool_with_a_schema_of_another_kind_is_kept_whole() -> None:
    odd = {"toolSpec": {"name": "f", "inputSchema": {"xml": "<a/>"}}}
    (tool,) = WIRE.decode_request(asking(user(text("hi")), toolConfig={"tools": [odd]})).tools
    assert isinstance(tool, p.ProviderTool)
