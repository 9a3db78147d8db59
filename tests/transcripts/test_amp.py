"""Threads of Amp."""

from __future__ import annotations

import json

import palaver as p
from palaver import transcripts
from palaver.core.parts import Image, Json
from palaver.transcripts.conversation import session_of, transcript_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

AMP = transcripts.get("amp")
DATA = (FOLDER / "amp/T-0192f0c4-7777-7000-8000-0000000000a0.json").read_bytes()


def read(data=DATA):
    (transcript,), drift = AMP.read_with_unknown(data)
    assert drift == ()
    return transcript


def said(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def test_a_thread_has_its_title_its_folder_and_its_program():
    transcript = read()
    session = session_of(transcript.metadata)
    assert (transcript.title, session.cwd, session.program) == (
        "High water in Brest",
        "/home/mara/my tides",
        "0.0.1767",
    )


def test_an_answer_has_its_counters_its_time_and_its_end():
    answer = said(read())[1]
    assert (answer.model, answer.sent_at, answer.finish_reason) == ("claude-sonnet-4-5", 1767323047120, "tool_calls")
    usage = answer.usage
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output) == (12, 9000, 2100, 80)


def test_a_result_is_its_output_or_json_or_an_error():
    _, _, one, two, three, *_ = said(read())
    assert isinstance(one.content[0], Json)
    assert (one.tool_name, one.content[0].value["content"]) == ("Read", "1: 18:42,6.1")
    assert (two.text, two.is_error) == ("Fri Jan  2", False)
    assert (three.text, three.is_error) == ("Rejected.", True)


def test_an_image_has_its_media_type():
    (image,) = [part for part in said(read())[6].content if isinstance(part, Image)]
    assert image.media_type == "image/png"


def test_an_edited_result_changes_and_its_neighbours_stay():
    transcript = read()
    result = said(transcript)[3]
    written = json.loads(AMP.write(transcript.edit(result.id, result.replace(content="Sat Jan  3"))).body)
    old = json.loads(DATA)
    blocks, before = written["messages"][2]["content"], old["messages"][2]["content"]
    assert blocks[1]["run"] == {"status": "done", "result": "Sat Jan  3"}
    assert [blocks[0], blocks[2]] == [before[0], before[2]]
    assert written["messages"][3:] == old["messages"][3:]


def test_a_new_thread_has_numbered_messages_and_results_of_its_own():
    call = p.ToolCall("a", "tide", "{}")
    messages = (p.user("When?"), p.assistant("Look.", tool_calls=[call]), p.tool("18:42", tool_call_id="a"))
    thread = json.loads(AMP.write(transcript_of(messages)).body)
    assert thread["id"].startswith("T-")
    assert [each["messageId"] for each in thread["messages"]] == [0, 1, 2]
    assert thread["messages"][2]["content"] == [
        {"type": "tool_result", "toolUseID": "a", "run": {"status": "done", "result": "18:42"}}
    ]


def test_a_thread_goes_on_with_the_next_number():
    transcript = read()
    transcript.thread.append(p.user("Thanks"))
    messages = json.loads(AMP.write(transcript).body)["messages"]
    assert messages[:-1] == json.loads(DATA)["messages"]
    assert messages[-1]["messageId"] == 6
    assert messages[-1]["content"] == [{"type": "text", "text": "Thanks"}]
