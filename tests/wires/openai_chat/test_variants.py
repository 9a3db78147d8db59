"""Vendors that speak Chat Completions with a variant, row by row (docs/spec/wires.md#2.9)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw, structs

import palaver as p
from palaver import wires
from palaver.core.parts import AssistantPart
from palaver.stream.replay_events import replay_events
from palaver.testing import rules, tables
from palaver.wires import openai_chat
from palaver.wires.openai_chat import variants
from palaver.wires.openai_chat.shapes import REASONING
from palaver.wires.openai_chat.variants import Variant, row

VARIANTS = wires.variants("openai_chat")
TOOLS = (p.Tool.of("f", "Do it.", {"type": "object"}),)
CALL = p.tool_call("f", {"a": 1}, id="call_1")
DETAILS = [
    {"type": "reasoning.summary", "summary": "s", "id": "d1", "format": "openai-responses-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "ZW5j", "id": "d2", "format": "openai-responses-v1", "index": 0},
    {"type": "reasoning.text", "text": "t", "signature": "c2ln", "format": "anthropic-claude-v1", "index": 1},
]


def encoded(variant: str, *messages: p.Message, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    made = wires.get("openai_chat", variant).encode_request(p.Request(messages=messages, model="m", **fields))
    assert rules.check_request("openai_chat", made.body, variant) == []
    return json.loads(made.body), [f"{loss.what} {loss.kind}" for loss in made.losses]


def rows(variant: str, *messages: p.Message, **fields: Any) -> list[dict[str, Any]]:
    return encoded(variant, *messages, **fields)[0]["messages"]


def answered(variant: str, message: dict[str, Any], **fields: Any) -> p.Response:
    """A reply of the vendor, read."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi", **message}}
    return wires.get("openai_chat", variant).decode_response({"id": "r", "model": "m", "choices": [choice], **fields})


def thought(variant: str, *parts: AssistantPart, **message: Any) -> p.AssistantMessage:
    """An answer of the vendor with reasoning in it, and more parts behind."""
    read = answered(variant, message).message
    return read.replace(content=(*read.content, *parts))


# -- every vendor ----------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_developer_speaks_as_the_system(variant: str):
    assert rows(variant, p.developer("d"), p.user("u"))[0] == {"role": "system", "content": "d"}


@pytest.mark.parametrize("variant", VARIANTS)
def test_custom_tools_are_calls_with_one_text(variant: str):
    call = p.tool_call("sql", "SELECT", id="call_1", custom=True)
    _, told, *_ = rows(variant, p.user("u"), p.assistant(tool_calls=[call]), p.tool("r", tool_call_id="call_1"))
    (made,) = told["tool_calls"]
    assert made["type"] == "function"
    assert json.loads(made["function"]["arguments"]) == {"input": "SELECT"}


@pytest.mark.parametrize(
    ("variant", "key"),
    [
        *((name, "max_completion_tokens") for name in ("groq", "cerebras")),
        *((name, "max_tokens") for name in VARIANTS if name not in ("groq", "cerebras")),
    ],
)
def test_the_word_for_max_tokens(variant: str, key: str):
    body, losses = encoded(variant, p.user("u"), settings=p.Settings(max_tokens=7))
    assert {name: value for name, value in body.items() if name.startswith("max")} == {key: 7}
    assert losses == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_word_for_must_call(variant: str):
    body, losses = encoded(variant, p.user("u"), tools=TOOLS, settings=p.Settings(tool_choice=p.ToolChoice("required")))
    assert body["tool_choice"] == {"mistral": "any", "moonshot": "auto"}.get(variant, "required")
    assert len(losses) == (variant == "moonshot")


@pytest.mark.parametrize(
    ("variant", "field"),
    [
        ("groq", "reasoning"),
        ("cerebras", "reasoning"),
        ("ollama", "reasoning"),
        ("zai", "reasoning_content"),
        ("moonshot", "reasoning_content"),
        ("vllm", "reasoning_content"),
    ],
)
def test_reasoning_goes_back_in_the_field_that_the_vendor_reads(variant: str, field: str):
    for written in ("reasoning", "reasoning_content") if variant in {"moonshot", "vllm"} else (field,):
        spoken = thought(variant, **{written: "because"})
        assert rows(variant, p.user("u"), spoken, p.user("on"))[1] == {
            "role": "assistant",
            "content": "hi",
            field: "because",
        }


