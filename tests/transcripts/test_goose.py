"""Sessions of Goose: lines, and the database of later versions."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

import palaver as p
from palaver import transcripts
from palaver.core.errors import StoreError
from palaver.core.parts import MalformedToolCall, Reasoning
from palaver.transcripts.conversation import session_of, transcript_of
from palaver.transcripts.goose import read_sqlite
from palaver.transcripts.writer import chosen_history, is_record
from tests.transcripts.samples import FOLDER

GOOSE = transcripts.get("goose")
DATA = (FOLDER / "goose/20260102_030405.jsonl").read_bytes()
ROWS = [json.loads(line) for line in DATA.splitlines()]


def read(data=DATA):
    (transcript,), drift = GOOSE.read_with_unknown(data)
    assert drift == ()
    return transcript


def said(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def test_the_first_line_is_the_session():
    transcript = read()
    assert (transcript.title, session_of(transcript.metadata).cwd) == ("High water in Brest", "/home/mara/tides")


def test_an_answer_has_its_model_and_disjoint_counters():
    answer = said(read())[1]
    assert (answer.model, answer.sent_at) == ("claude-sonnet-4-5-20250929", 1767323046000)
    assert (answer.usage.input, answer.usage.cache_read, answer.usage.output) == (300, 900, 80)


def test_reasoning_and_a_call_that_could_not_be_read():
    answer = said(read())[1]
    thought, sealed = [part for part in answer.content if isinstance(part, Reasoning)]
    assert (thought.text, thought.signature, sealed.encrypted) == ("Look first.", "c2ln", "c2VhbGVk")
    (bad,) = [part for part in answer.content if isinstance(part, MalformedToolCall)]
    assert (bad.id, bad.reason) == ("call_3", "-32602: Could not interpret tool use parameters")


def test_both_forms_of_a_result_and_an_error():
    results = [message for message in said(read()) if message.role == "tool"]
    assert [(each.tool_call_id, each.text, each.is_error) for each in results] == [
        ("call_1", "18:42,6.1", False),
        ("call_2", "not found", True),
        ("call_3", "The tool call could not be parsed", True),
    ]


def test_what_one_side_sees_the_other_does_not():
    path = read().thread.path()
    model = [entry.message for entry in chosen_history(path, "model")]
    assert len(model) == 7
    assert model[-1].text == "High water in Brest is at 18:42."
    people = [entry.message for entry in chosen_history(path, "user")]
    assert people[-1].role == "assistant"
    assert people[-1].text == ""


def test_an_edited_message_keeps_what_is_beside_it():
    transcript = read()
    answer = said(transcript)[1]
    edited = transcript.edit(answer.id, answer.replace(content=[*answer.content[:2], *p.assistant("Look.").content]))
    written = [json.loads(line) for line in GOOSE.write(edited).body.splitlines()]
    assert written[2] == {**ROWS[2], "content": [*ROWS[2]["content"][:2], {"type": "text", "text": "Look."}]}


def test_new_results_share_a_line():
    calls = [p.ToolCall("a", "tide", "{}"), p.ToolCall("b", "wind", "{}")]
    results = [p.tool("18:42", tool_call_id="a"), p.tool("NW", tool_call_id="b", is_error=True)]
    written = GOOSE.write(transcript_of((p.user("When?"), p.assistant("Look.", tool_calls=calls), *results))).body
    header, *rows = [json.loads(line) for line in written.splitlines()]
    assert header["message_count"] == 4
    assert [row["role"] for row in rows] == ["user", "assistant", "user"]
    assert rows[2]["content"] == [
        {
            "type": "toolResponse",
            "id": "a",
            "toolResult": {"status": "success", "value": [{"type": "text", "text": "18:42"}]},
        },
        {"type": "toolResponse", "id": "b", "toolResult": {"status": "error", "error": "NW"}},
    ]


def test_a_database_has_its_sessions(tmp_path):
    path = tmp_path / "sessions.db"
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(
            "CREATE TABLE sessions (id TEXT, name TEXT, description TEXT, working_dir TEXT, extension_data_json)"
        )
        file.execute(
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, message_id TEXT, session_id TEXT, role TEXT,"
            " content_json TEXT, created_timestamp INTEGER, metadata_json TEXT)"
        )
        file.execute("INSERT INTO sessions VALUES ('20260102_1', 'High water', '', '/home/mara/tides', '{}')")
        for row in ROWS[1:]:
            values = (row.get("id"), "20260102_1", row["role"], json.dumps(row["content"]), row["created"])
            columns = "message_id, session_id, role, content_json, created_timestamp, metadata_json"
            file.execute(
                f"INSERT INTO messages ({columns}) VALUES (?, ?, ?, ?, ?, ?)",
                (*values, json.dumps(row["metadata"]) if "metadata" in row else None),
            )
    before = path.read_bytes()
    (transcript,) = read_sqlite(path)
    assert path.read_bytes() == before
    assert (transcript.title, session_of(transcript.metadata).id) == ("High water", "20260102_1")
    assert [message.text for message in said(transcript)] == [message.text for message in said(read())]
    assert [message.usage for message in said(transcript)[1:2]] != [None]


def test_a_file_that_is_no_database_is_an_error(tmp_path):
    path = tmp_path / "sessions.db"
    path.write_bytes(b"not a database, whatever its name")
    with pytest.raises(StoreError, match=r"sessions\.db"):
        read_sqlite(path)
