"""What Chat Completions makes of messages that it did not write (law 5, docs/spec/wires.md#2.4, #2.8, #9)."""

from __future__ import annotations

import json
from typing import Any

import pytest

import palaver as p
from palaver import wires
from palaver.testing import rules
from tests.sdk_shapes import accepts_request, accepts_response

NAME = "openai_chat"
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


# -- messages --------------------------------------------------------------------------------------


def test_plain_messages():
    assert encoded(p.system("s"), p.developer("d"), p.user("u"), p.assistant("a"), p.user("on")) == (
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "developer", "content": "d"},
                {"role": "user", "content": "u"},
                {"role": "assistant", "content": "a"},
                {"role": "user", "content": "on"},
            ],
        },
        [],
    )


def test_several_texts_are_a_list():
    assert rows(p.user("a", "b"))[0]["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_a_text_with_fields_of_another_wire_is_a_string():
    text = p.Text("a").replace(provider={"openai_responses": {"logprobs": []}})
    assert rows(p.user(text))[0]["content"] == "a"


def test_calls_and_results():
    _, asked, first, second = rows(
        p.user("go"),
        p.assistant("wait", tool_calls=[CALL, p.tool_call("sql", "SELECT", id="c2", custom=True)]),
        p.tool({"b": 2}, tool_call_id="c1"),
        p.tool("rows", tool_call_id="c2"),
    )
    assert asked == {
        "role": "assistant",
        "content": "wait",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
            {"id": "c2", "type": "custom", "custom": {"name": "sql", "input": "SELECT"}},
        ],
    }
    assert json.loads(first["content"]) == {"b": 2}
    assert second == {"role": "tool", "tool_call_id": "c2", "content": "rows"}


def test_a_call_without_text_has_null_content():
    asked = rows(p.user("go"), p.assistant(tool_calls=[CALL]), p.tool("r", tool_call_id="c1"))[1]
    assert asked["content"] is None


def test_an_empty_result_is_an_empty_string():
    *_, result = rows(p.user("go"), p.assistant(tool_calls=[CALL]), p.tool(tool_call_id="c1"))
    assert result["content"] == ""


def test_an_error_is_written_in_the_text():
    body, losses = encoded(
        p.user("go"), p.assistant(tool_calls=[CALL]), p.tool("no file", tool_call_id="c1", is_error=True)
    )
    assert body["messages"][-1]["content"] == "Error: no file"
    assert losses == ["is_error converted"]


def test_images_of_a_result_go_to_the_user_behind_it():
    body, losses = encoded(
        p.user("go"),
        p.assistant(tool_calls=[CALL]),
        p.tool("seen", p.Image(p.Inline(PNG), "image/png"), tool_call_id="c1"),
    )
    assert [row["role"] for row in body["messages"]] == ["user", "assistant", "tool", "user"]
    assert PNG in json.dumps(body["messages"][-1])
    assert losses == ["media converted"]


def test_refusals_are_a_field():
    said = rows(p.user("go"), p.assistant(p.Refusal("no")), p.user("on"))[1]
    assert said == {"role": "assistant", "content": None, "refusal": "no"}


def test_long_ids_are_rewritten_with_their_results():
    long = "x" * 70
    body, losses = encoded(
        p.user("go"), p.assistant(tool_calls=[CALL.replace(id=long)]), p.tool("r", tool_call_id=long)
    )
    _, asked, result = body["messages"]
    assert asked["tool_calls"][0]["id"] == result["tool_call_id"]
    assert len(result["tool_call_id"]) <= 40
    assert losses == ["tool call ids converted"]


# -- media -----------------------------------------------------------------------------------------


def test_media():
    (row,) = rows(
        p.user(
            "see",
            p.Image(p.Inline(PNG), "image/png"),
            p.Image(p.Url("https://a.example/a.png")),
            p.Audio(p.Inline("AA=="), "audio/mpeg"),
            p.File(p.Inline("JVBERi0="), "application/pdf"),
            p.File(p.Inline("JVBERi0="), "application/pdf", "a.pdf"),
            p.File(p.FileId("file_1", NAME)),
        )
    )
    pdf = "data:application/pdf;base64,JVBERi0="
    assert row["content"][1:] == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "image_url", "image_url": {"url": "https://a.example/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
        {"type": "file", "file": {"file_data": pdf, "filename": "document"}},
        {"type": "file", "file": {"file_data": pdf, "filename": "a.pdf"}},
        {"type": "file", "file": {"file_id": "file_1"}},
    ]