@pytest.mark.parametrize("variant", ["xai", "huggingface"])
def test_reasoning_that_no_field_takes_is_dropped(variant: str):
    body, losses = encoded(variant, p.user("u"), thought(variant, reasoning_content="because"), p.user("on"))
    assert body["messages"][1] == {"role": "assistant", "content": "hi"}
    assert losses == ["reasoning dropped"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_reasoning_of_another_wire_goes_to_no_vendor(variant: str):
    said = p.assistant("hi", p.Reasoning("because", "sig", wire="anthropic_messages"))
    body, losses = encoded(variant, p.user("u"), said, p.user("on"))
    assert "because" not in json.dumps(body)
    assert "reasoning dropped" in losses


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "ollama"])
def test_arguments_are_text_as_the_model_wrote_them(variant: str):
    call = p.ToolCall("call_1", "f", '{ "a" : 1E2 }')
    _, told, *_ = rows(variant, p.user("u"), p.assistant(tool_calls=[call]), p.tool("r", tool_call_id="call_1"))
    assert told["tool_calls"][0]["function"]["arguments"] == '{ "a" : 1E2 }'


@pytest.mark.parametrize("variant", ["deepseek", "cerebras"])
def test_vendors_without_eyes_get_no_image(variant: str):
    body, losses = encoded(variant, p.user("see", p.Image(p.Url("https://a.example/a.png"))))
    assert body["messages"] == [{"role": "user", "content": "see"}]
    assert losses == ["image dropped"]


# -- Mistral ---------------------------------------------------------------------------------------


def test_mistral_ids_have_nine_characters():
    _, told, result, *_ = rows(
        "mistral", p.user("u"), p.assistant(tool_calls=[CALL]), p.tool("r", tool_call_id="call_1")
    )
    (call,) = told["tool_calls"]
    assert len(call["id"]) == 9
    assert call["id"].isalnum()
    assert result["tool_call_id"] == call["id"]


def test_mistral_ids_that_fit_stay():
    call = CALL.replace(id="abcDEF123")
    _, told, *_ = rows("mistral", p.user("u"), p.assistant(tool_calls=[call]), p.tool("r", tool_call_id="abcDEF123"))
    assert told["tool_calls"][0]["id"] == "abcDEF123"


def test_mistral_hears_an_assistant_between_a_tool_and_a_user():
    history = (p.user("u"), p.assistant(tool_calls=[CALL]), p.tool("r", tool_call_id="call_1"), p.user("on"))
    body, losses = encoded("mistral", *history)
    assert [row["role"] for row in body["messages"]] == ["user", "assistant", "tool", "assistant", "user"]
    assert body["messages"][3]["content"]
    assert "user message converted" in losses
    assert [row["role"] for row in rows("groq", *history)] == ["user", "assistant", "tool", "user"]


def test_mistral_documents_are_links():
    linked = p.File(p.Url("https://a.example/a.pdf"))
    inline = p.File(p.Inline("JVBERi0="), "application/pdf")
    (row,) = rows("mistral", p.user("read", linked, inline))
    assert row["content"][1:] == [
        {"type": "document_url", "document_url": "https://a.example/a.pdf"},
        {"type": "document_url", "document_url": "data:application/pdf;base64,JVBERi0="},
    ]


def test_mistral_gets_no_tools_that_it_may_not_call():
    body, losses = encoded("mistral", p.user("u"), tools=TOOLS, settings=p.Settings(tool_choice=p.ToolChoice("none")))
    assert "tools" not in body
    assert "tool_choice" not in body
    assert losses == ["tool_choice converted"]
    other, losses = encoded("groq", p.user("u"), tools=TOOLS, settings=p.Settings(tool_choice=p.ToolChoice("none")))
    assert (len(other["tools"]), other["tool_choice"], losses) == (1, "none", [])


def test_mistral_thinking_goes_back_as_the_block_it_was():
    block = {
        "type": "thinking",
        "thinking": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "closed": True,
    }
    spoken = answered("mistral", {"content": [block, {"type": "text", "text": "hi"}]}).message
    assert spoken.reasoning
    assert rows("mistral", p.user("u"), spoken, p.user("on"))[1]["content"] == [block, {"type": "text", "text": "hi"}]


def test_mistral_ends_with_a_user():
    body, _ = encoded("mistral", p.user("u"), p.assistant("a"))
    assert body["messages"][-1]["role"] == "user"


# -- DeepSeek --------------------------------------------------------------------------------------


