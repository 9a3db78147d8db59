"""Reading Cohere v2 chat bodies (docs/spec/wires.md#7, #1.1, #1.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

import palaver as p
from palaver import wires
from tests.wires.cohere_chat.bodies import (
    ANSWER,
    CALLING,
    DOCUMENT,
    RICH,
    asking,
    assistant,
    call,
    cited,
    result,
    text,
    thinking,
    user,
)

WIRE = wires.get("cohere_chat")


def test_messages_have_their_neutral_parts() -> None:
    request = WIRE.decode_request(RICH)
    assert [message.role for message in request.messages] == [
        *("system", "user", "assistant", "tool", "tool", "assistant", "system", "user"),
    ]
    _, asked, calling, _, second, answer, *_ = request.messages
    assert isinstance(asked.content[1], p.Image)
    assert (asked.content[1].source, asked.content[1].media_type) == (p.Inline("iVBORw0KGgo="), "image/png")
    assert [type(part) for part in calling.content] == [p.Reasoning, p.Text, p.ToolCall, p.ToolCall]
    assert calling.text == "I will look it up."
    assert [each.arguments for each in calling.tool_calls] == [{}, {}]
    assert isinstance(second, p.ToolMessage)
    assert second.tool_call_id == "find_2"
    assert isinstance(second.content[1], p.Json)
    assert second.content[1].value == DOCUMENT["document"]["data"]
    assert second.content[1].provider["cohere_chat"] == {"document": {"id": "d1"}}
    assert answer.reasoning == "so"


@pytest.mark.parametrize("document", [{"id": "d"}, {"data": [1]}, {"data": None}, "d", None])
def test_a_document_without_data_stays_unread(document: Any) -> None:
    part = {"type": "document", "document": document}
    (read,) = WIRE.decode_request(asking(user("a"), assistant(tool_calls=[call()]), result([part]))).messages[2].content
    assert isinstance(read, p.Opaque)
    assert read.raw == part


def test_settings() -> None:
    settings = WIRE.decode_request(RICH).settings
    assert (settings.top_p, settings.top_k, settings.stop, settings.max_tokens) == (0.75, 40, ("END",), 100)
    assert settings.tool_choice == p.ToolChoice("none")
    assert settings.reasoning_tokens == 512
    assert settings.output is not None
    assert settings.output.kind == "json_schema"
    assert settings.output.schema == {"type": "object"}
    assert settings.stream is True


def test_what_only_cohere_understands_is_kept() -> None:
    kept = WIRE.decode_request(RICH).provider["cohere_chat"]
    assert set(kept) == {
        *("strict_tools", "documents", "citation_options", "safety_mode", "logprobs", "priority"),
    }


def test_citations_stand_on_the_text_they_cite() -> None:
    found = WIRE.decode_response(ANSWER).message.content[1]
    assert isinstance(found, p.Text)
    assert [(each.quote, each.start, each.end, each.wire) for each in found.citations] == [
        ("was", 3, 6, "cohere_chat"),
        ("found", 7, 12, "cohere_chat"),
    ]


def test_a_citation_of_the_plan_stands_on_the_plan() -> None:
    body = {**CALLING, "message": {**CALLING["message"], "citations": [cited("look", 7, type="PLAN")]}}
    (plan, _) = WIRE.decode_response(body).message.content
    assert isinstance(plan, p.Text)
    assert [each.quote for each in plan.citations] == ["look"]


@pytest.mark.parametrize(
    "citations",
    [
        [cited("b", 0, content_index=1), cited("a", 0, content_index=0)],
        [cited("a", 0)],
        [cited("a", 0, content_index=5)],
        [cited("a", 0, content_index=2, type="THINKING_CONTENT")],
        [cited("a", 0, type=5, content_index=0)],
        [],
        [5],
        None,
        "odd",
    ],
)
def test_citations_that_would_not_come_back_stay_with_the_message(citations: Any) -> None:
    message = assistant([text("a"), text("b"), thinking("c")], citations=citations)
    decoded = WIRE.decode_request(asking(user(), message)).messages[1]
    assert not any(part.citations for part in decoded.content if isinstance(part, p.Text))
    assert decoded.provider["cohere_chat"]["citations"] == citations


def test_notes_say_what_a_value_is() -> None:
    request = WIRE.decode_request(
        asking(
            user(),
            assistant(tool_plan="I look.", tool_calls=[{"function": {"name": "find"}}]),
            response_format={"type": "json_object", "schema": {"type": "object"}},
            thinking={"type": "enabled", "token_budget": 9, "x": 1},
        )
    )
    plan, made = request.messages[1].content
    assert plan.provider == {"@cohere_chat": {"field": "tool_plan"}}
    assert made.provider == {"@cohere_chat": {"id": "made"}}
    assert request.provider == {"@cohere_chat": {"schema": "schema", "thinking": {"x": 1}}}


def test_usage_counts_what_the_model_saw() -> None:
    usage = WIRE.decode_response(ANSWER).usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning) == (36, 64, None, 20, None)
    assert usage.raw["billed_units"]["input_tokens"] == 4


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("COMPLETE", "stop"),
        ("STOP_SEQUENCE", "stop"),
        ("MAX_TOKENS", "length"),
        ("TOOL_CALL", "tool_calls"),
        ("ERROR", "error"),
        ("TIMEOUT", "error"),
        ("ERROR_TOXIC", "content_filter"),
        ("NEVER_HEARD", "other"),
        ("", "other"),
        (None, "other"),
    ],
)
def test_finish_reasons(word: str | None, reason: str) -> None:
    message = WIRE.decode_response({**ANSWER, "finish_reason": word}).message
    assert message.finish_reason == reason
    assert message.finish_reason_raw == word


@pytest.mark.parametrize("body", [{"message": "invalid api token"}, {"id": "x", "message": "too many requests"}, {}])
def test_an_error_is_the_providers(body: dict[str, Any]) -> None:
    with pytest.raises(p.ProviderError) as caught:
        WIRE.decode_response(body)
    assert str(body.get("message", "no message")) in str(caught.value)


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (user([{"type": "text"}]), "messages[0].content[0].text"),
        (user([text("a"), {"type": "image_url", "image_url": {}}]), "messages[0].content[1].image_url.url"),
        (user([{"type": "image_url", "image_url": "x"}]), "messages[0].content[0].image_url"),
        (assistant([{"type": "thinking", "thinking": 5}]), "messages[0].content[0].thinking"),
        (user([{"text": "a"}]), "messages[0].content[0].type"),
        (user(5), "messages[0].content"),
        (assistant(tool_calls=[call(), {"id": "b"}]), "messages[0].tool_calls[1].function"),
        (assistant(tool_calls=[call(arguments=5)]), "messages[0].tool_calls[0].function.arguments"),
        (assistant(tool_plan=5), "messages[0].tool_plan"),
        (result(call_id=5), "messages[0].tool_call_id"),  # type: ignore[arg-type]  # the wrong type is the point
        ({"role": "developer", "content": "a"}, "messages[0].role"),
    ],
)
def test_errors_name_the_place(message: dict[str, Any], path: str) -> None:
    with pytest.raises(p.DecodeError) as caught:
        WIRE.decode_request(asking(message))
    assert caught.value.path == path


@pytest.mark.parametrize("text", ["null", "{}", ""])
def test_arguments_of_a_call_without_parameters_read_as_an_empty_object(text: str) -> None:
    """docs/spec/wires.md#7: the text is kept, and read as ``{}``."""
    call = {"id": "f_1", "type": "function", "function": {"name": "f", "arguments": text}}
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "f_1", "content": "done"},
        ],
    }
    request = wires.get("cohere_chat").decode_request(body)
    assert request.messages[1].tool_calls[0].arguments == {}
    assert json.loads(wires.get("cohere_chat").encode_request(request).body) == body