@pytest.mark.parametrize(
    "part",
    [
        p.Video(p.Url("https://a.example/a.mp4")),
        p.Image(p.Inline("AA=="), "image/tiff"),
        p.Image(p.Url("ftp://a.example/a.png")),
        p.Image(p.Blob("sha256:00")),
        p.Audio(p.Inline("AA=="), "audio/ogg"),
        p.Audio(p.Url("https://a.example/a.wav"), "audio/wav"),
        p.File(p.Url("https://a.example/a.pdf")),
        p.File(p.FileId("file_1", "anthropic_messages")),
    ],
)
def test_media_that_the_wire_does_not_take(part: Any):
    body, losses = encoded(p.user("see", part))
    assert body["messages"] == [{"role": "user", "content": "see"}]
    assert losses == [f"{type(part).__name__.lower()} dropped"]


# -- what has no words here ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "loss"),
    [
        (p.Reasoning("because", "sig", wire="anthropic_messages"), "reasoning dropped"),
        (p.Reasoning("because"), "reasoning dropped"),
        (p.Opaque("cohere_chat", p.Json.of({"type": "odd"}).value_json), "opaque block dropped"),
        (p.ServerToolResult("s1", p.Json.of({}).value_json, "anthropic_messages"), "server tool result dropped"),
    ],
)
def test_parts_of_other_wires_are_dropped(part: Any, loss: str):
    body, losses = encoded(p.user("go"), p.assistant("hi", part), p.user("on"))
    assert body["messages"][1] == {"role": "assistant", "content": "hi"}
    assert losses == [loss]


def test_citations_of_other_wires_are_dropped():
    text = p.Text("hi", citations=(p.Citation(wire="anthropic_messages", url="https://a.example"),))
    body, losses = encoded(p.user("go"), p.assistant(text), p.user("on"))
    assert body["messages"][1] == {"role": "assistant", "content": "hi"}
    assert losses == ["citations dropped"]


def test_text_behind_a_call_comes_before_it():
    body, losses = encoded(p.user("go"), p.assistant(CALL, p.Text("behind")), p.tool("r", tool_call_id="c1"))
    assert body["messages"][1]["content"] == "behind"
    assert losses


# -- the head --------------------------------------------------------------------------------------


def test_settings():
    settings = p.Settings(
        max_tokens=7,
        temperature=0.5,
        top_p=0.25,
        top_k=3,
        stop=("a",),
        seed=1,
        frequency_penalty=0.1,
        presence_penalty=0.2,
        parallel_tool_calls=False,
        stream=True,
        output=p.OutputFormat(kind="json"),
    )
    body, losses = encoded(p.user("u"), settings=settings, tools=(p.Tool("f"),))
    del body["messages"], body["tools"]
    assert body == {
        "model": "m",
        "max_completion_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.25,
        "seed": 1,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "parallel_tool_calls": False,
        "stream": True,
        "stop": ["a"],
        "response_format": {"type": "json_object"},
    }
    assert losses == ["top_k dropped"]


def test_effort():
    assert encoded(p.user("u"), settings=p.Settings(effort="low"))[0]["reasoning_effort"] == "low"


def test_a_temperature_out_of_range_is_sent_as_the_nearest():
    body, losses = encoded(p.user("u"), settings=p.Settings(temperature=5))
    assert body["temperature"] == 2
    assert losses == ["temperature approximated"]


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        (p.ToolChoice("auto"), "auto"),
        (p.ToolChoice("none"), "none"),
        (p.ToolChoice("required"), "required"),
        (p.ToolChoice("required", ("f",)), {"type": "function", "function": {"name": "f"}}),
        (
            p.ToolChoice("auto", ("f", "g")),
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [
                        {"type": "function", "function": {"name": "f"}},
                        {"type": "function", "function": {"name": "g"}},
                    ],
                },
            },
        ),
    ],
)
def test_tool_choice(choice: p.ToolChoice, written: Any):
    tools = (p.Tool.of("f", "F", {"type": "object"}), p.Tool.of("g", "G", {"type": "object"}))
    body, _ = encoded(p.user("u"), tools=tools, settings=p.Settings(tool_choice=choice))
    assert body["tool_choice"] == written


def test_there_is_nothing_to_choose_without_tools():
    body, losses = encoded(p.user("u"), settings=p.Settings(tool_choice=p.ToolChoice("required")))
    assert "tool_choice" not in body
    assert losses == ["tool_choice dropped"]


