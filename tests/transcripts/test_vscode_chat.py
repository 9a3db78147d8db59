"""Chats of VS Code with Copilot."""

from __future__ import annotations

import json

import palaver as p
from palaver import transcripts
from palaver.transcripts.conversation import session_of, transcript_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

CHAT = transcripts.get("vscode_chat")
DATA = (FOLDER / "vscode_chat/0192f0c4-7777-7000-8000-0000000000e0.json").read_bytes()


def read(data=DATA):
    (transcript,), drift = CHAT.read_with_unknown(data)
    assert drift == ()
    return transcript


def said(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def test_a_chat_has_its_title_and_its_session():
    transcript = read()
    session = session_of(transcript.metadata)
    assert (transcript.title, session.id) == ("High water in Brest", "0192f0c4-7777-7000-8000-0000000000e0")


def test_rounds_are_answers_with_their_results_between():
    question, call, result, answer, *_ = said(read())
    assert (question.text, question.sent_at) == ("When is high water?", 1767323045000)
    assert (call.reasoning, call.text) == ("The file has it.", "I look.")
    assert [each.arguments_json for each in call.tool_calls] == ['{"filePath":"/home/mara/tides/tides.csv"}']
    assert (result.tool_call_id, result.tool_name, result.text) == ("call_1", "read_file", "18:42,6.1")
    assert (answer.text, answer.model) == ("At 18:42.", "copilot/claude-sonnet-4.5")
    assert (answer.usage.input, answer.usage.output) == (1200, 40)
    assert call.usage is None


def test_without_rounds_an_answer_is_what_was_shown():
    answer = said(read())[5]
    assert (answer.reasoning, answer.text) == ("Count on.", "See tides.csv: at 12:20.")


def test_a_cancelled_request_has_no_answer():
    assert [message.role for message in said(read())[6:]] == ["user"]


def test_an_edited_request_keeps_its_other_keys_and_the_others_stay():
    transcript = read()
    answer = said(transcript)[5]
    written = json.loads(CHAT.write(transcript.edit(answer.id, answer.replace(content="At 12:21."))).body)
    old = json.loads(DATA)
    new, before = written["requests"][1], old["requests"][1]
    assert new["response"] == [{"value": "At 12:21."}]
    assert new["timestamp"] == before["timestamp"]
    assert new["isCanceled"] is False
    assert [written["requests"][0], written["requests"][2]] == [old["requests"][0], old["requests"][2]]


def test_a_new_chat_has_a_request_for_each_prompt():
    call = p.ToolCall("a", "tide", "{}")
    messages = (
        p.user("When?"),
        p.assistant("Look.", tool_calls=[call]),
        p.tool("18:42", tool_call_id="a", tool_name="tide"),
        p.assistant("At 18:42."),
        p.user("Thanks"),
    )
    requests = json.loads(CHAT.write(transcript_of(messages)).body)["requests"]
    assert [each["message"]["text"] for each in requests] == ["When?", "Thanks"]
    metadata = requests[0]["result"]["metadata"]
    assert [each["response"] for each in metadata["toolCallRounds"]] == ["Look.", "At 18:42."]
    assert metadata["toolCallResults"]["a"]["content"][0]["value"] == "18:42"


def test_a_log_of_changes_is_not_taken_for_a_chat():
    data = (
        b'{"kind":0,"v":{"version":3,"responderUsername":"GitHub Copilot","requests":[]}}\n{"kind":1,"k":["x"],"v":1}\n'
    )
    assert "vscode_chat" not in [each.file_format for each in transcripts.detect(data, "x.jsonl")]
