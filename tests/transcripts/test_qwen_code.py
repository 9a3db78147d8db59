"""Qwen Code sessions: the tree, answers over several records, compressions, and what is written."""

from __future__ import annotations

import json

import palaver as p
from palaver import transcripts
from palaver.core.messages import AssistantMessage, FlushMarker, ToolMessage
from palaver.core.parts import Image, Opaque, Reasoning, ToolCall
from palaver.threads import for_model, for_people
from palaver.transcripts.conversation import COMPACTION, transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.format import Origin
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

QWEN = transcripts.get("qwen_code")
SESSION = (FOLDER / "qwen_code" / "session.jsonl").read_bytes()


def record(uuid, parent, kind, /, text=None, **fields):
    row = {"uuid": uuid, "parentUuid": parent, "sessionId": "s", "timestamp": "2026-01-02T03:04:05Z", "type": kind}
    if text is not None:
        row["message"] = {"role": "model" if kind == "assistant" else "user", "parts": [{"text": text}]}
    return {**row, "cwd": "/w", "version": "0.19.0", **fields}


def lines(*rows):
    return b"".join(json.dumps(each).encode() + b"\n" for each in rows)


def only(data, **origin):
    (transcript,) = QWEN.read(data, Origin(**origin))
    return transcript


def texts(messages):
    return [each.text for each in messages]


def test_an_answer_over_several_records_is_one_with_the_largest_usage():
    answer = next(each.message for each in only(SESSION).thread.path() if isinstance(each.message, AssistantMessage))
    assert [type(part) for part in answer.content] == [Reasoning, type(answer.content[1]), ToolCall, ToolCall]
    assert answer.content[0] == Reasoning("I should read it.", signature="c2ln", wire="google_generate")
    assert answer.model == "qwen3-coder-plus"
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.cache_read, answer.usage.output, answer.usage.reasoning) == (60, 40, 20, 5)


def test_results_are_messages_and_their_media_go_with_them():
    results = [each.message for each in only(SESSION).thread.path() if isinstance(each.message, ToolMessage)]
    assert [(each.tool_call_id, each.tool_name, each.is_error) for each in results] == [
        ("c1", "read_file", False),
        ("c2", "run", True),
    ]
    assert isinstance(results[0].content[1], Image)


def test_the_last_record_is_the_leaf_and_what_was_rewound_a_branch():
    thread = only(SESSION).thread
    assert texts(each.message for each in thread.path("branch-1"))[-2:] == ["Delete it.", "Gone."]
    assert "Gone." not in texts(each.message for each in thread.path())


def test_a_compression_hides_for_models_alone():
    path = only(SESSION).thread.path()
    assert texts(for_model(path)) == [
        "The user asked for notes.txt.",
        "Got it. Thanks for the additional context!",
        "It is noon.",
        "And now?",
        "",
    ]
    people = texts(for_people(path))
    assert people[0].startswith("What is in notes.txt")
    assert people[-2:] == ["And now?", ""]
    assert "It is noon." not in people


def test_a_title_and_the_session_are_known():
    transcript = only(SESSION)
    session = transcript.metadata["session"]
    assert transcript.title == "Reading notes"
    assert (session["cwd"], session["program"], session["branch"]) == ("/home/me/project", "0.19.10", "main")


def test_a_sub_agent_is_a_thread_of_its_own():
    path = FOLDER / "qwen_code" / "subagent" / "agent-explore-1.jsonl"
    transcript = only(path.read_bytes(), name=str(path))
    session = transcript.metadata["session"]
    assert session["parent"] == only(SESSION).thread.id != transcript.thread.id
    assert session["agent"] == "explore-1"
    first = transcript.thread.path()[0].message
    assert first.source == "agent_launch_prompt"


def test_unknown_parts_are_kept_and_numbers_stay_as_they_are():
    last = next(each.message for each in reversed(only(SESSION).thread.path()) if not is_record(each))
    assert last.tool_calls[0].arguments_json == '{"a":5e-06,"b":1180591620717411303424,"s":"\\ud83d cut"}'
    assert isinstance(last.content[1], Opaque)