def test_deepseek_reasoning_goes_back_on_turns_with_calls():
    result = p.tool("r", tool_call_id="call_1")
    told = rows("deepseek", p.user("u"), thought("deepseek", CALL, reasoning_content="because"), result)[1]
    assert told["reasoning_content"] == "because"
    empty = rows("deepseek", p.user("u"), p.assistant(tool_calls=[CALL]), result)[1]
    assert empty["reasoning_content"] == ""


def test_deepseek_reasoning_goes_back_on_no_other_turn():
    body, losses = encoded("deepseek", p.user("u"), thought("deepseek", reasoning_content="because"), p.user("on"))
    assert body["messages"][1] == {"role": "assistant", "content": "hi"}
    assert losses == ["reasoning dropped"]
    assert "reasoning_content" not in rows("deepseek", p.user("u"), p.assistant("a"), p.user("on"))[1]


# -- OpenRouter ------------------------------------------------------------------------------------


def test_openrouter_details_go_back_unmodified_in_order():
    spoken = thought("openrouter", reasoning="s", reasoning_details=DETAILS)
    assert [part.text for part in spoken.content if isinstance(part, p.Reasoning)] == ["s", "", "t"]
    told = rows("openrouter", p.user("u"), spoken, p.user("on"))[1]
    assert told["reasoning_details"] == DETAILS


def test_openrouter_details_go_to_no_other_vendor():
    body, _ = encoded("mistral", p.user("u"), thought("openrouter", reasoning_details=DETAILS), p.user("on"))
    assert "c2ln" not in json.dumps(body)
    assert "ZW5j" not in json.dumps(body)


def test_openrouter_reasoning_without_details_goes_back_as_text():
    told = rows("openrouter", p.user("u"), thought("openrouter", reasoning="because"), p.user("on"))[1]
    assert told["reasoning"] == "because"


# -- Ollama ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['["a"]', '"a"', "7", ""])
def test_ollama_arguments_are_the_text_of_an_object(text: str):
    call = p.ToolCall("call_1", "f", text)
    _, told, *_ = rows("ollama", p.user("u"), p.assistant(tool_calls=[call]), p.tool("r", tool_call_id="call_1"))
    arguments = told["tool_calls"][0]["function"]["arguments"]
    assert isinstance(arguments, str)
    assert isinstance(json.loads(arguments), dict)


def test_ollama_sees_no_links():
    body, losses = encoded("ollama", p.user("see", p.Image(p.Url("https://a.example/a.png"))))
    assert body["messages"] == [{"role": "user", "content": "see"}]
    assert losses == ["image dropped"]


# -- usage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "raw", "usage"),
    [
        pytest.param(
            "xai",
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 22,
                "completion_tokens_details": {"reasoning_tokens": 7},
            },
            p.Usage(input=10, output=5, reasoning=7),
            id="xai-reasoning-beside",
        ),
        pytest.param(
            "xai",
            {"prompt_tokens": 4, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}},
            p.Usage(input=4, cache_read=9, output=5),
            id="xai-cached-left-out",
        ),
        pytest.param(
            "deepseek",
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2},
            p.Usage(input=2, cache_read=8, output=5),
            id="deepseek",
        ),
        pytest.param(
            "mistral",
            {"prompt_tokens": 10, "completion_tokens": 5, "num_cached_tokens": 3},
            p.Usage(input=7, cache_read=3, output=5),
            id="mistral",
        ),
        pytest.param(
            "huggingface",
            {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 4},
            p.Usage(input=6, cache_read=4, output=5),
            id="huggingface",
        ),
        pytest.param(
            "openrouter",
            {
                "prompt_tokens": 2168,
                "completion_tokens": 5,
                "cost": 0.5,
                "prompt_tokens_details": {"cached_tokens": 2161, "cache_write_tokens": 2161},
            },
            p.Usage(input=7, cache_read=2161, cache_write=2161, output=5),
            id="openrouter-read-and-written",
        ),
    ],
)
def test_usage(variant: str, raw: dict[str, Any], usage: p.Usage):
    found = answered(variant, {}, usage=raw).usage
    assert found is not None
    assert structs.replace(found, raw_json=usage.raw_json) == usage
    assert found.raw == raw


# -- replies of vendors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "body"),
    [
        ("xai", {"code": "invalid", "error": "no such model"}),
        ("openrouter", {"id": None, "choices": None, "error": {"message": "no such model", "code": 404}}),
        ("mistral", {"object": "error", "message": "no such model", "type": "invalid"}),
    ],
)
def test_an_error_with_status_200_is_one_error(variant: str, body: dict[str, Any]):
    with pytest.raises(p.ProviderError, match="no such model"):
        wires.get("openai_chat", variant).decode_response(body)


