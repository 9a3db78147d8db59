"""Messages with something in them that cannot be read: what stays, and what is counted."""

from __future__ import annotations

import json

import pytest

from palaver import transcripts
from palaver.core.errors import DecodeError, LossError
from palaver.core.parts import Opaque
from palaver.threads.view import RECORD
from palaver.transcripts.conversation import with_messages
from palaver.transcripts.format import Origin
from palaver.transcripts.unknown_fields import losses_of

pytestmark = pytest.mark.finding("F-71")

GOOD, BAD = "the good block", 7
CLAUDE = {"sessionId": "s", "cwd": "/w", "version": "2.1.4", "timestamp": "2026-01-02T03:04:05.000Z", "uuid": "u1"}
QWEN = {**CLAUDE, "parentUuid": None}
FILES = {
    "claude_code prompt": (
        "claude_code",
        {**CLAUDE, "type": "user", "message": {"role": "user", "content": [{"type": "text"}, {"type": "text"}]}},
        ("message", "content"),
    ),
    "claude_code answer": (
        "claude_code",
        {
            **CLAUDE,
            "type": "assistant",
            "message": {"id": "m", "role": "assistant", "content": [{"type": "text"}, {"type": "text"}]},
        },
        ("message", "content"),
    ),
    "openai_messages": (
        "openai_messages",
        {"messages": [{"role": "user", "content": [{"type": "text"}, {"type": "text"}]}]},
        ("messages", 0, "content"),
    ),
    "codex": (
        "codex",
        {
            "timestamp": "2026-01-02T03:04:05.000Z",
            "type": "response_item",
            "payload": {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text"}, {"type": "input_text"}],
            },
        },
        ("payload", "content"),
    ),
    "openai_agents": (
        "openai_agents",
        {"type": "message", "role": "user", "content": [{"type": "input_text"}, {"type": "input_text"}]},
        ("content",),
    ),
    "qwen_code": (
        "qwen_code",
        {**QWEN, "type": "user", "message": {"role": "user", "parts": [{}, {}]}},
        ("message", "parts"),
    ),
    "qwen_code answer": (
        "qwen_code",
        {**QWEN, "type": "assistant", "message": {"role": "model", "parts": [{}, {}]}},
        ("message", "parts"),
    ),
}


def read(name, record):
    return transcripts.get(name).read_with_unknown(json.dumps(record).encode() + b"\n", Origin())


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("case", FILES)
def test_one_bad_block_leaves_the_other_blocks_of_its_message(case, place):
    name, record, path = FILES[case]
    record = json.loads(json.dumps(record))
    blocks = record
    for key in path:
        blocks = blocks[key]
    blocks[place]["text"], blocks[1 - place]["text"] = BAD, GOOD
    (transcript,), drift = read(name, record)
    (message,) = [each.message for each in transcript.thread.entries if RECORD not in each.message.tags]
    assert message.text == GOOD
    (opaque,) = [part for part in message.content if isinstance(part, Opaque)]
    assert opaque.wire == name
    assert opaque.raw == blocks[place]
    assert "block" in {each.kind for each in drift}
    assert transcripts.get(name).write(transcript).body == json.dumps(record).encode() + b"\n"


def test_a_bad_call_leaves_the_text_and_the_other_call():
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in ("a", "b")]
    calls[0]["function"]["name"] = BAD
    record = {"messages": [{"role": "assistant", "content": GOOD, "tool_calls": calls}]}
    (transcript,), drift = read("openai_messages", record)
    (message,) = [each.message for each in transcript.thread.entries]
    assert (message.text, [call.id for call in message.tool_calls]) == (GOOD, ["b"])
    assert len(losses_of(drift)) == 1


def test_every_message_left_out_is_a_loss():
    record = {"messages": [{"role": 7, "content": "x"}, {"role": "user", "content": GOOD}, {"role": 8, "content": "y"}]}
    (transcript,), drift = read("openai_messages", record)
    assert [each.message.text for each in transcript.thread.entries] == [GOOD]
    assert [(loss.kind, loss.what) for loss in losses_of(drift)] == [("dropped", "message")] * 2


def test_a_turn_of_an_unknown_speaker_leaves_the_others():
    turns = [{"from": "human", "value": "hi"}, {"from": "alien", "value": "?"}, {"from": "gpt", "value": "ho"}]
    (transcript,), drift = read("openai_messages", {"conversations": turns})
    assert [each.message.text for each in transcript.thread.entries] == ["hi", "ho"]
    assert [each.kind for each in drift] == ["unread"]


def test_a_file_without_a_message_that_can_be_read_gives_no_conversation():
    file_format = transcripts.get("openai_messages")
    line = (
        json.dumps({"messages": [{"role": "user", "content": [{"type": "text", "value": "hello"}]}]}).encode() + b"\n"
    )
    reader = file_format.reader()
    steps = [*reader.feed(line * 500), *reader.finish()]
    given = []
    with pytest.raises(DecodeError, match="no message of it can be read: line 1: openai_chat"):
        given.extend(with_messages(steps))
    assert given == []


