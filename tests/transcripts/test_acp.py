"""ACP logs: how updates become messages, replays, envelopes, and what is written."""

from __future__ import annotations

import json

import palaver as p
from palaver import transcripts
from palaver.core.messages import AssistantMessage, ToolMessage, UserMessage
from palaver.core.parts import Audio, File, Image, MalformedToolCall, Opaque, Reasoning, Text, ToolCall
from palaver.transcripts.conversation import transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

ACP = transcripts.get("acp")
FULL = (FOLDER / "acp" / "full.jsonl").read_bytes()


def update(kind, /, **fields):
    params = {"sessionId": "s", "update": {"sessionUpdate": kind, **fields}}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def chunk(kind, text, **fields):
    return update(kind, content={"type": "text", "text": text}, **fields)


def lines(*rows):
    return b"".join(json.dumps(each).encode() + b"\n" for each in rows)


def only(data):
    (transcript,) = ACP.read(data)
    return transcript


def said(transcript):
    return [without_records(each.message).replace(id=None) for each in transcript.thread.path() if not is_record(each)]


def test_chunks_make_a_message_and_calls_have_results():
    asked, answer, one, two, last, stop, call = said(only(FULL))
    assert isinstance(asked, UserMessage)
    assert [type(part) for part in asked.content] == [Text, Image, Text, File]
    assert isinstance(answer, AssistantMessage)
    assert answer.text == "I will read it."
    assert answer.reasoning is not None
    assert answer.reasoning.startswith("I should read it")
    assert [(each.name, each.id) for each in answer.tool_calls] == [("Read notes.txt", "c1"), ("Edit of a.txt", "c2")]
    assert '"limit":5e-06' in answer.tool_calls[0].arguments_json
    assert isinstance(one, ToolMessage)
    assert isinstance(two, ToolMessage)
    assert (one.is_error, two.is_error) == (False, True)
    assert two.text == "no such file"
    assert (last.text, last.finish_reason, last.finish_reason_raw) == ("It says: first line.", "stop", "end_turn")
    assert stop.text == "Stop"
    assert (call.finish_reason, call.finish_reason_raw) == ("other", "cancelled")


def test_a_load_tells_again_what_the_log_holds_already():
    texts = [each.text for each in said(only(FULL))]
    assert sum("What is in notes.txt?" in text for text in texts) == 1
    assert only(FULL).metadata["session"]["cwd"] == "/home/me/project"


def test_a_load_at_the_beginning_is_the_history():
    load = {"jsonrpc": "2.0", "id": 1, "method": "session/load", "params": {"sessionId": "s", "cwd": "/w"}}
    data = lines(load, chunk("user_message_chunk", "one"), chunk("agent_message_chunk", "two"), {"id": 1, "result": {}})
    assert [each.text for each in said(only(data))] == ["one", "two"]


def test_messages_and_calls_whose_ids_were_written_are_not_written_twice():
    rows = [
        chunk("user_message_chunk", "one", messageId="a"),
        update("tool_call", toolCallId="c", title="Run", status="completed"),
    ]
    assert len(said(only(lines(*rows, *rows)))) == 3


def test_another_message_id_is_another_message():
    data = lines(
        chunk("user_message_chunk", "one", messageId="a"),
        chunk("user_message_chunk", "two", messageId="b"),
        chunk("agent_message_chunk", "three", messageId="c"),
        chunk("agent_message_chunk", "four", messageId="d"),
    )
    assert [each.text for each in said(only(data))] == ["one", "two", "three", "four"]
    assert [each.id for each in only(data).thread.path()] == ["a", "b", "c", "d"]


def test_a_run_of_the_same_variant_is_one_message():
    data = lines(*[chunk("agent_message_chunk", each) for each in ("a", "b", "c")], chunk("user_message_chunk", "d"))
    assert [each.text for each in said(only(data))] == ["abc", "d"]