def test_empty_things_of_snowflake_are_no_parts():
    odd = {
        "audio": {"id": ""},
        "function_call": {"name": "", "arguments": ""},
        "refusal": "",
        "content": "hi",
        "role": "assistant",
    }
    body = {"choices": [{"index": 0, "finish_reason": "", "message": odd}], "service_tier": ""}
    wire = wires.get("openai_chat")
    response = wire.decode_response(body)
    assert response.message.content == (p.Text("hi"),)
    assert response.finish_reason == "stop"
    assert json.loads(wire.encode_response(response).body) == body


def test_a_free_text_tool_is_declared_as_a_function_where_there_are_none() -> None:
    tool = p.Tool("patch", "Apply a patch.", custom=True).replace(
        provider={"anthropic_messages": {"cache_control": {}}}
    )
    encoded = wires.get("openai_chat:groq").encode_request(
        p.Request(messages=(p.user("hi"),), model="m", tools=(tool,))
    )
    (written,) = json.loads(encoded.body)["tools"]
    assert written["type"] == "function"
    assert written["function"]["parameters"]["required"] == ["input"]
    assert {x.what for x in encoded.losses} == {"custom tool", "cache_control"}


# -- what was decoded with a variant is written as it was ------------------------------------------


@pytest.mark.finding("F-111")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_the_word_for_max_tokens_stays_where_nothing_was_edited(variant: str, field: str):
    wire = wires.get("openai_chat", variant)
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], field: 7}
    encoded = wire.encode_request(wire.decode_request(body))
    assert json.loads(encoded.body) == body
    assert encoded.losses == ()


@pytest.mark.finding("F-111")
@pytest.mark.parametrize("variant", [None, *VARIANTS])
@pytest.mark.parametrize("name", [{}, {"name": None}, {"name": "f"}])
def test_a_function_message_gains_no_name(variant: str | None, name: dict[str, Any]):
    wire = wires.get("openai_chat", variant)
    body = {"model": "m", "messages": [{"role": "function", "content": "r", **name}]}
    assert json.loads(wire.encode_request(wire.decode_request(body)).body) == body


# -- a variant is a row ----------------------------------------------------------------------------


@pytest.mark.finding("F-90")
@pytest.mark.parametrize("variant", [name for name in VARIANTS if row(name).refuses])
def test_fields_that_a_vendor_refuses_are_dropped_with_a_loss(variant: str):
    refused = row(variant).refuses
    request = p.Request(
        messages=(p.user("u"),),
        model="m",
        settings=p.Settings(frequency_penalty=0.5, presence_penalty=0.5),
        provider_json=Raw(json.dumps({"openai_chat": {"logprobs": True, "logit_bias": {"1": 2}}}).encode()),
    )
    encoded = wires.get("openai_chat", variant).encode_request(request)
    asked = {"frequency_penalty", "presence_penalty", "logprobs", "logit_bias"}
    assert asked - json.loads(encoded.body).keys() == asked & refused
    assert {loss.what for loss in encoded.losses} == asked & refused


