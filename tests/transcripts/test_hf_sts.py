"""Session traces of the Hugging Face viewer: what is written, and what is lost."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver import transcripts
from palaver.core.errors import DecodeError
from palaver.core.messages import AssistantMessage, DeveloperMessage, FlushMarker, ToolMessage, UserMessage
from palaver.core.parts import (
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
)
from palaver.core.usage import Usage
from palaver.transcripts.conversation import Session, transcript_of
from tests.transcripts.samples import FILES, IDS, origin

STS = transcripts.get("hf_sts")


def written(*messages, **options):
    made = STS.write(transcript_of(messages, **options))
    head, *lines = [json.loads(line) for line in made.body.splitlines()]
    return head, [line["message"] for line in lines], [(loss.kind, loss.what) for loss in made.losses]


def test_it_is_only_written():
    with pytest.raises(DecodeError):
        STS.reader()
    assert [each.file_format for each in transcripts.detect(STS.write(transcript_of([p.user("Hi")])).body)] == [
        "hf_sts"
    ]


def test_the_first_line_names_harness_id_and_title():
    metadata = Session(file_format="pi", id="s-1").metadata()
    head, _, _ = written(p.user("Hi"), title="A talk", metadata=metadata)
    assert head == {"type": "session", "harness": "pi", "id": "s-1", "name": "A talk"}
    bare, _, _ = written(p.user("Hi"))
    assert bare.keys() == {"type", "harness", "id"}


def test_a_turn_with_reasoning_and_calls():
    answer = AssistantMessage(
        content=(Reasoning("hm"), Text("a"), ToolCall("c", "f", '{"n": 1e3}')), model="m", sent_at=1700000000000
    )
    result = ToolMessage(content=(Text("r"),), tool_call_id="c", tool_name="f")
    _, lines, losses = written(p.system("s"), p.user("u"), answer, result)
    assert lines == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {
            "role": "assistant",
            "content": "a",
            "reasoningContent": "hm",
            "toolCalls": [{"id": "c", "function": {"name": "f", "arguments": '{"n": 1e3}'}}],
            "timestamp": 1700000000000,
            "model": "m",
        },
        {"role": "tool", "content": "r", "toolCallId": "c"},
    ]
    assert losses == []


def test_a_malformed_call_keeps_its_text_as_arguments():
    _, (line,), _ = written(AssistantMessage(content=(MalformedToolCall('{"a":', "bad", "f", "c"),)))
    assert line["content"] == ""
    assert line["toolCalls"] == [{"id": "c", "function": {"name": "f", "arguments": '{"a":'}}]


@pytest.mark.parametrize(
    ("message", "what", "text"),
    [
        (UserMessage(content=(Text("x"), Image(Inline("AAAA")))), ("dropped", "media"), "x"),
        (AssistantMessage(content=(Reasoning("h", "sig"), Text("x"))), ("dropped", "proof of reasoning"), "x"),
        (AssistantMessage(content=(Reasoning("h"), Reasoning("i"), Text("x"))), ("approximated", "reasoning"), "x"),
        (AssistantMessage(content=(ToolCall("c", "f"), Text("x"))), ("approximated", "order of parts"), "x"),
        (AssistantMessage(content=(Text("x"),), usage=Usage(input=1)), ("dropped", "usage"), "x"),
        (AssistantMessage(content=(Refusal("x"),)), ("converted", "refusal"), "x"),
        (ToolMessage(content=(Text("x"),), tool_call_id="c", is_error=True), ("dropped", "is_error"), "x"),
        (ToolMessage(content=(Json.of({"a": 1}),), tool_call_id="c"), ("converted", "json"), '{"a":1}'),
        (DeveloperMessage(content=(Text("x"),)), ("converted", "developer"), "x"),
        (
            AssistantMessage(content=(ToolCall("c", "f", '{"q":1}', provider_executed=True),)),
            ("converted", "server tool call"),
            'f({"q":1})',
        ),
        (
            AssistantMessage(content=(ServerToolResult("c", Json.of([1]).value_json, "w"),)),
            ("converted", "server tool result"),
            "[1]",
        ),
    ],
)
def test_what_it_cannot_say_is_in_the_receipt(message, what, text):
    _, (line,), losses = written(message)
    assert losses == [what]
    assert line["content"] == text


def test_markers_are_lost():
    _, lines, losses = written(p.user("x"), FlushMarker(reason="r"))
    assert len(lines) == 1
    assert losses == [("dropped", "flush")]


@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_every_conversation_becomes_lines_of_the_format(name, path):
    for transcript in transcripts.get(name).read(path.read_bytes(), origin(path)):
        head, *lines = [json.loads(line) for line in STS.write(transcript).body.splitlines()]
        assert head["type"] == "session"
        for line in lines:
            assert line.keys() == {"type", "message"}
            message = line["message"]
            assert message["role"] in {"user", "assistant", "system", "tool"}
            assert isinstance(message["content"], str)
            assert all(isinstance(call["function"]["arguments"], str) for call in message.get("toolCalls", ()))
            assert message.keys() <= {
                "role", "content", "reasoningContent", "toolCalls", "toolCallId", "timestamp", "model",
            }  # fmt: skip
