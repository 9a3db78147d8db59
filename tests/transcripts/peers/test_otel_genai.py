"""opentelemetry-util-genai's own types take what we write, and what they say is read."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, fields

import pytest

types = pytest.importorskip("opentelemetry.util.genai.types", reason="the types of the conventions")
utils = pytest.importorskip("opentelemetry.util.genai.utils", reason="how instrumentations write them")

from palaver import transcripts  # noqa: E402
from palaver.core.parts import Image, Json, Reasoning, Text, ToolCall  # noqa: E402
from palaver.transcripts.extension_slot import without_records  # noqa: E402
from palaver.transcripts.writer import is_record  # noqa: E402
from tests.transcripts.samples import FILES, IDS, origin  # noqa: E402

FORMAT = transcripts.get("otel_genai")
PARTS = {
    "text": types.TextPart,
    "reasoning": types.ReasoningPart,
    "tool_call": types.ToolCallRequestPart,
    "tool_call_response": types.ToolCallResponsePart,
    "server_tool_call": types.ServerToolCallPart,
    "server_tool_call_response": types.ServerToolCallResponsePart,
    "blob": types.BlobPart,
    "file": types.FilePart,
    "uri": types.UriPart,
    "compaction": types.CompactionPart,
}


def stripped(transcript):
    """A conversation without its records, so that all of it is written anew."""
    made = type(transcript.thread)(transcript.thread.id)
    for entry in transcript.thread.entries:
        made.add([type(entry)(entry.id, entry.parent, without_records(entry.message))], {"main": entry.id})
    made.add((), transcript.thread.branches)
    return type(transcript)(made, transcript.title, transcript.metadata)


@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_every_part_is_one_of_the_conventions(name, path):
    for transcript in transcripts.get(name).read(path.read_bytes(), origin(path)):
        for message in json.loads(FORMAT.write(stripped(transcript)).body):
            assert message["role"] in {"system", "developer", "user", "assistant", "tool"}
            for part in message["parts"]:
                cls = PARTS.get(part["type"])
                if cls is None:
                    types.GenericPart(type=part["type"])
                    continue
                known = {field.name for field in fields(cls)}
                made = cls(**{key: value for key, value in part.items() if key in known})
                assert asdict(made) == {**asdict(made), **{key: part[key] for key in part if key in known}}
                assert "content" not in known or part.get("content") is None or isinstance(part["content"], str)


def test_what_an_instrumentation_writes_is_read():
    data = b"\x89PNG\r\n\x1a\n"
    asked = types.InputMessage(
        role="user",
        parts=[types.TextPart("hi"), types.BlobPart(mime_type="image/png", modality="image", content=data)],
    )
    called = types.InputMessage(
        role="assistant",
        parts=[types.ReasoningPart("hm"), types.ToolCallRequestPart(arguments={"a": 1}, name="f", id="c")],
    )
    result = types.InputMessage(role="tool", parts=[types.ToolCallResponsePart(response={"n": 1}, id="c")])
    answer = types.OutputMessage(role="assistant", parts=[types.TextPart("done")], finish_reason="stop")
    attributes = {
        "gen_ai.input.messages": utils.gen_ai_json_dumps([asdict(each) for each in (asked, called, result)]),
        "gen_ai.output.messages": utils.gen_ai_json_dumps([asdict(answer)]),
    }
    file = json.dumps(attributes).encode()
    assert [each.file_format for each in transcripts.detect(file)] == ["otel_genai"]
    (transcript,), drift = FORMAT.read_with_unknown(file)
    assert drift == ()
    found = [entry.message for entry in transcript.thread.path() if not is_record(entry)]
    assert [type(part) for message in found for part in message.content] == [
        Text,
        Image,
        Reasoning,
        ToolCall,
        Json,
        Text,
    ]
    assert base64.b64decode(found[0].images[0].source.data) == data
    assert found[3].finish_reason == "stop"
