"""Sessions of Copilot CLI."""

from __future__ import annotations

import json

import palaver as p
from palaver import transcripts
from palaver.core.parts import Reasoning
from palaver.transcripts.conversation import session_of, transcript_of
from palaver.transcripts.writer import chosen_history, is_record
from tests.transcripts.samples import FOLDER

COPILOT = transcripts.get("copilot_cli")
DATA = (FOLDER / "copilot_cli/events.jsonl").read_bytes()


def said(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def events(data):
    return [json.loads(line) for line in data.splitlines()]


def test_an_answer_has_its_reasoning_its_calls_and_what_it_made():
    (transcript,), drift = COPILOT.read_with_unknown(DATA)
    assert drift == ()
    _, _, answer, *_ = said(transcript)
    assert (answer.model, answer.usage.output, answer.usage.input) == ("claude-sonnet-4.5", 42, None)
    assert isinstance(answer.content[0], Reasoning)
    assert (answer.reasoning, answer.content[0].signature) == ("The file has it.", "b3BhcXVl")
    assert [(call.id, call.name, call.arguments_json) for call in answer.tool_calls] == [
        ("call_1", "view", '{"path":"tides.csv"}'),
        ("call_2", "bash", '{"command":"date"}'),
    ]


def test_results_have_the_names_of_their_calls_and_say_that_they_failed():
    (transcript,) = COPILOT.read(DATA)
    results = [message for message in said(transcript) if message.role == "tool"]
    assert [(each.tool_name, each.text, each.is_error) for each in results] == [
        ("view", "18:42,6.1", False),
        ("bash", "Permission denied", True),
    ]


def test_a_message_of_a_sub_agent_names_it():
    (transcript,) = COPILOT.read(DATA)
    assert said(transcript)[-1].agent == "call_9"


def test_the_model_sees_the_summary_of_a_compaction():
    (transcript,) = COPILOT.read(DATA)
    seen = [entry.message.text for entry in chosen_history(transcript.thread.path(), "model")]
    assert seen[-3:] == ["High water is at 18:42.", "And low water?", "Ask the harbour."]
    assert "When is high water?" not in seen


def test_the_session_is_that_of_the_first_event():
    (transcript,) = COPILOT.read(DATA)
    session = session_of(transcript.metadata)
    assert (session.cwd, session.branch, session.program) == ("/home/mara/tides", "main", "1.0.41")


def test_an_unknown_event_is_kept_and_reported():
    data = DATA + b'{"type":"weather.report","data":{},"id":"x","timestamp":"2026-01-02T03:04:05.000Z"}\n'
    (transcript,), drift = COPILOT.read_with_unknown(data)
    assert [(each.kind, each.name) for each in drift] == [("record", "weather.report")]
    assert COPILOT.write(transcript).body == data


def test_new_events_are_a_chain():
    call = p.ToolCall("a", "tide", "{}")
    messages = (p.user("When?"), p.assistant("Look.", tool_calls=[call]), p.tool("18:42", tool_call_id="a"))
    written = events(COPILOT.write(transcript_of(messages)).body)
    assert [each["type"] for each in written] == [
        "session.start",
        "user.message",
        "assistant.message",
        "tool.execution_complete",
    ]
    assert [each["parentId"] for each in written] == [None, *[each["id"] for each in written[:-1]]]


def test_a_session_goes_on_behind_its_last_event():
    (transcript,) = COPILOT.read(DATA)
    transcript.thread.append(p.user("Thanks"))
    written = COPILOT.write(transcript).body
    assert written.startswith(DATA)
    new = events(written)[-1]
    assert (new["type"], new["data"]["content"]) == ("user.message", "Thanks")
