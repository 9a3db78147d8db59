"""Conversations as lines of messages, and the shapes of training data."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver import transcripts
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.parts import Image, ToolCall, Url
from palaver.core.usage import Usage
from palaver.threads import Entry, Thread
from palaver.transcripts.conversation import session_of, transcript_of
from palaver.transcripts.openai_messages import sharegpt, without_padding
from tests.transcripts.samples import FOLDER

CHAT = transcripts.get("openai_messages")
FILES = FOLDER / "openai_messages"


def read(name):
    return CHAT.read((FILES / name).read_bytes())


def said(transcript, branch="main"):
    return [e.message for e in transcript.thread.path(branch) if "record" not in e.message.tags]


def texts(transcript, branch="main"):
    return [(each.role, each.text) for each in said(transcript, branch)]


def test_a_line_is_a_conversation():
    first, second, third, fourth = read("messages.jsonl")
    assert [each.role for each in said(first)] == ["system", "user", "assistant", "tool", "assistant"]
    assert said(first)[2].tool_calls[0].arguments_json == '{"city": "Husum", "x": 5e-06}'
    assert said(second)[0].images
    assert texts(third) == texts(fourth) == [("user", "hi")]
    assert third.thread.id != fourth.thread.id


def test_an_item_of_a_list_is_a_conversation_and_a_list_of_messages_is_one():
    assert len(read("list.json")) == 2
    (one,) = read("bare.json")
    assert texts(one) == [("user", "hi"), ("assistant", "ho")]
    (one,) = read("one.json")
    assert texts(one) == [("user", "hi")]


def test_a_message_a_line_is_one_conversation():
    (one,) = read("lines.jsonl")
    assert [text for _, text in texts(one)] == ["one", "two", "three"]


def test_sharegpt_speakers_are_roles_and_calls_get_ids_by_their_place():
    first, second = read("sharegpt.jsonl")
    assert [each.role for each in said(first)] == ["system", "user", "assistant", "tool", "assistant"]
    call, result = said(first)[2].tool_calls[0], said(first)[3]
    assert isinstance(result, ToolMessage)
    assert (call.id, call.name, result.tool_call_id, result.tool_name) == ("call_1", "weather", "call_1", "weather")
    assert said(first)[4].text == "<think>hm</think>Yes."
    assert texts(second) == [("system", "s"), ("user", "q"), ("assistant", "a")]


def test_a_call_that_is_no_json_is_malformed():
    turns = [{"from": "function_call", "value": "weather(Husum)"}]
    (one,) = CHAT.read(json.dumps({"conversations": turns}).encode())
    assert said(one)[0].malformed_tool_calls[0].raw == "weather(Husum)"


@pytest.mark.parametrize("name", ["trl.jsonl", "preference.jsonl"])
def test_what_was_rejected_is_a_branch(name):
    one, *_ = read(name)
    assert texts(one) == [("user", "Sky?"), ("assistant", "Blue.")]
    assert texts(one, "branch-1") == [("user", "Sky?"), ("assistant", "Green.")]


def test_a_prompt_may_be_text_and_stand_in_both_columns():
    _, second, third = read("trl.jsonl")
    assert texts(second) == [("user", "The sky is"), ("assistant", " blue.")]
    assert texts(third) == [("user", "Sea?"), ("assistant", "Wet.")]
    assert texts(third, "branch-1") == [("user", "Sea?"), ("assistant", "Dry.")]


def test_batches_hold_requests_and_responses():
    asked, answered, failed = read("batch.jsonl")
    assert texts(asked) == [("user", "hi")]
    (answer,) = said(answered)
    assert isinstance(answer, AssistantMessage)
    assert (answer.text, answer.usage.total) == ("ho", 2)
    assert said(failed) == []


def test_lines_of_a_batch_say_when_and_for_which_request():
    early, later, asked, *others = read("batch_vllm.jsonl")
    assert [(each.text, each.model, each.sent_at) for line in (early, later) for each in said(line)] == [
        ("ho", "llama", 1715633336000),
        ("yo", "deepseek", 1744043847000),
    ]
    assert [part.text for part in said(later)[0].content] == ["Greet.", "yo"]
    assert texts(asked) == [("system", "Be brief."), ("user", "hi")]
    assert [said(each) for each in others] == [[], [], []]
    assert [session_of(each.metadata).id for each in (early, asked)] == ["early", "asked"]


def test_lines_of_a_batch_without_a_message_are_reported():
    _, drift = CHAT.read_with_unknown((FILES / "batch_vllm.jsonl").read_bytes())
    assert [(each.kind, each.line) for each in drift] == [("unread", 4), ("unread", 5), ("unread", 6)]
    assert [each.name for each in drift][1:] == ["a request to /v1/embeddings", "batch_expired: The batch expired."]


def test_instructions_of_a_request_stay_apart_from_its_messages():
    asked = read("batch_vllm.jsonl")[2]
    body = json.loads(CHAT.write(edited(asked, "Be brief.", "Be long.")).body)["body"]
    assert body == {"model": "m", "instructions": "Be long.", "input": [{"role": "user", "content": "hi"}]}


def test_arguments_stay_an_object_where_they_were_one():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    data = json.dumps({"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}).encode()
    (one,) = CHAT.read(data)
    written = CHAT.write(transcript_of([each.message for each in one.thread.path()]))
    assert CHAT.write(one).body == data
    assert json.loads(written.body) == json.loads(data)


def test_it_is_recognised_as_far_as_a_request_is_not_likelier():
    one = b'{"messages":[{"role":"user","content":"hi"}]}\n'
    assert [each.confidence for each in transcripts.detect(one)] == [0.5]
    assert [each.confidence for each in transcripts.detect(one * 2)] == [0.7]


def test_conversations_are_written_a_line_each():
    talks = [[p.user("hi"), p.assistant("ho")], [p.user("who?")]]
    written = CHAT.write_many([transcript_of(each) for each in talks])
    assert [len(json.loads(line)["messages"]) for line in written.body.splitlines()] == [2, 1]
    assert written.losses == ()


def test_what_messages_cannot_say_is_in_the_receipt():
    written = CHAT.write(transcript_of([p.user("hi"), p.assistant("ho", model="m", usage=Usage(input=1))]))
    assert [str(each) for each in written.losses] == ["request: usage, model dropped (messages have no place for it)"]


def test_a_branch_that_is_not_written_is_in_the_receipt():
    talk = transcript_of([p.user("hi"), p.assistant("ho")])
    first = talk.thread.entries[0].id
    talk.thread.add([Entry("other", first, p.assistant("hm"))], {"branch-1": "other"})
    written = CHAT.write(talk)
    assert [each.what for each in written.losses] == ["branch branch-1"]
    assert json.loads(written.body)["messages"][1]["content"] == "ho"


def edited(transcript, old, new):
    thread = Thread(transcript.thread.id)
    for each in transcript.thread.entries:
        message = each.message.replace(content=[new]) if each.message.text == old else each.message
        thread.add([Entry(each.id, each.parent, message)])
    thread.add((), transcript.thread.branches)
    return type(transcript)(thread, transcript.title, transcript.metadata)


def test_an_edited_conversation_keeps_its_columns_and_its_spelling():
    data = (FILES / "messages.jsonl").read_bytes()
    first, *rest = CHAT.read(data)
    written = CHAT.write_many([edited(first, "Yes.", "No."), *rest])
    assert written.body == data.replace(b'"Yes."', b'"No."')


EDITS = {
    "sharegpt.jsonl": ("Be brief.", "Be long."),
    "calls.jsonl": ("Both.", "None."),
    "trl.jsonl": ("Green.", "Grey."),
    "preference.jsonl": ("Sky?", "Sea?"),
    "batch.jsonl": ("ho", "hm"),
    "batch_vllm.jsonl": ("ho", "hm"),
    "answers.jsonl": ("two", "too"),
    "lines.jsonl": ("two", "too"),
    "lists.jsonl": ("who?", "how?"),
    "bare.json": ("ho", "hm"),
    "list.json": ("who?", "how?"),
    "images.jsonl": ("one", "1"),
}


@pytest.mark.parametrize(("name", "old", "new"), [(name, *pair) for name, pair in EDITS.items()])
def test_an_edit_changes_its_text_and_no_other_byte(name, old, new):
    data = (FILES / name).read_bytes()
    transcripts = [edited(each, old, new) for each in CHAT.read(data)]
    written = CHAT.write_many(transcripts)
    assert written.body == data.replace(b'"%b"' % old.encode(), b'"%b"' % new.encode())
    assert written.body != data
    assert written.losses == ()


def test_an_edit_of_an_indented_document_keeps_its_values():
    (one,) = read("one.json")
    written = CHAT.write(edited(one, "hi", "ho"))
    assert json.loads(written.body) == {"messages": [{"role": "user", "content": "ho"}]}


def test_an_edit_of_a_call_of_sharegpt_leaves_its_neighbours():
    data = (FILES / "calls.jsonl").read_bytes()
    first, *rest = CHAT.read(data)
    thread = Thread(first.thread.id)
    for each in first.thread.entries:
        message = each.message
        if message.tool_calls:
            text, one, two = message.content
            message = message.replace(content=[text, one, two.replace(arguments_json='{"y": 2}')])
        thread.add([Entry(each.id, each.parent, message)])
    thread.add((), first.thread.branches)
    written = CHAT.write_many([type(first)(thread), *rest])
    turns = json.loads(written.body.splitlines()[0])["conversations"]
    assert turns[0]["weight"] == 0
    assert turns[2]["value"] == '[{"name": "f", "arguments": {"x":5e-06}},{"name": "g", "arguments": {"y": 2}}]'
    assert [each["from"] for each in turns] == ["user", "model", "function_call", "observation", "observation", "model"]


def grown(transcript, *messages):
    parent = transcript.thread.branches["main"]
    for place, message in enumerate(messages):
        transcript.thread.add([Entry(f"n{place}", parent, message)], {"main": f"n{place}"})
        parent = f"n{place}"
    return transcript


@pytest.mark.parametrize(
    "name", ["messages.jsonl", "sharegpt.jsonl", "trl.jsonl", "list.json", "bare.json", "lists.jsonl"]
)
def test_a_conversation_that_goes_on_stays_one(name):
    data = (FILES / name).read_bytes()
    first, *rest = CHAT.read(data)
    before = texts(first)
    written = CHAT.write_many([grown(first, p.user("And?"), p.assistant("Nothing.")), *rest])
    again = CHAT.read(written.body)
    assert len(again) == len(rest) + 1
    assert texts(again[0]) == [*before, ("user", "And?"), ("assistant", "Nothing.")]
    assert [texts(each) for each in again[1:]] == [texts(each) for each in rest]


def test_a_file_of_messages_grows_by_messages():
    (one,) = read("lines.jsonl")
    written = CHAT.write(grown(one, p.user("four"), p.assistant("five")))
    assert written.body.splitlines()[-2:] == [
        b'{"role":"user","content":"four"}',
        b'{"role":"assistant","content":"five"}',
    ]


def test_a_call_that_was_taken_out_is_gone():
    first, *_ = read("messages.jsonl")
    thread = Thread(first.thread.id)
    for each in first.thread.entries:
        message = each.message.replace(content=["Hm."]) if each.message.tool_calls else each.message
        thread.add([Entry(each.id, each.parent, message)])
    thread.add((), first.thread.branches)
    message = json.loads(CHAT.write(type(first)(thread)).body.splitlines()[0])["messages"][2]
    assert message == {"role": "assistant", "content": "Hm.", "weight": 0}


def test_ids_made_here_are_marked_and_stay_here():
    first, *_ = read("calls.jsonl")
    calls = said(first)[1].tool_calls
    assert [each.provider for each in calls] == [sharegpt.SYNTHETIC] * 2
    assert [(each.text, each.tool_call_id, each.tool_name) for each in said(first)[2:4]] == [
        ("1", calls[0].id, "f"),
        ("2", calls[1].id, "g"),
    ]
    assert b"call_2" not in CHAT.write(edited(first, "Both.", "None.")).body


def test_what_sharegpt_cannot_say_is_in_the_receipt():
    _, one = read("sharegpt.jsonl")
    call = p.assistant(ToolCall("c9", "f", "{}"), Image(Url("https://example.org/a.png")))
    written = CHAT.write(grown(one, p.developer("d"), call, p.tool("r", tool_call_id="c9")))
    assert sorted(each.what for each in written.losses) == ["developer", "image", "tool call id"]


def test_further_choices_of_a_batch_are_branches():
    asked, answered, chosen = read("answers.jsonl")
    assert texts(asked) == [("user", "hi")]
    assert (texts(answered), said(answered)[0].usage.total) == ([("assistant", "ho")], 3)
    assert (texts(chosen), texts(chosen, "branch-1")) == ([("assistant", "one")], [("assistant", "two")])


def test_an_edited_response_is_whole():
    data = (FILES / "answers.jsonl").read_bytes()
    written = CHAT.write_many([edited(each, "ho", "hm") for each in CHAT.read(data)])
    (item,) = json.loads(written.body.splitlines()[1])["response"]["body"]["output"]
    assert (item["type"], item["status"], item["content"][0]["text"]) == ("message", "completed", "hm")


def test_a_list_of_messages_may_be_a_line():
    first, second = read("lists.jsonl")
    assert (texts(first), texts(second)) == ([("user", "hi"), ("assistant", "ho")], [("user", "who?")])
    _, drift = CHAT.read_with_unknown((FILES / "lists.jsonl").read_bytes())
    assert [(each.kind, each.line) for each in drift] == [("torn", 4)]


def test_images_of_a_column_stand_where_they_are_meant():
    inline, linked, path = read("images.jsonl")
    assert said(inline)[0].images[0].source.data == "iVBORw0KGgo="
    assert [each.images[0].source.url for each in said(linked, "branch-1") if each.images] == [
        "https://example.org/a.png",
        "https://example.org/b.png",
    ]
    assert said(path)[0].images == ()


def test_nulls_of_padding_go_when_asked_and_content_stays():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1, "y": None}}}
    row = {"messages": [{"role": "assistant", "content": None, "name": None, "tool_calls": [call]}], "score": None}
    data = json.dumps(row).encode() + b'\n{"messages":[],  "n": null}\nnull\n'
    first, *rest = without_padding(data).split(b"\n")
    del call["function"]["arguments"]["y"], row["messages"][0]["name"]
    assert json.loads(first) == row
    assert rest == [b'{"messages":[],  "n": null}', b"null", b""]
    (one, *_) = CHAT.read(data)
    assert "y" in said(one)[0].tool_calls[0].arguments


@pytest.mark.parametrize("name", ["list.json", "messages.jsonl", "lists.jsonl"])
def test_a_new_conversation_goes_into_the_file_that_was_read(name):
    data = (FILES / name).read_bytes()
    before = CHAT.read(data)
    new = [transcript_of([p.user("new")]), transcript_of([p.user("newer")])]
    written = CHAT.write_many([*before, *new])
    again = CHAT.read(written.body)
    assert [texts(each) for each in again] == [*map(texts, before), [("user", "new")], [("user", "newer")]]
    if name == "list.json":
        assert len(json.loads(written.body)) == len(before) + 2


@pytest.mark.parametrize("place", [0, 1])
def test_an_item_of_a_list_is_written_alone_without_the_list(place):
    transcript = read("list.json")[place]
    (back,) = transcripts.get("openai_messages").read(transcripts.get("openai_messages").write(transcript).body)
    texts = [each.message.text for each in transcript.thread.path() if each.message.text]
    assert [each.message.text for each in back.thread.path() if each.message.text] == texts
