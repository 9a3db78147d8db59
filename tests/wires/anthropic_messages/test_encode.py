"""What the Messages wire is sent: the provider's rules (docs/spec/wires.md#4.3), and what is lost on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types.beta import BetaMessage

import palaver as p
from palaver import wires
from palaver.core.messages import FinishReason
from palaver.testing import rules
from tests.corpus import Exchange
from tests.wires.anthropic_messages.bodies import (
    ADDED,
    ANSWERS,
    CACHED,
    CITED,
    FOUND,
    PNG,
    SEARCH,
    THINKING,
    TOOL,
    VALID,
    body,
    document,
    image,
    result,
    said,
    use,
)

NAME = "anthropic_messages"
WIRE = wires.get(NAME)
CALL = p.tool_call("look_up", {"q": 1}, id="toolu_1")
LOOK_UP = p.Tool.of("look_up", "Looks things up.", {"type": "object"})


def _sent(*messages: p.Message, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    """A request as it is sent, which the provider takes, and its receipt."""
    settings: dict[str, Any] = {"max_tokens": 64, **fields.pop("settings", {})}
    request = p.Request(messages=messages, model="claude-x", settings=p.Settings(**settings), **fields)
    encoded = WIRE.encode_request(request)
    assert rules.check_request(NAME, encoded.body) == []
    return json.loads(encoded.body), [str(loss) for loss in encoded.losses]


def _edited(value: dict[str, Any], **changes: Any) -> tuple[dict[str, Any], list[str]]:
    """A decoded request, edited, as it is sent."""
    encoded = WIRE.encode_request(WIRE.decode_request(value).replace(**changes))
    assert rules.check_request(NAME, encoded.body) == []
    return json.loads(encoded.body), [str(loss) for loss in encoded.losses]


# -- grouping --------------------------------------------------------------------------------------


def test_results_of_a_turn_go_out_in_one_message() -> None:
    sent, lost = _sent(
        p.user("Hi."),
        p.assistant("I look.", tool_calls=[CALL, CALL.replace(id="toolu_2")]),
        p.tool("a", tool_call_id="toolu_1"),
        p.tool({"b": 1}, tool_call_id="toolu_2", is_error=True),
        p.user("So?"),
        p.user("Well?"),
        tools=(LOOK_UP,),
    )
    assert lost == []
    assert sent["messages"][2:] == [
        said(
            "user",
            result(content=[{"type": "text", "text": "a"}]),
            result("toolu_2", [{"type": "text", "text": '{"b":1}'}], is_error=True),
        ),
        said("user", "So?"),
        said("user", "Well?"),
    ]


def test_an_empty_result_is_said() -> None:
    sent, lost = _sent(
        p.user("Hi."),
        p.assistant(tool_calls=[CALL, CALL.replace(id="toolu_2")]),
        p.tool("", tool_call_id="toolu_1"),
        p.tool(tool_call_id="toolu_2"),
    )
    assert lost == []
    assert sent["messages"][2]["content"] == [
        result(content=""),
        {"type": "tool_result", "tool_use_id": "toolu_2"},
    ]


def test_results_of_a_run_of_assistants_stay_behind_it() -> None:
    sent, lost = _edited(VALID["a run of assistants"])
    assert sent == VALID["a run of assistants"]
    assert lost == []


def test_a_call_in_a_run_without_result_gets_one() -> None:
    value = body(said("user", "Hi."), said("assistant", use()), said("assistant", use("toolu_2")), tools=[TOOL])
    sent, lost = _edited(value)
    assert [block["tool_use_id"] for block in sent["messages"][3]["content"]] == ["toolu_1", "toolu_2"]
    assert lost == ["messages[2]: tool call converted (had no result; a fixed one was added)"]


def test_there_and_back_again() -> None:
    """docs/spec/pains.md#1: A to B to A, and A's own turns are as they were."""
    value = VALID["tool loop"]
    request = WIRE.decode_request(value)
    other = wires.get("openai_chat")
    answer = other.decode_response(other.encode_response(p.Response(p.assistant("From elsewhere."))).body).message
    sent, lost = _edited(value, messages=(*request.messages, answer, p.user("Thanks.")))
    assert sent["messages"][: len(value["messages"])] == value["messages"]
    assert sent["messages"][-2:] == [said("assistant", "From elsewhere."), said("user", "Thanks.")]
    assert lost == []