def read(wire: Any, streamed: bool, **fields: str) -> p.AssistantMessage:
    """An answer with these fields beside its text, whole or in pieces of two characters."""
    if not streamed:
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi", **fields}}
        message: p.AssistantMessage = wire.decode_response({"id": "r", "choices": [choice]}).message
        return message
    decoder = wire.stream_decoder()
    pieces = [{name: text[at : at + 2]} for name, text in fields.items() for at in range(0, len(text), 2)]
    for delta in ({"role": "assistant"}, *pieces, {"content": "hi"}):
        decoder.feed({"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    decoder.feed({"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    message = decoder.finish().message
    return message  # noqa: RET504 (typed above)


def kept(message: p.AssistantMessage) -> dict[str, Any]:
    """Fields of the vendor's that no part was made of."""
    return dict(message.provider.get("openai_chat", {}))


TEXTS = [field for field in REASONING if field != "reasoning_details"]
READS = {
    **dict.fromkeys(("groq", "openrouter", "cerebras", "ollama"), ("reasoning",)),
    **dict.fromkeys(("deepseek", "xai", "zai"), ("reasoning_content",)),
    "mistral": (),
    **dict.fromkeys(("", "compatible", "huggingface", "moonshot", "vllm"), TEXTS),
}
"""Fields that are read, by docs/spec/wires.md#2.9; all where the vendor is not known, or changed the name."""


@pytest.mark.finding("F-90")
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("variant", [None, *VARIANTS])
def test_a_vendors_row_says_which_field_is_reasoning_and_any_other_is_kept(
    variant: str | None, field: str, streamed: bool
):
    wire = wires.get("openai_chat", variant)
    message = read(wire, streamed, **{field: "because"})
    if field in tables.row(READS, variant or "", "READS in tests/wires/openai_chat/test_variants.py"):
        assert (message.reasoning, kept(message)) == ("because", {})
    else:
        assert (message.reasoning, kept(message)) == (None, {field: "because"})
    assert message.text == "hi"


@pytest.mark.finding("F-90")
@pytest.mark.parametrize("variant", [None, *VARIANTS])
def test_details_of_reasoning_are_read_where_the_row_has_them_and_are_kept_elsewhere(variant: str | None):
    wire = wires.get("openai_chat", variant)
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "reasoning_details": DETAILS}}
    body = {"id": "r", "choices": [choice]}
    reply = wire.decode_response(body)
    if variant in {None, "compatible", "openrouter", "huggingface"}:
        assert [part.text for part in reply.message.content if isinstance(part, p.Reasoning)] == ["s", "", "t"]
    else:
        assert reply.message.content == ()
    assert json.loads(wire.encode_response(reply).body) == body


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A wire that one row makes: of a vendor with a field of its own for reasoning, and a setting that it refuses."""
    monkeypatch.setitem(variants.VARIANTS, "acme", Variant(reasoning="musings", refuses=frozenset({"seed"})))
    return openai_chat.with_variant("acme")


@pytest.mark.finding("F-90")
@pytest.mark.parametrize("streamed", [False, True])
def test_a_row_is_enough_for_a_new_field_of_reasoning_and_a_refused_setting(acme: Any, streamed: bool):
    message = read(acme, streamed, musings="because", reasoning="elsewhere")
    assert (message.reasoning, message.text, kept(message)) == ("because", "hi", {"reasoning": "elsewhere"})
    foreign = p.assistant(p.Reasoning("why", wire="openai_chat"), "so")
    request = p.Request((p.user("u"), message, p.user("v"), foreign), settings=p.Settings(seed=1))
    encoded = acme.encode_request(request)
    body = json.loads(bytes(encoded.body))
    assert [each.get("musings") for each in body["messages"]] == [None, "because", None, "why"]
    assert "seed" not in body
    assert "seed" in [loss.what for loss in encoded.losses]
    again = acme.decode_request(bytes(encoded.body))
    assert [each.reasoning for each in again.messages if isinstance(each, p.AssistantMessage)] == ["because", "why"]


@pytest.mark.finding("F-90")
def test_a_row_is_enough_to_write_a_new_field_of_reasoning_as_a_stream(acme: Any):
    message = p.assistant(p.Reasoning("because", wire="openai_chat"), "hi").replace(finish_reason="stop")
    encoder = acme.stream_encoder()
    written = b"".join(encoder.feed(event) for event in replay_events(p.Response(message))) + encoder.finish()
    decoder = acme.stream_decoder()
    decoder.feed(written)
    again = decoder.finish().message
    assert b'"musings":"because"' in written
    assert (again.reasoning, again.text) == ("because", "hi")


@pytest.mark.finding("F-30")
def test_a_forced_tool_is_named_as_it_is_declared():
    tool = p.Tool.of("ns.tool", "Do it.", {"type": "object"})
    settings = p.Settings(tool_choice=p.ToolChoice("required", ("ns.tool",)))
    body, losses = encoded("groq", p.user("u"), tools=(tool,), settings=settings)
    assert body["tool_choice"]["function"]["name"] == body["tools"][0]["function"]["name"] == "ns_tool"
    assert losses == ["tool name converted"]


def test_a_function_message_answers_the_last_call_of_its_name():
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in ("c1", "c2")]
    rows = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "function", "name": "f", "content": "r"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "r"},
        {"role": "function", "name": "g", "content": "r"},
    ]
    request = wires.get("openai_chat").decode_request({"model": "m", "messages": rows})
    results = [each.tool_call_id for each in request.messages if isinstance(each, p.ToolMessage)]
    assert results == ["c1", "call_2_function", None]
