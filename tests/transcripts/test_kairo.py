"""Kairo messages: as documented, and in the JSON of the A2A protocol."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver import transcripts
from palaver.core import jsontext
from palaver.core.parts import Image, Inline, Opaque, Reasoning, ToolCall
from palaver.transcripts.conversation import transcript_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

DOCUMENT = transcripts.get("kairo")
A2A = transcripts.get("kairo_a2a")

GOLDEN = {
    "id": "m",
    "role": "ASSISTANT",
    "contents": [
        {"type": "thinking", "thinking": "th", "budgetTokens": 3, "signature": "SIG"},
        {"type": "text", "text": "x"},
        {"type": "tool_use", "toolId": "c", "toolName": "t", "input": {"a": [1, "b"]}},
        {"type": "image", "url": "u", "mediaType": "image/png"},
    ],
    "metadata": {"k": 1},
    "timestamp": "2026-01-01T00:00:00Z",
    "tokenCount": 42,
    "sourceAgentId": "agent-1",
    "verbatimPreserved": True,
}
"""kairo_goldens.json, ``a2a_message``."""


def read(file_format, *records):
    transcripts, drift = file_format.read_with_unknown(json.dumps(records).encode())
    return [entry.message for entry in transcripts[0].thread.path() if not is_record(entry)], drift


def written(file_format, *messages, **options):
    done = file_format.write(transcript_of(messages), **options)
    return json.loads(done.body), {(x.kind, x.what, x.message, x.part) for x in done.losses}


@pytest.mark.row("KAI-02")
def test_the_golden_message_decodes_and_encodes_equal():
    (message,), drift = read(A2A, GOLDEN)
    assert drift == ()
    assert (message.id, message.agent, message.verbatim) == ("m", "agent-1", True)
    assert (message.sent_at, dict(message.metadata)) == (1767225600000, {"k": 1})
    thought, _, call, image = message.content
    assert (thought.text, thought.signature) == ("th", "SIG")
    assert (call.id, call.name, call.arguments_json) == ("c", "t", '{"a": [1, "b"]}')
    assert (image.source.url, image.media_type) == ("u", "image/png")
    bare = message.replace(provider={"kairo_a2a": message.provider["kairo_a2a"]})
    assert written(A2A, bare) == ([GOLDEN], set())


@pytest.mark.row("KAI-02")
def test_results_of_one_message_become_messages_of_one_group():
    results = [
        {"type": "tool_result", "toolUseId": "c", "content": "data", "isError": False},
        {"type": "tool_result", "toolUseId": "d", "content": "bad", "isError": True},
    ]
    record = {**GOLDEN, "role": "TOOL", "contents": results}
    messages, _ = read(A2A, GOLDEN, record)
    assert [(m.tool_call_id, m.tool_name, m.text, m.is_error) for m in messages[1:]] == [
        ("c", "t", "data", False),
        ("d", None, "bad", True),
    ]
    bare = [m.replace(provider={"kairo_a2a": m.provider.get("kairo_a2a", {})}) for m in messages]
    assert written(A2A, *bare)[0] == [GOLDEN, record]


@pytest.mark.row("KAI-02")
def test_bytes_of_an_image_and_what_nobody_knows_are_carried():
    message = p.user("see", Image(Inline("iVBORw0KGgo="), "image/png"), Opaque("x", jsontext.raw({"a": 1})), id="m")
    (record,), losses = written(A2A, message)
    assert [each["type"] for each in record["contents"]] == ["text"]
    assert {("converted", "image", 0, 1), ("converted", "opaque", 0, 2)} <= losses
    (again,), _ = read(A2A, record)
    assert again.content == message.content
    assert ("dropped", "image", 0, 1) in written(A2A, message, carry=False)[1]


def test_an_unknown_kind_of_content_goes_back_as_it_came():
    odd = {"type": "video", "url": "v"}
    (message,), drift = read(A2A, {**GOLDEN, "contents": [odd]})
    assert [each.raw for each in message.content] == [odd]
    assert [(each.kind, each.name) for each in drift] == [("block", "video")]


@pytest.mark.parametrize(
    ("stamp", "at"),
    [
        ("2026-01-01T00:00:00Z", 1767225600000),
        ("2026-01-01T00:00:00.250Z", 1767225600250),
        ("2026-01-01T00:00:00.123456Z", 1767225600123),
        ("soon", None),
    ],
)
def test_a_time_keeps_its_text(stamp, at):
    (message,), _ = read(A2A, {**GOLDEN, "timestamp": stamp})
    bare = message.replace(provider={"kairo_a2a": message.provider["kairo_a2a"]})
    assert message.sent_at == at
    assert written(A2A, bare)[0][0]["timestamp"] == stamp


def test_a_changed_time_is_written_anew():
    (message,), _ = read(A2A, {**GOLDEN, "timestamp": "2026-01-01T00:00:00.123456Z"})
    bare = message.replace(provider={"kairo_a2a": message.provider["kairo_a2a"]}, sent_at=1767225601000)
    assert written(A2A, bare)[0][0]["timestamp"] == "2026-01-01T00:00:01Z"


@pytest.mark.row("KAI-01")
def test_the_documented_surface_is_read_and_written():
    records = [
        {"role": "system", "content": "s", "metadata": {}},
        {"role": "user", "content": "u", "metadata": {"session": "1"}},
        {"role": "assistant", "content": "a", "metadata": {}},
        {"role": "tool", "content": "18", "toolName": "weather", "metadata": {}},
    ]
    messages, drift = read(DOCUMENT, *records)
    assert [(m.role, m.text) for m in messages] == [("system", "s"), ("user", "u"), ("assistant", "a"), ("tool", "18")]
    assert (messages[3].tool_name, messages[3].tool_call_id) == ("weather", None)
    assert drift == ()
    made = [p.system("s"), p.user("u", metadata={"session": "1"}), p.assistant("a"), p.tool("18", tool_name="weather")]
    assert written(DOCUMENT, *made) == (records, set())


def test_a_result_does_not_say_whose_it_is():
    answer = p.tool("18", tool_call_id="c", tool_name="t", is_error=True)
    records, losses = written(DOCUMENT, p.assistant(ToolCall("c", "t", "{}")), answer, carry=False)
    assert records[1] == {"role": "tool", "content": "18", "toolName": "t", "metadata": {}}
    assert {("dropped", "tool_call_id", 1, None), ("dropped", "is_error", 1, None)} == losses
    again, _ = read(DOCUMENT, *written(DOCUMENT, p.assistant(ToolCall("c", "t", "{}")), answer)[0])
    assert (again[1].tool_call_id, again[1].is_error) == ("c", True)


def test_reasoning_of_another_wire_is_not_taken_for_its_own():
    thought = Reasoning("why", encrypted="E", wire="openai_responses")
    (record,), losses = written(A2A, p.assistant(thought, id="m", sent_at=1))
    assert record["contents"] == [{"type": "thinking", "thinking": "why", "budgetTokens": 0}]
    assert losses == {("converted", "reasoning", 0, 0)}
    assert read(A2A, record)[0][0].content == (thought,)


@pytest.mark.parametrize("name", ["kairo", "kairo_a2a"])
def test_the_files_are_distinguished(name):
    for path in (FOLDER / name).iterdir():
        found = transcripts.detect(path.read_bytes())
        assert [each.file_format for each in found] == [name]
