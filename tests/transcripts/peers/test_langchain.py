"""langchain-core reads what we write, and we read what it writes."""

from __future__ import annotations

import json

import pytest

core = pytest.importorskip("langchain_core", reason="the producer's package")

from langchain_core.load import dumpd, load  # noqa: E402
from langchain_core.messages import (  # noqa: E402
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    message_chunk_to_message,
    messages_from_dict,
    messages_to_dict,
)

from palaver import transcripts  # noqa: E402
from palaver.core.parts import Reasoning, ToolCall  # noqa: E402
from palaver.transcripts.extension_slot import without_records  # noqa: E402
from palaver.transcripts.writer import is_record  # noqa: E402
from tests.transcripts.samples import FILES, IDS, origin  # noqa: E402

FORMAT = transcripts.get("langchain")


def said(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_langchain_takes_every_conversation(name, path):
    for transcript in transcripts.get(name).read(path.read_bytes(), origin(path)):
        anew = type(transcript)(stripped(transcript.thread), transcript.title, transcript.metadata)
        written = json.loads(FORMAT.write(anew).body)
        found = messages_from_dict(written)
        assert len(found) == len(written)
        for message in found:
            assert isinstance(message.content_blocks, list)
            message.pretty_repr()


def stripped(thread):
    """A thread without its records, so that all of it is written anew."""
    made = type(thread)(thread.id)
    for entry in thread.entries:
        made.add([type(entry)(entry.id, entry.parent, without_records(entry.message))], {"main": entry.id})
    made.add((), thread.branches)
    return made


OWN = [
    SystemMessage("s"),
    HumanMessage([{"type": "text", "text": "hi"}, {"type": "image", "base64": "AAAA", "mime_type": "image/png"}]),
    AIMessage(
        [
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
        ],
        tool_calls=[{"name": "f", "args": {"a": 1}, "id": "t"}],
        response_metadata={"model_provider": "anthropic", "model_name": "claude"},
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    ),
    ToolMessage("r", tool_call_id="t", artifact={"z": 1}, status="error"),
]


@pytest.mark.parametrize("form", [messages_to_dict, lambda each: [dumpd(one) for one in each]])
def test_what_langchain_writes_is_read_and_written_back(form):
    data = json.dumps(form(OWN)).encode()
    (found, *_) = transcripts.detect(data)
    assert found.file_format == "langchain"
    (transcript,), drift = FORMAT.read_with_unknown(data)
    assert drift == ()
    messages = said(transcript)
    assert [each.role for each in messages] == ["system", "user", "assistant", "tool"]
    assert [type(part) for part in messages[2].content] == [Reasoning, ToolCall]
    assert FORMAT.write(transcript).body == data
    anew = json.loads(FORMAT.write(type(transcript)(stripped(transcript.thread))).body)
    again = messages_from_dict(anew)
    for one, other in zip(OWN, again, strict=True):
        assert one.content_blocks == other.content_blocks
        assert getattr(one, "tool_calls", None) == getattr(other, "tool_calls", None)
        assert getattr(one, "usage_metadata", None) == getattr(other, "usage_metadata", None)
        assert getattr(one, "status", None) == getattr(other, "status", None)


def test_chunks_add_up_as_they_do_there():
    chunks = [
        AIMessageChunk("a", id="r", usage_metadata={"input_tokens": 4, "output_tokens": 0, "total_tokens": 4}),
        AIMessageChunk("b", id="r", tool_call_chunks=[{"name": "f", "args": '{"x"', "id": "c", "index": 0}]),
        AIMessageChunk("", id="r", tool_call_chunks=[{"name": None, "args": ": 1}", "id": None, "index": 0}]),
    ]
    whole = message_chunk_to_message(chunks[0] + chunks[1] + chunks[2])
    (transcript,) = FORMAT.read(json.dumps(messages_to_dict(chunks)).encode())
    (message,) = said(transcript)
    assert message.text == whole.content
    assert [(call.id, call.name, dict(call.arguments)) for call in message.tool_calls] == [
        (call["id"], call["name"], call["args"]) for call in whole.tool_calls
    ]
    assert message.usage.input == whole.usage_metadata["input_tokens"]


@pytest.mark.filterwarnings("ignore:The function `load`")
@pytest.mark.filterwarnings("ignore:The default value of `allowed_objects`")
def test_the_free_slot_and_the_forms_load():
    message = HumanMessage("x", additional_kwargs={"palaver": {"sum": "0", "messages": []}})
    assert messages_from_dict(messages_to_dict([message, RemoveMessage("1")]))[0] == message
    (found, *_) = transcripts.detect(json.dumps([dumpd(message)]).encode())
    (transcript,) = FORMAT.read(json.dumps([dumpd(message)]).encode())
    entry = transcript.thread.entries[1]
    thread = type(transcript.thread)(transcript.thread.id)
    for each in transcript.thread.entries:
        changed = each.message.replace(content=("edited",)) if each is entry else each.message
        thread.add([type(each)(each.id, each.parent, changed)], {"main": each.id})
    (written,) = json.loads(FORMAT.write(type(transcript)(thread)).body)
    assert load(written, allowed_objects="messages").content == "edited"
    assert found.file_format == "langchain"
