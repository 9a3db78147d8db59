"""Records whose parent stands later in the file: every format with parent links, and what may wait."""

from __future__ import annotations

import json
from random import Random

import pytest

from palaver import transcripts
from palaver.transcripts.format import Origin
from palaver.transcripts.record import Record
from palaver.transcripts.record_order import ParentsFirst

COUNT = 230
SESSION = "5a2c1f00-1111-4222-8333-000000000001"


def claude_code(number, parent):
    role, content = ("assistant", [{"type": "text", "text": f"m{number}"}]) if number % 2 else ("user", f"m{number}")
    said = {"id": f"msg{number}", "type": "message", "model": "claude-opus-4-7"} if number % 2 else {}
    return {
        "type": role,
        "uuid": f"u{number}",
        "parentUuid": parent and f"u{number - 1}",
        "sessionId": SESSION,
        "cwd": "/w",
        "version": "2.1.121",
        "isSidechain": False,
        "timestamp": "2026-05-01T14:32:42.000Z",
        "message": {"role": role, "content": content, **said},
    }


def pi(number, parent):
    message = {"role": "user", "content": f"m{number}", "timestamp": number}
    named = {"id": f"e{number}", "parentId": parent and f"e{number - 1}"}
    return {"type": "message", **named, "timestamp": "2026-01-02T03:04:05Z", "message": message}


def qwen_code(number, parent):
    return {
        "uuid": f"u{number}",
        "parentUuid": parent and f"u{number - 1}",
        "sessionId": SESSION,
        "timestamp": "2026-01-02T03:04:05.000Z",
        "type": "user",
        "cwd": "/w",
        "version": "0.19.10",
        "message": {"role": "user", "parts": [{"text": f"m{number}"}]},
    }


HEADERS = {"pi": [{"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-02T03:04:05Z", "cwd": "/w"}]}
FORMATS = {"claude_code": claude_code, "pi": pi, "qwen_code": qwen_code}


def chain(name, order):
    records = [*HEADERS.get(name, ()), *(FORMATS[name](number, number > 0 or None) for number in order)]
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


def shuffled(rule):
    order = list(range(COUNT))
    match rule:
        case "pairs":
            for place in range(2, COUNT - 3, 5):
                order[place], order[place + 1] = order[place + 1], order[place]
        case "backwards":
            order.reverse()
        case _:
            Random(7).shuffle(order)
    return order


@pytest.mark.finding("F-70")
@pytest.mark.parametrize("rule", ["pairs", "backwards", "shuffled"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_chain_is_whole_whatever_the_order_of_its_records(name, rule):
    order = shuffled(rule)
    data = chain(name, order)
    file_format = transcripts.get(name)
    (transcript,), drift = file_format.read_with_unknown(data, Origin())
    said = [each.message.text for each in transcript.thread.entries if each.message.text]
    assert said == [f"m{number}" for number in range(COUNT)]
    parents = {entry.id: entry.parent for entry in transcript.thread.entries}
    assert list(parents.values())[1:] == list(parents)[:-1]
    assert drift == ()
    assert file_format.write(transcript).body == data


@pytest.mark.finding("F-70")
@pytest.mark.parametrize("name", ["pi", "qwen_code"])
def test_the_conversation_goes_on_at_the_last_record_of_the_file(name):
    (transcript,) = transcripts.get(name).read(chain(name, [0, 1, 4, 3, 2]), Origin())
    assert [each.message.text for each in transcript.thread.path() if each.message.text] == ["m0", "m1", "m2"]
    (branch,) = [each for each in transcript.thread.branches if each != "main"]
    assert transcript.thread.path(branch)[-1].message.text == "m4"


@pytest.mark.finding("F-70")
def test_a_result_before_its_response_follows_it():
    records = [claude_code(0, None), claude_code(1, "u0"), claude_code(2, "u1"), claude_code(3, "u2")]
    records[1]["message"]["content"] = [{"type": "tool_use", "id": "t1", "name": "Edit", "input": {"a": 1}}]
    records[2]["message"]["content"] = [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]
    data = b"".join(json.dumps(records[place]).encode() + b"\n" for place in (0, 2, 1, 3))
    (transcript,) = transcripts.get("claude_code").read(data, Origin())
    assert [each.message.role for each in transcript.thread.path()] == ["user", "assistant", "tool", "assistant"]


def record(number, size=1):
    return Record(number, number + 1, b"x" * size)


def test_records_in_order_pass_at_once():
    order = ParentsFirst()
    assert [list(order.take(record(n), f"r{n}", f"r{n - 1}" if n else None)) for n in range(3)] == [
        [record(0)],
        [record(1)],
        [record(2)],
    ]
    assert not order.reordered


def test_a_record_without_an_id_waits_with_the_record_before_it():
    order = ParentsFirst()
    assert list(order.take(record(0), "b", "a")) == []
    assert list(order.take(record(1), None, None)) == []
    assert list(order.take(record(2), "a", None)) == [record(2), record(0), record(1)]
    assert list(order.take(record(3), None, None)) == [record(3)]


def test_what_waits_is_bounded_and_the_first_of_a_chain_passes_without_its_parent():
    order = ParentsFirst(limit=10_000)
    given = [each.at for n in range(1, 100) for each in order.take(record(n, 1_000), f"r{n}", f"r{n - 1}")]
    assert given == list(range(1, 100))
    order = ParentsFirst(limit=10_000)
    given = [each.at for n in range(99, 0, -1) for each in order.take(record(n, 1_000), f"r{n}", f"r{n - 1}")]
    given += [each.at for each in order.rest()]
    assert sorted(given) == list(range(1, 100))


def test_a_cycle_ends():
    order = ParentsFirst()
    assert [*order.take(record(0), "a", "b"), *order.take(record(1), "b", "a"), *order.take(record(2), "c", "c")] == []
    assert sorted(each.at for each in order.rest()) == [0, 1, 2]
