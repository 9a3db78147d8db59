"""Task histories of Cline and Roo Code."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver import transcripts
from palaver.core.parts import Reasoning
from palaver.transcripts.conversation import session_of, transcript_of
from palaver.transcripts.format import Origin
from palaver.transcripts.writer import chosen_history, is_record
from tests.transcripts.samples import FOLDER

CLINE = transcripts.get("cline")
FILES = FOLDER / "cline"


def read(name):
    (transcript,), drift = CLINE.read_with_unknown((FILES / name).read_bytes())
    assert drift == ()
    return transcript


def said(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def seen(transcript):
    return [entry.message for entry in chosen_history(transcript.thread.path(), "model")]


def test_an_answer_has_its_model_its_counters_and_its_time():
    answer = said(read("task.json"))[1]
    assert (answer.model, answer.sent_at) == ("claude-sonnet-4-5", 1767323046000)
    assert (answer.usage.input, answer.usage.cache_read, answer.usage.output) == (300, 900, 80)
    assert answer.usage.raw["cost"] == 0.0041
    assert [call.id for call in answer.tool_calls] == ["toolu_01", "toolu_02"]


def test_results_of_one_record_are_messages_with_the_names_of_their_calls():
    _, _, one, two, prompt, _ = said(read("task.json"))
    assert [(each.tool_call_id, each.tool_name, each.is_error) for each in (one, two)] == [
        ("toolu_01", "read_file", False),
        ("toolu_02", "execute_command", True),
    ]
    assert prompt.role == "user"


def test_counters_of_the_sdk_are_disjoint_and_its_session_has_a_name():
    transcript = read("1767323045000_k3x9q.messages.json")
    assert session_of(transcript.metadata).id == "1767323045000_k3x9q"
    assert said(transcript)[1].usage.total == 1280
    assert [entry.id for entry in transcript.thread.path() if not is_record(entry)] == ["m1", "m2", "m3", "m4"]


def test_the_model_sees_what_a_truncation_and_a_summary_leave():
    transcript = read("condensed.json")
    assert [message.text for message in seen(transcript)] == [
        "<user_message>\nPlan a walk\n</user_message>",
        "",
        "[Sliding window truncation: 2 messages hidden to reduce context]",
        "## Conversation Summary\nA walk along the quay.",
        "It takes an hour.",
    ]


def test_reasoning_has_two_forms():
    _, proof, thought, *_ = said(read("condensed.json"))
    assert isinstance(proof.content[0], Reasoning)
    assert (proof.content[0].encrypted, proof.content[0].wire) == ("gAAAA", "openai_responses")
    assert thought.reasoning == "Where?"


def test_an_edited_answer_keeps_what_is_beside_it():
    transcript = read("task.json")
    answer = said(transcript)[5]
    other = transcript.edit(answer.id, answer.replace(content="At 18:43.", model="claude-opus-4-5"))
    record = json.loads(CLINE.write(other).body)[3]
    assert record["content"] == [{"type": "text", "text": "At 18:43."}]
    assert record["modelInfo"]["modelId"] == "claude-opus-4-5"
    assert record["ts"] == 1767323048000


def test_a_reasoning_block_is_written_as_it_was():
    transcript = read("condensed.json")
    thought = said(transcript)[2]
    changed = transcript.edit(
        thought.id, thought.replace(content=[*thought.content[:1], p.assistant("Why?").content[0]])
    )
    record = json.loads(CLINE.write(changed).body)[2]
    assert record["content"] == [
        {"type": "reasoning", "text": "Where?", "summary": []},
        {"type": "text", "text": "Why?"},
    ]


def test_files_beside_it_name_the_task():
    beside = {
        "task_metadata.json": b'{"files_in_context":[],"model_usage":[{"ts":1,"model_id":"a"},{"ts":2,"model_id":"b"}],'
        b'"environment_history":[{"ts":1,"cline_version":"3.38.1"}]}',
        "ui_messages.json": b'[{"ts":1,"type":"say","say":"task","text":"When is high water?\\nIn Brest"}]',
    }
    origin = Origin("tasks/1767323045000/api_conversation_history.json", beside.get)
    (transcript,) = CLINE.read((FILES / "api_conversation_history.json").read_bytes(), origin)
    session = session_of(transcript.metadata)
    assert (session.id, session.model, session.program) == ("1767323045000", "b", "3.38.1")
    assert transcript.title == "When is high water?"


def test_a_new_task_joins_results_and_carries_the_system_prompt():
    messages = (
        p.system("Be brief."),
        p.user("When?"),
        p.assistant("Look.", tool_calls=[p.ToolCall("a", "tide", "{}"), p.ToolCall("b", "wind", "{}")]),
        p.tool("18:42", tool_call_id="a", tool_name="tide"),
        p.tool("NW", tool_call_id="b", tool_name="wind"),
        p.assistant("At 18:42."),
    )
    written = CLINE.write(transcript_of(messages), history="all")
    records = json.loads(written.body)
    assert [record["role"] for record in records] == ["user", "assistant", "user", "assistant"]
    assert [block["tool_use_id"] for block in records[2]["content"]] == ["a", "b"]
    assert [(loss.kind, loss.what) for loss in written.losses] == [
        ("converted", "system"),
        ("approximated", "sent_at"),
    ]
    (again,) = CLINE.read(written.body)
    assert [message.text for message in said(again)] == [message.text for message in messages]


@pytest.mark.parametrize("name", ["", "tasks/1/api_conversation_history.json"])
def test_a_list_of_the_wire_alone_is_a_task_by_its_name_only(name):
    data = (FILES / "api_conversation_history.json").read_bytes()
    assert ("cline" in [each.file_format for each in transcripts.detect(data, name)]) == bool(name)


def test_a_history_of_another_shape_is_counted_as_unread():
    data = b'{"version":2,"messages":[{"role":"tool","content":[{"type":"tool-result","toolCallId":"a"}]}]}'
    (transcript,), drift = CLINE.read_with_unknown(data)
    assert [(each.kind, each.name) for each in drift] == [("unread", "role tool")]
    assert CLINE.write(transcript).body == data
