"""Spans of the runs of tools, in OTLP and as the SDK writes them."""

# pyright: basic

from __future__ import annotations

import json

import pytest

from palaver import transcripts
from palaver.core.messages import ToolMessage

pytestmark = pytest.mark.finding("F-76")

OTEL = transcripts.get("otel_genai")
ASKED = {"role": "user", "parts": [{"type": "text", "content": "When?"}]}
CALLED = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "timetable", "arguments": {"a": 1}}]}
RESULT = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "six"}]}
ANSWER = {"role": "assistant", "parts": [{"type": "text", "content": "At six."}]}
TOOL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "timetable",
    "gen_ai.tool.call.id": "c1",
    "gen_ai.tool.call.arguments": '{"a": 1}',
    "gen_ai.tool.call.result": "six",
}


def chat(asked, answered):
    messages = {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps(answered)}
    return {"gen_ai.operation.name": "chat", **messages}


def otlp(*spans):
    written = [
        {
            "traceId": "t1",
            "startTimeUnixNano": f"176732304{place}000000000",
            "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in span.items()],
        }
        for place, span in enumerate(spans)
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": written}]}]}).encode()


def lines(*spans):
    return b"".join(json.dumps({"traceId": "t1", "attributes": span}).encode() + b"\n" for span in spans)


def shapes(data):
    assert OTEL.detect(data, "x.json") is not None
    (transcript,) = OTEL.read(data)
    assert OTEL.write(transcript).body == data
    said = [entry.message for entry in transcript.thread.path() if entry.message.content]
    return [(each.role, each.text or ",".join(call.id for call in each.tool_calls)) for each in said], said


@pytest.mark.parametrize("form", [otlp, lines])
def test_the_run_of_a_tool_is_the_result_of_its_call(form):
    found, said = shapes(form(chat([ASKED], [CALLED]), TOOL))
    assert found == [("user", "When?"), ("assistant", "c1"), ("tool", "six")]
    assert isinstance(said[-1], ToolMessage)
    assert said[-1].tool_call_id == "c1"


@pytest.mark.parametrize("form", [otlp, lines])
def test_a_result_that_messages_repeat_stands_once(form):
    found, _ = shapes(form(chat([ASKED], [CALLED]), TOOL, chat([ASKED, CALLED, RESULT], [ANSWER])))
    assert found == [("user", "When?"), ("assistant", "c1"), ("tool", "six"), ("assistant", "At six.")]
    (transcript,) = OTEL.read(form(chat([ASKED, CALLED, RESULT], [ANSWER]), TOOL))
    assert sum(entry.message.text == "six" for entry in transcript.thread.entries) == 1


@pytest.mark.parametrize("form", [otlp, lines])
def test_a_run_whose_call_no_message_has_brings_it(form):
    found, said = shapes(form(TOOL))
    assert found == [("assistant", "c1"), ("tool", "six")]
    assert said[0].tool_calls[0].arguments == {"a": 1}


def test_the_span_of_an_agent_is_read_as_well():
    agent = chat([ASKED], [ANSWER]) | {"gen_ai.operation.name": "invoke_agent"}
    found, _ = shapes(otlp(agent))
    assert found == [("user", "When?"), ("assistant", "At six.")]
