"""Sessions of Droid (Factory)."""

from __future__ import annotations

import json

import palaver as p
from palaver import transcripts
from palaver.transcripts.conversation import session_of, transcript_of
from palaver.transcripts.writer import chosen_history, is_record
from tests.transcripts.samples import FOLDER

DROID = transcripts.get("droid")
DATA = (FOLDER / "droid/0192f0c4-7777-7000-8000-0000000000d0.jsonl").read_bytes()


def read(data=DATA):
    (transcript,), drift = DROID.read_with_unknown(data)
    return transcript, [(each.kind, each.name) for each in drift]


def said(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def lines(data):
    return [json.loads(line) for line in data.splitlines()]


def test_a_session_has_its_title_its_folder_and_its_id():
    transcript, drift = read()
    assert drift == []
    session = session_of(transcript.metadata)
    assert (transcript.title, session.cwd) == ("High water in Brest", "/home/mara/tides")
    assert session.id == "0192f0c4-7777-7000-8000-0000000000d0"


def test_what_only_the_model_sees_has_a_source():
    transcript, _ = read()
    assert [message.source for message in said(transcript)[:2]] == ["llm_only", None]
    seen = [entry.message.text for entry in chosen_history(transcript.thread.path(), "user")]
    assert seen[0] == "When is high water?"


def test_results_are_messages_with_the_names_of_their_calls():
    results = [message for message in said(read()[0]) if message.role == "tool"]
    assert [(each.tool_name, each.text, each.is_error) for each in results] == [
        ("Read", "18:42,6.1", False),
        ("Execute", "not found", True),
    ]


def test_a_compaction_keeps_what_stands_behind_its_anchor():
    transcript, _ = read()
    seen = [entry.message.text for entry in chosen_history(transcript.thread.path(), "model")]
    assert seen == ["High water in Brest is at 18:42.", "And low water?", "At 12:20."]
    seen = [entry.message.text for entry in chosen_history(transcript.thread.path(), "user")]
    assert seen[-2:] == ["And low water?", "At 12:20."]
    assert len([text for text in seen if text == "And low water?"]) == 1


def test_an_unknown_line_is_kept_and_reported():
    data = DATA + b'{"type":"weather","id":"x"}\n'
    transcript, drift = read(data)
    assert drift == [("record", "weather")]
    assert DROID.write(transcript).body == data


def test_a_new_session_is_a_chain_behind_its_start():
    call = p.ToolCall("a", "tide", "{}")
    messages = (p.user("When?"), p.assistant("Look.", tool_calls=[call]), p.tool("18:42", tool_call_id="a"))
    start, *found = lines(DROID.write(transcript_of(messages)).body)
    assert (start["type"], start["cwd"]) == ("session_start", "/")
    assert [each["message"]["role"] for each in found] == ["user", "assistant", "user"]
    assert [each.get("parentId") for each in found] == [None, found[0]["id"], found[1]["id"]]
    assert found[2]["message"]["content"][0]["tool_use_id"] == "a"


def test_an_edited_message_keeps_its_line():
    transcript, _ = read()
    answer = said(transcript)[-1]
    new = lines(DROID.write(transcript.edit(answer.id, answer.replace(content="At 12:21."))).body)
    old = lines(DATA)
    assert new[9] == {**old[9], "message": {"role": "assistant", "content": [{"type": "text", "text": "At 12:21."}]}}
    assert [*new[:9], *new[10:]] == [*old[:9], *old[10:]]


def test_a_start_of_a_session_of_another_program_is_none():
    data = b'{"type":"session_start","id":"x","timestamp":"2026-01-02T03:04:05Z","model":"m"}\n'
    assert transcripts.detect(data) == ()


def test_a_type_that_is_no_text_is_no_error():
    data = b'{"type":"message","message":{"role":"user"}}\n{"type":[]}\n{"type":{}}\n'
    assert DROID.detect(data) is None
