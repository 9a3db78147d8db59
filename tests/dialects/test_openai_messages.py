"""Conversations as lines of messages, and the shapes of training data."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver import dialects
from palaver.core.errors import EncodeError
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.usage import Usage
from palaver.dialects.conversation import transcript_of
from palaver.threads import Entry, Thread
from tests.dialects.samples import FOLDER

CHAT = dialects.get("openai_messages")
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


def test_arguments_stay_an_object_where_they_were_one():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    data = json.dumps({"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}).encode()
    (one,) = CHAT.read(data)
    written = CHAT.write(transcript_of([each.message for each in one.thread.path()]))
    assert CHAT.write(one).body == data
    assert json.loads(written.body) == json.loads(data)


def test_it_is_recognised_as_far_as_a_request_is_not_likelier():
    one = b'{"messages":[{"role":"user","content":"hi"}]}\n'
    assert [each.confidence for each in dialects.detect(one)] == [0.5]
    assert [each.confidence for each in dialects.detect(one * 2)] == [0.7]


def test_conversations_are_written_a_line_each():
    talks = [[p.user("hi"), p.assistant("ho")], [p.user("who?")]]
    written = CHAT.write_many([transcript_of(each) for each in talks])
    assert [len(json.loads(line)["messages"]) for line in written.body.splitlines()] == [2, 1]
    assert written.losses == ()


def test_what_messages_cannot_say_is_in_the_receipt():
    written = CHAT.write(transcript_of([p.user("hi"), p.assistant("ho", usage=Usage(input=1))]))
    assert [str(each) for each in written.losses] == [
        "request: usage, models, times and ids dropped (messages have no place for them)"
    ]


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


def test_an_edit_of_another_shape_is_refused():
    first, _ = read("sharegpt.jsonl")
    with pytest.raises(EncodeError, match="only messages can be written"):
        CHAT.write(edited(first, "rain", "snow"))
