"""What a body says, and not how it spells it, is written from the fields too, when the body is gone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

import palaver as p
from palaver import wires
from palaver.core import canonical
from tests.wires.openai_chat.forms import normal

NAME = "openai_chat"
WIRE = wires.get(NAME)
NEW = {"x_new": {"deep": [1.0]}}
CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
FUNCTION: dict[str, Any] = {"type": "function", "function": {"name": "f"}}
CUSTOM = {"type": "custom", "custom": {"name": "sql"}}
TOOLS = {"tools": [FUNCTION, CUSTOM]}


def message(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": "a", **fields}]}


REQUESTS: dict[str, dict[str, Any]] = {
    "older name of a limit": {"max_tokens": 7},
    "newer name of a limit": {"max_completion_tokens": 7},
    "both names": {"max_tokens": 7, "max_completion_tokens": 8},
    "Mistral's word": {"tool_choice": "any", **TOOLS},
    "a choice with more": {"tool_choice": {**FUNCTION, **NEW, "function": {"name": "f", **NEW}}, **TOOLS},
    "a free-text tool": {"tool_choice": CUSTOM, **TOOLS},
    "some tools": {
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [FUNCTION, CUSTOM], **NEW},
            **NEW,
        },
        **TOOLS,
    },
    "some tools with more": {
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{**FUNCTION, **NEW}]}},
        **TOOLS,
    },
    "a tool with more": {"tools": [{**FUNCTION, **NEW, "function": {"name": "f", **NEW}}]},
    "a schema with more": {"response_format": {"type": "json_schema", "json_schema": {"name": "n", **NEW}, **NEW}},
    "a schema without a name": {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
    "text with a schema": {"response_format": {"type": "text", "json_schema": {"name": "n"}}},
    "effort": {"reasoning_effort": "low"},
    "routed effort": {"reasoning": {"effort": "low", **NEW}},
    "routed budget": {"reasoning": {"max_tokens": 9, "exclude": True}},
    "a switch": {"chat_template_kwargs": {"enable_thinking": True, **NEW}},
    "thinking": {"thinking": {"type": "enabled", "budget_tokens": 9, **NEW}},
    "adaptive thinking": {"thinking": {"type": "adaptive", **NEW}},
    "off": {"thinking": {"type": "disabled"}, "reasoning_effort": "low"},
    "reasoning": message(reasoning="r"),
    "reasoning content": message(reasoning_content="r"),
    "empty reasoning": message(reasoning_content="", tool_calls=[CALL]),
    "both": message(reasoning_content="r", reasoning="r"),
    "details": message(
        reasoning="t",
        reasoning_details=[
            {"type": "reasoning.text", "text": "t", "signature": "s", **NEW},
            {"type": "reasoning.summary", "summary": "s"},
            {"type": "reasoning.encrypted", "data": "d", "id": "i"},
            {"type": "odd", "text": "t", "summary": "s"},
        ],
    ),
    "thinking in the content": message(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}]),
    "a refusal": message(content=None, refusal="no"),
    "a refusal in the content": message(content=[{"type": "refusal", "refusal": "no"}]),
    "an old call": message(content=None, function_call={"name": "f", "arguments": "{}", **NEW}),
    "a call without id": message(tool_calls=[{"type": "function", "function": {"name": "f", "arguments": "{}"}}]),
    "arguments as an object": message(tool_calls=[{**CALL, "function": {"name": "f", "arguments": {"a": 1}}}]),
    "a call of a new type": message(tool_calls=[{**CALL, "type": "novel", "custom": {"name": "g", "input": "x"}}]),
    "a free-text call": message(
        tool_calls=[{"id": "c", "type": "custom", "custom": {"name": "g", "input": "x", **NEW}}]
    ),
    "a numbered call": message(tool_calls=[{**CALL, "index": 3, "function": {**CALL["function"], **NEW}}]),
    "audio by its id": message(content=None, audio={"id": "a"}),
    "annotations": message(annotations=[{"type": "url_citation", "url_citation": {"url": "u"}, **NEW}]),
    "a name": {"messages": [{"role": "user", "content": "a", "name": "ann"}]},
    "a result with a name": {"messages": [{"role": "tool", "content": "a", "tool_call_id": "c", "name": "f"}]},
    "a result of a function": {"messages": [{"role": "function", "content": "a", "name": "f"}]},
    "media": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "https://a.example/a", "detail": "low"}, **NEW},
                    {"type": "video_url", "video_url": {"url": "https://a.example/a"}},
                    {"type": "document_url", "document_url": "https://a.example/a", "document_name": "n"},
                    {"type": "input_audio", "input_audio": {"data": "AA==", "format": "opus", **NEW}},
                    {"type": "file", "file": {"file_id": "f", "file_data": "data:text/plain;base64,AA==", **NEW}},
                    {"type": "file", "file": {"file_data": "data:text/plain;base64,AA=="}},
                    {"type": "novel", **NEW},
                ],
            }
        ]
    },
    "a part that the role has not": {"messages": [{"role": "system", "content": [{"type": "refusal", "refusal": 7}]}]},
}
CHOICES: dict[str, list[dict[str, Any]]] = {
    "another role": [{"message": {"role": "model", "content": "a"}, "finish_reason": "stop"}],
    "no reason": [{"message": {"content": "a"}}],
    "log probabilities": [{"message": {"content": "a"}, "logprobs": {"content": []}, "finish_reason": None, **NEW}],
    "other numbers": [{"index": each, "message": {"content": "a", **NEW}, "finish_reason": "stop"} for each in (1, 0)],
    "audio": [{"message": {"content": None, "audio": {"id": "a", "data": "AA==", **NEW}}, "finish_reason": "stop"}],
}


def _bare(what: str, body: dict[str, Any], wire: wires.Wire = WIRE) -> Any:
    """The body that is written from the fields after storage, without its original."""
    value = getattr(wire, f"decode_{what}")(body)
    stored = canonical.decode(canonical.encode(value), type(value))
    encoded = getattr(wire, f"encode_{what}")(structs.replace(stored, original=None))
    assert encoded.losses == ()
    return json.loads(encoded.body)


@pytest.mark.law(2)
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_says_the_same_without_its_body(name: str) -> None:
    body = {"model": "m", "messages": [], **REQUESTS[name]}
    assert normal(_bare("request", body)) == normal(body)


@pytest.mark.law(2)
@pytest.mark.parametrize("variant", [None, *wires.variants(NAME)])
@pytest.mark.parametrize("name", CHOICES)
def test_an_answer_says_the_same_without_its_body(name: str, variant: str | None) -> None:
    body = {"id": "r", "model": "m", "choices": CHOICES[name], "usage": {"prompt_tokens": 1, **NEW}, **NEW}
    assert normal(_bare("response", body, wires.get(NAME, variant))) == normal(body)


def test_a_choice_of_a_free_text_tool_names_its_kind() -> None:
    tools = (p.Tool.of("f", "F", {"type": "object"}), p.Tool("sql", custom=True))
    for name, kind in (("f", "function"), ("sql", "custom")):
        settings = p.Settings(tool_choice=p.ToolChoice("required", (name,)))
        body = json.loads(WIRE.encode_request(p.Request((p.user("u"),), "m", tools, settings)).body)
        assert body["tool_choice"] == {"type": kind, kind: {"name": name}}


def test_a_word_of_one_vendor_is_not_sent_to_another() -> None:
    request = WIRE.decode_request({"model": "m", "messages": [], "tool_choice": "any", **TOOLS})
    edited = request.append(p.user("u"))
    sent = {each: json.loads(wires.get(NAME, each).encode_request(edited).body) for each in (None, "mistral", "groq")}
    assert [body["tool_choice"] for body in sent.values()] == ["any", "any", "required"]
    assert {key: each for key, each in request.provider.items() if key == "@openai_chat"} == {
        "@openai_chat": {"required": "any"}
    }


@pytest.mark.parametrize("body", [b'{"choices": [ ]}', b'{"choices": null}'])
def test_no_choice_is_no_completion(body: bytes) -> None:
    with pytest.raises(p.ProviderError, match="no completion"):
        WIRE.decode_response(body)
