"""pi sessions: what entries become, trees, compactions, versions, and what is written."""

from __future__ import annotations

import json

import palaver as p
from palaver import transcripts
from palaver.core.messages import AssistantMessage, UserMessage
from palaver.core.parts import Image, Reasoning
from palaver.core.usage import Usage
from palaver.threads import for_model, for_people
from palaver.transcripts.conversation import transcript_of
from palaver.transcripts.original_bytes import bare
from tests.transcripts.samples import FOLDER

PI = transcripts.get("pi")
SESSION = (FOLDER / "pi" / "branches.jsonl").read_bytes()
HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-02T03:04:05Z", "cwd": "/w"}


def session(*entries, header=HEADER):
    return b"".join(json.dumps(each).encode() + b"\n" for each in (header, *entries))


def entry(number, parent, **fields):
    return {"id": f"e{number}", "parentId": parent, "timestamp": "2026-01-02T03:04:05Z", **fields}


def prompt(number, parent, text):
    return entry(number, parent, type="message", message={"role": "user", "content": text, "timestamp": 1})


def only(data):
    (transcript,) = PI.read(data)
    return transcript


def texts(messages):
    return [each.text for each in messages]


def test_an_answer_says_what_it_cost_and_how_it_ended():
    answer = next(e.message for e in only(SESSION).thread.path() if isinstance(e.message, AssistantMessage))
    assert answer.model == "claude-sonnet-4-5"
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output, answer.usage.cache_read, answer.usage.cache_write) == (
        10,
        20,
        0,
        5,
    )
    assert (answer.finish_reason, answer.finish_reason_raw) == ("tool_calls", "toolUse")
    assert answer.content[0] == Reasoning("I should read it.", signature="c2lnbmF0dXJl", wire="anthropic_messages")
    assert answer.tool_calls[0].arguments_json == '{"path": "notes.txt", "limit": 5e-06}'


def test_the_leaf_is_the_last_entry_and_the_other_answer_a_branch():
    thread = only(SESSION).thread
    assert set(thread.branches) == {"main", "branch-1"}
    assert texts(each.message for each in thread.path("branch-1"))[-1] == "It says: first line."
    assert thread.path()[-1].id == "a000000a"


def test_a_compaction_hides_and_keeps_what_stood_on_its_line():
    path = only(SESSION).thread.path()
    seen = texts(for_model(path))
    assert seen == ["The user asked for notes.txt.", "first line\u2028same line \ud83d cut", "Aborted half", "And now?"]
    people = [each for each in for_people(path) if isinstance(each, UserMessage)]
    assert texts(people) == [people[0].text, "And now?"]
    assert isinstance(people[1].content[1], Image)


def test_a_second_compaction_may_keep_what_the_first_kept():
    data = session(
        prompt(1, None, "one"),
        prompt(2, "e1", "two"),
        entry(3, "e2", type="compaction", summary="first", firstKeptEntryId="e2", tokensBefore=1),
        prompt(4, "e3", "three"),
        entry(5, "e4", type="compaction", summary="second", firstKeptEntryId="e2", tokensBefore=1),
        prompt(6, "e5", "four"),
    )
    path = only(data).thread.path()
    assert texts(for_model(path)) == ["second", "two", "three", "four"]
    assert texts(for_people(path)) == ["one", "two", "three", "four"]


def test_version_1_counts_lines_with_the_header():
    header = {"type": "session", "id": "s", "timestamp": "t", "cwd": "/w", "provider": "x", "modelId": "m"}
    said = [{"type": "message", "message": {"role": "user", "content": each}} for each in ("one", "two", "three")]
    compaction = {"type": "compaction", "summary": "so far", "firstKeptEntryIndex": 2}
    transcript = only(session(*said, compaction, said[0], header=header))
    assert texts(for_model(transcript.thread.path())) == ["so far", "two", "three", "one"]
    assert transcript.metadata["session"]["format"] == "1"


def test_what_is_sent_and_not_shown_has_a_source():
    data = session(
        entry(1, None, type="custom_message", customType="note", content="psst", display=False),
        entry(2, "e1", type="custom_message", customType="note", content="hear", display=True),
        entry(3, "e2", type="branch_summary", fromId="e1", summary="went elsewhere"),
        entry(4, "e3", type="custom", customType="state", data={"x": 1}),
        entry(
            5, "e4", type="message", message={"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 0}
        ),
    )
    path = only(data).thread.path()
    assert texts(for_model(path)) == ["psst", "hear", "went elsewhere", "Ran `ls`\n```\na\n```"]
    assert texts(for_people(path)) == ["hear", "Ran `ls`\n```\na\n```"]


def test_an_unknown_parent_is_reported_and_follows_the_last():
    transcripts, drift = PI.read_with_unknown(session(prompt(1, None, "one"), prompt(2, "nobody", "two")))
    assert texts(each.message for each in transcripts[0].thread.path()) == ["", "one", "two"]
    assert [str(each) for each in drift] == ["line 3: link parentId"]


def test_what_is_not_known_is_kept_and_named():
    odd = entry(2, "e1", type="dream", depth=3)
    data = session(prompt(1, None, "one"), odd, entry(3, "e2", type="message", message={"role": "ghost"}))
    transcripts, drift = PI.read_with_unknown(data)
    assert [str(each) for each in drift] == [
        "line 3: unknown record dream",
        "line 4: unread message of role ghost",
    ]
    assert PI.write(transcripts[0]).body == data


def test_a_session_is_written_that_pi_reads():
    talk = [
        p.user("hi"),
        p.assistant("ho", model="m", usage=Usage(input=1, output=2, reasoning=3)),
        p.assistant(tool_calls=[p.tool_call("f", {"a": 1}, id="c")]),
        p.tool("no", tool_call_id="c", tool_name="f", is_error=True),
    ]
    written = PI.write(transcript_of(talk))
    assert written.losses == ()
    header, *entries = map(json.loads, written.body.splitlines())
    assert header["version"] == 3
    assert [each["parentId"] for each in entries] == [None, *(each["id"] for each in entries[:-1])]
    assert all(len(each["id"]) == 8 for each in entries)
    assert entries[1]["message"]["usage"]["output"] == 5
    assert entries[2]["message"]["stopReason"] == "toolUse"
    assert entries[3]["message"]["isError"] is True


def test_what_pi_cannot_say_comes_back_all_the_same():
    talk = [p.system("be brief"), p.user("hi", metadata={"x": 1}), p.assistant("ho", response_id="r"), p.rescue("odd")]
    written = PI.write(transcript_of(talk))
    assert [loss.what for loss in written.losses] == ["system", "rescue"]
    back = [bare(each.message, "pi").replace(id=None, sent_at=None) for each in only(written.body).thread.path()[1:]]
    assert back == talk
    assert b"palaver" not in PI.write(transcript_of(talk[1:3]), carry=False).body


def test_an_entry_that_was_edited_elsewhere_wins_over_what_was_carried():
    written = PI.write(transcript_of([p.user("hi", metadata={"x": 1})]))
    (message,) = [each.message for each in only(written.body.replace(b'"hi"', b'"ho"')).thread.path()[1:]]
    assert (message.text, dict(message.metadata)) == ("ho", {})


def test_what_was_added_follows_what_it_follows():
    transcript = only(SESSION)
    transcript.thread.append(p.user("More?"))
    written = PI.write(transcript)
    assert written.body.startswith(SESSION)
    added = json.loads(written.body[len(SESSION) :])
    assert added["parentId"] == "a000000a"
