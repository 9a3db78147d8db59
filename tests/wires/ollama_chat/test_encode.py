"""What Ollama's wire makes of messages that it did not write (law 5, docs/spec/wires.md#8, #9)."""

from __future__ import annotations

import json
from typing import Any

import pytest

import palaver as p
from palaver import wires
from palaver.testing import rules
from tests.sdk_shapes import accepts_request, accepts_response

NAME = "ollama_chat"
WIRE = wires.get(NAME)
PNG = "iVBORw0KGgo="
CALL = p.tool_call("f", {"a": 1}, id="c1")


def encoded(*messages: p.Message, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    made = WIRE.encode_request(p.Request(messages=messages, model="m", **fields))
    assert rules.check_request(NAME, made.body) == []
    body = json.loads(made.body)
    accepts_request(NAME, body)
    return body, [f"{loss.what} {loss.kind}" for loss in made.losses]


def rows(*messages: p.Message) -> list[dict[str, Any]]:
    return encoded(*messages)[0]["messages"]


def answered(message: p.AssistantMessage, *others: p.AssistantMessage) -> tuple[dict[str, Any], list[str]]:
    made = WIRE.encode_response(p.Response(message=message, alternatives=others))
    body = json.loads(made.body)
    accepts_response(NAME, body)
    return body, [f"{loss.what} {loss.kind}" for loss in made.losses]


def test_plain_messages():
    assert rows(p.system("s"), p.developer("d"), p.user("u"), p.assistant("a"), p.user("on")) == [
        {"role": "system", "content": "s\n\nd"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "on"},
    ]


def test_several_texts_are_parted_by_a_blank_line():
    assert rows(p.user("a", "b"))[0]["content"] == "a\n\nb"


def test_calls_and_results():
    _, asked, result = rows(
        p.user("go"), p.assistant("wait", tool_calls=[CALL]), p.tool({"b": 2}, tool_call_id="c1", tool_name="f")
    )
    assert asked == {
        "role": "assistant",
        "content": "wait",
        "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}}],
    }
    assert (result["role"], result["tool_call_id"], result["tool_name"]) == ("tool", "c1", "f")
    assert json.loads(result["content"]) == {"b": 2}


@pytest.mark.parametrize("text", ["", "[1]", '"x"', "7"])
def test_arguments_are_always_an_object(text: str):
    call = p.ToolCall("c1", "f", text)
    asked = rows(p.user("go"), p.assistant(tool_calls=[call]), p.tool("r", tool_call_id="c1"))[1]
    assert isinstance(asked["tool_calls"][0]["function"]["arguments"], dict)


def test_custom_calls_have_one_text():
    call = p.tool_call("sql", "SELECT", id="c1", custom=True)
    asked = rows(p.user("go"), p.assistant(tool_calls=[call]), p.tool("r", tool_call_id="c1"))[1]
    assert asked["tool_calls"][0]["function"]["arguments"] == {"input": "SELECT"}


def test_images_are_their_base64():
    body, losses = encoded(
        p.user("see", p.Image(p.Inline(PNG), "image/png"), p.Image(p.Url("https://a.example/a.png")))
    )
    assert body["messages"] == [{"role": "user", "content": "see", "images": [PNG]}]
    assert losses == ["image dropped"]


@pytest.mark.parametrize(
    "part",
    [
        p.Audio(p.Inline("AA=="), "audio/wav"),
        p.Video(p.Url("https://a.example/a.mp4")),
        p.File(p.Inline("JVBERi0="), "application/pdf"),
        p.Image(p.FileId("file_1", "openai_responses")),
    ],
)
def test_other_media_are_dropped(part: Any):
    body, losses = encoded(p.user("see", part))
    assert body["messages"] == [{"role": "user", "content": "see"}]
    assert losses == [f"{type(part).__name__.lower()} dropped"]


def test_a_refusal_is_text():
    body, losses = encoded(p.user("go"), p.assistant(p.Refusal("no")), p.user("on"))
    assert body["messages"][1] == {"role": "assistant", "content": "no"}
    assert losses == ["refusal converted"]


def test_an_error_is_written_in_the_text():
    body, losses = encoded(p.user("go"), p.assistant(tool_calls=[CALL]), p.tool("x", tool_call_id="c1", is_error=True))
    assert body["messages"][-1]["content"] == "Error: x"
    assert losses == ["is_error converted"]


def test_own_reasoning_goes_back_and_no_other():
    own = WIRE.decode_response({"message": {"role": "assistant", "content": "hi", "thinking": "because"}}).message
    assert rows(p.user("go"), own, p.user("on"))[1] == {"role": "assistant", "content": "hi", "thinking": "because"}
    body, losses = encoded(p.user("go"), p.assistant("hi", p.Reasoning("x", wire="openai_chat")), p.user("on"))
    assert body["messages"][1] == {"role": "assistant", "content": "hi"}
    assert losses == ["reasoning dropped"]


def test_settings_are_options():
    settings = p.Settings(
        max_tokens=7,
        temperature=0.5,
        top_p=0.25,
        top_k=3,
        stop=("a",),
        seed=1,
        frequency_penalty=0.1,
        presence_penalty=0.2,
        stream=False,
        parallel_tool_calls=True,
        reasoning_tokens=9,
        tool_choice=p.ToolChoice("required"),
    )
    body, losses = encoded(p.user("u"), settings=settings)
    assert body["options"] == {
        "num_predict": 7,
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 3,
        "stop": ["a"],
        "seed": 1,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
    }
    assert body["stream"] is False
    assert losses == ["reasoning_tokens approximated", "tool_choice dropped", "parallel_tool_calls dropped"]


@pytest.mark.parametrize(("effort", "think"), [("none", False), ("low", "low"), ("high", "high")])
def test_effort(effort: str, think: Any):
    assert encoded(p.user("u"), settings=p.Settings(effort=effort))[0]["think"] == think


@pytest.mark.parametrize(
    ("output", "written"),
    [
        (p.OutputFormat(kind="json"), "json"),
        (p.OutputFormat(kind="json_schema", schema_json=p.Json.of({"type": "object"}).value_json), {"type": "object"}),
        (p.OutputFormat(kind="text"), None),
    ],
)
def test_format(output: p.OutputFormat, written: Any):
    assert encoded(p.user("u"), settings=p.Settings(output=output))[0].get("format") == written


def test_tools():
    body, losses = encoded(
        p.user("u"),
        tools=(
            p.Tool.of("f", "F", {"type": "object"}, strict=True),
            p.Tool("sql", custom=True),
            p.ProviderTool("openai_chat", p.Json.of({"type": "odd"}).value_json),
        ),
    )
    first, second = body["tools"]
    assert first == {
        "type": "function",
        "function": {"name": "f", "description": "F", "parameters": {"type": "object"}},
    }
    assert second["function"]["parameters"]["required"] == ["input"]
    assert losses == ["strict dropped", "custom tool converted", "provider tool dropped"]


# -- responses -------------------------------------------------------------------------------------


def test_a_foreign_answer_has_what_the_client_requires():
    body, losses = answered(p.assistant("hi", tool_calls=[CALL]).replace(finish_reason="tool_calls"))
    assert body == {
        "model": "",
        "created_at": "1970-01-01T00:00:00Z",
        "done": True,
        "message": {
            "role": "assistant",
            "content": "hi",
            "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}}],
        },
        "done_reason": "stop",
    }
    assert losses == []


def test_other_choices_are_dropped():
    assert answered(p.assistant("a"), p.assistant("b"))[1] == ["alternative dropped"]


@pytest.mark.parametrize(
    ("reason", "word", "losses"),
    [
        ("stop", "stop", []),
        ("tool_calls", "stop", []),
        ("refusal", "stop", ["finish_reason approximated"]),
        ("length", "length", []),
        ("content_filter", "stop", ["finish_reason approximated"]),
        ("error", "stop", ["finish_reason approximated"]),
    ],
)
def test_finish_reasons(reason: Any, word: str, losses: list[str]):
    body, told = answered(p.assistant("hi").replace(finish_reason=reason))
    assert (body["done_reason"], told) == (word, losses)


def test_usage_of_another_wire():
    usage = p.Usage(input=4, cache_read=3, cache_write=2, output=5, reasoning=1)
    body, _ = answered(p.assistant("hi").replace(usage=usage))
    assert (body["prompt_eval_count"], body["eval_count"]) == (9, 6)


def test_a_usage_of_nothing_is_left_out():
    body, _ = answered(p.assistant("hi").replace(usage=p.Usage(input=0, output=0)))
    assert "eval_count" not in body