# -- system ----------------------------------------------------------------------------------------


def test_leading_system_messages_are_hoisted() -> None:
    sent, lost = _sent(p.system("a"), p.developer("b"), p.user("Hi."))
    assert sent["system"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert lost == ["messages[1]: developer message converted (the wire has no such role; sent as system)"]


@pytest.mark.parametrize(
    "messages",
    [
        (p.user("a"), p.system("b")),
        (p.user("a"), p.system("b"), p.system("c"), p.assistant("d")),
        (p.user("a"), p.assistant(tool_calls=[CALL]), p.tool("b", tool_call_id="toolu_1"), p.system("c")),
    ],
)
def test_a_later_system_message_stays_where_the_provider_takes_it(messages: tuple[p.Message, ...]) -> None:
    sent, lost = _sent(*messages, tools=(LOOK_UP,))
    assert [message["role"] for message in sent["messages"] if message["role"] == "system"]
    assert lost == []


@pytest.mark.parametrize(
    "messages",
    [
        (p.user("a"), p.system("b"), p.user("c")),
        (p.user("a"), p.assistant("b"), p.system("c"), p.user("d")),
        (p.user("a"), p.assistant("b"), p.system("c"), p.assistant("d")),
        (p.user("a"), p.assistant("b"), p.system("c")),
    ],
)
def test_a_later_system_message_is_user_text_elsewhere(messages: tuple[p.Message, ...]) -> None:
    sent, lost = _sent(*messages)
    assert all(message["role"] != "system" for message in sent["messages"])
    assert "[System]" in json.dumps(sent)
    assert [loss for loss in lost if "not taken at this place" in loss]


def test_a_system_message_that_stood_first_among_the_messages_is_hoisted() -> None:
    sent, lost = _edited(body(said("system", "a", ADDED, clear_at="never"), said("user", "b"), tools=[TOOL]))
    assert sent["system"] == [{"type": "text", "text": "a"}]
    assert sent["messages"] == [said("user", "b")]
    assert len(lost) == 3


def test_a_change_of_tools_needs_the_tool() -> None:
    _, lost = _edited(VALID["later system"], tools=())
    assert [loss for loss in lost if "opaque block dropped (names 'look_up'" in loss]


# -- the provider's rules --------------------------------------------------------------------------


def test_max_tokens_is_required() -> None:
    sent, lost = _sent(p.user("Hi."), settings={"max_tokens": None})
    assert sent["max_tokens"] == 4096
    assert lost == ["request: max_tokens approximated (required, and not given; 4096 was sent)"]


def test_blank_text_is_left_out() -> None:
    sent, lost = _sent(p.user("", "Hi."), p.assistant("  "), p.user(), p.user("You?"))
    assert sent["messages"] == [said("user", "Hi."), said("user", "You?")]
    assert len(lost) == 3


def test_a_cache_mark_keeps_no_blank_text() -> None:
    sent, _ = _edited(body(said("user", {"type": "text", "text": " ", **CACHED}, "Hi.")))
    assert sent["messages"] == [said("user", "Hi.")]


def test_nothing_to_send() -> None:
    for messages in ((), (p.system("a"),), (p.user(),), (p.rescue("x"),)):
        sent, lost = _sent(*messages)
        assert len(sent["messages"]) == 1
        assert lost


def test_a_last_assistant_message_ends_in_words() -> None:
    sent, lost = _edited(body(said("user", "Hi."), said("assistant", "So  "), said("assistant", THINKING)))
    assert sent["messages"][1:] == [said("assistant", "So")]
    assert len(lost) == 2


def test_unsigned_thinking_stays_at_home() -> None:
    value = body(said("user", "Hi."), said("assistant", {**THINKING, "signature": ""}, "Yes."), said("user", "So?"))
    sent, lost = _edited(value)
    assert sent["messages"][1] == said("assistant", "Yes.")
    assert lost == ["messages[1]: reasoning dropped (no proof, without which it is refused)"]


LOOP = (p.user("Hi."), p.assistant("I look.", tool_calls=[CALL]), p.tool("x", tool_call_id="toolu_1"))


def test_thinking_is_off_while_a_loop_without_proof_is_open() -> None:
    on = {"reasoning_tokens": 1024, "max_tokens": 4096}
    sent, lost = _sent(*LOOP, tools=(LOOK_UP,), settings=on)
    assert "thinking" not in sent
    assert [loss for loss in lost if "open tool loop" in loss]
    sent, lost = _sent(*LOOP, p.assistant("So."), p.user("More."), tools=(LOOK_UP,), settings=on)
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    assert lost == []


def test_thinking_stays_on_in_a_loop_with_proof() -> None:
    value = VALID["tool loop"]
    request = WIRE.decode_request({**value, "messages": value["messages"][:3]})
    sent, lost = _edited(value, messages=request.messages)
    assert sent["thinking"] == value["thinking"]
    assert lost == []


def test_an_encoder_that_grows_switches_thinking_too() -> None:
    settings = p.Settings(max_tokens=4096, reasoning_tokens=1024)
    encoder = WIRE.request_encoder(p.Request(model="m", tools=(LOOK_UP,), settings=settings))
    shown: list[bool] = []
    for message in (*LOOP, p.assistant("So."), p.user("More.")):
        encoder.append(message)
        shown.append("thinking" in json.loads(encoder.encoded().body))
    assert shown == [True, False, False, True, True]


@pytest.mark.parametrize("choice", [p.ToolChoice("required"), p.ToolChoice("required", ("look_up",))])
def test_a_forced_tool_switches_thinking_off(choice: p.ToolChoice) -> None:
    settings = {"reasoning_tokens": 1024, "max_tokens": 4096, "tool_choice": choice}
    sent, lost = _sent(p.user("Hi."), tools=(LOOK_UP,), settings=settings)
    assert "thinking" not in sent
    assert lost == ["request: reasoning_tokens dropped (thinking is switched off: a tool is forced)"]


@pytest.mark.parametrize(
    ("budget", "most", "sent_budget"),
    [(10, 4096, 1024), (5000, 4096, 3072), (5000, 1024, None), (-2, 64, None), (2000, None, 2000)],
)
def test_a_budget_fits(budget: int, most: int | None, sent_budget: int | None) -> None:
    sent, lost = _sent(p.user("Hi."), settings={"reasoning_tokens": budget, "max_tokens": most})
    assert sent.get("thinking", {}).get("budget_tokens") == sent_budget
    assert lost
    assert sent_budget is None or sent["max_tokens"] > sent_budget


def test_at_most_four_cache_marks() -> None:
    marked = {"type": "text", "text": "x", **CACHED}
    value = body(
        said("user", marked, marked),
        said("assistant", {**THINKING, **CACHED}, marked),
        said("user", marked),
        system=[marked],
        tools=[{**TOOL, **CACHED}],
        cache_control={"type": "ephemeral"},
    )
    sent, lost = _edited(value)
    assert json.dumps(sent).count("cache_control") == 4
    assert sent["messages"][0]["content"] == [marked, {"type": "text", "text": "x"}]
    assert len(lost) == 4


def test_marks_of_a_head_with_too_many() -> None:
    sent, lost = _edited(body(said("user", "Hi."), tools=[{**TOOL, "name": f"f{i}", **CACHED} for i in range(6)]))
    assert ["cache_control" in tool for tool in sent["tools"]] == [True] * 4 + [False] * 2
    assert lost == ["request: cache_control dropped (more than 4 marks are refused)"]


@pytest.mark.parametrize(
    ("messages", "kept"),
    [
        ((said("assistant", "a", SEARCH), said("user", "b")), 0),
        ((said("assistant", "a", FOUND), said("user", "b")), 0),
        ((said("assistant", "a", SEARCH),), 1),
        ((said("assistant", "a", SEARCH, use()), said("user", result())), 1),
        ((said("assistant", SEARCH, use()), said("user", result()), said("assistant", FOUND, "c")), 2),
        ((said("assistant", SEARCH, FOUND), said("user", "b")), 2),
    ],
)
def test_server_calls_and_results_stay_paired(messages: tuple[dict[str, Any], ...], kept: int) -> None:
    sent, lost = _edited(body(said("user", "Hi."), *messages, tools=[TOOL]))
    assert json.dumps(sent).count("srvtoolu_1") == kept
    assert bool(lost) == (kept == 0)


def test_an_advisor_speaks_only_where_it_is_declared() -> None:
    advised = {**FOUND, "type": "advisor_tool_result", "content": {"type": "advisor_result", "text": "x"}}
    value = body(said("user", "Hi."), said("assistant", {**SEARCH, "name": "advisor"}, advised, "Yes."))
    sent, lost = _edited(value)
    assert sent["messages"][1] == said("assistant", "Yes.")
    assert len(lost) == 2
    declared = {**value, "tools": [{"type": "advisor_20260301", "name": "advisor", "model": "claude-y"}]}
    assert _edited(declared) == (declared, [])


def test_one_tool_is_loaded() -> None:
    sent, lost = _edited(body(said("user", "Hi."), tools=[{**TOOL, "defer_loading": True}]))
    assert sent["tools"] == [TOOL]
    assert lost == ["request: defer_loading dropped (not every tool may be deferred)"]


@pytest.mark.parametrize(
    ("schema", "fitted"),
    [
        (None, {"type": "object"}),
        ({}, {"type": "object"}),
        ({"anyOf": []}, {"type": "object", "anyOf": []}),
        ({"type": "string"}, {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}),
    ],
)
def test_a_schema_is_an_object(schema: dict[str, Any] | None, fitted: dict[str, Any]) -> None:
    sent, _ = _sent(p.user("Hi."), tools=(p.Tool.of("f", None, schema),))
    assert sent["tools"][0]["input_schema"] == fitted


def test_other_settings() -> None:
    settings = {
        "temperature": 1.5,
        "stop": ("\n", "END"),
        "seed": 1,
        "effort": "minimal",
        "parallel_tool_calls": False,
        "output": p.OutputFormat(kind="json"),
    }
    sent, lost = _sent(p.user("Hi."), tools=(LOOK_UP,), settings=settings)
    assert sent["temperature"] == 1
    assert sent["stop_sequences"] == ["END"]
    assert sent["output_config"] == {"effort": "low"}
    assert sent["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert len(lost) == 5


@pytest.mark.parametrize(("asked", "sent"), [(1.5, 1), (-1, 0), (0.3, 0.3), (1, 1)])
def test_a_temperature_fits(asked: float, sent: float) -> None:
    found, lost = _sent(p.user("Hi."), settings={"temperature": asked})
    assert found["temperature"] == sent
    assert bool(lost) == (asked != sent)


def test_nothing_is_invented_without_tools() -> None:
    sent, lost = _sent(p.user("Hi."), settings={"tool_choice": p.ToolChoice("auto"), "parallel_tool_calls": True})
    assert "tool_choice" not in sent
    assert lost == []


# -- what other wires say --------------------------------------------------------------------------


def test_foreign_parts() -> None:
    sent, lost = _sent(
        p.user(
            p.Image(p.Inline(PNG)),
            p.Image(p.FileId("f", "openai_chat")),
            p.Audio(p.Inline("UklGRg=="), "audio/wav"),
            p.File(p.Inline("YSxi"), "text/csv", "a.csv"),
            p.File(p.Url("https://example.org/a.docx")),
            p.Opaque("openai_chat", p.Json.of({"type": "x"}).value_json),
        ),
        p.assistant(
            p.Reasoning("Hm.", "s", wire="google_generate"),
            p.Refusal("No."),
            p.ToolCall("bad id!", "look up", '"text"', custom=True),
            p.ToolCall("b", "f", "[1]"),
            p.ToolCall("c", "f", "{oops"),
            p.MalformedToolCall("{", "cut off", "f", "d"),
        ),
    )
    blocks = sent["messages"][0]["content"]
    assert blocks[0] == image(type="base64", media_type="image/png", data=PNG)
    assert blocks[1:] == [document({"type": "text", "media_type": "text/plain", "data": "a,b"}, title="a.csv")]
    assert [block.get("input") for block in sent["messages"][1]["content"]] == [
        None,
        {"input": "text"},
        {"value": [1]},
        {"INVALID_JSON": "{oops"},
    ]
    for word in ("file id", "audio", "by URL", "opaque", "reasoning", "refusal", "custom", "tool name", "malformed"):
        assert [loss for loss in lost if word in loss], word


def test_own_citations_stay_and_foreign_ones_go() -> None:
    sent, lost = _edited(
        body(said("user", "Hi."), said("assistant", SEARCH, FOUND, CITED), said("user", "So?")),
    )
    assert sent["messages"][1]["content"][2] == CITED
    assert lost == []
    sent, lost = _sent(p.user("a"), p.assistant(p.Text("b", (p.Citation(wire="openai_chat", url="u"),))), p.user("c"))
    assert sent["messages"][1] == said("assistant", "b")
    assert len(lost) == 1


@pytest.mark.law(5)
@pytest.mark.recorded(share=4)
def test_every_foreign_recording_satisfies_the_provider(exchange: Exchange) -> None:
    if exchange.wire == NAME or exchange.wire not in wires.names():
        return
    request = wires.get(exchange.wire).decode_request(exchange.record["request"])
    encoded = WIRE.encode_request(request.replace(model="claude-x"))
    assert rules.check_request(NAME, encoded.body) == []
    again = WIRE.encode_request(WIRE.decode_request(encoded.body).replace())
    assert json.loads(again.body) == json.loads(encoded.body)
    assert again.losses == ()


# -- responses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason", ["stop", "length", "tool_calls", "content_filter", "refusal", "pause", "error", "other"]
)
def test_a_foreign_response_is_accepted_by_the_client(reason: FinishReason) -> None:
    message = p.assistant(
        "Hello.",
        p.Reasoning("Hm.", wire="openai_chat"),
        tool_calls=[CALL, p.ToolCall("b", "f", "")],
        finish_reason=reason,
        finish_reason_raw="SOMETHING",
        usage=p.Usage(input=1, cache_read=2, cache_write=3, output=4, reasoning=5),
        response_id="r",
        model="other",
    )
    encoded = WIRE.encode_response(p.Response(message, alternatives=(p.assistant("Or."),)))
    made = BetaMessage.model_validate_json(encoded.body, strict=True)
    assert [block.type for block in made.content] == ["text", "tool_use", "tool_use"]
    assert (made.usage.input_tokens, made.usage.output_tokens) == (1, 9)
    assert WIRE.decode_response(encoded.body).usage.total == 15  # type: ignore[union-attr] (it was given)
    assert {loss.what for loss in encoded.losses} >= {"alternatives", "reasoning"}


def test_a_bare_response_is_accepted_by_the_client() -> None:
    BetaMessage.model_validate_json(WIRE.encode_response(p.Response(p.assistant())).body)


@pytest.mark.parametrize("name", ["text", "tools", "search", "mcp", "compaction", "container"])
def test_what_we_write_as_it_was_is_accepted_by_the_client(name: str) -> None:
    BetaMessage.model_validate_json(WIRE.encode_response(WIRE.decode_response(ANSWERS[name])).body)
