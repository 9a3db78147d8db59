"""Messages of the OpenTelemetry conventions: lists, attributes, spans by longest beginning, older generations."""

# Which class a message has is known from its place.
# pyright: basic, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
# pyright: reportAssignmentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaver import assistant, system, tool, transcripts, user
from palaver.core.messages import AssistantMessage, FlushMarker, SystemMessage, ToolMessage, UserMessage
from palaver.core.parts import (
    Audio,
    Citation,
    File,
    FileId,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
)
from palaver.core.usage import Usage
from palaver.threads.thread import Entry
from palaver.transcripts.conversation import session_of, transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record

FORMAT = transcripts.get("otel_genai")
FILES = Path(__file__).parent / "files" / "otel_genai"
ASKED = {"role": "user", "parts": [{"type": "text", "content": "a"}]}
ANSWERED = {"role": "assistant", "parts": [{"type": "text", "content": "b"}]}


def read(data):
    (transcript,) = FORMAT.read(data if isinstance(data, bytes) else json.dumps(data).encode())
    return transcript


def lines(*spans):
    return b"\n".join(json.dumps(each).encode() for each in spans) + b"\n"


def span(asked, answered=None, **more):
    held = {"gen_ai.input.messages": asked} | ({} if answered is None else {"gen_ai.output.messages": answered})
    return held | more


def messages(transcript, branch="main"):
    return [entry.message for entry in transcript.thread.path(branch) if not is_record(entry)]


def said(transcript):
    return [without_records(each).replace(id=None) for each in messages(transcript)]


def file(name):
    return read((FILES / name).read_bytes())


def edited(transcript, found, text):
    thread = type(transcript.thread)(transcript.thread.id)
    for entry in transcript.thread.entries:
        message = entry.message.replace(content=(text,)) if entry.message.text == found else entry.message
        thread.add([Entry(entry.id, entry.parent, message)])
    thread.add((), transcript.thread.branches)
    return type(transcript)(thread, transcript.title, transcript.metadata)


# -- what is read ------------------------------------------------------------------------------------------------------


def test_every_part_of_a_list():
    found = messages(file("messages.json"))
    assert [type(each) for each in found] == [
        SystemMessage,
        UserMessage,
        AssistantMessage,
        ToolMessage,
        ToolMessage,
        ToolMessage,
        UserMessage,
        AssistantMessage,
    ]
    assert [type(part) for part in found[1].content] == [Text, Image, File, Audio]
    reasoning, text, one, two, three, call, result = found[2].content
    assert (reasoning.text, text.text, dict(one.arguments)) == ("I look.", "One moment.", {"pier": "old", "n": 5e-06})
    assert two.arguments_json == '{"pier": 1.0}'
    assert isinstance(three, MalformedToolCall)
    assert call.provider_executed
    assert isinstance(result, ServerToolResult)
    assert (found[2].finish_reason, found[2].finish_reason_raw) == ("tool_calls", "tool_call")
    assert isinstance(found[4].content[0], Json)
    assert (found[5].text, found[5].tool_call_id) == ("no \ud83d", "c3")
    assert isinstance(found[7].content[1], Opaque)


def test_instructions_alone_are_one_message():
    assert [each.text for each in messages(file("instructions.json"))] == ["Be brief.Be kind."]


def test_attributes_in_a_document():
    assert [each.role for each in messages(file("attributes.json"))] == ["system", "user", "assistant"]


def test_spans_are_one_conversation_by_the_longest_beginning():
    transcript = file("spans.jsonl")
    assert [each.text for each in messages(transcript)] == [
        "Be brief.",
        "When does the ferry leave?",
        "",
        "six",
        "At six.",
        "And back?",
        "At ten.",
    ]
    assert session_of(transcript.metadata).id == "conv-1"


def test_what_only_the_answer_says_of_itself_comes_from_its_span():
    answer = messages(file("spans.jsonl"))[2]
    assert answer.usage == Usage(input=10, cache_read=100, output=12, reasoning=8, raw_json=answer.usage.raw_json)
    assert (answer.model, answer.response_id) == ("claude-sonnet-4-5-20250929", "msg_1")
    assert answer.reasoning == "hm"
    assert answer.content[0].wire == "anthropic_messages"
    assert answer.sent_at == 1767323046000


