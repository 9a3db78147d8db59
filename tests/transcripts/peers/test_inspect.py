"""Inspect reads what we write, and we read what Inspect writes."""

from __future__ import annotations

import json

import pytest

from palaver import transcripts
from palaver.core.messages import ToolMessage
from tests.transcripts.samples import FILES, IDS, origin
from tests.transcripts.test_inspect_log import INSPECT, LOG, edited, everything, messages, read, transcript_of

log = pytest.importorskip("inspect_ai.log", reason="inspect_ai is not installed")
model = pytest.importorskip("inspect_ai.model", reason="inspect_ai is not installed")
tool = pytest.importorskip("inspect_ai.tool", reason="inspect_ai is not installed")


def accepted(written, tmp_path):
    path = tmp_path / "log.json"
    path.write_bytes(written.body)
    return log.read_eval_log(str(path), resolve_attachments=True)


@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_every_conversation_of_every_format_is_accepted(name, path, carry, tmp_path):
    if name == "inspect":
        pytest.skip("not from elsewhere")
    for transcript in transcripts.get(name).read(path.read_bytes(), origin(path)):
        read_back = accepted(INSPECT.write(transcript, carry=carry), tmp_path)
        assert len(read_back.samples) == 1


@pytest.mark.parametrize("carry", [True, False])
def test_every_kind_of_part_is_accepted_and_read_equal(carry, tmp_path):
    (sample,) = accepted(INSPECT.write(transcript_of(everything()), carry=carry), tmp_path).samples
    roles = ["system", "system", "user", "assistant", "tool", "tool", "tool", "tool", "assistant", "assistant"]
    assert [each.role for each in sample.messages] == roles
    answer = sample.messages[3]
    assert [each.type for each in answer.content] == ["reasoning", "reasoning", "text", "tool_use", "text"]
    assert [each.function for each in answer.tool_calls] == ["early", "look", "write", "look"]
    assert answer.tool_calls[1].arguments == {"a": 5e-06}
    assert sample.messages[6].error.message == "bad"
    assert sample.output.usage.input_tokens == 1


def test_an_edited_log_is_accepted(tmp_path):
    low, high = read()
    known = json.loads(LOG)
    known["samples"][1]["messages"] = known["samples"][1]["messages"][:1]
    known["samples"][0]["events"].pop()
    known["samples"][0]["events"][1]["input_refs"] = None
    low, high = INSPECT.read(json.dumps(known).encode())
    low = edited(low, lambda each: each.replace(content=("two",)) if isinstance(each, ToolMessage) else each)
    made = accepted(INSPECT.write_many([low, high]), tmp_path)
    assert [each.content for each in made.samples[0].messages if each.role == "tool"] == ["two", "two"]
    assert made.samples[0].messages[1].content[0].text.startswith("When is low tide at the north gauge")


def theirs():
    """A log as Inspect makes it."""
    said = [
        model.ChatMessageSystem(content="Rule"),
        model.ChatMessageUser(content=[model.ContentText(text="Look " * 60), model.ContentImage(image="x.png")]),
        model.ChatMessageAssistant(
            content=[model.ContentReasoning(reasoning="hm", signature="s"), model.ContentText(text="I look.")],
            tool_calls=[tool.ToolCall(id="c", function="look", arguments={"a": [1, 2.5]})],
            model="m",
        ),
        model.ChatMessageTool(
            content="no", tool_call_id="c", function="look", error=tool.ToolCallError("timeout", "late")
        ),
        model.ChatMessageAssistant(content="Done.", model="m"),
    ]
    output = model.ModelOutput(
        model="m",
        choices=[model.ChatCompletionChoice(message=said[-1], stop_reason="stop")],
        usage=model.ModelUsage(input_tokens=3, output_tokens=4, total_tokens=7),
    )
    samples = [
        log.EvalSample(id=each, epoch=1, input="Look", target="x", messages=said, output=output, attachments={"k": "v"})
        for each in ("a", 2)
    ]
    spec = log.EvalSpec(
        created="2025-05-02T09:00:00+00:00",
        task="t",
        model="anthropic/m",
        dataset=log.EvalDataset(),
        config=log.EvalConfig(),
    )
    return log.EvalLog(eval=spec, status="success", samples=samples)


@pytest.mark.parametrize("ending", ["json", "eval"])
def test_what_inspect_writes_is_read(ending, tmp_path):
    path = tmp_path / f"log.{ending}"
    log.write_eval_log(theirs(), str(path))
    data = path.read_bytes()
    assert [each.file_format for each in transcripts.detect(data, path.name)] == ["inspect"]
    sessions, drift = INSPECT.read_with_unknown(data)
    assert drift == ()
    assert len(sessions) == 2
    for each in sessions:
        system, user, first, result, last = messages(each)
        assert user.text == "Look " * 60
        assert first.tool_calls[0].arguments == {"a": [1, 2.5]}
        assert first.reasoning == "hm"
        assert result.is_error
        assert (last.text, last.usage.input, last.finish_reason) == ("Done.", 3, "stop")
        assert system.text == "Rule"
    written = INSPECT.write_many(sessions)
    if ending == "json":
        assert written.body == data
    ours, own = accepted(written, tmp_path), log.read_eval_log(str(path), resolve_attachments=True)
    assert {str(each.id): each.messages for each in ours.samples} == {
        str(each.id): each.messages for each in own.samples
    }


def test_a_sample_in_many_members_as_inspect_writes_it(tmp_path):
    convert = pytest.importorskip(
        "inspect_ai.log._recorders.chunked.convert", reason="this inspect_ai has no chunked samples"
    )
    path = tmp_path / "log.eval"
    log.write_eval_log(theirs(), str(path))
    convert.convert_eval_logs_to_chunked(str(path), str(tmp_path / "out"), chunk_size=2, attachments_chunk_bytes=1)
    whole, parted = (INSPECT.read(each.read_bytes()) for each in (path, tmp_path / "out" / "log.eval"))
    for one, other in zip(whole, parted, strict=True):
        assert [each.replace(provider={}) for each in messages(one)] == [
            each.replace(provider={}) for each in messages(other)
        ]
    ours = accepted(INSPECT.write_many(parted), tmp_path)
    own = log.read_eval_log(str(path), resolve_attachments=True)
    assert {str(each.id): each.messages for each in ours.samples} == {
        str(each.id): each.messages for each in own.samples
    }
