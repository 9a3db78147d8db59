"""A value of another JSON type, put in the place of each value of the sample files: nothing is lost in silence."""

# pyright: basic

from __future__ import annotations

import copy
import json
from collections import Counter
from itertools import takewhile

import pytest

from palaver import transcripts
from palaver.core import type_checks
from palaver.core.errors import PalaverError
from palaver.core.parts import Json, MalformedToolCall, Opaque, Reasoning, Refusal, Text, ToolCall
from palaver.transcripts.format import Origin
from palaver.transcripts.unknown_fields import losses_of
from tests.transcripts.samples import FILES, IDS, MOST_OR_ALL, origin

pytestmark = pytest.mark.finding("F-71")

NUMBER, WORDS = 704204, "another type"
OTHERS = (NUMBER, WORDS, {"palaver-odd": NUMBER}, [NUMBER])
LARGEST = {False: 100, True: 250}
"""How many places of a file are tried, by default and in long tests; of a file with more, every second and so on."""

FREE = {
    ("startTimeUnixNano", int),  # may be a number, and orders the spans: those that repeat a message say nothing new
    ("attributes", dict),  # may be an object, and then has other attributes
}


def values(document):
    """The lines of a file as JSON, each that is none as bytes; of a document, the one value."""
    try:
        return [json.loads(document)]
    except ValueError:
        return [_line(line) for line in document.splitlines()]


def _line(line):
    try:
        return json.loads(line)
    except ValueError:
        return line


def written(found):
    lines = (each if isinstance(each, bytes) else json.dumps(each).encode() for each in found)
    return b"".join(line + b"\n" for line in lines)


def places(value, path=(), shape=()):
    """Every place below a value, with what tells it from others: items of a list count as one."""
    if path:
        yield path, shape, value
    if isinstance(value, dict):
        kind = str(value.get("type") or value.get("role") or value.get("kind") or "")
        for key, each in value.items():
            yield from places(each, (*path, key), (*shape, kind, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from places(each, (*path, number), (*shape, "[]"))


def put(value, path, new):
    changed = copy.copy(value)
    changed[path[0]] = new if len(path) == 1 else put(value[path[0]], path[1:], new)
    return changed


def texts(sessions):
    """All that was read as text: of parts, names, arguments, results, and titles."""
    found = [each.title for each in sessions if each.title]
    for part in (part for each in sessions for entry in each.thread.entries for part in entry.message.content):
        match part:
            case Text() | Reasoning() | Refusal():
                found.append(part.text)
            case ToolCall():
                found += [part.name, part.arguments_json]
            case MalformedToolCall():
                found += [part.name or "", part.raw]
            case Json():
                found.append(bytes(part.value_json).decode())
            case _:
                pass
    return [each for each in found if each]


def opaque(sessions):
    return sum(
        isinstance(part, Opaque) for each in sessions for entry in each.thread.entries for part in entry.message.content
    )


def shapes(path):
    """The shapes of all places of a file."""
    return {shape for line in values(path.read_bytes()) if not isinstance(line, bytes) for _, shape, _ in places(line)}


def cases(path, known, largest):
    """The file with one value of another type, for each place whose shape is not known: path, new value, bytes."""
    lines = values(path.read_bytes())
    seen, found = set(known), []
    for number, line in enumerate(lines):
        for place, shape, value in () if isinstance(line, bytes) else places(line):
            if shape not in seen:
                seen.add(shape)
                found.append((number, place, value))
    step = len(found) // largest + 1
    for turn, (number, place, value) in enumerate(found[::step]):
        new = next(each for each in (*OTHERS[turn % 4 :], *OTHERS) if type(each) is not type(value))
        changed = [*lines[:number], put(lines[number], place, new), *lines[number + 1 :]]
        yield place, new, number + 1, written(changed)


def check(name, path, before, case):
    place, new, line, data = case
    file_format = transcripts.get(name)
    sessions, drift = before
    try:
        found, noted = file_format.read_with_unknown(data, origin(path))
    except PalaverError:
        return
    for message in (entry.message for each in found for entry in each.thread.entries):
        type_checks.verify(message)
    if file_format.fidelity == "bytes" and found:
        assert file_format.write_many(found).body == data
    joined = "".join(texts(found))
    lost = [each for each in texts(sessions) if each not in joined]
    taken = WORDS in joined or str(NUMBER) in joined  # it may be of that type
    if not lost or taken or opaque(found) > opaque(sessions) or (place[-1], type(new)) in FREE:
        return
    losses = Counter(losses_of(noted)) - Counter(losses_of(drift))
    assert losses, (place, new, lost)
    keys = [each for each in place if isinstance(each, str)][-2:]
    named = [each for each in losses if f"line {line}:" in each.why or any(key in each.why for key in keys)]
    assert named or not keys, (place, new, losses)


@pytest.mark.parametrize("again", MOST_OR_ALL, ids=["each-shape-once", "each-shape-in-each-file"])
@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_a_value_of_another_type_is_read_or_named(name, path, again):
    """Every text that was read is read again, or a loss names the place.

    A shape of a place that an earlier file of the format has is tried there; ``again`` tries it here too.
    """
    earlier = takewhile(lambda each: each != path, (each for of, each in FILES if of == name))
    known = set() if again else {shape for each in earlier for shape in shapes(each)}
    before = transcripts.get(name).read_with_unknown(written(values(path.read_bytes())), origin(path))
    for case in cases(path, known, LARGEST[again]):
        check(name, path, before, case)


ODD = ("fork.jsonl", "odd.json", "unversioned.json")
"""The files that hold values of another type."""


@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_nothing_is_taken_for_another_type(name, path):
    _, drift = transcripts.get(name).read_with_unknown(path.read_bytes(), origin(path))
    assert path.name in ODD or [each for each in drift if each.kind == "type"] == []


def test_a_loss_names_the_key_the_type_and_the_line():
    head = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-02T03:04:05Z", "cwd": "/w"}
    entry = {"type": "message", "id": "e", "message": {"role": "user", "content": [{"type": "text", "text": 7}, {}]}}
    _, drift = transcripts.get("pi").read_with_unknown(written([head, entry]), Origin())
    assert [str(loss.why) for loss in losses_of(drift)] == ["line 2: text is a number, not a string"]
    assert [loss.what for loss in losses_of(drift)] == ["field"]
    calls = {"role": "assistant", "content": "x", "tool_calls": ["look", {"id": "c"}, "look"]}
    _, drift = transcripts.get("kairo").read_with_unknown(
        json.dumps([calls | {"toolCalls": ["look"]}]).encode(), Origin()
    )
    assert "an item of toolCalls is a string, not an object" in [loss.why for loss in losses_of(drift)]