def test_an_empty_session_is_no_error():
    reader = transcripts.get("pi").reader()
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-02T03:04:05Z", "cwd": "/w"}
    steps = [*reader.feed(json.dumps(header).encode() + b"\n"), *reader.finish()]
    assert list(with_messages(steps)) == steps


TEXTS = {
    "pi": (
        {"type": "message", "id": "e", "parentId": None, "message": {"role": "user", "content": [{"type": "text"}]}},
        ("message", "content", 0, "text"),
    ),
    "pi summary": ({"type": "compaction", "id": "e", "parentId": None}, ("summary",)),
    "pi thinking": (
        {
            "type": "message",
            "id": "e",
            "parentId": None,
            "message": {"role": "assistant", "content": [{"type": "thinking"}]},
        },
        ("message", "content", 0, "thinking"),
    ),
    "vercel_ui": ([{"id": "m", "role": "user", "parts": [{"type": "text"}]}], (0, "parts", 0, "text")),
    "vercel_ui reasoning": (
        [{"id": "m", "role": "assistant", "parts": [{"type": "reasoning"}]}],
        (0, "parts", 0, "text"),
    ),
    "vercel_ui error": (
        [
            {
                "id": "m",
                "role": "assistant",
                "parts": [{"type": "tool-f", "toolCallId": "c", "state": "output-error", "input": {}}],
            }
        ],
        (0, "parts", 0, "errorText"),
    ),
    "vercel_ui denial": (
        [
            {
                "id": "m",
                "role": "assistant",
                "parts": [{"type": "tool-f", "toolCallId": "c", "state": "output-denied", "input": {}, "approval": {}}],
            }
        ],
        (0, "parts", 0, "approval", "reason"),
    ),
    "vercel_ui version 4": ([{"id": "m", "role": "user"}], (0, "content")),
    "otel_genai": ([{"role": "user", "parts": [{"type": "text"}]}], (0, "parts", 0, "content")),
    "otel_genai reasoning": ([{"role": "assistant", "parts": [{"type": "reasoning"}]}], (0, "parts", 0, "content")),
    "otel_genai call": (
        [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "arguments": {}}]}],
        (0, "parts", 0, "name"),
    ),
    "gemini_cli": (
        {"sessionId": "s", "messages": [{"id": "m", "type": "gemini", "content": "", "thoughts": [{}]}]},
        ("messages", 0, "thoughts", 0, "description"),
    ),
    "kairo": ([{"role": "user", "metadata": {}}], (0, "content")),
    "agent_swarm_kit": ([{"role": "user", "agentName": "a", "mode": "user"}], (0, "content")),
    "openai_messages": ({"conversations": [{"from": "human"}]}, ("conversations", 0, "value")),
    "ag_ui": ([{"id": "m", "role": "assistant"}], (0, "content")),
}
HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-02T03:04:05Z", "cwd": "/w"}


def with_text(case, text):
    name, (given, path) = case.split()[0], TEXTS[case]
    document = json.loads(json.dumps(given))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = text
    lines = [HEADER, document] if name == "pi" else [document]
    return transcripts.get(name), b"".join(json.dumps(each).encode() + b"\n" for each in lines)


@pytest.mark.parametrize("text", [7, {"value": "hello"}, True], ids=["number", "object", "boolean"])
@pytest.mark.parametrize("case", TEXTS)
def test_a_text_of_another_type_is_reported_and_stays_in_the_file(case, text):
    file_format, right = with_text(case, "hello")
    assert losses_of(file_format.read_with_unknown(right)[1]) == ()
    _, wrong = with_text(case, text)
    (transcript,), drift = file_format.read_with_unknown(wrong)
    (loss,) = losses_of(drift)
    assert "string" in loss.why or "content is" in loss.why
    assert transcript.unread == (loss,)
    assert file_format.write(transcript).body == wrong
    assert file_format.write(transcript).losses == ()
    assert loss in transcripts.get("codex").write(transcript).losses
    with pytest.raises(LossError):
        transcripts.get("codex").write(transcript, losses="raise")


def test_what_was_not_read_of_a_file_is_a_loss_once():
    record = json.dumps({"messages": [{"role": 7, "content": "x"}, {"role": "user", "content": GOOD}]}).encode()
    file_format = transcripts.get("openai_messages")
    sessions = file_format.read(record + b"\n" + record + b"\n")
    assert len(sessions) == 2
    written = transcripts.get("atif").write(sessions[0])
    assert [loss.what for loss in written.losses].count("message") == 2
    assert [loss.what for loss in transcripts.get("langchain").write_many(sessions).losses].count("message") == 2