def test_tools():
    body, losses = encoded(
        p.user("u"),
        tools=(
            p.Tool.of("f", "F", {"type": "object"}, strict=True),
            p.Tool("sql", custom=True),
            p.ProviderTool("anthropic_messages", p.Json.of({"type": "web_search"}).value_json),
        ),
    )
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "f", "description": "F", "parameters": {"type": "object"}, "strict": True},
        },
        {"type": "custom", "custom": {"name": "sql"}},
    ]
    assert losses == ["provider tool dropped"]


# -- responses -------------------------------------------------------------------------------------


def test_a_foreign_answer_has_what_the_client_requires():
    body, losses = answered(p.assistant("hi"))
    assert body == {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": "",
        "choices": [
            {
                "index": 0,
                "logprobs": None,
                "message": {"role": "assistant", "content": "hi", "refusal": None},
                "finish_reason": "stop",
            }
        ],
    }
    assert losses == []


def test_several_texts_of_an_answer_become_one():
    body, losses = answered(p.assistant("a", "b"))
    assert body["choices"][0]["message"]["content"] == "ab"
    assert losses == ["text converted"]


def test_other_choices_follow():
    body, _ = answered(p.assistant("a"), p.assistant("b"))
    assert [(each["index"], each["message"]["content"]) for each in body["choices"]] == [(0, "a"), (1, "b")]


@pytest.mark.parametrize(
    ("reason", "word", "losses"),
    [
        ("stop", "stop", []),
        ("length", "length", []),
        ("tool_calls", "tool_calls", []),
        ("content_filter", "content_filter", []),
        ("refusal", "content_filter", ["finish_reason approximated"]),
        ("error", "stop", ["finish_reason approximated"]),
        ("other", "stop", ["finish_reason approximated"]),
        (None, "stop", []),
    ],
)
def test_finish_reasons(reason: Any, word: str, losses: list[str]):
    body, told = answered(p.assistant("hi").replace(finish_reason=reason))
    assert body["choices"][0]["finish_reason"] == word
    assert told == losses


def test_usage_of_another_wire():
    usage = p.Usage(input=4, cache_read=3, cache_write=2, output=5, reasoning=1)
    body, _ = answered(p.assistant("hi").replace(usage=usage))
    assert body["usage"] == {
        "prompt_tokens": 9,
        "completion_tokens": 6,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    assert repr(WIRE.decode_response(body).usage) == repr(usage)


def test_a_malformed_call_of_an_answer_stays_a_call():
    body, _ = answered(p.assistant(p.MalformedToolCall('{"a":', "cut off", "f", "c1")))
    (call,) = body["choices"][0]["message"]["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("c1", "f")
    assert '{"a":' in json.loads(call["function"]["arguments"]).values()


@pytest.mark.parametrize("variant", [None, *wires.variants("openai_chat")])
def test_a_result_of_one_json_value_is_a_string(variant: str | None) -> None:
    call = p.assistant(p.tool_call("f", {}, id="c12345678"))
    result = p.tool(p.Json.of({"n": 9}), tool_call_id="c12345678")
    body = json.loads(
        wires.get("openai_chat", variant).encode_request(p.Request((p.user("x"), call, result), "m")).body
    )
    assert body["messages"][2]["content"] == '{"n":9}'


@pytest.mark.law(2)
@pytest.mark.parametrize("content", ["9", [{"type": "text", "text": "9"}]])
def test_a_result_goes_back_in_the_form_in_which_it_came(content: object) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": content},
    ]
    body = {"model": "m", "messages": messages}
    request = wires.get("openai_chat").decode_request(body)
    assert json.loads(wires.get("openai_chat").encode_request(request).body) == body
    edited = request.append(p.user("y"))
    assert json.loads(wires.get("openai_chat").encode_request(edited).body)["messages"][2]["content"] == content


RECORDING = {"id": "audio_1", "data": "AA==", "expires_at": 9, "transcript": "hi"}


@pytest.mark.parametrize("recording", [RECORDING, {"id": "audio_1", "transcript": "hi"}])
def test_the_audio_of_an_answer_goes_back_by_its_id(recording: dict[str, Any]):
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "audio": recording}}
    answer = WIRE.decode_response({"id": "r", "model": "m", "choices": [choice]}).message
    body, losses = encoded(p.user("u"), answer, p.user("v"))
    assert body["messages"][1] == {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}
    assert losses == []
    response = WIRE.decode_response({"id": "r", "model": "m", "choices": [choice]}).replace(message=answer)
    assert json.loads(WIRE.encode_response(response).body)["choices"][0]["message"]["audio"] == recording
