"""ShareGPT's turns with calls and results as text between tags (Hermes and its relatives)."""

from __future__ import annotations

import json

from palaver import transcripts
from palaver.core.messages import ToolMessage
from palaver.core.parts import Text
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

MESSAGES = transcripts.get("openai_messages")
DATA = (FOLDER / "openai_messages" / "tagged.jsonl").read_bytes()


def path_of(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def test_calls_between_tags_are_calls_and_their_results_are_paired():
    _, both = MESSAGES.read(DATA)
    _, _, asked, one, other, answer = path_of(both)
    assert asked.content[0] == Text("I look.\n")
    assert [(call.name, call.arguments) for call in asked.tool_calls] == [("feed", {"id": "a"}), ("feed", {"id": "b"})]
    assert [each.tool_call_id for each in (one, other)] == [call.id for call in asked.tool_calls]
    assert [json.loads(each.text)["content"] for each in (one, other)] == [{"url": "1"}, {"url": "2"}]
    assert answer.text == "Done."


def test_calls_that_are_literals_of_python_are_calls():
    first, _ = MESSAGES.read(DATA)
    (call,) = path_of(first)[2].tool_calls
    assert (call.name, call.arguments) == ("get_camera_live_feed", {"camera_id": "front_door"})


def test_tags_that_hold_no_call_are_text():
    turns = [{"from": "human", "value": "?"}, {"from": "gpt", "value": "Write <tool_call>x</tool_call>."}]
    (transcript,) = MESSAGES.read(json.dumps({"conversations": turns}).encode() + b"\n")
    assert path_of(transcript)[-1].content == (Text("Write <tool_call>x</tool_call>."),)


def test_results_that_name_a_tool_are_of_a_call_of_that_tool():
    turns = [
        {"from": "gpt", "value": "".join(f'<tool_call>\n{{"name": "{name}"}}\n</tool_call>\n' for name in "ab")},
        {"from": "tool", "value": '<tool_response>\n{"name": "b", "content": 1}\n</tool_response>'},
        {"from": "tool", "value": '<tool_response>\n{"name": "a", "content": 2}\n</tool_response>'},
    ]
    (transcript,) = MESSAGES.read(json.dumps({"conversations": turns}).encode() + b"\n")
    results = [message for message in path_of(transcript) if isinstance(message, ToolMessage)]
    assert [each.tool_name for each in results] == ["b", "a"]


def test_an_edited_record_keeps_its_other_turns_and_its_tags():
    for transcript, line in zip(MESSAGES.read(DATA), DATA.splitlines(), strict=True):
        last = path_of(transcript)[-1]
        written = MESSAGES.write(transcript.edit(last.id, last.replace(content="Otherwise.")))
        before, after = json.loads(line)["conversations"], json.loads(written.body)["conversations"]
        assert after == [*before[:-1], {"from": "gpt", "value": "Otherwise."}]
        assert written.losses == ()


def test_an_edited_result_is_between_tags():
    _, both = MESSAGES.read(DATA)
    result = path_of(both)[3]
    body = MESSAGES.write(both.edit(result.id, result.replace(content='{"name": "feed", "content": 3}'))).body
    assert json.loads(body)["conversations"][3]["value"] == (
        '<tool_response>\n{"name": "feed", "content": 3}\n</tool_response>\n'
        '<tool_response>\n{"name": "feed", "content": {"url": "2"}}\n</tool_response>'
    )
