"""Histories of agent-swarm-kit: fields, markers, calls and images at the side."""

from __future__ import annotations

import json

import pytest
from msgspec import UNSET

import palaver as p
from palaver import transcripts
from palaver.core.parts import Image, Inline, MalformedToolCall, Opaque, Reasoning, Text, ToolCall, Url
from palaver.threads.thread import Entry, Thread
from palaver.transcripts.conversation import transcript_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

SWARM = transcripts.get("agent_swarm_kit")
FILES = FOLDER / "agent_swarm_kit"


def read(*records):
    transcripts, drift = SWARM.read_with_unknown(json.dumps(records).encode())
    return [entry.message for entry in transcripts[0].thread.path() if not is_record(entry)], drift


def written(*messages, **options):
    done = SWARM.write(transcript_of(messages), **options)
    return json.loads(done.body), {(x.kind, x.what, x.message, x.part) for x in done.losses}


def record(role="user", content="x", **fields):
    return {"role": role, "agentName": "a", "mode": "user", "content": content, **fields}


@pytest.mark.row("MSG-05")
def test_markers_say_their_reason_and_a_flush_says_nothing():
    records, losses = written(
        p.rescue("the model said nothing", agent="a", mode="tool"), p.flush(agent="a", mode="tool"), carry=False
    )
    assert records == [
        {"role": "resque", "agentName": "a", "mode": "tool", "content": "the model said nothing"},
        {"role": "flush", "agentName": "a", "mode": "tool", "content": ""},
    ]
    assert losses == {("dropped", "scope", 0, None)}  # the original's hides the whole thread
    (rescue, flush), drift = read(*records)
    assert rescue.scope == "thread"
    assert written(rescue, flush, carry=False) == (records, set())
    assert (rescue.role, rescue.reason, flush.role, flush.reason) == ("rescue", "the model said nothing", "flush", "")
    assert drift == ()


def test_both_spellings_of_a_rescue_are_read_and_kept():
    for spelled in ("resque", "rescue"):
        (message,), _ = read(record(spelled, "why"))
        assert (message.role, message.reason) == ("rescue", "why")
        assert written(message)[0][0]["role"] == spelled


@pytest.mark.parametrize(("fields", "payload"), [({}, UNSET), ({"payload": None}, None), ({"payload": {}}, {})])
def test_a_payload_is_unset_null_or_a_value(fields, payload):
    given = record(**fields)
    (message,), _ = read(given)
    assert message.payload == payload
    assert (message.agent, message.mode) == ("a", "user")
    assert written(message.replace(provider={}))[0] == [given]


@pytest.mark.parametrize(
    ("content", "calls", "texts"), [("", True, 0), ("", False, 1), ("x", True, 1), (" x ", False, 1)]
)
def test_an_empty_text_beside_calls_is_no_part(content, calls, texts):
    call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": {}}}
    (message,), _ = read(record("assistant", content, **({"tool_calls": [call]} if calls else {})))
    assert [type(each) for each in message.content] == [Text] * texts + [ToolCall] * calls
    assert message.text == content


def test_arguments_keep_how_they_were_written():
    data = (FILES / "history.json").read_bytes()
    (transcript,) = SWARM.read(data)
    calls = [call for entry in transcript.thread.path() for call in entry.message.tool_calls]
    assert calls[0].arguments_json == '{"item": "cat", "size": 2.0}'
    assert calls[1].arguments_json == '{"item": "cat"}'
    assert {call.name for call in calls} == {"price", "stock", "x"}
    results = [e.message for e in transcript.thread.path() if e.message.role == "tool" and e.message.mode == "tool"]
    assert [(each.tool_call_id, each.tool_name) for each in results if not each.tags] == [
        ("c1", "price"),
        ("c2", "stock"),
    ]


def test_images_come_from_where_they_say():
    given = ["iVBORw0KGgo=", "data:image/png;base64,iVBORw0KGgo=", "https://x.org/a.png", {"0": 1}, "no base64!"]
    (message,), drift = read(record(images=given))
    sources = [part.source if isinstance(part, Image) else part.raw for part in message.content[1:]]
    assert sources == [
        Inline("iVBORw0KGgo="),
        Inline("iVBORw0KGgo="),
        Url("https://x.org/a.png"),
        {"0": 1},
        "no base64!",
    ]
    assert [type(part) for part in message.content[-2:]] == [Opaque, Opaque]
    assert [(each.kind, each.name, each.count) for each in drift] == [("block", "image", 2)]


def test_calls_of_another_role_make_it_an_assistants_message():
    call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": {}}}
    (message,), drift = read(record("user", "go", tool_calls=[call]))
    assert (message.role, message.tool_calls[0].id) == ("assistant", "c")
    assert [each.name for each in drift] == ["tool_calls of role user"]


def test_arguments_that_are_no_json_are_malformed_and_go_back():
    call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{broken"}}
    (message,), _ = read(record("assistant", "", tool_calls=[call]))
    assert isinstance(message.content[0], MalformedToolCall)


def test_what_it_cannot_say_is_on_the_receipt():
    answer = p.assistant(
        Reasoning("why", "SIG", wire="anthropic_messages"), "a", ToolCall("c", "t", "{}"), "b", model="m", id="1"
    )
    records, losses = written(answer, carry=False)
    assert records == [
        {
            "role": "assistant",
            "agentName": "agent",
            "mode": "tool",
            "content": "ab",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "t", "arguments": {}}}],
        }
    ]
    assert losses == {
        ("dropped", "reasoning", 0, 0),
        ("approximated", "text", 0, 1),
        ("approximated", "text", 0, 3),
        ("dropped", "model", 0, None),
        ("dropped", "id", None, None),
        ("approximated", "agent", None, None),
        ("approximated", "mode", None, None),
    }


def test_a_message_that_is_its_file_can_be_answered():
    data = (FILES / "1.json").read_bytes()
    (transcript,) = SWARM.read(data)
    assert SWARM.write(transcript).body == data
    transcript.thread.append(p.assistant("Hi.", agent="triage", mode="user"))
    records = json.loads(SWARM.write(transcript).body)
    assert [each["content"] for each in records] == [json.loads(data)["content"], "Hi."]


def test_an_edit_lays_itself_over_the_record():
    data = json.dumps([record("assistant", "old", images=["iVBORw0KGgo="], temperature=0.5)], indent=1).encode()
    (transcript,) = SWARM.read(data)
    (entry,) = [each for each in transcript.thread.path() if not is_record(each)]
    other = Thread(transcript.thread.id)
    for each in transcript.thread.entries:
        message = each.message.replace(content=["new"]) if each is entry else each.message
        other.add([Entry(each.id, each.parent, message)], {"main": each.id})
    (again,) = json.loads(SWARM.write(type(transcript)(other)).body)
    assert again == record("assistant", "new", temperature=0.5)
