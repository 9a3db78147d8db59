"""Inspect's logs: samples, events, attachments, archives, edits, and what is written of conversations from elsewhere
(docs/spec/dialects.md#11).
"""

from __future__ import annotations

import io
import json
import math
import struct
import zipfile
import zlib

import pytest
from backports import zstd

from palaver import transcripts
from palaver.core import factories, jsontext
from palaver.core.errors import EncodeError
from palaver.core.messages import AssistantMessage, ToolMessage, UserMessage
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
    Video,
)
from palaver.core.usage import Usage
from palaver.threads.thread import Entry, Thread
from palaver.transcripts.conversation import Transcript, hidden_before, session_of, transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

INSPECT = transcripts.get("inspect")
FILES = FOLDER / "inspect"
LOG = (FILES / "log.json").read_bytes()


def read(name="log.json"):
    return INSPECT.read((FILES / name).read_bytes())


def messages(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def bare(transcript):
    return [without_records(each).replace(id=None) for each in messages(transcript)]


def edited(transcript, change):
    thread = Thread(transcript.thread.id)
    for entry in transcript.thread.entries:
        made = entry.message if is_record(entry) else change(entry.message)
        thread.add([Entry(entry.id, entry.parent, made)], {"main": entry.id})
    return Transcript(thread, transcript.title, transcript.metadata)


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.finding("F-74")
def test_what_a_model_sees_of_a_failure_is_the_text_of_its_result():
    failure = {"type": "timeout", "message": "Command timed out before completing."}
    called = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": "bash", "arguments": {}}]}
    for content, text in (("", failure["message"]), ("partial ", "partial " + failure["message"])):
        told = {"role": "tool", "content": content, "tool_call_id": "c1", "function": "bash", "error": failure}
        sample = {"id": 1, "epoch": 1, "input": "q", "target": "a", "messages": [called, told]}
        log = {"version": 2, "status": "success", "eval": {"task": "t", "model": "m"}, "samples": [sample]}
        data = json.dumps(log).encode()
        (transcript,) = INSPECT.read(data)
        result = next(each.message for each in transcript.thread.path() if isinstance(each.message, ToolMessage))
        assert (result.text, result.is_error) == (text, True)
        assert INSPECT.write(transcript).body == data
        copied = transcript_of(
            [without_records(each.message) for each in transcript.thread.path() if not is_record(each)]
        )
        (again,) = INSPECT.read(INSPECT.write(copied).body)
        assert result.content in [each.message.content for each in again.thread.path()]
        assert json.loads(INSPECT.write(copied).body)["samples"][0]["messages"][-1]["content"] in {content, "partial "}


def test_each_sample_is_a_conversation():
    low, high = read()
    assert [each.role for each in messages(low)] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert [each.role for each in messages(high)] == ["user", "assistant"]
    session = session_of(low.metadata)
    assert (session.id, session.format, session.model, session.agent) == (
        "S1uuidS1uuidS1uuidS1uu",
        "2",
        "anthropic/example-model",
        "harbour_watch",
    )
    assert session.more["sample"] == "low"


def test_ids_of_messages_are_those_of_entries():
    low, _ = read()
    assert [entry.id for entry in low.thread.path() if not is_record(entry)] == [
        "m-sys",
        "m-user",
        "m-a1",
        "m-t1",
        "m-t2",
        "m-a2",
    ]


def test_attachments_stand_where_a_message_has_them():
    user = messages(read()[0])[1]
    assert user.text.startswith("When is low tide at the north gauge")
    assert user.images[0].media_type == "image/png"
    assert isinstance(user.images[0].source, Inline)
    assert user.content[2] == File(Url("https://example.org/tables.pdf"), "application/pdf", name="tables.pdf")


def test_reasoning_has_the_proof_of_the_wire_of_its_model():
    answer = messages(read()[0])[2]
    plain, redacted = [part for part in answer.content if isinstance(part, Reasoning)]
    assert (plain.signature, plain.wire) == ("c2lnbmF0dXJl", "anthropic_messages")
    assert (redacted.text, redacted.encrypted) == ("", "ZW5jcnlwdGVk")


def test_calls_keep_their_text_and_what_did_not_parse():
    answer, _, failed = messages(read()[0])[2:5]
    (call, served) = sorted(answer.tool_calls, key=lambda each: each.provider_executed)
    assert '"step": 5e-06' in call.arguments_json
    assert served.name == "web_search"
    assert any(isinstance(part, ServerToolResult) for part in answer.content)
    assert answer.malformed_tool_calls[0].reason.startswith("Error parsing")
    assert failed.is_error
    assert failed.metadata["error"] == {"type": "parsing", "message": "could not parse"}


def test_events_say_what_an_answer_took():
    first, last = (each for each in messages(read()[0]) if isinstance(each, AssistantMessage))
    assert (first.usage.input, first.usage.cache_write, first.usage.output, first.usage.reasoning) == (30, 100, 10, 15)
    assert (first.finish_reason, first.response_id, first.sent_at) == ("tool_calls", "msg_01", 1746176404000)
    assert (last.usage.cache_read, last.finish_reason) == (100, "stop")


def test_numbers_that_are_none_stay_in_their_bytes():
    assert b"NaN" in LOG
    last = messages(read()[0])[-1]
    assert last.metadata["confidence"] == "NaN"
    assert INSPECT.write_many(read()).body == LOG


def test_what_is_unknown_is_reported():
    _, drift = INSPECT.read_with_unknown(LOG)
    assert {
        ("record", "event compass"),
        ("unread", "message of role oracle"),
        ("block", "hologram"),
    } <= {(each.kind, each.name) for each in drift}
    _, drift = INSPECT.read_with_unknown((FILES / "odd.json").read_bytes())
    assert ("version", "3") in {(each.kind, each.name) for each in drift}


def test_samples_of_one_name_are_two_conversations():
    assert len({each.thread.id for each in read("odd.json")}) == 3


@pytest.mark.parametrize(
    ("data", "name", "confidence"),
    [
        (LOG, "", 1.0),
        (b'{"version": 2, "status": "error", "eval": {"ta', "", 1.0),
        (b'{"eval": {"task": "t", "model": "m"}, "stats": {}}', "", 1.0),
        (b"PK\x05\x06" + bytes(18), "x.eval", 0.7),
    ],
)
def test_it_is_recognised(data, name, confidence):
    (found,) = transcripts.detect(data, name)
    assert (found.file_format, found.confidence) == ("inspect", confidence)


def test_another_archive_is_none_of_it():
    assert transcripts.detect(archived({"word/document.xml": b"<x/>"}), "x.docx") == ()


# -- archives ----------------------------------------------------------------------------------------------------------


def archived(members, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def zstandard(members):
    """An archive whose members are packed with Zstandard, which the standard library does not write."""
    body, directory = b"", b""
    for name, data in members.items():
        packed = zstd.compress(data)
        shared = struct.pack("<HHHHLLLHH", 0, 93, 0, 0, zlib.crc32(data), len(packed), len(data), len(name), 0)
        directory += b"PK\x01\x02" + struct.pack("<HH", 63, 63) + shared
        directory += struct.pack("<HHHLL", 0, 0, 0, 0, len(body)) + name.encode()
        body += b"PK\x03\x04" + struct.pack("<H", 63) + shared + name.encode() + packed
    end = struct.pack("<HHHHLLH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + end


def members():
    log = json.loads(LOG)
    samples = log.pop("samples")
    return {"_journal/start.json": b"{}", "header.json": json.dumps(log).encode(), "summaries.json": b"[]"} | {
        f"samples/{each['id']}_epoch_1.json": json.dumps(each).encode() for each in samples
    }


@pytest.mark.parametrize("pack", [archived, zstandard])
def test_an_archive_is_read_as_its_document(pack):
    data = pack(members())
    assert [each.file_format for each in transcripts.detect(data, "x.eval")] == ["inspect"]
    high, low = INSPECT.read(data)
    assert [bare(low), bare(high)] == list(map(bare, INSPECT.read(json.dumps(json.loads(LOG)).encode())))
    body = INSPECT.write_many([high, low]).body
    told = json.loads(body)
    assert math.isnan(told["results"]["scores"][0]["metrics"]["accuracy"]["value"])
    samples = sorted(told["samples"], key=lambda each: str(each["id"]), reverse=True)
    assert json.dumps(samples) == json.dumps(json.loads(LOG)["samples"])


def test_a_sample_in_many_members():
    low = json.loads(LOG)["samples"][0]
    pool = [low["messages"][0], {"role": "user", "content": "compacted away"}, *low["messages"][1:]]
    text = json.dumps(pool).replace("attachment://0123456789abcdef0123456789abcdef", "attachment://0")
    pool = json.loads(text.replace("attachment://ffffffffffffffffffffffffffffffff", "attachment://1"))
    left = {"messages", "events", "attachments", "metadata"}
    shell = {key: each for key, each in low.items() if key not in left} | {"message_refs": [[0, 1], [2, 7]]}
    folder = "samples/low_epoch_1"
    data = archived(
        {
            "header.json": members()["header.json"],
            f"{folder}/sample.json": json.dumps(shell),
            f"{folder}/metadata.json": '{"a": 1}',
            f"{folder}/skeleton.json": "{}",
            f"{folder}/messages/0.json": json.dumps(pool[:3]),
            f"{folder}/messages/3.json": json.dumps(pool[3:]),
            f"{folder}/events/0.json": json.dumps(low["events"]),
            f"{folder}/events/stats.json": "{}",
            f"{folder}/attachments/0.json": json.dumps(list(low["attachments"].values())),
        }
    )
    (whole,) = INSPECT.read(data)
    shown = [(each.role, each.text, len(each.content), each.metadata) for each in bare(whole)]
    assert shown == [(each.role, each.text, len(each.content), each.metadata) for each in bare(read()[0])]
    sample = json.loads(INSPECT.write(whole).body)["samples"][0]
    assert sample["metadata"] == {"a": 1}
    assert len(sample["events"]) == 3


def test_a_log_that_is_still_written_and_what_is_broken():
    start = {"_journal/start.json": json.dumps({"version": 2, "eval": json.loads(LOG)["eval"]})}
    sample = {"samples/low_epoch_1.json": members()["samples/low_epoch_1.json"], "samples/bad_epoch_1.json": b"{"}
    transcripts, drift = INSPECT.read_with_unknown(archived(start | sample))
    assert [len(messages(each)) for each in transcripts] == [6]
    assert ("value", "not a sample") in {(each.kind, each.name) for each in drift}
    for broken in (b"PK\x03\x04" + bytes(100), archived(members())[:500], archived({"a": b"b"})):
        transcripts = INSPECT.read(broken)
        assert INSPECT.write_many(transcripts).body == broken


def test_an_archive_of_nothing_but_size_is_not_unpacked():
    """Members that unpack to far more than any log does are left out."""
    big = {"header.json": b"{}", "samples/x_epoch_1.json": b" " * (1 << 27)}
    transcripts, drift = INSPECT.read_with_unknown(archived(big))
    assert all(not messages(each) for each in transcripts)
    assert ("value", "a member that cannot be unpacked") in {(each.kind, each.name) for each in drift}


def test_any_bytes_of_an_archive_give_steps():
    data = archived(members())
    for place in range(0, len(data), 37):
        INSPECT.read(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])


# -- edits -------------------------------------------------------------------------------------------------------------


def test_an_edited_message_keeps_what_we_do_not_model():
    low, high = read()

    def change(message):
        if "I read the gauge" not in message.text:
            return message
        return message.replace(content=[Text("I look.") if isinstance(p, Text) else p for p in message.content])

    body = INSPECT.write_many([edited(low, change), high]).body
    before, after = json.loads(LOG)["samples"][0], json.loads(body)["samples"][0]
    expected = before["messages"][2]
    expected["content"][2] = {"type": "text", "text": "I look."}
    assert after["messages"][2] == expected
    assert json.dumps(after["events"]) == json.dumps(before["events"])
    assert body.startswith(LOG[: LOG.index(b'"m-a1"')].rstrip().removesuffix(b'"id":').rstrip().removesuffix(b"{"))


def test_a_message_is_added_to_its_sample():
    low, high = read()
    low.thread.append(factories.user("Thanks."))
    body = INSPECT.write_many([low, high]).body
    samples = json.loads(body)["samples"]
    assert samples[0]["messages"][-1]["content"] == "Thanks."
    assert len(samples[0]["messages"]) == 7
    assert json.dumps(samples[1]) == json.dumps(json.loads(LOG)["samples"][1])


def test_one_sample_of_a_log_is_a_log():
    low, high = read()
    for each, number in ((low, 0), (high, 1)):
        made = INSPECT.write(each)
        log = json.loads(made.body)
        assert json.dumps(log["samples"]) == json.dumps([json.loads(LOG)["samples"][number]])
        assert log["eval"]["task"] == "harbour_watch"
        assert [loss.kind for loss in made.losses] == ["approximated"]
    assert len(json.loads(INSPECT.write_many([high, low]).body)["samples"]) == 2


def test_a_log_without_samples_cannot_be_added_to():
    (started,) = read("started.json")
    assert INSPECT.write(started).body == (FILES / "started.json").read_bytes()
    started.thread.append(factories.user("hello"))
    with pytest.raises(EncodeError, match="no list of messages"):
        INSPECT.write(started)


def test_an_older_place_can_be_gone_on_from():
    low, _ = read()
    low.thread.fork("other", at="m-user")
    low.thread.append(factories.assistant("Another answer."), branch="other")
    made = INSPECT.write(low, branch="other")
    said = json.loads(made.body)["samples"][0]["messages"]
    assert [each["role"] for each in said] == ["system", "user", "assistant"]
    assert any(loss.what == "branch main" for loss in made.losses)


# -- writing -----------------------------------------------------------------------------------------------------------


def everything():
    """A conversation with every part and role there is, as a model sees it."""
    raw = jsontext.raw({"type": "smell"})
    served = ToolCall("s1", "web_search", '{"q":"x"}', provider_executed=True)
    return [
        factories.developer("Be kind."),
        factories.system("Rule"),
        UserMessage(
            content=(
                Text("See", citations=(Citation(url="https://example.org", title="T"),)),
                Image(Inline("iVBORw0KGgo="), "image/png"),
                Image(Url("https://example.org/x.png"), "image/png"),
                Image(FileId("file-1", "openai_responses")),
                Audio(Inline("UklGRg=="), "audio/wav"),
                Audio(Inline("T2dnUw=="), "audio/ogg"),
                Video(Url("https://example.org/v.mp4"), "video/mp4"),
                File(Inline("JVBERi0="), "application/pdf", name="a.pdf"),
                File(Inline("JVBERi0="), None),
                Opaque("openai_chat", raw),
            ),
            sent_at=1_700_000_000_000,
        ),
        AssistantMessage(
            content=(
                Reasoning("one", signature="proof", wire="anthropic_messages"),
                Reasoning("two", encrypted="secret", wire="openai_responses"),
                ToolCall("c0", "early", "{}"),
                Text("First"),
                served,
                ServerToolResult("s1", jsontext.raw([{"url": "u"}]), "anthropic_messages"),
                ToolCall("c1", "look", ' {"a": 5e-06} '),
                ToolCall("c2", "write", '"free text"', custom=True),
                MalformedToolCall('{"a": ', "cut", "look", "c3"),
                Refusal("I cannot."),
            ),
            model="m-1",
            usage=Usage(input=10, cache_read=4, cache_write=2, output=5, reasoning=3),
            finish_reason="tool_calls",
            response_id="r1",
            sent_at=1_700_000_001_000,
        ),
        ToolMessage(content=(), tool_call_id="c0", tool_name="early"),
        ToolMessage(content=(Json.of({"b": 1.0}),), tool_call_id="c1", tool_name="look", sent_at=1_700_000_002_000),
        ToolMessage(content=(Text("bad"),), tool_call_id="c2", tool_name="write", is_error=True),
        ToolMessage(content=(Text("stands alone"),)),
        AssistantMessage(content=()),
        factories.assistant("End").replace(metadata={"k": [1]}, model="m-2", usage=Usage(input=1, output=1)),
    ]


def test_what_cannot_be_said_is_carried_and_comes_back():
    made = INSPECT.write(transcript_of(everything()))
    (back,) = INSPECT.read(made.body)
    given = everything()
    assert len(bare(back)) == len(given)
    for mine, theirs in zip(given, bare(back), strict=True):
        assert theirs == mine


def test_a_log_has_what_its_reader_asks_for():
    log = json.loads(INSPECT.write(transcript_of(everything())).body)
    assert log["version"] == 2
    assert {"created", "task", "dataset", "model", "config"} <= log["eval"].keys()
    (sample,) = log["samples"]
    assert {"id", "epoch", "input", "target", "messages", "output"} <= sample.keys()
    assert sample["output"]["choices"][0]["message"]["content"] == "End"
    assert sample["model_usage"]["m-1"]["input_tokens"] == 11
    assert sample["model_usage"]["m-1"]["output_tokens"] == 9


def test_each_loss_is_named():
    made = INSPECT.write(transcript_of(everything()))
    assert {
        "developer",
        "image",
        "audio",
        "opaque",
        "order",
        "malformed_tool_call",
        "server_tool_result",
        "json",
    } <= {loss.what for loss in made.losses}
    plain = INSPECT.write(transcript_of(everything()), carry=False)
    assert b"palaver" not in plain.body.replace(b'"task":"palaver"', b"")
    assert "dropped" in {loss.kind for loss in plain.losses}


def test_plain_talk_is_written_without_loss():
    made = INSPECT.write(transcript_of([factories.user("hi"), factories.assistant("ho")]))
    assert made.losses == ()
    assert [set(each) for each in json.loads(made.body)["samples"][0]["messages"]] == [
        {"id", "content", "role"},
        {"id", "content", "role", "source"},
    ]


def test_what_a_compaction_hid_is_not_in_a_log():
    said = [factories.user("old"), hidden_before(), UserMessage(content=(Text("Summary"),), source="compaction")]
    log = json.loads(INSPECT.write(transcript_of(said)).body)
    assert [each["content"] for each in log["samples"][0]["messages"]] == ["Summary"]
    every = json.loads(INSPECT.write(transcript_of(said), history="all").body)
    assert [each["role"] for each in every["samples"][0]["messages"]] == ["user", "system", "user"]


def test_several_conversations_are_samples_of_one_log():
    given = [transcript_of([factories.user(each)]) for each in "abc"]
    made = INSPECT.write_many(given)
    assert [each["input"] for each in json.loads(made.body)["samples"]] == ["a", "b", "c"]
    again = INSPECT.read(made.body)
    assert INSPECT.write_many(again).body == made.body
    mixed = INSPECT.write_many([read()[0], *given]).body
    assert json.loads(mixed)["samples"][0]["id"] == "low"


def test_half_a_character_is_replaced_in_what_is_new():
    """Pydantic's parser refuses a file for one lone surrogate."""
    call = ToolCall("c", "f", '{"a": "\\ud83d", "b": "\\ud83d\\ude00"}')
    said = [factories.user("cut \ud83d"), AssistantMessage(content=(call,)), factories.user(r"\ud83d is text")]
    made = INSPECT.write(transcript_of(said))
    assert b"\\\\ud83d is text" in made.body
    made.body.decode()
    user, answer, last = bare(INSPECT.read(made.body)[0])
    assert user.text == "cut \ufffd"
    assert r'"a": "\ufffd", "b": "\ud83d\ude00"' in made.body.decode()
    assert answer.tool_calls[0].arguments["a"] == "\ud83d"  # carried: its text is whole
    assert last.text == r"\ud83d is text"
    assert [loss.what for loss in made.losses] == ["text", "text"]