def test_several_answers_and_other_tasks_are_branches():
    transcript = file("spans.jsonl")
    assert [each.text for each in messages(transcript, "branch-1")][-1] == "At nine."
    assert [each.text for each in messages(transcript, "branch-2")] == ["Be brief.", "A sub-agent's task"]
    assert messages(transcript)[-1].finish_reason == "length"


def test_an_export_of_otlp_is_read_in_the_order_of_time():
    found = messages(file("export.jsonl"))
    assert [each.role for each in found] == ["user", "assistant", "tool", "assistant"]
    assert found[3].usage.input == 7


def test_older_generations_are_read():
    found = messages(file("older.jsonl"))
    assert [each.role for each in found] == ["system", "user", "assistant", "tool", "assistant"]
    assert found[2].tool_calls[0].arguments_json == '{"a":1}'
    assert (found[2].usage.input, found[3].tool_call_id, found[4].finish_reason) == (4, "c", "stop")


def test_alternating_conversations_are_separated_and_written_in_their_order():
    data = lines(
        span([ASKED], [ANSWERED], **{"gen_ai.conversation.id": "1"}),
        span([ASKED], [ANSWERED], **{"gen_ai.conversation.id": "2"}),
        span([ASKED, ANSWERED, ASKED], None, **{"gen_ai.conversation.id": "1"}),
    )
    transcripts = FORMAT.read(data)
    assert [len(messages(each)) for each in transcripts] == [3, 2]
    assert FORMAT.write_many(transcripts).body == data


def test_text_that_was_cut_is_reported_and_kept():
    data = lines(span(json.dumps([ASKED])[:-9], json.dumps([ANSWERED])), {"gen_ai.input.messages": '[{"role"'})
    transcripts, drift = FORMAT.read_with_unknown(data)
    assert [(each.kind, each.name, each.count) for each in drift] == [
        ("unread", "gen_ai.input.messages is cut, or is not a list", 2)
    ]
    assert [each.text for each in messages(transcripts[0])] == ["b"]
    assert FORMAT.write_many(transcripts).body == data


def test_unknown_parts_roles_and_keys_are_reported_and_kept():
    data = json.dumps([{"role": "critic", "mood": 1, "parts": [{"type": "hologram", "x": 1}, 7]}, {"a": 1}]).encode()
    transcripts, drift = FORMAT.read_with_unknown(data)
    assert {(each.kind, each.name) for each in drift} == {
        ("key", "message.mood"),
        ("unread", "role critic"),
        ("block", "hologram"),
        ("block", "a number"),
        ("unread", "an item that is not a message"),
    }
    assert FORMAT.write_many(transcripts).body == data


@pytest.mark.parametrize(
    "odd",
    [
        b'[{"role":"user","parts":3}]',
        b'[{"role":"user","parts":[{"type":"text","content":{"a":1}},{"type":"tool_call","arguments":[1]}]}]',
        b'{"gen_ai.input.messages":[1,"x",[]],"gen_ai.output.messages":"null"}',
        b'{"attributes":[1,{"key":2},{"key":"gen_ai.input.messages","value":{"arrayValue":7}}]}',
        b'{"attributes":{"gen_ai.input.messages":"[',
        b"[]",
        b"",
        b'{"gen_ai.input.messages":[{"role":"user","parts":[{"type":"text","content":"\\ud83d"}]}],"x":NaN}\n\n{torn',
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
            ToolCall("s", "search", '{"q":1}', provider_executed=True),
            Refusal("no"),
            Audio(FileId("f", "openai_chat")),
        ),
        model="claude",
        usage=Usage(input=1, cache_read=2),
        finish_reason="tool_calls",
        agent="worker",
    ),
    ToolMessage(content=(Json.of({"n": 1}),), tool_call_id="c1", tool_name="f"),
    tool("x", "y", tool_call_id="c2").replace(is_error=True),
    assistant("done"),
    AssistantMessage(content=()),
]


