"""Transcripts of Cursor's agents, and the chats in its editor's database."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

import palaver as p
from palaver import transcripts
from palaver.core.errors import StoreError
from palaver.core.parts import Json, Reasoning
from palaver.transcripts.conversation import session_of, transcript_of
from palaver.transcripts.cursor import read_sqlite
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

CURSOR = transcripts.get("cursor")
DATA = (FOLDER / "cursor/0192f0c4-7777-7000-8000-0000000000c0.jsonl").read_bytes()
ROWS = [json.loads(line) for line in DATA.splitlines()]


def read(data=DATA):
    (transcript,), drift = CURSOR.read_with_unknown(data)
    assert drift == ()
    return transcript


def said(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def test_calls_get_ids_by_their_place():
    first, again = said(read())[1], said(read())[1]
    assert [call.name for call in first.tool_calls] == ["Read", "Shell"]
    ids = [call.id for call in first.tool_calls]
    assert len(set(ids)) == 2
    assert ids == [call.id for call in again.tool_calls]


def test_ids_that_were_made_are_not_written():
    transcript = read()
    answer = said(transcript)[1]
    edited = transcript.edit(answer.id, answer.replace(content=[*p.assistant("Look.").content, *answer.content[1:]]))
    written = [json.loads(line) for line in CURSOR.write(edited).body.splitlines()]
    blocks = [{"type": "text", "text": "Look."}, *ROWS[1]["message"]["content"][1:]]
    assert written[1] == {"role": "assistant", "message": {"content": blocks}}
    assert [*written[:1], *written[2:]] == [*ROWS[:1], *ROWS[2:]]


def test_the_end_of_a_turn_is_no_message_and_another_line_is_reported():
    assert len(said(read())) == 5
    data = DATA + b'{"type":"weather"}\n'
    (transcript,), drift = CURSOR.read_with_unknown(data)
    assert [(each.kind, each.name) for each in drift] == [("record", "weather")]
    assert CURSOR.write(transcript).body == data


def test_ids_from_elsewhere_are_written():
    call = p.ToolCall("a", "tide", "{}")
    written = CURSOR.write(transcript_of((p.user("When?"), p.assistant("Look.", tool_calls=[call])))).body
    assert json.loads(written.splitlines()[1])["message"]["content"][1]["id"] == "a"


CHAT = {
    "_v": 10,
    "composerId": "c1",
    "name": "High water",
    "createdAt": 1767323045000,
    "modelConfig": {"modelName": "claude-4.5-sonnet"},
    "fullConversationHeadersOnly": [
        {"bubbleId": "b1", "type": 1},
        {"bubbleId": "b2", "type": 2},
        {"bubbleId": "b3", "type": 2},
        {"bubbleId": "b4", "type": 2},
        {"bubbleId": "gone", "type": 2},
    ],
}
BUBBLES = {
    "b1": {"_v": 3, "type": 1, "text": "When is high water?", "createdAt": "2026-01-02T03:04:05.000Z"},
    "b2": {"type": 2, "text": "", "thinking": {"text": "Look first.", "signature": "c2ln"}},
    "b3": {
        "type": 2,
        "text": "",
        "toolFormerData": {
            "tool": 5,
            "name": "read_file",
            "toolCallId": "toolu_01",
            "status": "completed",
            "rawArgs": '{"path":"tides.csv"}',
            "params": "{}",
            "result": '{"contents":"18:42,6.1"}',
        },
    },
    "b4": {"type": 2, "text": "At 18:42.", "tokenCount": {"inputTokens": 1200, "outputTokens": 9}},
}
OLD = {"composerId": "c0", "conversation": [{"bubbleId": "o1", "type": 1, "text": "Hello"}]}


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "state.vscdb"
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)")
        rows = [("composerData:c1", CHAT), ("composerData:c0", OLD), ("composerData:none", {"composerId": "none"})]
        rows += [(f"bubbleId:c1:{name}", bubble) for name, bubble in BUBBLES.items()]
        for key, found in rows:
            file.execute("INSERT INTO cursorDiskKV VALUES (?, ?)", (key, json.dumps(found)))
        file.execute("INSERT INTO cursorDiskKV VALUES ('composerData:null', NULL)")
    return path


def test_the_database_has_chats_of_both_kinds_and_stays_as_it_is(database):
    before = database.read_bytes()
    old, chat = read_sqlite(database)
    assert database.read_bytes() == before
    assert [message.text for message in said(old)] == ["Hello"]
    assert (chat.title, session_of(chat.metadata).id) == ("High water", "c1")
    assert [message.role for message in said(chat)] == ["user", "assistant", "assistant", "tool", "assistant"]


def test_a_bubble_has_its_thinking_its_call_its_result_and_its_counters(database):
    _, chat = read_sqlite(database)
    question, thought, call, result, answer = said(chat)
    assert question.sent_at == 1767323045000
    assert isinstance(thought.content[0], Reasoning)
    assert thought.content[0].signature == "c2ln"
    assert [(each.id, each.arguments_json) for each in call.tool_calls] == [("toolu_01", '{"path":"tides.csv"}')]
    assert isinstance(result.content[0], Json)
    assert (result.tool_call_id, result.tool_name, result.is_error) == ("toolu_01", "read_file", False)
    assert (answer.model, answer.usage.input, answer.usage.output) == ("claude-4.5-sonnet", 1200, 9)


def test_a_bubble_without_a_row_is_told(database):
    _, chat = read_sqlite(database)
    assert [(loss.kind, loss.why) for loss in chat.unread] == [("dropped", "bubble gone: it has no row")]


def test_a_file_that_is_no_database_is_an_error(tmp_path):
    path = tmp_path / "state.vscdb"
    path.write_bytes(b"not a database, whatever its name")
    with pytest.raises(StoreError, match=r"state\.vscdb"):
        read_sqlite(path)
