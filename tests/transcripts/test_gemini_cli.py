"""Gemini CLI chats: the patch log replayed, the older document, what rows become, and what is written."""

from __future__ import annotations

import json

import palaver as p
from palaver import transcripts
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.parts import Image, MalformedToolCall, Reasoning, ToolCall
from palaver.threads import for_model, for_people
from palaver.transcripts.conversation import transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.format import Origin
from tests.transcripts.samples import FOLDER

GEMINI = transcripts.get("gemini_cli")
LOG = (FOLDER / "gemini_cli" / "session-2026-01-02T03-04-0192f0c4.jsonl").read_bytes()
HEADER = {"sessionId": "s", "projectHash": "p", "startTime": "2026-01-02T03:04:05Z", "lastUpdated": "x"}


def chat(*rows, header=HEADER):
    return b"".join(json.dumps(each).encode() + b"\n" for each in (header, *rows))


def user(id, text):
    return {"id": id, "timestamp": "2026-01-02T03:04:06Z", "type": "user", "content": text}


def model(id, text, **fields):
    return {"id": id, "timestamp": "2026-01-02T03:04:07Z", "type": "gemini", "content": text, **fields}


def only(data, **origin):
    (transcript,) = GEMINI.read(data, Origin(**origin))
    return transcript


def seen(transcript, branch="main"):
    return [each.text for each in for_model(transcript.thread.path(branch))]


def test_the_log_is_replayed_so_that_nothing_is_said_twice():
    transcript = only(chat(user("a", "one"), model("b", "tw"), user("c", "three"), model("b", "two")))
    assert seen(transcript) == ["one", "two", "three"]
    assert [entry.id for entry in transcript.thread.path()][1:] == ["a", "b", "c"]


def test_what_was_rewound_is_a_branch():
    transcript = only(chat(user("a", "one"), model("b", "two"), user("c", "x"), {"$rewindTo": "b"}, user("d", "y")))
    assert seen(transcript) == ["one", "y"]
    assert seen(transcript, "branch-1") == ["one", "two", "x"]


def test_a_rewind_to_nobody_clears_all():
    transcripts, drift = GEMINI.read_with_unknown(chat(user("a", "one"), {"$rewindTo": "zz"}, user("b", "two")))
    assert seen(transcripts[0]) == ["two"]
    assert [str(each) for each in drift] == ["link $rewindTo"]


def test_a_rewind_is_tested_before_an_id():
    row = {"$rewindTo": "b", "id": "c", "type": "user", "content": "no"}
    assert seen(only(chat(user("a", "one"), user("b", "two"), row))) == ["one"]


def test_a_list_that_is_set_replaces_what_differs():
    rows = [user("a", "one"), model("b", "two"), user("c", "three")]
    masked = model("b", "masked")
    transcript = only(chat(*rows, {"$set": {"messages": [rows[0], masked, rows[2]]}}, model("d", "four")))
    assert seen(transcript) == ["one", "masked", "three", "four"]
    assert seen(transcript, "branch-1") == ["one", "two", "three"]
    unchanged = only(chat(*rows, {"$set": {"messages": []}}, {"$set": {"messages": rows}}))
    assert seen(unchanged) == ["one", "two", "three"]
    assert set(unchanged.thread.branches) == {"main"}


def test_an_answer_and_its_results_share_a_row():
    path = only(LOG).thread.path()
    answer = next(each.message for each in path if each.message.tool_calls)
    assert isinstance(answer, AssistantMessage)
    assert isinstance(answer.content[0], Reasoning)
    assert answer.content[0].text.startswith("**Reading**\nI should read")
    assert answer.content[0].signature is None
    assert [call.name for call in answer.tool_calls] == [
        "read_file",
        "run_shell_command",
        "codebase_investigator",
    ]
    assert '"limit":5e-06' in answer.tool_calls[0].arguments_json
    results = [each.message for each in path if isinstance(each.message, ToolMessage)]
    assert [(each.tool_call_id, each.is_error) for each in results] == [("read_file-1", False), ("run-2", True)]
    assert results[1].text == "see the log"