def test_the_last_value_of_each_field_counts_and_lists_replace():
    data = lines(
        update("tool_call", toolCallId="c", title="Run", kind="execute", status="pending", rawInput={"a": 1}),
        update(
            "tool_call_update", toolCallId="c", status="in_progress", content=[{"type": "terminal", "terminalId": "t"}]
        ),
        update(
            "tool_call_update",
            toolCallId="c",
            title="Ran",
            status="completed",
            content=[{"type": "content", "content": {"type": "text", "text": "done"}}],
        ),
    )
    answer, result = said(only(data))
    assert (answer.tool_calls[0].name, answer.tool_calls[0].arguments_json) == ("Ran", '{"a": 1}')
    assert result.content == (Text("done"),)


def test_a_result_that_comes_late_belongs_to_its_call():
    data = lines(
        chunk("agent_message_chunk", "one", messageId="m1"),
        update("tool_call", toolCallId="c", title="Run", status="pending"),
        chunk("agent_message_chunk", "two", messageId="m2"),
        update("tool_call_update", toolCallId="c", status="completed", rawOutput="late"),
    )
    assert [each.text for each in said(only(data))] == ["one", "late", "two"]


def test_params_alone_and_blocks_of_every_kind():
    first, answer, result, last = said(only((FOLDER / "acp" / "params.jsonl").read_bytes()))
    assert (first.text, last.text) == ("Hello", "One more thing")
    assert [type(part) for part in answer.content] == [Text, Opaque, Audio, MalformedToolCall]
    assert (result.tool_call_id, result.content) == ("x", ())


def test_a_turn_of_grok_says_what_it_cost():
    data = (FOLDER / "acp" / "updates.jsonl").read_bytes()
    _, answer, _ = said(only(data))
    usage = answer.usage
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning) == (510, 131456, 326, 122)
    assert usage.raw["costUsdTicks"] == 424128000
    assert answer.sent_at == 1767323042000


def test_how_full_the_context_is_is_no_usage():
    data = lines(chunk("agent_message_chunk", "a"), update("usage_update", used=1, size=2))
    assert said(only(data))[0].usage is None


def test_a_foreign_conversation_comes_back_equal():
    messages = [
        p.system("Be brief.").replace(sent_at=1),
        p.user("Read it.").replace(sent_at=2),
        p.assistant(
            Reasoning("Hm.", signature="c2ln", wire="anthropic_messages"),
            "RecordReader.",
            ToolCall("c1", "read", '{"a":\n1}'),
        ).replace(sent_at=3, model="m"),
        p.tool({"x": 1}, tool_call_id="c1", tool_name="read").replace(sent_at=4),
        p.assistant(p.Image.from_url("https://example.org/a.png"), "Done.").replace(sent_at=5),
    ]
    written = ACP.write(transcript_of(messages))
    rows = [json.loads(line) for line in written.body.splitlines()]
    assert [row["params"]["update"]["sessionUpdate"] for row in rows] == [
        "session_info_update",
        "user_message_chunk",
        "agent_thought_chunk",
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
        "agent_message_chunk",
    ]
    assert said(only(written.body)) == messages
    assert {("converted", "system"), ("converted", "tool name"), ("converted", "model")} <= {
        (loss.kind, loss.what) for loss in written.losses
    }
    bare = ACP.write(transcript_of(messages), carry=False)
    assert b"palaver" not in bare.body
    assert [each.text for each in said(only(bare.body))] == ["Read it.", "RecordReader.", "", "Done."]


def test_an_edited_prompt_is_written_anew_in_its_place():
    data = lines(chunk("user_message_chunk", "one", messageId="a"), chunk("agent_message_chunk", "two"))
    transcript = only(data)
    first, second = transcript.thread.path()
    thread = type(transcript.thread)(transcript.thread.id)
    thread.add([type(first)("a", None, first.message.replace(content=["ONE"])), second], {"main": second.id})
    body = ACP.write(type(transcript)(thread, None, transcript.metadata)).body.splitlines()
    assert json.loads(body[0])["params"]["update"]["content"]["text"] == "ONE"
    assert body[1] == data.splitlines()[1]
