"""LangChain messages: forms, blocks, calls that stand twice, removals, chunks; what is written, and what is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaver import Request, assistant, system, tool, transcripts, user, wires
from palaver.core.messages import AssistantMessage, DeveloperMessage, FlushMarker, SystemMessage, ToolMessage
from palaver.core.parts import (
    Audio,
    File,
    FileId,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Opaque,
    Reasoning,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
    Video,
)
from palaver.core.usage import Usage
from palaver.threads.view import for_model, for_people
from palaver.transcripts.conversation import COMPACTION, transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record

FORMAT = transcripts.get("langchain")
FILES = Path(__file__).parent / "files" / "langchain"


def data_of(kind, **fields):
    return {"type": kind, "data": {"content": "", "additional_kwargs": {}, "response_metadata": {}, **fields}}


def read(items):
    data = items if isinstance(items, bytes) else json.dumps(items).encode()
    (transcript,) = FORMAT.read(data)
    return transcript


def messages(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def only(*items):
    (message,) = messages(read(list(items)))
    return message


def said(transcript):
    return [without_records(each).replace(id=None) for each in messages(transcript)]


def file(name):
    return FORMAT.read((FILES / name).read_bytes())


# -- what is read ------------------------------------------------------------------------------------------------------


def test_every_kind_becomes_its_message():
    found = messages(file("dict.json")[0])
    assert isinstance(found[0], SystemMessage)
    assert isinstance(found[1], DeveloperMessage)
    assert [type(part) for part in found[2].content] == [Text, Image, Image, File, File, Audio]
    assert found[2].provider["langchain"] == {"name": "ada"}
    assert found[4].payload == {"bytes": 184}
    assert (found[5].tool_call_id, found[5].tool_name, found[5].is_error) == ("toolu_2", "list", True)
    assert found[7].text.endswith("\ud83d")


def test_a_call_in_a_block_and_beside_it_is_one_call():
    found = messages(file("dict.json")[0])[3]
    assert [type(part) for part in found.content] == [Reasoning, Reasoning, Text, ToolCall, ToolCall]
    assert found.content[0].signature == "c2ln"
    assert found.content[1].encrypted == "b3BhcXVl"
    assert found.tool_calls[0].arguments_json == '{"path": "notes.txt", "x": 5e-06}'


def test_the_models_own_text_of_the_arguments_is_taken_where_it_is_kept():
    call = messages(file("dict.json")[0])[8].tool_calls[0]
    assert call.arguments_json == '{"a": 1.0,  "b": "\\u00e4"}'


def test_own_text_that_says_something_else_is_not_taken():
    kwargs = {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}]}
    found = only(data_of("ai", additional_kwargs=kwargs, tool_calls=[{"name": "f", "args": {"a": 2}, "id": "c"}]))
    assert found.tool_calls[0].arguments_json == '{"a": 2}'


def test_calls_that_only_openais_own_list_holds_are_read():
    kwargs = {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"a":1}'}}]}
    assert only(data_of("ai", additional_kwargs=kwargs)).content == (ToolCall("c", "f", '{"a":1}'),)


def test_an_invalid_call_is_malformed_and_no_call():
    found = messages(file("dict.json")[0])[8]
    assert found.malformed_tool_calls == (
        MalformedToolCall('{"a": ', "Function look arguments are not valid JSON.", "look", "call_2"),
    )
    assert len(found.content) == 2


def test_usage_is_disjoint_and_counts_what_was_written_for_minutes():
    one, *_, two = [each.usage for each in messages(file("dict.json")[0]) if getattr(each, "usage", None)]
    assert (one.input, one.cache_read, one.cache_write, one.output) == (3, 100, 7, 20)
    assert (two.input, two.output, two.reasoning) == (12, 5, 4)
    assert one.raw["input_token_details"]["ephemeral_5m_input_tokens"] == 7


def test_what_the_response_says_of_itself():
    found = messages(file("dict.json")[0])[3]
    assert (found.model, found.finish_reason, found.finish_reason_raw, found.response_id) == (
        "claude-sonnet-4-5",
        "tool_calls",
        "tool_use",
        "msg_1",
    )


def test_blocks_of_responses_and_of_v1():
    found = messages(file("dict.json")[0])
    assert found[10].content[0].encrypted == "ZW5j"
    assert found[10].content[1].citations[0].url == "https://example.org"
    assert found[10].tool_calls[0].id == "call_3"
    reasoning, text, call, result, other = found[12].content
    assert (reasoning.text, reasoning.signature, reasoning.wire) == ("v1", "djE=", "google_generate")
    assert text.text == "Done."
    assert call.provider_executed
    assert isinstance(result, ServerToolResult)
    assert isinstance(other, Opaque)


def test_an_old_function_call_finds_its_result():
    *_, call, result = messages(file("dict.json")[0])
    assert call.tool_calls[0].id == result.tool_call_id
    assert result.tool_name == "old"


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "image", "url": "https://x/a.png"}, Image(Url("https://x/a.png"))),
        ({"type": "image", "source_type": "url", "url": "https://x/a.png"}, Image(Url("https://x/a.png"))),
        ({"type": "video", "base64": "AAAA", "mime_type": "video/mp4"}, Video(Inline("AAAA"), "video/mp4")),
        ({"type": "media", "mime_type": "audio/wav", "data": "AAAA"}, Audio(Inline("AAAA"), "audio/wav")),
        ({"type": "file", "source_type": "id", "id": "f"}, File(FileId("f", "langchain"))),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            Image(Inline("AAAA"), "image/png"),
        ),
    ],
)
def test_media_of_every_generation(block, part):
    assert only(data_of("human", content=[block])).content == (part,)


def test_unknown_blocks_kinds_and_keys_are_kept_and_reported():
    data = json.dumps([data_of("ai", content=[{"type": "hologram"}], zork=1), {"type": "zork"}, 7]).encode()
    transcripts, drift = FORMAT.read_with_unknown(data)
    assert {str(each) for each in drift} == {
        "unknown key ai.zork",
        "unknown block hologram",
        "unread an item that is not a message (2 times)",
    }
    assert isinstance(messages(transcripts[0])[0].content[0], Opaque)
    assert FORMAT.write_many(transcripts).body == data


def test_chunks_of_one_id_are_one_message():
    found = messages(file("stream.jsonl")[0])
    assert [type(each) for each in found[1:]] == [AssistantMessage, ToolMessage]
    assert found[1].content == (Text("Hello"), ToolCall("c1", "f", '{"a":1.50}'))
    assert (found[1].usage.input, found[1].usage.output, found[1].model) == (5, 4, "m")


def test_a_line_with_a_list_is_a_conversation_of_its_own():
    first, second = file("states.jsonl")
    assert len(messages(first)) == 2
    assert [each.text for each in messages(second)] == ["Second", "conversation"]


def test_removals_rewind_hide_and_clear():
    (transcript,) = file("state.json")
    path = transcript.thread.path()
    assert [each.text for each in for_people(path)] == ["One?", "One.", "Two?", "Two.", "Three?", "Three."]
    assert [each.text for each in for_model(path)] == ["Here is a summary: they counted.", "Three?", "Three."]
    assert "Two, but wrong." in [entry.message.text for entry in transcript.thread.entries]
    markers = [place for place, entry in enumerate(path) if isinstance(entry.message, FlushMarker)]
    assert [each.text for each in for_model(path[: markers[1] - 1])] == ["Two?", "Two.", "Three?"]
    assert [entry.message.source for entry in path[markers[0] + 1 : markers[0] + 3]] == [COMPACTION] * 2


def test_a_removal_of_what_is_not_there_is_reported():
    _, drift = FORMAT.read_with_unknown(json.dumps([data_of("human", content="a"), data_of("remove", id="x")]).encode())
    assert [each.kind for each in drift] == ["link"]


@pytest.mark.parametrize(
    "odd",
    [
        b'[{"type":"ai","data":{"content":{"a":1},"tool_calls":3,"usage_metadata":[1]}}]',
        b'[{"type":"ai","data":{"content":[1,null,["x"]],"additional_kwargs":7}}]',
        b'[{"type":"human","data":{"content":"a","x":NaN}},{"type":"human","data":{"content":"b"}}]',
        b'{"type":"human","data":{"content":"torn',
        b'\xff\xfe\n{"type":"human","data":{"content":"a"}}\n\n{"type":"zork"}\n',
        b'{"messages":[]}\n{"messages":[{"type":"human","content":"a"}]}',
        b"",
        b"[]",
    ],
)
def test_odd_input_is_kept_as_it_is(odd):
    transcripts = FORMAT.read(odd)
    assert not transcripts or FORMAT.write_many(transcripts).body == odd


# -- what is written ---------------------------------------------------------------------------------------------------


def edited(transcript, place, **changes):
    entries = list(transcript.thread.entries)
    thread = type(transcript.thread)(transcript.thread.id)
    for at, entry in enumerate(entries):
        message = entry.message.replace(**changes) if at == place else entry.message
        thread.add([type(entry)(entry.id, entry.parent, message)], {"main": entry.id})
    return type(transcript)(thread, transcript.title, transcript.metadata)


def test_an_edit_changes_what_was_edited_only():
    items = [data_of("human", content="a", zork=5e-06), data_of("ai", content="b", id=None)]
    after = FORMAT.write(edited(read(items), 1, content=("A",))).body.decode()
    assert '"content": "A"' in after
    assert '"zork": 5e-06' in after
    assert json.loads(after)[1] == items[1]


def test_an_edited_call_is_nowhere_as_it_was():
    """Its arguments stand in three places of the record."""
    transcript = file("dict.json")[0]
    place = next(at for at, each in enumerate(transcript.thread.entries) if each.message.malformed_tool_calls)
    again = read(FORMAT.write(edited(transcript, place, content=(ToolCall("call_1", "look", '{"a":2}'),))).body)
    assert messages(again)[8].content == (ToolCall("call_1", "look", '{"a":2}'),)
    without = read(FORMAT.write(edited(transcript, place, content=("no call",))).body)
    assert messages(without)[8].content == (Text("no call"),)


@pytest.mark.parametrize("name", ["stream.jsonl", "states.jsonl"])
def test_lines_are_edited_in_their_own_form(name):
    transcript = file(name)[0]
    written = FORMAT.write(edited(transcript, 1, content=("new",))).body
    again = FORMAT.read(written)[0]
    assert messages(again)[1].text == "new"
    assert messages(again)[0].text == "Go"
    assert b'"lc"' in written


def test_what_joins_a_file_has_the_form_of_the_file():
    data = b'[{"type":"human","content":"a","additional_kwargs":{}}]'
    transcript = read(data)
    thread = transcript.thread
    thread.add([type(thread.entries[0])("new", thread.branches["main"], assistant("b"))], {"main": "new"})
    found = json.loads(FORMAT.write(transcript).body)
    assert found[1]["type"] == "ai"
    assert found[1]["content"] == "b"
    assert "data" not in found[1]


HISTORY = [
    system("Be brief."),
    user("Look", Image(Inline("iVBORw0KGgo="), "image/png"), File(Url("https://x/a.pdf"), name="a.pdf")),
    AssistantMessage(
        content=(
            Reasoning("hm", signature="s", wire="anthropic_messages"),
            Text("I call."),
            ToolCall("c1", "f", '{"a": 1.0,\n "b": 5e-6}'),
            MalformedToolCall("{", "the arguments are not JSON", "g", "c2"),
        ),
        model="claude",
        usage=Usage(input=1, cache_read=2, output=3, reasoning=4),
        finish_reason="tool_calls",
        finish_reason_raw="tool_use",
        agent="worker",
    ),
    ToolMessage(content=(Json.of({"n": 1}),), tool_call_id="c1", tool_name="f"),
    AssistantMessage(content=(ToolCall("c3", "grep", '"free text"', custom=True), Text("after the call"))),
    tool("bad", tool_call_id="c3", tool_name="grep").replace(is_error=True, payload={"artifact": 1}),
    AssistantMessage(content=()),
    AssistantMessage(content=(Text(""),)),
]


def test_another_conversation_is_written_as_a_list_and_comes_back_the_same():
    written = FORMAT.write(transcript_of(HISTORY))
    assert said(read(written.body)) == HISTORY
    found = json.loads(written.body)
    assert [each["type"] for each in found] == ["system", "human", "ai", "tool", "ai", "tool", "ai", "ai"]
    assert found[2]["data"]["tool_calls"][0]["args"] == {"a": 1.0, "b": 5e-6}
    assert found[2]["data"]["invalid_tool_calls"][0]["args"] == "{"
    assert found[2]["data"]["response_metadata"]["stop_reason"] == "tool_use"
    assert found[2]["data"]["usage_metadata"]["input_tokens"] == 3
    assert found[4]["data"]["content"][0]["type"] == "tool_use"
    assert {(loss.kind, loss.what) for loss in written.losses} == {("approximated", "arguments"), ("converted", "json")}


def test_without_the_free_slot_nothing_of_ours_is_written():
    assert b"palaver" not in FORMAT.write(transcript_of(HISTORY), carry=False).body


def test_a_marker_that_joins_removes_everything():
    transcript = read([data_of("human", content="a")])
    thread = transcript.thread
    thread.add([type(thread.entries[0])("m", thread.branches["main"], FlushMarker(reason="r"))], {"main": "m"})
    written = FORMAT.write(transcript)
    assert json.loads(written.body)[1]["data"]["id"] == "__remove_all__"
    assert not for_model(read(written.body).thread.path())


@pytest.mark.parametrize(
    ("data", "sure"),
    [
        (b'[{"type":"human","data":{"content":"x"}}]', True),
        (b'{"type":"ai","content":"x"}\n', True),
        (b'[{"type":"message","role":"user","content":"x"}]', False),
        (b'[{"type":"system","content":"x","uuid":"1"}]', False),
        (b'[{"role":"user","content":"x"}]', False),
        (b'{"lc":1,"type":"constructor","id":["langchain","llms","OpenAI"],"kwargs":{}}', False),
        (b"[]", False),
    ],
)
def test_detection(data, sure):
    assert (FORMAT.detect(data) is not None) is sure


@pytest.mark.finding("F-71")
@pytest.mark.parametrize("provider", ["google_genai", "anthropic", "openai"])
def test_a_result_in_the_form_of_langchain_is_of_no_wire(provider):
    """A provider would refuse it as its own, and its call is not sent either."""
    blocks = [
        {"type": "server_tool_call", "id": "s", "name": "web_search", "args": {"q": "tide"}},
        {"type": "server_tool_result", "tool_call_id": "s", "status": "success", "output": {"n": 1}},
        {"type": "text", "text": "Done."},
    ]
    held = {"content": blocks, "type": "ai", "response_metadata": {"model_provider": provider, "output_version": "v1"}}
    lines = [{"type": "human", "data": {"content": "hi", "type": "human"}}, {"type": "ai", "data": held}]
    (transcript,) = FORMAT.read(json.dumps(lines).encode())
    for name in wires.names():
        encoded = wires.get(name).encode_request(Request(transcript.thread.path().messages, model="m"))
        assert b'"n":1' not in encoded.body
        assert "server tool result" in [loss.what for loss in encoded.losses]
        assert wires.get(name).decode_request(encoded.body).messages[-1].text == "Done."