def test_input_counts_what_came_from_the_cache():
    usage = next(each.message.usage for each in only(LOG).thread.path() if each.message.tool_calls)
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning) == (30, 100, 20, 9)
    assert usage.raw["total"] == usage.total


def test_notices_are_for_people_alone():
    path = only(LOG).thread.path()
    assert any("update available" in each.text for each in for_people(path))
    assert not any("update available" in each.text for each in for_model(path))


def test_what_was_sent_counts_and_not_what_was_shown():
    first = for_people(only(LOG).thread.path())[1]
    assert first.text.startswith("Look at the picture")
    assert isinstance(first.content[1], Image)


def test_calls_without_a_result_have_none():
    calls = [
        {"id": "x", "name": "f", "args": {}, "result": None, "status": "cancelled"},
        {"id": "y", "name": "f", "args": [1], "status": "error"},
    ]
    path = only(chat(model("a", "", toolCalls=calls))).thread.path()
    assert [type(each) for each in path[-1].message.content] == [ToolCall, MalformedToolCall]


def test_the_older_document_is_a_list_of_messages():
    for name in ("legacy.json", "compact.json"):
        transcript = only((FOLDER / "gemini_cli" / name).read_bytes())
        assert transcript.title == "Notes"
        assert seen(transcript)[0] == "Hello, what is in notes.txt?"
    assert transcripts.detect((FOLDER / "gemini_cli" / "legacy.json").read_bytes())[0].file_format == "gemini_cli"


def test_a_message_added_to_a_document_stands_in_its_list():
    data = (FOLDER / "gemini_cli" / "legacy.json").read_bytes()
    transcript = only(data)
    thread = transcript.thread
    last = thread.path()[-1].id
    new = p.user("And then?").replace(id="new", sent_at=1)
    thread.add([type(thread.path()[0])("new", last, new)], {"main": "new"})
    written = GEMINI.write(transcript)
    assert json.loads(written.body)["messages"][-1]["content"] == [{"text": "And then?"}]
    assert written.body.startswith(data[:200])


def test_a_sub_agent_names_the_thread_of_its_parent():
    parent = "0192f0c4-5555-7000-8000-000000000001"
    data = chat(user("a", "one"), header={**HEADER, "kind": "subagent"})
    assert only(data, name=f"/x/chats/{parent}/s.jsonl").metadata["session"]["parent"] == parent
    assert "parent" not in only(data, name="/x/chats/s.jsonl").metadata["session"]


def test_an_edited_answer_changes_its_last_row_alone():
    data = chat(user("a", "one"), model("b", "tw"), model("b", "two", future=5e-06))
    transcript = only(data)
    entry = transcript.thread.path()[-1]
    changed = type(entry)(entry.id, entry.parent, entry.message.replace(content=["TWO"]))
    thread = type(transcript.thread)(transcript.thread.id)
    thread.add([*transcript.thread.path()[:-1], changed], {"main": "b"})
    body = GEMINI.write(type(transcript)(thread, None, transcript.metadata)).body
    assert body.splitlines()[:3] == data.splitlines()[:3]
    row = json.loads(body.splitlines()[3])
    assert (row["content"], row["future"], row["id"]) == ("TWO", 5e-06, "b")