def test_an_unknown_parent_is_reported_and_follows_the_last():
    transcripts, drift = QWEN.read_with_unknown(
        lines(record("a", None, "user", "one"), record("b", "x", "user", "two"))
    )
    assert texts(each.message for each in transcripts[0].thread.path()) == ["one", "two"]
    assert [str(each) for each in drift] == ["line 2: link parentUuid"]


def test_answers_that_do_not_follow_one_another_stay_two():
    data = lines(
        record("a", None, "user", "one"), record("b", "a", "assistant", "x"), record("c", "a", "assistant", "y")
    )
    thread = only(data).thread
    assert texts(each.message for each in thread.path()) == ["one", "y"]
    assert texts(each.message for each in thread.path("branch-1")) == ["one", "x"]


def test_it_is_not_taken_for_claude_code():
    assert [each.file_format for each in transcripts.detect(SESSION)] == ["qwen_code"]


def test_an_edited_prompt_keeps_what_we_do_not_model():
    data = lines(record("a", None, "user", "one", future=1), record("b", "a", "assistant", "two"))
    transcript = only(data)
    first, second = transcript.thread.path()
    thread = type(transcript.thread)(transcript.thread.id)
    thread.add([type(first)("a", None, first.message.replace(content=["ONE"])), second], {"main": "b"})
    body = QWEN.write(type(transcript)(thread, None, transcript.metadata)).body.splitlines()
    row = json.loads(body[0])
    assert (row["message"]["parts"], row["future"], row["uuid"]) == ([{"text": "ONE"}], 1, "a")
    assert body[1] == data.splitlines()[1]


def test_a_message_added_follows_the_leaf():
    transcript = only(lines(record("a", None, "user", "one"), record("b", "a", "assistant", "two")))
    last = transcript.thread.path()[-1]
    transcript.thread.add([type(last)("n", "b", p.user("three").replace(sent_at=1))], {"main": "n"})
    row = json.loads(QWEN.write(transcript).body.splitlines()[-1])
    assert (row["parentUuid"], row["sessionId"], row["type"], row["cwd"]) == ("b", "s", "user", "/w")


def test_a_foreign_conversation_comes_back_equal():
    messages = [
        p.system("Be brief.").replace(sent_at=1),
        p.user("Read it.").replace(sent_at=2),
        p.assistant(
            Reasoning("Hm.", signature="c2ln", wire="anthropic_messages"), ToolCall("c1", "read", '{"a":\n1}')
        ).replace(sent_at=3, finish_reason="tool_calls", model="m"),
        p.tool("failed", tool_call_id="c1", is_error=True).replace(sent_at=4),
        FlushMarker(reason=COMPACTION, source=COMPACTION, sent_at=5),
        p.user("So far: nothing.").replace(sent_at=5, source=COMPACTION),
        p.user("Go on.").replace(sent_at=6),
    ]
    written = QWEN.write(transcript_of(messages, title="A title"))
    rows = [json.loads(line) for line in written.body.splitlines()]
    assert [(row["type"], row.get("subtype")) for row in rows] == [
        ("system", "custom_title"),
        ("system", "palaver"),
        ("user", None),
        ("assistant", None),
        ("tool_result", None),
        ("system", "chat_compression"),
        ("user", None),
    ]
    chain = [row["uuid"] for row in rows[1:-1]]
    assert [row["parentUuid"] for row in rows[2:]] == chain
    assert rows[4]["toolCallResult"] == {"callId": "c1", "status": "error"}
    assert rows[5]["systemPayload"]["compressedHistory"] == [{"role": "user", "parts": [{"text": "So far: nothing."}]}]
    transcript = only(written.body)
    assert transcript.title == "A title"
    back = [without_records(each.message) for each in transcript.thread.path() if not is_record(each)]
    assert [each.replace(id=None) for each in back] == messages
    assert ("converted", "system") in {(loss.kind, loss.what) for loss in written.losses}