def test_another_conversation_is_written_as_a_list_and_comes_back_the_same():
    written = FORMAT.write(transcript_of(HISTORY))
    assert said(read(written.body)) == HISTORY
    found = json.loads(written.body)
    assert [each["role"] for each in found] == ["system", "user", "assistant", "tool", "tool", "assistant", "assistant"]
    assert found[2]["parts"][0]["signature"] == "s"
    assert found[2]["parts"][3]["arguments"] == "{"
    assert found[4]["parts"][0]["is_error"] is True
    assert found[2]["finish_reason"] == "tool_call"
    assert {(loss.kind, loss.what) for loss in written.losses} == {
        ("converted", "citations"),
        ("converted", "malformed_tool_call"),
        ("converted", "content"),
    }
    assert b"palaver" not in FORMAT.write(transcript_of(HISTORY), carry=False).body


def test_an_edited_item_of_a_list_changes_alone():
    data = json.dumps([ASKED | {"zork": 5e-06}, ANSWERED]).encode()
    body = FORMAT.write(edited(read(data), "a", "A")).body
    assert body == data.replace(b'"content": "a"', b'"content": "A"')


@pytest.mark.parametrize("form", [lambda each: each, json.dumps])
def test_an_edited_message_is_replaced_in_the_span_that_added_it(form):
    data = lines(span(form([ASKED]), form([ANSWERED]), x=5e-06))
    written = FORMAT.write(edited(read(data), "b", "B"))
    assert [each.text for each in messages(read(written.body))] == ["a", "B"]
    assert b"5e-06" in written.body
    assert [(loss.kind, loss.what) for loss in written.losses] == [("approximated", "edit")]


def test_an_edit_of_what_is_never_written_is_a_loss():
    transcript = file("older.jsonl")
    written = FORMAT.write(edited(transcript, "Done.", "New."))
    assert written.body == (FILES / "older.jsonl").read_bytes()
    assert [(loss.kind, loss.what) for loss in written.losses] == [("dropped", "edit")]


def test_what_joins_spans_is_a_span_that_goes_on_from_them():
    transcript = read(lines(span([ASKED], [ANSWERED], **{"gen_ai.conversation.id": "c"})))
    thread = transcript.thread
    thread.add([Entry("q", thread.branches["main"], user("more")), Entry("r", "q", assistant("less"))], {"main": "r"})
    written = FORMAT.write(transcript)
    assert len(written.body.splitlines()) == 2
    assert [each.text for each in messages(read(written.body))] == ["a", "b", "more", "less"]


def test_nothing_joins_a_span_that_is_a_document():
    transcript = file("attributes.json")
    thread = transcript.thread
    thread.add([Entry("q", thread.branches["main"], user("more"))], {"main": "q"})
    written = FORMAT.write(transcript)
    assert written.body == (FILES / "attributes.json").read_bytes()
    assert [loss.kind for loss in written.losses] == ["dropped"]


def test_markers_are_lost():
    history = [user("a"), FlushMarker(reason="r"), user("b")]
    written = FORMAT.write(transcript_of(history), history="all")
    assert [(loss.kind, loss.what) for loss in written.losses] == [("dropped", "flush")]


@pytest.mark.parametrize(
    ("data", "sure"),
    [
        (b'[{"role":"user","parts":[{"type":"text","content":"x"}]}]', True),
        (b'[{"role":"user","parts":[{"text":"x"}]}]', False),
        (b'[{"role":"model","parts":[{"functionCall":{"name":"f"}}]}]', False),
        (b'[{"id":"1","role":"user","parts":[{"type":"text","text":"x"}]}]', False),
        (b'[{"id":"1","role":"assistant","parts":[{"type":"tool-f","toolCallId":"c","state":"x"}]}]', False),
        (b'[{"role":"user","content":[{"type":"text","text":"x"}]}]', False),
        (b'{"gen_ai.input.messages":"[..."}', True),
        (b'[{"type":"text","content":"x"}]', True),
    ],
)
def test_gemini_uimessage_and_otel_are_distinguished(data, sure):
    assert (FORMAT.detect(data) is not None) is sure