def test_a_foreign_conversation_comes_back_equal():
    messages = [
        p.system("Be brief.").replace(sent_at=1),
        p.user("Read it.").replace(sent_at=2),
        p.assistant(
            Reasoning("**Plan**\nRead.", signature="c2ln", wire="anthropic_messages"),
            "RecordReader.",
            ToolCall("c1", "read", '{"path": "a",\n "n": 1}'),
        ).replace(sent_at=3, finish_reason="tool_calls", model="m"),
        p.tool("text", tool_call_id="c1").replace(sent_at=4),
        p.tool("nobody asked", tool_call_id="lost").replace(sent_at=5),
        p.assistant("Done.").replace(sent_at=6),
    ]
    written = GEMINI.write(transcript_of(messages))
    rows = [json.loads(line) for line in written.body.splitlines()]
    assert [row.get("type") for row in rows] == [None, None, "user", "gemini", "user", "gemini"]
    assert rows[0].keys() >= {"sessionId", "projectHash", "startTime", "lastUpdated"}
    call = rows[3]["toolCalls"][0]
    assert call["result"] == [{"functionResponse": {"id": "c1", "name": "read", "response": {"output": "text"}}}]
    assert (call["status"], rows[3]["thoughts"][0]["subject"]) == ("success", "Plan")
    back = [without_records(each.message) for each in only(written.body).thread.path()[1:]]
    assert [each.replace(id=None) for each in back] == messages
    told = {(loss.kind, loss.what) for loss in written.losses}
    assert {("converted", "reasoning proof"), ("converted", "system")} <= told
    assert not any("signature of Gemini" in loss.why for loss in written.losses)


def test_what_metadata_should_not_hold_is_not_taken():
    header = {**HEADER, "kind": 10**400, "directories": ["/w", 1], "projectHash": None}
    session = only(chat(user("a", "one"), header=header)).metadata["session"]
    assert session["more"] == {"directories": ["/w"]}


def added(transcript, parent, *messages):
    path = transcript.thread.path()
    for number, message in enumerate(messages):
        transcript.thread.add([type(path[0])(f"n{number}", parent, message)], {"main": f"n{number}"})
        parent = f"n{number}"
    return GEMINI.write(transcript)


def test_a_message_on_an_older_place_takes_back_what_it_does_not_follow():
    data = chat(user("a", "one"), model("b", "two"), user("c", "x"), {"$rewindTo": "c"}, user("d", "three"))
    said = [p.assistant("TWO").replace(sent_at=1), p.user("go on").replace(sent_at=2)]
    written = added(only(data), "a", *said)
    assert written.body.startswith(data)
    assert json.loads(written.body.splitlines()[6]) == {"$rewindTo": "b"}
    assert len(written.body.splitlines()) == 9
    assert seen(only(written.body)) == ["one", "TWO", "go on"]


def test_a_message_at_the_end_takes_back_nothing():
    data = chat(user("a", "one"), model("b", "two"), {"$set": {"lastUpdated": "x"}})
    transcript = only(data)
    written = added(transcript, transcript.thread.path()[-1].id, p.user("three").replace(sent_at=1))
    assert b"$rewindTo" not in written.body
    assert seen(only(written.body)) == ["one", "two", "three"]


def test_a_call_that_is_also_in_the_content_is_one_call():
    call = {"id": "c1", "name": "look", "args": {"x": 1}}
    result = {"functionResponse": {"id": "c1", "name": "look", "response": {"output": "seen"}}}
    rows = [
        {
            "sessionId": "s",
            "projectHash": "h",
            "startTime": "2026-01-02T03:04:05Z",
            "lastUpdated": "2026-01-02T03:04:05Z",
        },
        {"id": "1", "timestamp": "2026-01-02T03:04:05Z", "type": "user", "content": "Look."},
        {
            "id": "2",
            "timestamp": "2026-01-02T03:04:06Z",
            "type": "gemini",
            "content": [{"text": "I look."}, {"functionCall": call}],
            "toolCalls": [{**call, "result": [result], "status": "success", "timestamp": "2026-01-02T03:04:06Z"}],
        },
        {"id": "3", "timestamp": "2026-01-02T03:04:07Z", "type": "user", "content": [result]},
    ]
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    file_format = transcripts.get("gemini_cli")
    (transcript,) = file_format.read(data)
    told = [entry.message for entry in transcript.thread.path() if "record" not in entry.message.tags]
    assert [message.role for message in told] == ["user", "assistant", "tool"]
    assert len(told[1].tool_calls) == 1
    assert file_format.write(transcript).body == data
