"""What bodies of the Messages wire mean."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

import palaver as p
from palaver import wires
from tests.corpus import Exchange
from tests.wires.anthropic_messages.bodies import (
    ADDED,
    CITED,
    FOUND,
    PNG,
    SEARCH,
    THINKING,
    VALID,
    answer,
    body,
    document,
    image,
    result,
    said,
    use,
)

WIRE = wires.get("anthropic_messages")


def _messages(*messages: dict[str, Any], **fields: Any) -> tuple[p.Message, ...]:
    return WIRE.decode_request(body(*messages, **fields)).messages


def _content(*blocks: Any, role: str = "assistant") -> tuple[Any, ...]:
    [message] = _messages(said(role, *blocks))
    return message.content


# -- messages --------------------------------------------------------------------------------------


def test_system_leads() -> None:
    first, second = _messages(said("user", "Hi."), system="Be kind.")
    assert isinstance(first, p.SystemMessage)
    assert first.text == "Be kind."
    assert isinstance(second, p.UserMessage)


def test_a_system_message_among_the_others_stays_there() -> None:
    _, _, _, later = _messages(*VALID["later system"]["messages"])[:4]
    assert isinstance(later, p.SystemMessage)
    text, added = later.content
    assert isinstance(text, p.Text)
    assert isinstance(added, p.Opaque)
    assert added.raw == ADDED


def test_results_are_messages_of_their_own() -> None:
    messages = _messages(
        said("user", result(is_error=True), result("toolu_2", [{"type": "text", "text": "no"}]), "So?")
    )
    assert [type(message) for message in messages] == [p.ToolMessage, p.ToolMessage, p.UserMessage]
    first, second, third = messages
    assert isinstance(first, p.ToolMessage)
    assert (first.tool_call_id, first.text, first.is_error) == ("toolu_1", "found", True)
    assert isinstance(second, p.ToolMessage)
    assert (second.tool_call_id, second.text, second.is_error) == ("toolu_2", "no", False)
    assert third.text == "So?"


def test_results_behind_text_keep_their_place() -> None:
    messages = _messages(said("user", "a", result(), "b"))
    assert [message.text for message in messages] == ["a", "found", "b"]


# -- parts -----------------------------------------------------------------------------------------


def test_reasoning_carries_its_proof() -> None:
    thinking, redacted = _content(THINKING, {"type": "redacted_thinking", "data": "ZW4="})
    assert thinking == p.Reasoning("Hm.", "c2ln+/==", wire="anthropic_messages")
    assert redacted == p.Reasoning(encrypted="ZW4=", wire="anthropic_messages")


def test_a_call_is_the_apps_also_when_code_made_it() -> None:
    [call] = _content(use(caller={"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}))
    assert not call.provider_executed
    assert call.provider["anthropic_messages"]["caller"]["tool_id"] == "srvtoolu_1"


@pytest.mark.parametrize("call", [SEARCH, {**SEARCH, "type": "mcp_tool_use", "server_name": "m"}])
def test_a_call_that_the_provider_ran(call: dict[str, Any]) -> None:
    ran, found = _content(call, FOUND)
    assert ran.provider_executed
    assert ran.provider["@anthropic_messages"] == {"type": call["type"]}
    assert found == p.ServerToolResult("srvtoolu_1", found.output_json, "anthropic_messages", "web_search")
    assert found.output == FOUND


@pytest.mark.parametrize(
    "found",
    [
        {**FOUND, "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"}},
        {**FOUND, "type": "mcp_tool_result", "is_error": True, "content": []},
        {**FOUND, "type": "some_day_tool_result", "content": {"type": "some_day_error"}},
    ],
)
def test_a_server_result_says_that_it_failed(found: dict[str, Any]) -> None:
    _, failed = _content(SEARCH, found)
    assert isinstance(failed, p.ServerToolResult)
    assert failed.is_error


def test_citations_keep_their_block() -> None:
    [text] = _content(CITED)
    [cited] = text.citations
    assert (cited.wire, cited.url, cited.title, cited.quote) == (
        "anthropic_messages",
        "https://example.org/rain",
        "Rain",
        "It will rain.",
    )
    assert json.loads(bytes(cited.raw_json)) == CITED["citations"][0]


def test_media() -> None:
    inline, linked, kept, pdf, plain = _content(
        image(type="base64", media_type="image/png", data=PNG),
        image(type="url", url="https://example.org/a.gif"),
        image(type="file", file_id="file_1"),
        document({"type": "url", "url": "https://example.org/a"}),
        document({"type": "text", "media_type": "text/plain", "data": "Grüße"}, title="hello.txt"),
        role="user",
    )
    assert inline == p.Image(p.Inline(PNG), "image/png")
    assert linked.source == p.Url("https://example.org/a.gif")
    assert kept.source == p.FileId("file_1", "anthropic_messages")
    assert (pdf.source, pdf.media_type) == (p.Url("https://example.org/a"), "application/pdf")
    assert plain == p.File(p.Inline(base64.b64encode("Grüße".encode()).decode()), "text/plain", "hello.txt")


def test_blocks_in_a_role_that_does_not_hold_them_are_opaque() -> None:
    assert all(isinstance(part, p.Opaque) for part in _content(use(), THINKING, SEARCH, ADDED, role="user"))
    assert all(isinstance(part, p.Opaque) for part in _content(result(), image(type="url", url="u")))


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (said("user", {"type": "text"}), "messages[0].content[0].text"),
        (said("user", "a", {"type": "text", "text": 1}), "messages[0].content[1].text"),
        (said("user", {"text": "a"}), "messages[0].content[0].type"),
        (said("user", image(type="base64", data="")), "messages[0].content[0].source.media_type"),
        (said("user", {"type": "image"}), "messages[0].content[0].source"),
        (said("user", {"type": "tool_result"}), "messages[0].content[0].tool_use_id"),
        (said("user", result(content=5)), "messages[0].content[0].content"),
        (said("user", result(content=[{"type": "text"}])), "messages[0].content[0].content[0].text"),
        (said("assistant", {"type": "thinking"}), "messages[0].content[0].thinking"),
        (said("assistant", {"type": "redacted_thinking"}), "messages[0].content[0].data"),
        (said("assistant", use(input="{}")), "messages[0].content[0].input"),
        (said("assistant", {"type": "tool_use", "id": "a", "name": "b"}), "messages[0].content[0].input"),
        (said("assistant", "a", {**SEARCH, "id": None}), "messages[0].content[1].id"),
        (said("assistant", {"type": "web_search_tool_result"}), "messages[0].content[0].tool_use_id"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "wizard", "content": []}, "messages[0].role"),
        ({"content": []}, "messages[0].role"),
    ],
)
def test_a_wrong_field_is_named(message: dict[str, Any], path: str) -> None:
    with pytest.raises(p.DecodeError) as error:
        _messages(message)
    assert error.value.path == path
    assert error.value.source == "anthropic_messages"


# -- settings --------------------------------------------------------------------------------------


def test_settings() -> None:
    settings = WIRE.decode_request(VALID["settings"]).settings
    assert settings.max_tokens == 64
    assert (settings.temperature, settings.top_p, settings.top_k, settings.stop) == (0.5, 0.9, 5, ("END",))
    assert (settings.tool_choice, settings.parallel_tool_calls) == (p.ToolChoice("auto"), True)
    assert (settings.effort, settings.stream) == ("low", True)
    assert settings.output is not None
    assert (settings.output.kind, settings.output.schema) == ("json_schema", {"type": "object"})


@pytest.mark.parametrize(
    ("field", "choice", "parallel"),
    [
        ({"type": "any", "disable_parallel_tool_use": True}, p.ToolChoice("required"), False),
        ({"type": "tool", "name": "f"}, p.ToolChoice("required", ("f",)), None),
        ({"type": "none"}, p.ToolChoice("none"), None),
    ],
)
def test_tool_choice(field: dict[str, Any], choice: p.ToolChoice, parallel: bool | None) -> None:
    settings = WIRE.decode_request(body(tool_choice=field)).settings
    assert (settings.tool_choice, settings.parallel_tool_calls) == (choice, parallel)


def test_thinking_is_a_budget() -> None:
    assert WIRE.decode_request(VALID["shown"]).settings.reasoning_tokens == 1024
    assert WIRE.decode_request(VALID["adaptive"]).settings.reasoning_tokens == -1


def test_tools() -> None:
    client, server = WIRE.decode_request(VALID["settings"]).tools
    assert isinstance(client, p.Tool)
    assert (client.name, client.description, client.strict) == ("look_up", "Looks things up.", True)
    assert client.parameters["type"] == "object"
    assert isinstance(server, p.ProviderTool)
    assert server.raw == {"type": "web_search_20250305", "name": "web_search"}


# -- responses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("pause_turn", "pause"),
        ("compaction", "pause"),
        ("refusal", "refusal"),
        ("", "other"),
        ("bored", "other"),
        (None, "other"),
    ],
)
def test_finish_reasons(word: str | None, reason: str) -> None:
    message = WIRE.decode_response(answer("x", stop_reason=word)).message
    assert (message.finish_reason, message.finish_reason_raw) == (reason, word)


def test_usage_is_disjoint_and_passes_stand_beside() -> None:
    found = {
        "input_tokens": 10,
        "cache_read_input_tokens": 4,
        "cache_creation_input_tokens": 0,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 2},
        "iterations": [
            {"type": "message", "input_tokens": 10, "output_tokens": 9},
            {"type": "compaction", "input_tokens": 100, "output_tokens": 7},
            {"type": "advisor_message", "model": "claude-y", "input_tokens": 1, "output_tokens": 1},
        ],
        "server_tool_use": {"web_search_requests": 1},
    }
    usage = WIRE.decode_response(answer("x", usage=found)).usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning) == (10, 4, 0, 7, 2)
    assert [(each.kind, each.model, each.usage.input) for each in usage.passes] == [
        ("compaction", None, 100),
        ("advisor_message", "claude-y", 1),
    ]
    assert usage.raw == found


@pytest.mark.recorded("anthropic_messages")
def test_recorded_counters_add_up(exchange: Exchange) -> None:
    if "response" in exchange.record:
        usage = WIRE.decode_response(exchange.record["response"]).usage
        raw = exchange.record["response"]["usage"]
        assert usage is not None
        assert usage.total == sum(
            raw[key]
            for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
        )


def test_the_providers_error_is_one() -> None:
    value = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "r"}
    with pytest.raises(p.ProviderError) as error:
        WIRE.decode_response(value)
    assert (error.value.code, error.value.message) == ("overloaded_error", "Overloaded")
    assert json.loads(error.value.body) == value
