"""The models of ag-ui-protocol take what we write, and what they write is read."""

from __future__ import annotations

import json
import re

import pytest

core = pytest.importorskip("ag_ui.core", reason="the producer's models")

from pydantic import TypeAdapter  # noqa: E402

from palaver import assistant, transcripts, user  # noqa: E402
from palaver.core.parts import ToolCall  # noqa: E402
from palaver.threads.thread import Entry  # noqa: E402
from palaver.transcripts.extension_slot import without_records  # noqa: E402
from palaver.transcripts.writer import is_record  # noqa: E402
from tests.transcripts.samples import FILES, IDS, origin  # noqa: E402

FORMAT = transcripts.get("ag_ui")
EVENT = TypeAdapter(core.Event)


def said(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def stripped(transcript):
    """A conversation without its records, so that all of it is written anew."""
    made = type(transcript.thread)(transcript.thread.id)
    for entry in transcript.thread.entries:
        made.add([Entry(entry.id, entry.parent, without_records(entry.message))], {"main": entry.id})
    made.add((), transcript.thread.branches)
    return type(transcript)(made, transcript.title, transcript.metadata)


@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_every_conversation_is_a_run_that_could_be_asked_for(name, path):
    for transcript in transcripts.get(name).read(path.read_bytes(), origin(path)):
        written = FORMAT.write(stripped(transcript)).body
        # pydantic refuses escapes of lone surrogates, which the TypeScript client takes
        plain = re.sub(rb"(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}", rb"\1?", written)
        run = core.RunAgentInput.model_validate_json(plain)
        assert len(run.messages) == len(json.loads(written)["messages"])


def test_what_joins_a_stream_is_events_of_the_protocol():
    started = core.RunStartedEvent(thread_id="t", run_id="r")
    data = started.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n"
    (transcript,) = FORMAT.read(data)
    thread = transcript.thread
    more = [
        Entry("q", thread.branches["main"], user("more")),
        Entry("r", "q", assistant("less", ToolCall("c", "f", "{}"))),
    ]
    thread.add(more, {"main": "r"})
    kinds = [EVENT.validate_json(line).type.value for line in FORMAT.write(transcript).body.splitlines()]
    assert kinds == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
    ]


def test_what_the_models_write_is_read_and_written_back():
    run = core.RunAgentInput(
        thread_id="t",
        run_id="r",
        messages=[
            core.UserMessage(
                id="1",
                content=[
                    core.TextPart(text="look"),
                    core.ImagePart(source=core.DataSource(value="AAAA", mime_type="image/png")),
                ],
            ),
            core.ReasoningMessage(id="2", content="hm", encrypted_value="x"),
            core.AssistantMessage(
                id="3",
                content="ok",
                tool_calls=[core.ToolCall(id="c", function=core.FunctionCall(name="f", arguments='{"a": 1}'))],
            ),
            core.ToolMessage(id="4", content="done", tool_call_id="c"),
        ],
        tools=[],
        context=[],
        state={},
        forwarded_props={},
    )
    for indent in (None, 2):
        data = run.model_dump_json(by_alias=True, exclude_none=True, indent=indent).encode()
        assert [each.file_format for each in transcripts.detect(data)] == ["ag_ui"]
        (transcript,), drift = FORMAT.read_with_unknown(data)
        assert drift == ()
        assert [each.role for each in said(transcript)] == ["user", "assistant", "tool"]
        assert FORMAT.write(transcript).body == data
        again = core.RunAgentInput.model_validate_json(FORMAT.write(stripped(transcript)).body)
        assert [each.role for each in again.messages] == [each.role for each in run.messages]
        assert again.messages[2].tool_calls == run.messages[2].tool_calls
