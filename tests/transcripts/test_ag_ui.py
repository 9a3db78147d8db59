"""AG-UI: lists and streams, responses put together, snapshots, sub-agents; what is written, and what is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaver import assistant, system, tool, transcripts, user
from palaver.core.messages import AssistantMessage, DeveloperMessage, FlushMarker, SystemMessage, ToolMessage
from palaver.core.parts import (
    Audio,
    Citation,
    File,
    FileId,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Url,
)
from palaver.core.usage import Usage
from palaver.threads.thread import Entry
from palaver.threads.view import for_model, for_people
from palaver.transcripts.conversation import derived_id, session_of, transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record

FORMAT = transcripts.get("ag_ui")
FILES = Path(__file__).parent / "files" / "ag_ui"


def lines(*events):
    return b"\n".join(json.dumps(each).encode() for each in events) + b"\n"


def event(kind, **fields):
    return {"type": kind, **fields}


def messages(transcript, branch="main"):
    return [entry.message for entry in transcript.thread.path(branch) if not is_record(entry)]


def said(transcript):
    return [without_records(each).replace(id=None) for each in messages(transcript)]


def file(name):
    return FORMAT.read((FILES / name).read_bytes())


def of(*events):
    return messages(FORMAT.read(lines(*events))[0])


def edited(transcript, found, text):
    thread = type(transcript.thread)(transcript.thread.id)
    for entry in transcript.thread.entries:
        message = entry.message
        if message.text == found and not is_record(entry):
            others = [part for part in message.content if not isinstance(part, Text)]
            message = message.replace(content=(text, *others))
        thread.add([Entry(entry.id, entry.parent, message)])
    thread.add((), transcript.thread.branches)
    return type(transcript)(thread, transcript.title, transcript.metadata)


# -- what is read ------------------------------------------------------------------------------------------------------


def test_every_message_of_a_list():
    found = messages(file("input.json")[0])
    assert isinstance(found[0], DeveloperMessage)
    assert isinstance(found[1], SystemMessage)
    assert [type(part) for part in found[2].content] == [Text, Image, File, Audio, Image]
    assert [type(part) for part in found[3].content] == [Reasoning, Text, ToolCall, MalformedToolCall]
    assert found[3].content[0].encrypted == "b3BhcXVl"
    assert found[3].tool_calls[0].provider == {"ag_ui": {"encryptedValue": "c2ln"}}
    assert (found[4].tool_name, found[5].is_error, found[5].metadata["error"]) == ("lookup", True, "no such \ud83d")
    assert [each.text for each in found[6:]] == ["A lighthouse."]


def test_a_sub_agent_of_a_list_is_a_branch():
    (transcript,) = file("input.json")
    assert [each.text for each in messages(transcript, "subagent-sub-1")] == ["Sub-task", "Sub-answer"]


def test_a_response_is_put_together_from_its_events():
    found = messages(file("events.jsonl")[0])
    assert found[1].content == (
        Reasoning("Look it up.", encrypted="ZW5j"),
        Text("One moment."),
        ToolCall("c1", "height", '{"of": "tower"}'),
        ToolCall("c2", "height", "{}"),
    )
    assert found[1].sent_at == 1767323046000
    assert [(each.tool_name, each.text) for each in found[2:4]] == [("height", "38 m"), ("height", "40 m")]


def test_chunks_go_on_until_another_id_and_usage_is_that_of_the_run():
    answer = messages(file("events.jsonl")[0])[4]
    assert answer.text == "About 39 m."
    assert (answer.model, answer.usage) == (
        "gpt-5",
        Usage(input=20, cache_read=30, output=5, reasoning=4, raw_json=answer.usage.raw_json),
    )


def test_usage_of_several_models_is_added_and_no_model_is_named():
    answer = [each for each in messages(file("stream.txt")[0]) if isinstance(each, AssistantMessage)][-1]
    assert (answer.usage.input, answer.usage.output, answer.model) == (7, 2, None)
    assert len(answer.usage.raw) == 2


def test_a_list_at_the_start_of_a_run_adds_what_is_new_only():
    found = messages(file("events.jsonl")[0])
    assert [each.text for each in found].count("How high is it?") == 1
    assert found[5].text == "And how old?"


def test_a_run_that_fails_ends_its_response():
    answer = messages(file("events.jsonl")[0])[6]
    assert (answer.finish_reason, answer.metadata["error"]) == ("error", "the model is gone")


def test_a_snapshot_replaces_what_the_model_sees():
    path = file("events.jsonl")[0].thread.path()
    assert [each.text for each in for_model(path)] == ["They asked for the height.", "And how old?", "Very old."]
    assert [each.text for each in for_people(path)].count("And how old?") == 1


def test_a_sub_agent_of_a_stream_has_its_thread():
    main, sub = file("events.jsonl")
    session = session_of(sub.metadata)
    assert (session.parent, session.call, session.agent) == (main.thread.id, "c2", "surveyor")
    assert [each.text for each in messages(sub)] == ["Measuring. Done."]


def test_thinking_of_before_1_0_is_reasoning():
    (transcript,), drift = FORMAT.read_with_unknown((FILES / "stream.txt").read_bytes())
    found = messages(transcript)
    assert drift == ()
    assert found[0].reasoning == "Hm."
    assert [each.role for each in found] == ["assistant", "user", "assistant"]


def test_text_behind_text_is_the_next_response():
    found = of(
        event("TEXT_MESSAGE_CHUNK", messageId="a", delta="one"),
        event("TEXT_MESSAGE_CHUNK", messageId="b", delta="two"),
        event("TOOL_CALL_START", toolCallId="c", toolCallName="f"),
    )
    assert [each.text for each in found] == ["one", "two"]
    assert len(found[1].tool_calls) == 1


def test_activity_is_for_the_user_interface():
    data = json.dumps([{"id": "1", "role": "activity", "activityType": "P", "content": {}}]).encode()
    (transcript,) = FORMAT.read(data)
    assert messages(transcript) == []


def test_unknown_events_roles_keys_and_newer_versions_are_reported_and_kept():
    data = lines(
        event("RUN_STARTED", threadId="t", runId="r", protocolVersion="2.0", mood=1),
        event("HOLOGRAM"),
        event("TEXT_MESSAGE_CONTENT", messageId="x", delta="without a start"),
        event("MESSAGES_SNAPSHOT", messages=[{"id": "1", "role": "critic"}]),
    )
    transcripts, drift = FORMAT.read_with_unknown(data)
    assert {(each.kind, each.name) for each in drift} >= {
        ("version", "2.0"),
        ("key", "RUN_STARTED.mood"),
        ("record", "HOLOGRAM"),
        ("link", "TEXT_MESSAGE_CONTENT"),
        ("unread", "a message of role critic"),
    }
    assert FORMAT.write_many(transcripts).body == data


@pytest.mark.parametrize(
    "odd",
    [
        b'data: {"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"torn',
        b'{"type":"TEXT_MESSAGE_CHUNK"}\n{"type":"TOOL_CALL_ARGS","delta":7}\n\nnonsense\n',
        b'{"type":"MESSAGES_SNAPSHOT","messages":7}\n{"type":"RUN_STARTED","input":[]}',
        b'[{"id":7,"role":"assistant","toolCalls":[1,{"function":2}],"content":[1]},3]',
        b'{"threadId":"t","runId":"r",\n"messages":[{"id":"1","role":"user","content":{"a":NaN}}]}',
        b'{"threadId":"t","runId":"r",\n"messages":[{"id":"1","role":"tool","content":"\\ud83d"}]}',
        b"",
        b"\n\n: only a comment\n",
    ],
)
def test_odd_input_is_kept_as_it_is(odd):
    transcripts = FORMAT.read(odd)
    assert not transcripts or FORMAT.write_many(transcripts).body == odd


# -- what is written ---------------------------------------------------------------------------------------------------


HISTORY = [
    system("Be brief."),
    user("Look", Image(Inline("iVBORw0KGgo="), "image/png"), File(Url("https://x/a.pdf"), name="a.pdf")),
    AssistantMessage(
        content=(
            Reasoning("hm", signature="s", wire="anthropic_messages"),
            Text("I call.", (Citation(url="https://x"),)),
            ToolCall("c1", "f", '{"a": 1.0,\n "b": "\ud83d"}'),
            MalformedToolCall("{", "the arguments are not JSON", "g", "c2"),
            Text("behind the calls"),
            Refusal("no"),
            Audio(FileId("f", "openai_chat")),
        ),
        model="claude",
        usage=Usage(input=1, cache_read=2),
        finish_reason="tool_calls",
        agent="worker",
    ),
    ToolMessage(content=(Json.of({"n": 1}),), tool_call_id="c1", tool_name="f"),
    tool("bad", tool_call_id="c2", tool_name="g").replace(is_error=True),
    assistant("done"),
    AssistantMessage(content=(ToolCall("c4", "f", ""),)),
    AssistantMessage(content=()),
    AssistantMessage(content=(Text(""),)),
]


def test_another_conversation_is_written_as_a_run_and_comes_back_the_same():
    written = FORMAT.write(transcript_of(HISTORY))
    (transcript,) = FORMAT.read(written.body)
    assert said(transcript) == HISTORY
    found = json.loads(written.body)
    assert {"threadId", "runId", "messages"} <= found.keys()
    assert len({each["id"] for each in found["messages"]}) == len(found["messages"])
    assert {(loss.kind, loss.what) for loss in written.losses} == {
        ("converted", "citations"),
        ("converted", "audio"),
        ("converted", "signature"),
        ("converted", "malformed_tool_call"),
        ("converted", "refusal"),
        ("converted", "json"),
    }
    assert b"palaver" not in FORMAT.write(transcript_of(HISTORY), carry=False).body


def test_an_edited_message_of_a_list_changes_alone():
    body = (FILES / "messages.json").read_bytes()
    (transcript,) = FORMAT.read(body)
    assert FORMAT.write(edited(transcript, "Thanks", "Bye")).body == body.replace(b"Thanks", b"Bye")
    (again,) = FORMAT.read(FORMAT.write(edited(transcript, "One moment.", "Two.")).body)
    assert messages(again)[1].text == "Two."
    assert messages(again)[1].reasoning == "I look it up."


def test_an_edited_response_of_a_stream_is_written_anew():
    main, sub = file("events.jsonl")
    written = FORMAT.write_many([edited(main, "One moment.", "Two."), sub])
    again, other = FORMAT.read(written.body)
    assert messages(again)[1].text == "Two."
    assert [call.id for call in messages(again)[1].tool_calls] == ["c1", "c2"]
    assert b'"STATE_SNAPSHOT"' in written.body
    assert [each.text for each in messages(other)] == ["Measuring. Done."]


def test_an_edited_event_stream_stays_one():
    (transcript,) = file("stream.txt")
    written = FORMAT.write(edited(transcript, "Hello\u2028", "Bye"))
    (again,), drift = FORMAT.read_with_unknown(written.body)
    assert drift == ()
    assert messages(again)[-1].text == "Bye"
    assert messages(again)[-1].usage.input == 7


@pytest.mark.parametrize("found", ["How high is it?", "One moment.", "38 m", "About 39 m."])
def test_an_edit_is_in_the_list_of_a_later_run_too(found):
    """The second run begins with the whole history: it is no history of its own after an edit."""
    (transcript, *_) = file("events.jsonl")
    written = FORMAT.write(edited(transcript, found, "ZZ"))
    assert not [loss for loss in written.losses if loss.what == "edit"]
    assert found.encode() not in written.body
    (again, *_) = FORMAT.read(written.body)
    assert [each.text for each in messages(again)] == [each.text.replace(found, "ZZ") for each in messages(transcript)]


def test_an_edit_in_the_list_of_a_later_run_changes_alone():
    body = (FILES / "events.jsonl").read_bytes()
    main, sub = FORMAT.read(body)
    written = FORMAT.write_many([edited(main, "How high is it?", "ZZ"), sub])
    assert written.body == body.replace(b"How high is it?", b"ZZ")


def test_an_edit_leaves_a_list_that_cannot_be_read_as_it_is():
    first = lines(event("MESSAGES_SNAPSHOT", messages=[{"id": "u1", "role": "user", "content": "Hello there, you"}]))
    body = first + first.replace(b"you", b"\xf4")
    written = FORMAT.write(edited(FORMAT.read(body)[0], "Hello there, you", "ZZ"))
    assert written.body == first.replace(b"Hello there, you", b"ZZ") + first.replace(b"you", b"\xf4")


def test_an_edit_in_a_list_of_one_line():
    body = (FILES / "snapshot.json").read_bytes()
    written = FORMAT.write(edited(FORMAT.read(body)[0], "Hi", "Hey"))
    assert written.body == body.replace(b'"Hi"', b'"Hey"')


def test_messages_added_to_a_stream_are_written_as_events():
    (transcript,) = file("stream.txt")
    thread = transcript.thread
    more = [
        Entry("q", thread.branches["main"], user("more")),
        Entry("r", "q", assistant("less", ToolCall("c", "f", "{}"))),
    ]
    thread.add(more, {"main": "r"})
    (again,), drift = FORMAT.read_with_unknown(FORMAT.write(transcript).body)
    assert drift == ()
    assert [each.text for each in messages(again)][-2:] == ["more", "less"]
    assert messages(again)[-1].tool_calls == (ToolCall("c", "f", "{}"),)


def test_an_id_that_we_made_once_is_not_made_again():
    """Ids that are derived may have been written into the file that is read."""
    thread = derived_id("ag_ui", "")
    clash = derived_id("ag_ui", thread, None, 2)
    said = [event(kind, messageId=clash, role="user") for kind in ("TEXT_MESSAGE_START", "TEXT_MESSAGE_END")]
    (transcript,) = FORMAT.read(lines(*said, event("STEP_STARTED", stepName="s"), event("CUSTOM", name="n", value=1)))
    assert transcript.thread.entries[0].id == clash
    assert len({entry.id for entry in transcript.thread.entries}) == 3


def test_markers_are_lost():
    written = FORMAT.write(transcript_of([user("a"), FlushMarker(reason="r"), user("b")]), history="all")
    assert [(loss.kind, loss.what) for loss in written.losses] == [("dropped", "flush")]


@pytest.mark.parametrize(
    ("data", "sure"),
    [
        (b'{"type":"RUN_STARTED","threadId":"t","runId":"r"}\n', True),
        (b'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n', True),
        (b'{"threadId":"t","runId":"r","messages":[]}', True),
        (b'[{"id":"1","role":"tool","toolCallId":"c","content":"x"}]', True),
        (b'[{"role":"assistant","tool_calls":[]}]', False),
        (b'[{"id":"1","role":"user","parts":[{"type":"text","text":"x"}]}]', False),
        (b'{"messages":[{"role":"user","content":"x"}]}', False),
        (b'data: {"type":"message_start","message":{}}\n\n', False),
        (b'{"type":"session","id":"1"}', False),
    ],
)
def test_detection(data, sure):
    assert (FORMAT.detect(data) is not None) is sure
