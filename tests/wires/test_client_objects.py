"""Objects of the official clients are read like the bodies that they were made from."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import MagicMock

import anthropic
import cohere
import ollama
import openai
import pytest
from google import genai as google
from google.genai import types as genai
from openai.types.chat import ChatCompletionMessage, ParsedChatCompletionMessage
from pydantic import BaseModel

import palaver as p
from palaver import wires
from palaver.core.errors import DecodeError
from tests.models.faults import says, serve, streams

CHAT = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "x_new": [1],
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{ }"}}],
            },
        }
    ],
}
MESSAGE = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hello", "citations": None}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 2},
}
RESPONSE = {
    "id": "r1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {
            "type": "message",
            "id": "m1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "hello", "annotations": []}],
        }
    ],
}
GEMINI = {"candidates": [{"content": {"role": "model", "parts": [{"text": "hello"}]}, "finishReason": "STOP"}]}


def made(wire: str, body: dict[str, Any]) -> Any:
    match wire:
        case "openai_chat":
            return pytest.importorskip("openai.types.chat").ChatCompletion.model_validate(body)
        case "openai_responses":
            return pytest.importorskip("openai.types.responses").Response.model_validate(body)
        case "anthropic_messages":
            return pytest.importorskip("anthropic.types").Message.model_validate(body)
        case _:
            return pytest.importorskip("google.genai.types").GenerateContentResponse.model_validate(body)


@pytest.mark.finding("F-33")
@pytest.mark.parametrize(
    ("wire", "body"),
    [
        ("openai_chat", CHAT),
        ("openai_responses", RESPONSE),
        ("anthropic_messages", MESSAGE),
        ("google_generate", GEMINI),
    ],
)
def test_an_answer_of_a_client_is_read_like_its_body(wire: str, body: dict[str, Any]):
    assert wires.get(wire).decode_response(made(wire, body)).message == wires.get(wire).decode_response(body).message


TURNS: dict[str, tuple[dict[str, Any], Any]] = {
    "openai_chat": (
        {"model": "m", "messages": [{"role": "user", "content": "q"}]},
        lambda reply: reply.choices[0].message,
    ),
    "openai_responses": ({"model": "m", "input": [{"role": "user", "content": "q"}]}, lambda reply: reply.output[0]),
    "anthropic_messages": (
        {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "q"}]},
        lambda reply: {"role": "assistant", "content": reply.content},
    ),
    "google_generate": (
        {"contents": [{"role": "user", "parts": [{"text": "q"}]}]},
        lambda reply: reply.candidates[0].content,
    ),
}
LISTS = {"openai_responses": "input", "google_generate": "contents"}


@pytest.mark.finding("F-16")
@pytest.mark.parametrize(
    ("wire", "answer"),
    [
        ("openai_chat", CHAT),
        ("openai_responses", RESPONSE),
        ("anthropic_messages", MESSAGE),
        ("google_generate", GEMINI),
    ],
)
def test_an_answer_of_a_client_stands_in_the_next_request(wire: str, answer: dict[str, Any]):
    body, turn = TURNS[wire]
    name = LISTS.get(wire, "messages")
    request = wires.get(wire).decode_request({**body, name: [*body[name], turn(made(wire, answer))]})
    said = wires.get(wire).decode_response(answer).message
    assert (request.messages[0].text, request.messages[1].text) == ("q", said.text)
    assert request.messages[1].tool_calls == said.tool_calls


@pytest.mark.finding("F-16")
@pytest.mark.parametrize("sentinel", ["NOT_GIVEN", "omit"])
@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_what_a_client_leaves_out_is_left_out(client: str, sentinel: str):
    absent = getattr(pytest.importorskip(client), sentinel)
    body, _ = TURNS["openai_chat"]
    wire = wires.get("openai_chat")
    assert wire.decode_request({**body, "temperature": absent}) == wire.decode_request(body)


@pytest.mark.finding("F-16")
def test_what_is_no_object_of_a_client_is_one_error():
    pydantic = pytest.importorskip("pydantic")
    body, _ = TURNS["openai_chat"]
    form = pydantic.create_model("Form", a=(int, ...))
    circle: dict[str, Any] = {}
    circle["more"] = circle
    broken = pydantic.create_model("Broken", a=(Any, ...))(a=object())
    for wrong in (form, object(), circle, broken):
        with pytest.raises(p.DecodeError, match="openai_chat"):
            wires.get("openai_chat").decode_request({**body, "response_format": wrong})
        with pytest.raises(p.DecodeError, match="openai_chat"):
            wires.get("openai_chat").decode_request(wrong)
    with pytest.raises(p.DecodeError, match=r"response_format: Form is a class, .*Form\.model_json_schema\(\)"):
        wires.get("openai_chat").decode_request({**body, "response_format": form})


class Form(BaseModel):
    """What the answers below are parsed into."""

    a: int


PARSED = '{"a": 1}'
CALL = {"type": "function", "id": "c", "function": {"name": "Form", "arguments": '{"a": 2}'}}
ITEM = {"type": "function_call", "id": "i", "call_id": "c", "name": "Form", "arguments": '{"a": 2}'}
OUTPUT = {**RESPONSE["output"][0], "content": [{"type": "output_text", "text": PARSED, "annotations": []}]}
CHAT_FORM = {
    **CHAT,
    "choices": [
        {
            **CHAT["choices"][0],
            "message": {"role": "assistant", "content": PARSED, "refusal": None, "x_new": [1], "tool_calls": [CALL]},
        }
    ],
}
RESPONSE_FORM = {**RESPONSE, "output": [OUTPUT, {**ITEM, "status": "completed"}]}
MESSAGE_FORM = {**MESSAGE, "content": [{"type": "text", "text": PARSED}]}
GEMINI_FORM = {"candidates": [{"content": {"role": "model", "parts": [{"text": PARSED}]}, "finishReason": "STOP"}]}


@contextmanager
def _openai(body: dict[str, Any]) -> Iterator[openai.OpenAI]:
    with serve(says(body)) as server, openai.OpenAI(base_url=server.url, api_key="k") as client:
        yield client


def _parse_chat(body: dict[str, Any]) -> Any:
    with _openai(body) as client:
        tools = [openai.pydantic_function_tool(Form)]
        return client.chat.completions.parse(model="m", messages=[], response_format=Form, tools=tools)


def _parse_response(body: dict[str, Any]) -> Any:
    tool: Any = {"type": "function", "name": "Form", "strict": True, "parameters": {}}
    with _openai(body) as client:
        return client.responses.parse(model="m", input="q", text_format=Form, tools=[tool])


def _parse_message(body: dict[str, Any]) -> Any:
    with serve(says(body)) as server, anthropic.Anthropic(base_url=server.url, api_key="k") as client:
        return client.messages.parse(model="m", max_tokens=5, messages=[], output_format=Form)


def _parse_google(body: dict[str, Any]) -> Any:
    with serve(says(body)) as server, google.Client(api_key="k", http_options={"base_url": server.url}) as client:
        return client.models.generate_content(model="m", contents="q", config={"response_schema": Form})


@pytest.mark.parametrize(
    ("wire", "body", "parse"),
    [
        ("openai_chat", CHAT_FORM, _parse_chat),
        ("openai_responses", RESPONSE_FORM, _parse_response),
        ("anthropic_messages", MESSAGE_FORM, _parse_message),
        ("google_generate", GEMINI_FORM, _parse_google),
    ],
)
def test_what_a_client_adds_to_an_answer_is_not_read(
    wire: str, body: dict[str, Any], parse: Callable[[dict[str, Any]], Any]
):
    spoken, answer = wires.get(wire), parse(body)
    assert "parsed" in repr(answer)
    read = spoken.decode_response(answer)
    assert read.message == spoken.decode_response(body).message
    assert b"parsed" not in spoken.encode_response(read).body
    request, turn = TURNS[wire]
    name = LISTS.get(wire, "messages")
    asked = spoken.decode_request({**request, name: [*request[name], turn(answer)]})
    assert asked.messages[1].provider == read.message.provider
    assert b"parsed" not in spoken.encode_request(asked).body


class OwnMessage(ParsedChatCompletionMessage[Form]):
    """A message of the client with a field of the user."""

    note: int = 1


class OwnPlainMessage(ChatCompletionMessage):
    """A message of the client with a field of the user that is named like one of the client."""

    parsed: int = 1


FORMED = {**CHAT_FORM["choices"][0]["message"], "parsed": {"a": 1}, "note": 2}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ParsedChatCompletionMessage[Form], {"x_new": [1], "note": 2}),  # pydantic makes the class in this module
        (OwnMessage, {"x_new": [1], "note": 2}),
        (OwnPlainMessage, {"x_new": [1], "note": 2, "parsed": 3}),
    ],
)
def test_a_field_is_known_by_the_class_that_declares_it(kind: type[BaseModel], fields: dict[str, Any]):
    value = {**FORMED, "parsed": 3} if kind is OwnPlainMessage else FORMED
    message = pickle.loads(pickle.dumps(kind.model_validate(value)))
    request = wires.get("openai_chat").decode_request({"model": "m", "messages": [message]})
    assert request.messages[0].provider == {"openai_chat": fields}


def test_what_a_client_adds_to_a_stream_is_not_read():
    started = {**RESPONSE, "status": "in_progress", "output": []}
    place = {"item_id": "m1", "output_index": 0, "content_index": 0}
    events = [
        {"type": "response.created", "response": started},
        {"type": "response.output_item.added", "output_index": 0, "item": {**OUTPUT, "content": []}},
        {"type": "response.content_part.added", **place, "part": {**OUTPUT["content"][0], "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": PARSED, "logprobs": []},
        {"type": "response.output_text.done", **place, "text": PARSED, "logprobs": []},
        {"type": "response.output_item.done", "output_index": 0, "item": OUTPUT},
        {"type": "response.completed", "response": {**RESPONSE, "output": [OUTPUT]}},
    ]
    lines = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events).encode()
    with (
        serve(streams(lines)) as server,
        openai.OpenAI(base_url=server.url, api_key="k") as client,
        client.responses.stream(model="m", input="q", text_format=Form) as stream,
    ):
        chunks = list(stream)
    assert any("parsed" in repr(each) for each in chunks)
    assert read("openai_responses", chunks).message == read("openai_responses", events).message


def test_a_field_of_another_class_is_read_whatever_its_name():
    kept = genai.Part(function_response=genai.FunctionResponse(name="f", response={"parsed": 1, "snapshot": 2}))
    contents = [genai.Content(role="user", parts=[kept])]
    request = wires.get("google").decode_request({"contents": contents})
    assert b'{"parsed":1,"snapshot":2}' in wires.get("google").encode_request(request).body


CHUNK = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
CHUNKS = [
    {**CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "he"}, "finish_reason": None}]},
    {**CHUNK, "choices": [{"index": 0, "delta": {"content": "llo"}, "finish_reason": None}]},
    {**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
]
EVENTS = [
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 2},
    },
    {"type": "message_stop"},
]
BEDROCK = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockDelta": {"delta": {"text": "hello"}, "contentBlockIndex": 0}},
    {"contentBlockStop": {"contentBlockIndex": 0}},
    {"messageStop": {"stopReason": "end_turn"}},
]


@pytest.mark.parametrize("tools", [False, True])
def test_the_events_of_a_stream_helper_are_read_by_their_chunks(tools: bool):
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "Form", "arguments": PARSED}}
    delta: dict[str, Any] = {"role": "assistant", "tool_calls": [call]} if tools else {"content": PARSED}
    reason = "tool_calls" if tools else "stop"
    chunks = [{**CHUNKS[0], "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}]
    chunks.append({**CHUNKS[0], "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    lines = "".join(f"data: {json.dumps(each)}\n\n" for each in [*chunks, "[DONE]"]).replace('"[DONE]"', "[DONE]")
    with serve(streams(lines.encode())) as server, openai.OpenAI(base_url=server.url, api_key="k") as client:
        asked: Any = {"tools": [openai.pydantic_function_tool(Form)]} if tools else {"response_format": Form}
        with client.chat.completions.stream(model="m", messages=[], **asked) as stream:
            events = list(stream)
    assert len(events) > len(chunks)
    assert read("openai_chat", events) == read("openai_chat", chunks)


@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_a_raw_response_of_a_client_is_read_like_its_body(client: str):
    wire, body = ("openai_chat", CHAT) if client == "openai" else ("anthropic_messages", MESSAGE)
    with serve(says(body)) as server:
        if client == "openai":
            with openai.OpenAI(base_url=server.url, api_key="k") as ours:
                raw: Any = ours.chat.completions.with_raw_response.create(model="m", messages=[])
        else:
            with anthropic.Anthropic(base_url=server.url, api_key="k") as theirs:
                raw = theirs.messages.with_raw_response.create(model="m", max_tokens=5, messages=[])
    assert wires.get(wire).decode_response(raw) == wires.get(wire).decode_response(body)


def read(wire: str, chunks: list[Any]) -> p.Response:
    decoder = wires.get(wire).stream_decoder()
    for chunk in chunks:
        decoder.feed(chunk)
    return decoder.finish()


@pytest.mark.finding("F-33")
def test_chunks_of_a_client_are_read_like_its_stream():
    chunk = pytest.importorskip("openai.types.chat").ChatCompletionChunk
    assert read("openai_chat", [chunk.model_validate(each) for each in CHUNKS]).message.text == "hello"
    types = pytest.importorskip("anthropic.types")
    names = {"message_start": types.RawMessageStartEvent, "content_block_start": types.RawContentBlockStartEvent}
    names |= {"content_block_delta": types.RawContentBlockDeltaEvent, "message_stop": types.RawMessageStopEvent}
    names |= {"content_block_stop": types.RawContentBlockStopEvent, "message_delta": types.RawMessageDeltaEvent}
    answer = read("anthropic_messages", [names[each["type"]].model_validate(each) for each in EVENTS])
    assert answer.message.text == "hello"
    assert answer.finish_reason == "stop"


@pytest.mark.finding("F-33")
@pytest.mark.parametrize(
    ("wire", "chunks"),
    [
        ("openai_chat", CHUNKS),
        ("anthropic_messages", EVENTS),
        ("bedrock_converse", BEDROCK),
        ("google_generate", [GEMINI]),
    ],
)
def test_parsed_chunks_are_read(wire: str, chunks: list[Any]):
    assert read(wire, chunks).message.text == "hello"


def test_a_chunk_that_is_none_fails_the_stream():
    decoder = wires.get("openai_chat").stream_decoder()
    decoder.feed({"choices": object()})
    with pytest.raises(p.StreamError):
        decoder.finish()


def test_a_role_that_the_class_of_an_object_sets_is_read():
    contents = [genai.UserContent("2+3?"), genai.ModelContent("5"), genai.UserContent("and 4?")]
    google = wires.get("google").decode_request({"contents": contents})
    assert [(message.role, message.text) for message in google.messages] == [
        ("user", "2+3?"),
        ("assistant", "5"),
        ("user", "and 4?"),
    ]
    listed = [cohere.UserChatMessageV2(content="a"), cohere.AssistantChatMessageV2(content="b")]
    request = wires.get("cohere").decode_request({"model": "m", "messages": listed})
    assert [message.role for message in request.messages] == ["user", "assistant"]


def test_the_type_that_the_class_of_a_schema_sets_is_read():
    kinds = ollama.Tool.Function
    parameters = kinds.Parameters(properties={"a": kinds.Parameters.Property(type="string")})
    offered = ollama.Tool(function=kinds(name="f", parameters=parameters))
    request = wires.get("ollama").decode_request({"model": "m", "messages": [], "tools": [offered]})
    assert request.tools[0].parameters["type"] == "object"


@pytest.mark.parametrize("text", [None, b"{}", MagicMock()])
def test_an_object_that_gives_no_text_is_refused_by_its_class(text):
    odd = type("Odd", (), {"model_dump_json": staticmethod(lambda **_: text)})()
    with pytest.raises(DecodeError, match=r"Odd cannot be written: .* is not a text"):
        wires.get("openai").decode_response(odd)
