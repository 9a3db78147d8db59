"""SpecStory's session histories: roles, times, thoughts and tools in Markdown."""

from __future__ import annotations

import json

from palaver import transcripts
from palaver.core.parts import Reasoning, Text
from palaver.transcripts.conversation import session_of
from palaver.transcripts.original_bytes import records_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

SPECSTORY = transcripts.get("specstory")
SAMPLE = (FOLDER / "specstory" / "session.md").read_bytes()
OLDER = (FOLDER / "specstory" / "older.md").read_bytes()


def path_of(data):
    (transcript,) = SPECSTORY.read(data)
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def test_the_head_names_the_session_and_its_agent():
    (transcript,) = SPECSTORY.read(SAMPLE)
    session = session_of(transcript.metadata)
    assert (transcript.title, session.format, session.agent) == ("2026-07-13 13:40:49Z", "2.1.0", "Claude Code")
    assert transcript.thread.id == session.id == "5c7d5c23-0691-4467-b98e-0fb865b4a639"
    assert session.started_at == 1783950049000


def test_messages_have_role_time_model_and_id():
    question, answer, *_ = path_of(SAMPLE)
    assert (question.role, question.id, question.sent_at) == ("user", "m-1", 1783950049000)
    assert (answer.role, answer.model, answer.sent_at) == ("assistant", "claude-opus-4-8", 1783950056000)


def test_only_the_line_before_another_role_is_a_separator():
    assert path_of(SAMPLE)[0].text == "When is high tide?\n\n---\n\nIt is for the harbour."


def test_thoughts_texts_and_calls_are_parts_of_an_answer():
    answer, result = path_of(SAMPLE)[1:3]
    assert answer.content[:2] == (Reasoning("The table has it."), Text("I read the table."))
    (call,) = answer.tool_calls
    assert (call.name, call.custom, json.loads(call.arguments_json)) == ("Bash", True, "Tool use: **Bash**")
    assert (result.tool_call_id, result.tool_name) == (call.id, "Bash")
    assert result.text == "Print the table\n\n`cat tide.md`\n\n```text\n_**User**_\n18:42\n```"


def test_listed_inputs_are_arguments_and_an_error_is_one():
    answer, result = path_of(SAMPLE)[3:5]
    assert answer.agent == "sidechain"
    assert answer.tool_calls[0].arguments == {"query": "tide", "table": "one\ntwo"}
    assert (result.is_error, result.text) == (True, "no such table")


def test_older_files_are_read():
    assert [(message.role, message.text) for message in path_of(OLDER)] == [
        ("user", "Name a harbour."),
        ("assistant", "Whitby."),
        ("assistant", "Or Hull."),
    ]
    assert path_of(OLDER)[1].model == "claude-4.5-sonnet-thinking"


def test_every_byte_is_in_a_record():
    for data in (SAMPLE, OLDER, SAMPLE.replace(b"\n", b"\r\n"), SAMPLE[:600], b"text\n"):
        (transcript,), unknown = SPECSTORY.read_with_unknown(data)
        assert unknown == ()
        pieces = [
            piece for entry in transcript.thread.entries for piece in records_of("specstory", [entry.message]) or ()
        ]
        assert b"".join(piece.raw for piece in sorted(pieces)) == data
