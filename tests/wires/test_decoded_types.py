"""What wires decode has the types of its fields, whatever stands in the body: their constructors do not check.

Source: docs/spec/laws.md; ``palaver.core.trusted``.
"""

import copy
import json

import pytest

import palaver as p
from palaver import wires
from palaver.core import type_checks
from palaver.core.errors import PalaverError
from palaver.stream.replay_events import replay_events
from tests.corpus import CORPUS

pytestmark = pytest.mark.finding("F-01")

OTHERS = (704204, 1.5, True, None, "another type", "", {"odd": 704204}, [704204], [], {})
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CALL = p.tool_call("weather", {"city": "Husum"}, id="call00001")
ANSWER = p.assistant(
    p.Text("Let me look.", citations=(p.Citation(url="https://example.com", title="t", quote="x"),)),
    tool_calls=[CALL],
    reasoning="First the weather.",
    usage=p.Usage(input=9, output=3),
    finish_reason="tool_calls",
    response_id="r1",
    model="m",
)
REQUEST = p.Request(
    model="m",
    messages=(
        p.system("Be brief."),
        p.user(
            "What is this?",
            p.Image.from_data_uri(f"data:image/png;base64,{PIXEL}"),
            p.Image.from_url("https://e.org/a.png"),
        ),
        ANSWER,
        p.tool("rain", {"mm": 3}, tool_call_id="call00001", tool_name="weather"),
        p.assistant("It rains."),
        p.user("Thanks.", p.File.from_data_uri("data:application/pdf;base64,JVBERi0=")),
    ),
    tools=(p.Tool.of("weather", "Say how it is.", {"type": "object", "properties": {"city": {"type": "string"}}}),),
    settings=p.Settings(max_tokens=9, temperature=0.5, stop=("END",)),
)


def bodies(wire):
    """Requests and responses as JSON: ours, and what the recordings of this wire have."""
    codec = wires.get(wire)
    yield "request", json.loads(codec.encode_request(REQUEST).body)
    yield "response", json.loads(codec.encode_response(p.Response(ANSWER)).body)
    for file in sorted((CORPUS / "wires" / wire).glob("*.json")):
        record = json.loads(file.read_bytes())
        if isinstance(record.get("request"), dict):
            yield "request", record["request"].get("body", record["request"])
        if isinstance(record.get("response"), dict) and record.get("status") == 200:
            yield "response", record["response"]


def places(value, path=(), shape=()):
    """Every place below a value, with what tells it from others: items of a list count as one."""
    if path:
        yield path, shape
    if isinstance(value, dict):
        kind = str(value.get("type") or value.get("role") or "")
        for key, each in value.items():
            yield from places(each, (*path, key), (*shape, kind, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from places(each, (*path, index), (*shape, "[]"))


def put(body, path, other):
    made = copy.deepcopy(body)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = other
    return made


def mutated(wire, step):
    """Bodies in which one value has another type: each kind of place once, with every `step`-th type, by turns."""
    seen = set()
    for half, body in bodies(wire):
        if not isinstance(body, dict):
            continue
        for path, shape in places(body):
            if (half, shape) in seen:
                continue
            seen.add((half, shape))
            for other in OTHERS[len(seen) % step :: step]:
                yield half, path, put(body, path, other)


def check(messages, where):
    for message in messages:
        try:
            type_checks.verify(message)
        except PalaverError as error:
            raise AssertionError(f"{where}: {error}") from None


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("wire", wires.names())
def test_decoded_messages_have_the_types_of_their_fields(wire, step):
    codec = wires.get(wire)
    tried = 0
    for half, path, body in mutated(wire, step):
        data = json.dumps(body).encode()
        try:
            found = codec.decode_request(data).messages if half == "request" else [codec.decode_response(data).message]
        except PalaverError:
            continue
        tried += 1
        check(found, (half, *path, data[:400]))
    assert tried > 200 // step


@pytest.mark.parametrize("wire", [each for each in wires.names() if each != "bedrock_converse"])
def test_streamed_messages_have_the_types_of_their_fields(wire):
    codec = wires.get(wire)
    encoder = codec.stream_encoder()
    data = b"".join([encoder.feed(event) for event in replay_events(p.Response(ANSWER))]) + encoder.finish()
    lines = data.split(b"\n")
    seen = set()
    for number, line in enumerate(lines):
        head, payload = (b"data: ", line[6:]) if line.startswith(b"data: ") else (b"", line)
        if not payload.startswith(b"{"):
            continue
        frame = json.loads(payload)
        for path, shape in places(frame):
            if shape in seen:
                continue
            seen.add(shape)
            for other in OTHERS:
                changed = head + json.dumps(put(frame, path, other)).encode()
                decoder = codec.stream_decoder()
                try:
                    decoder.feed(b"\n".join([*lines[:number], changed, *lines[number + 1 :]]))
                    decoder.close()
                    found = decoder.finish().message
                except PalaverError:
                    continue
                check([found], (path, other))
    assert seen
