"""DeepAgents for Swift: the stored form, the older one, and the flat log."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver import transcripts, wires
from palaver.core import jsontext
from palaver.core.parts import FileId, Image, Inline, MalformedToolCall, Reasoning, Text, ToolCall, Url
from palaver.core.request import Request
from palaver.transcripts.conversation import transcript_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER
from tests.transcripts.test_listing import bare

SWIFT = transcripts.get("deepagents")
LOG = transcripts.get("deepagents_log")
ID = "6F9619FF-8B86-D011-B42D-00C04FC964F1"


def read(*records, file_format=SWIFT):
    data = (
        json.dumps(records).encode()
        if file_format is SWIFT
        else b"".join(json.dumps(r).encode() + b"\n" for r in records)
    )
    transcripts, drift = file_format.read_with_unknown(data)
    return [entry.message for entry in transcripts[0].thread.path() if not is_record(entry)], drift


def written(*messages, file_format=SWIFT, **options):
    done = file_format.write(transcript_of(messages), **options)
    records = json.loads(done.body) if file_format is SWIFT else [json.loads(line) for line in done.body.splitlines()]
    return records, {(x.kind, x.what, x.message, x.part) for x in done.losses}


def text(said):
    return {"type": "text", "text": said}


FACTORIES = {
    "system": (p.system("x"), {"role": "system", "content": [text("x")]}),
    "human": (
        p.user("x", Image(Url("https://x.org/a.png"))),
        {"role": "human", "content": [text("x"), {"type": "image", "image": {"url": "https://x.org/a.png"}}]},
    ),
    "ai": (
        p.assistant("x", tool_calls=[ToolCall(ID, "t", '{"a": 1}')], reasoning="why"),
        {
            "role": "ai",
            "content": [{"type": "reasoning", "reasoning": "why"}, text("x")],
            "toolCalls": [{"id": ID, "name": "t", "arguments": {"a": 1}}],
        },
    ),
    "ai, empty": (p.assistant(""), {"role": "ai", "content": [text("")]}),
    "tool": (p.tool("x", tool_call_id=ID), {"role": "tool", "content": [text("x")], "toolCallID": ID}),
}


@pytest.mark.row("DAS-01")
@pytest.mark.parametrize("name", FACTORIES)
def test_roles_and_the_order_of_parts_map_both_ways(name):
    message, record = FACTORIES[name]
    record = {"id": ID, **record}
    assert written(message.replace(id=ID)) == ([record], set())
    (again,), drift = read(record)
    assert again.replace(provider={}) == message.replace(id=ID, provider={})
    assert drift == ()


@pytest.mark.row("DAS-02")
def test_the_views_on_interleaved_content():
    blocks = [text("a"), {"type": "reasoning", "reasoning": "r1"}, text("b"), {"type": "reasoning", "reasoning": "r2"}]
    (message,), _ = read({"role": "ai", "content": blocks})
    assert (message.text, message.reasoning) == ("ab", "r1\n\nr2")
    (plain,), _ = read({"role": "ai", "content": [text("a")]})
    assert plain.reasoning is None
    image = {"type": "image", "image": {"url": "https://x.org/a.png"}}
    (seen,), _ = read({"role": "human", "content": [image, text("a"), {**image, "image": {"fileID": "f"}}]})
    assert [part.source for part in seen.images] == [Url("https://x.org/a.png"), FileId("f", "deepagents")]


@pytest.mark.row("DAS-03")
def test_empty_lists_and_nothing_are_left_out_and_keys_are_sorted():
    message = p.assistant("x", id=ID)
    body = SWIFT.write(transcript_of([message])).body
    assert body == b'[{"content":[{"text":"x","type":"text"}],"id":"%s","role":"ai"}]' % ID.encode()


@pytest.mark.row("DAS-03")
def test_a_second_encode_equals_the_first_byte_for_byte():
    data = (FOLDER / "deepagents" / "thread.json").read_bytes()
    once = SWIFT.write(bare("deepagents", SWIFT.read(data)[0]), history="all").body
    twice = SWIFT.write(bare("deepagents", SWIFT.read(once)[0]), history="all").body
    assert once == twice
    assert b"imageURLs" not in once


@pytest.mark.row("DAS-04")
@pytest.mark.parametrize(
    ("role", "content", "parts"),
    [
        ("ai", "<think> why </think>\n\nIt is.", [Reasoning("why"), Text("It is.")]),
        ("ai", "It is.", [Text("It is.")]),
        ("human", " <think>x</think> ", [Text(" <think>x</think> ")]),
        ("tool", "", [Text("")]),
        ("ai", None, [Text("")]),
    ],
)
def test_the_older_form_is_read_by_role(role, content, parts):
    record = {"role": role, "imageURLs": ["https://x.org/a.png"], **({} if content is None else {"content": content})}
    (message,), _ = read(record)
    assert list(message.content) == [*parts, Image(Url("https://x.org/a.png"))]
    assert message.id is not None


@pytest.mark.row("DAS-05")
@pytest.mark.parametrize(
    "record",
    [
        {"id": ID, "role": "ai", "content": [{"type": "hologram", "x": 1}, text("a")]},
        {"id": ID, "role": "ai", "content": [{"type": "image", "image": {"url": "https://a/b", "depth": 3}}]},
        {"id": ID, "role": "judge", "content": [text("a")]},
        {"id": ID, "role": "human", "content": 5},
    ],
)
def test_what_nobody_knows_never_empties_a_thread(record):
    data = json.dumps([record, {"id": ID[:-1] + "2", "role": "human", "content": [text("still here")]}]).encode()
    transcripts, _ = SWIFT.read_with_unknown(data)
    assert transcripts[0].thread.path()[-2].message.text == "still here"
    assert SWIFT.write(transcripts[0]).body == data


def test_of_several_sources_the_first_counts_and_all_are_kept():
    image = {"base64": "iVBORw0KGgo=", "fileID": "f", "mimeType": "image/png", "url": "https://x.org/a.png"}
    record = {"id": ID, "role": "human", "content": [{"image": image, "type": "image"}]}
    (message,), _ = read(record)
    assert message.images[0].source == Url("https://x.org/a.png")
    assert written(message.replace(provider={}))[0] == [record]
    (other,), _ = read({**record, "content": [{"type": "image", "image": {"base64": "iVBORw0KGgo=", "fileID": "f"}}]})
    assert other.images[0].source == Inline("iVBORw0KGgo=")
    (none,), _ = read({**record, "content": [{"type": "image", "image": {}}]})
    assert none.images == ()


def test_ids_become_uuids_and_results_still_fit_their_calls():
    records, losses = written(
        p.assistant(tool_calls=[ToolCall("call_1", "t", "{}")]), p.tool("x", tool_call_id="call_1", tool_name="t")
    )
    called = records[0]["toolCalls"][0]["id"]
    assert records[1]["toolCallID"] == called == called.upper()
    assert len({called, *(each["id"] for each in records)}) == 3
    assert ("converted", "id", 0, None) in losses
    again, _ = read(*records)
    assert [again[0].tool_calls[0].id, again[1].tool_call_id] == ["call_1", "call_1"]
    plain, lost = written(p.user("x", id="m1"), carry=False)
    assert lost == {("approximated", "id", 0, None)}
    assert plain == written(p.user("x", id="m1"), carry=False)[0]


def test_a_summary_is_one_for_the_program_too():
    records, _ = written(p.user("summary", source="compaction", id=ID))
    assert records[0]["source"] == "summarization"
    assert read(*records)[0][0].source == "compaction"
    assert read({"role": "human", "content": [text("x")], "source": "other"})[0][0].source == "other"


def test_calls_that_could_not_be_read_stand_behind_the_others():
    record = {
        "content": [text("x")],
        "id": ID,
        "malformedToolCallBlocks": ["t(a="],
        "role": "ai",
        "toolCalls": [{"arguments": {}, "id": ID, "name": "t"}],
    }
    (message,), _ = read(record)
    assert [type(part) for part in message.content] == [Text, ToolCall, MalformedToolCall]
    assert message.malformed_tool_calls[0].raw == "t(a="


def test_a_result_that_is_wholly_an_error_failed():
    said = ['{"error":"no"}', '{"error":"no","b":1}', "error", '{"error"']
    messages, _ = read(*({"role": "tool", "content": [text(each)]} for each in said))
    assert [each.is_error for each in messages] == [True, False, False, False]


def test_an_order_it_cannot_say_is_on_the_receipt():
    message = p.assistant("a", ToolCall(ID, "t", "{}"), "b", id=ID)
    assert written(message, carry=False)[1] == {("approximated", "content", 0, None)}


@pytest.mark.row("DAS-13")
def test_a_stored_conversation_makes_an_anthropic_request():
    """Results of one turn in one user message, leading system texts on top, no empty text, ``max_tokens`` set."""
    calls = [{"id": ID[:-1] + each, "name": "t", "arguments": {}} for each in "AB"]
    messages, _ = read(
        {"role": "system", "content": [text("one")]},
        {"role": "system", "content": [text("two")]},
        {"role": "human", "content": [text("go"), text("")]},
        {"role": "ai", "content": [text("")], "toolCalls": calls},
        {"role": "tool", "content": [text("first")], "toolCallID": ID[:-1] + "A"},
        {"role": "tool", "content": [text("")], "toolCallID": ID[:-1] + "B"},
    )
    body = json.loads(wires.get("anthropic_messages").encode_request(Request(messages=tuple(messages))).body)
    assert body["max_tokens"] == 4096
    assert "one" in json.dumps(body["system"])
    assert "two" in json.dumps(body["system"])
    assert [each["role"] for each in body["messages"]] == ["user", "assistant", "user"]
    assert [each["tool_use_id"] for each in body["messages"][2]["content"]] == [each["id"] for each in calls]
    assert '"text": ""' not in json.dumps(body)


# -- the log -----------------------------------------------------------------------------------------------------------

LINE = {
    "content": "It is Ulm.",
    "generationSeconds": 1.235,
    "modelID": "qwen3",
    "reasoning": "hm",
    "role": "ai",
    "round": 1,
    "threadId": "trip",
    "timestamp": "2026-01-02T02:04:07Z",
    "toolCalls": [{"arguments": {"a": 1}, "id": ID, "name": "task", "subagentType": "guide"}],
}


def test_a_line_of_the_log_is_a_message():
    (message,), drift = read(LINE, file_format=LOG)
    assert (message.role, message.text, message.reasoning, message.model) == ("assistant", "It is Ulm.", "hm", "qwen3")
    assert message.sent_at == 1767319447000
    assert (message.provider["deepagents_log"]["round"], message.tool_calls[0].name) == (1, "task")
    assert drift == ()
    (transcript,) = LOG.read(json.dumps(LINE).encode())
    assert transcript.metadata["session"]["id"] == "trip"


def test_the_log_says_seconds_and_no_ids():
    records, losses = written(p.user("x", id="m", sent_at=1767319447999), file_format=LOG, carry=False)
    assert records == [{"content": "x", "role": "human", "timestamp": "2026-01-02T02:04:07Z"}]
    assert losses == {("dropped", "id", None, None), ("approximated", "sent_at", None, None)}


def test_numbers_of_arguments_keep_their_spelling():
    data = (
        b'[{"content":[],"id":"%s","role":"ai","toolCalls":[{"arguments":{"a":5e-06,"b":2.0},"id":"%s","name":"t"}]}]'
    )
    data %= (ID.encode(), ID.encode())
    (transcript,) = SWIFT.read(data)
    assert transcript.thread.path()[1].message.tool_calls[0].arguments_json == '{"a":5e-06,"b":2.0}'
    assert jsontext.normal(SWIFT.write(bare("deepagents", transcript)).body) == jsontext.normal(data)
