"""The stream of Ollama (docs/spec/wires.md#8). There are no recordings of it: the streams here follow its server's own
rules."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

import ollama
import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET, Raw

import palaver as p
from palaver import wires
from palaver.core import events as e
from palaver.core.errors import StreamError
from palaver.core.request import Response
from palaver.core.usage import Usage
from palaver.stream.replay_events import replay_events
from palaver.wires.ollama_chat import stream
from tests.corpus import Exchange
from tests.loopback import serve
from tests.wires.stream_laws import (
    answer,
    assembled,
    check_back,
    check_chunks,
    check_order,
    check_whole,
    failure,
    read,
    recorded,
    written,
)

NAME = "ollama_chat"
WIRE = wires.get(NAME)
PNG = "iVBORw0KGgo="

Line = dict[str, Any]


def line(message: dict[str, Any] | None = None, *, at: int = 0, done: bool = False, **fields: Any) -> Line:
    found = {} if message is None else {"message": {"role": "assistant", **message}}
    return {"model": "m", "created_at": f"2025-01-01T00:00:0{at}Z", **found, "done": done, **fields}


def says(text: str, **fields: Any) -> Line:
    return line({"content": text}, **fields)


def thinks(text: str, **fields: Any) -> Line:
    return line({"content": "", "thinking": text}, **fields)


def calls(*names: str, **fields: Any) -> Line:
    made = [{"function": {"name": name, "arguments": {"b": 1.0, "a": [2**60]}}} for name in names]
    return line({"content": "", "tool_calls": made}, **fields)


def last(message: dict[str, Any] | None = None, **fields: Any) -> Line:
    counts = {"total_duration": 90, "load_duration": 1, "prompt_eval_count": 11, "eval_count": 7, "eval_duration": 5}
    return line(message or {"content": ""}, at=9, done=True, **{"done_reason": "stop", **counts, **fields})


def lines(*found: Line) -> bytes:
    return b"".join([json.dumps(each).encode() + b"\n" for each in found])


STREAMS: dict[str, list[Line]] = {
    "text": [says("It"), says(" is", at=1), says("."), last()],
    "thinking": [thinks("hm"), thinks(", so"), says("Yes"), says("."), last()],
    "thinking between": [thinks("a"), says("b"), thinks("c"), says("d"), last()],
    "calls": [thinks("hm"), calls("f"), calls("g", "h", at=2), last()],
    "calls with the end": [last({"content": "", "tool_calls": [{"id": "c1", "function": {"name": "f"}}]})],
    "text and calls": [says("I look."), calls("f"), last()],
    "ids and more": [
        line({"content": "", "tool_calls": [{"id": "x", "function": {"index": 0, "name": "f", "arguments": {}}}]}),
        line({"content": "", "tool_calls": [{"function": {"name": "g", "arguments": None}, "odd": 1}]}),
        line({"content": "", "tool_calls": [{"function": {"name": "g", "arguments": '{"a":1}'}}]}),
        line({"content": "", "tool_calls": [{"function": {"name": "g", "arguments": "{broken"}}]}),
        last(),
    ],
    "logprobs": [
        says("a", logprobs=[{"token": "a", "logprob": -0.5}]),
        says("", logprobs=None),
        says("b", logprobs=[{"token": "b", "logprob": -1e-7}, {"token": "", "logprob": 0}]),
        last(logprobs=[]),
    ],
    "images": [line({"content": "", "images": [PNG]}), line({"content": "x", "images": [PNG, PNG]}), last()],
    "empty": [last()],
    "no content": [line({"thinking": "hm"}), last({"tool_calls": None})],
    "null content": [line({"content": None, "images": []}), last({"content": None, "tool_calls": [], "thinking": ""})],
    "empty thinking": [line({"content": "a", "thinking": ""}), last({"content": "b", "thinking": None})],
    "empty thinking between": [says("a"), line({"content": "b", "thinking": ""}), last()],
    "other role": [line({"role": "tool", "content": "a"}), last({"role": "tool", "content": ""})],
    "no role": [{"model": "m", "message": {"content": "a"}}, {"model": "m", "message": {"content": "b"}, "done": True}],
    "unknown fields": [
        says("a", remote_model="r", odd={"x": [1]}),
        line({"content": "b", "tool_name": "t"}),
        last(odd={"y": 2}),
    ],
    "odd text": [says("\ud83d"), says("\ude00 \u2028 \\u0000\x00"), says("\udfff"), last()],
    "no last message": [says("a"), {"model": "m", "done": True, "done_reason": "length"}],
    "loading": [last({"content": ""}, done_reason="load")],
    "no reason": [says("a"), line({"content": ""}, done=True)],
    "null reason": [says("a"), line({"content": ""}, done=True, done_reason=None, error=None)],
    "no model": [{"message": {"role": "assistant", "content": "a"}}, {"done": True, "prompt_eval_count": 1}],
    "changed model": [says("a"), {**last(), "model": "n"}],
}


def merged(found: list[Line]) -> Line:
    """What the server would have answered unstreamed: the last line, with content, thinking, calls, logprobs joined."""
    whole: Line = {}
    message: dict[str, Any] = {}
    for each in found:
        whole.update(each)
        message.update(each.get("message", {}))
    said = [each.get("message", {}) for each in found]
    for key in ("content", "thinking"):
        texts = [each[key] for each in said if each.get(key) is not None]
        if any(texts) or (key == "content" and texts):
            message[key] = "".join(texts).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    for key in ("images", "tool_calls"):
        items = [item for each in said for item in each.get(key) or []]
        if items:
            message[key] = items
    logprobs = [item for each in found for item in each.get("logprobs") or []]
    if logprobs:
        whole["logprobs"] = logprobs
    return {**whole, "message": message}


every_stream = pytest.mark.parametrize("found", STREAMS.values(), ids=STREAMS)


@every_stream
@pytest.mark.law(3)
def test_any_cut_gives_the_same(found: list[Line]) -> None:
    check_chunks(NAME, lines(*found), trailing=lines(says("behind"), {"error": "late"}) + b"garbage\n")


@every_stream
@pytest.mark.law(4)
def test_a_stream_is_the_answer_that_is_not_streamed(found: list[Line]) -> None:
    response = answer(NAME, lines(*found))
    assert response == WIRE.decode_response(json.dumps(merged(found)))
    check_whole(NAME, response)


@every_stream
def test_parts_begin_and_end(found: list[Line]) -> None:
    check_order(read(NAME, lines(*found))[0])


@every_stream
@pytest.mark.law(4)
def test_a_stream_goes_back_to_its_own_wire(found: list[Line]) -> None:
    events, response = read(NAME, lines(*found))
    assert isinstance(response, Response)
    check_back(NAME, events, response)


@every_stream
@pytest.mark.law(4)
def test_a_whole_answer_is_written_as_a_stream(found: list[Line]) -> None:
    response = WIRE.decode_response(json.dumps(merged(found)))
    data, losses = written(NAME, replay_events(response, size=3))
    assert losses == ()
    assert answer(NAME, data) == response


@every_stream
def test_fast_and_slow_paths_agree(found: list[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    data = lines(*found)
    expected = read(NAME, data)
    monkeypatch.setattr(stream, "_line", stream.msgspec.json.Decoder(int).decode)
    assert read(NAME, data) == expected


def test_the_quick_path_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []
    slow_path = stream.Decoder._slow_path

    def counted(self: stream.Decoder, data: bytes) -> None:
        taken.append(data)
        slow_path(self, data)

    monkeypatch.setattr(stream.Decoder, "_slow_path", counted)
    answer(NAME, lines(says("a"), *[says("b"), thinks("c")] * 20, last()))
    assert len(taken) == 2


def test_text_begins_with_its_first_letter() -> None:
    events, _ = read(NAME, lines(thinks("hm"), says("a"), last()))
    assert [type(event) for event in events[:5]] == [
        e.Start,
        e.PartStart,
        e.ReasoningDelta,
        e.PartStart,
        e.TextDelta,
    ]


def test_calls_are_emitted_while_the_stream_runs() -> None:
    decoder = WIRE.stream_decoder()
    decoder.feed(lines(calls("f", "g")))
    assert [(call.id, call.name, call.arguments_so_far["a"]) for call in decoder.calls] == [
        ("call_0", "f", [2**60]),
        ("call_1", "g", [2**60]),
    ]


def test_usage_and_reason_are_known_at_the_end() -> None:
    response = answer(NAME, lines(*STREAMS["calls"]))
    assert response.usage == Usage(input=11, output=7, raw_json=Raw(b'{"prompt_eval_count":11,"eval_count":7}'))
    assert (response.finish_reason, response.message.finish_reason_raw) == ("tool_calls", "stop")
    assert response.provider[NAME]["created_at"] == "2025-01-01T00:00:09Z"


def test_unknown_lines_are_kept_and_go_back() -> None:
    events, response = read(NAME, lines(says("a"), {"status": "pulling", "n": 1}, last()))
    own = [event for event in events if isinstance(event, e.ProviderEvent)]
    assert [(event.wire, event.name, dict(event.data)) for event in own] == [(NAME, "", {"status": "pulling", "n": 1})]
    assert isinstance(response, Response)
    data = check_back(NAME, events, response)
    assert b'"pulling"' in data
    assert b"pulling" not in written("cohere_chat", events)[0]


@pytest.mark.parametrize("behind", [b"", lines({"error": "no"}), b"garbage\n", lines(last())])
def test_unknown_lines_stand_behind_the_start(behind: bytes) -> None:
    events, found = read(NAME, lines({"status": "loading"}) + behind)
    kinds = [type(event) for event in events]
    assert kinds[:2] == ([e.Start, e.ProviderEvent] if isinstance(found, Response) else [e.ProviderEvent, e.Failed])


def test_a_pretty_event_is_one_line() -> None:
    data, _ = written(NAME, [e.ProviderEvent(NAME, "", Raw(b'{\n "a": 1\r\n}'))])
    first, *_ = data.split(b"\n")
    assert json.loads(first) == {"a": 1}


# -- streams that end badly ------------------------------------------------------------------------


def test_an_error_line() -> None:
    error = failure(NAME, lines(says("a"), {"error": "out of memory", "status": 500}))
    assert (error.kind, error.reason, error.code) == ("provider", "out of memory", "500")
    assert json.loads(error.body) == {"error": "out of memory", "status": 500}
    assert error.response.message.text == "a"
    assert error.response.model == "m"


def test_an_error_is_all_there_is() -> None:
    assert failure(NAME, b'{"error": {"message": "no"}}').reason == '{"message": "no"}'


def test_no_message_at_all() -> None:
    assert failure(NAME, lines({"model": "m", "done": True})).reason == "no message in the body"


@pytest.mark.parametrize("data", [b"", b"\n\n", lines(says("a")), lines(says("a"), thinks("b"))[:-8]])
def test_a_stream_that_breaks_off(data: bytes) -> None:
    error = failure(NAME, data)
    assert error.kind == "torn"
    assert error.response.message.text == ("a" if data.strip() else "")


def test_what_a_torn_stream_knew_is_kept() -> None:
    error = failure(NAME, lines(says("a", odd=1, prompt_eval_count=4), calls("f")))
    assert error.response.usage is not None
    assert error.response.usage.input == 4
    assert error.response.provider[NAME]["odd"] == 1
    assert [call.name for call in error.response.message.tool_calls] == ["f"]


@pytest.mark.parametrize(
    ("found", "path"),
    [
        ({"message": 7}, "message"),
        ({"message": {"content": 7}}, "message.content"),
        ({"message": {"thinking": []}}, "message.thinking"),
        ({"message": {"images": [7]}}, "message.images[0]"),
        ({"message": {"tool_calls": {}}}, "message.tool_calls"),
        ({"message": {"tool_calls": [{}]}}, "message.tool_calls[0].function"),
        ({"message": {}, "done": 1}, "done"),
        ({"message": {}, "logprobs": 1}, "logprobs"),
        ({"message": {}, "model": 1}, "model"),
        ({"message": {}, "done": True, "done_reason": 7}, "done_reason"),
        ({"message": {}, "done": True, "eval_count": "many"}, "eval_count"),
        ([], "expected an object"),
    ],
)
def test_a_wrong_line_is_named(found: Any, path: str) -> None:
    error = failure(NAME, json.dumps(found).encode() + b"\n")
    assert error.kind == "corrupt"
    assert path in error.reason


# -- law 6 -----------------------------------------------------------------------------------------

ODD = st.sampled_from(
    [None, True, 7, 2.5, "", "odd", [], {}, [None], {"error": 1}, [{"function": {"name": ""}}], "\ud800", [[1]]]
)


def _spots(value: Any) -> list[tuple[Any, Any]]:
    pairs: list[Any] = list(
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [(value, key) for key, _ in pairs] + [spot for _, each in pairs for spot in _spots(each)]


def total(data: bytes) -> None:
    """Whatever the bytes: events, and an answer or the one error; what was told goes out again, to any wire."""
    events, found = read(NAME, data)
    assert isinstance(found, (Response, StreamError))
    written(NAME, events)
    written("cohere_chat", events)


@pytest.mark.law(6)
@given(data=st.data())
def test_damaged_streams_give_an_answer_or_one_error(data: st.DataObject) -> None:
    found = json.loads(json.dumps(data.draw(st.sampled_from(list(STREAMS.values())))))
    for _ in range(data.draw(st.integers(1, 3))):
        node, key = data.draw(st.sampled_from(_spots(found)))
        if data.draw(st.booleans()):
            node[key] = copy.deepcopy(data.draw(ODD))
        elif isinstance(node, dict):
            node[f"{key}x"] = node.pop(key)
    total(lines(*found))


@pytest.mark.law(6)
@given(st.binary(max_size=200), st.integers(0, 400))
def test_any_bytes_give_an_answer_or_one_error(noise: bytes, at: int) -> None:
    data = lines(*STREAMS["text and calls"])
    total(noise)
    total(data[:at] + noise + data[at:])


# -- answers of other wires ------------------------------------------------------------------------


@pytest.mark.law(4)
@pytest.mark.recorded(share=4)
def test_recorded_answers_of_every_wire(exchange: Exchange) -> None:
    events = recorded(exchange)
    if not events:
        return
    whole = WIRE.encode_response(assembled(events))
    data, losses = written(NAME, events)
    assert answer(NAME, data) == WIRE.decode_response(whole.body)
    assert _what(losses) >= _what(whole.losses)


def _what(losses: tuple[p.Loss, ...]) -> set[tuple[str, str]]:
    """What was lost. The order of parts is what it is only in a whole; alternatives are lost as they come."""
    return {(loss.kind, loss.what) for loss in losses} - {("converted", "order of parts"), ("dropped", "alternative")}


# -- the official client ---------------------------------------------------------------------------


@contextlib.contextmanager
def client(url: str) -> Iterator[ollama.Client]:
    made = ollama.Client(host=url)
    try:
        yield made
    finally:
        made._client.close()


def as_client_reads(data: bytes) -> Line:
    """The answer that the official client gathers from a stream."""
    with serve(data, content_type="application/x-ndjson") as server, client(server.url) as made:
        chunks = list(made.chat(model="m", messages=[{"role": "user", "content": "hi"}], stream=True))
    return merged([chunk.model_dump(exclude_none=True) for chunk in chunks])


CALL = p.ToolCall("c1", "f", '{"a": 1}')
FOREIGN: dict[str, Response] = {
    "text": Response(p.AssistantMessage(content=(p.Text("hello"),), model="x", finish_reason="stop")),
    "reasoning and text": Response(
        p.AssistantMessage(content=(p.Reasoning("hm"), p.Text("hello"), p.Text("again")), finish_reason="length")
    ),
    "two calls": Response(
        p.AssistantMessage(
            content=(p.Text("I look."), CALL, p.ToolCall("c2", "g", "[1]")),
            finish_reason="tool_calls",
            usage=Usage(input=3, cache_read=4, output=5, reasoning=6),
        )
    ),
    "malformed": Response(p.AssistantMessage(content=(p.MalformedToolCall("{oh", "no JSON", "f", "c"),))),
    "refusal": Response(p.AssistantMessage(content=(p.Refusal("I cannot."),), finish_reason="refusal")),
    "nothing": Response(p.AssistantMessage(finish_reason="stop")),
    "odd text": Response(p.AssistantMessage(content=(p.Text("\u2028 \x85 \x00 \n\n \U0001f600"),))),
    "odd reason": Response(p.AssistantMessage(content=(p.Text("a"),), finish_reason="content_filter")),
}


@pytest.mark.law(4)
@pytest.mark.parametrize("response", FOREIGN.values(), ids=FOREIGN)
def test_the_official_client_reads_what_we_write(response: Response) -> None:
    data, _ = written(NAME, replay_events(response, size=2))
    ours = answer(NAME, data)
    assert ours == WIRE.decode_response(WIRE.encode_response(response).body)
    theirs = WIRE.decode_response(json.dumps(as_client_reads(data)))
    assert _content(theirs) == _content(ours)
    assert (theirs.finish_reason, theirs.usage) == (ours.finish_reason, ours.usage)


@pytest.mark.law(4)
@pytest.mark.parametrize("name", ["text", "thinking between", "calls", "text and calls", "logprobs", "odd text"])
def test_the_official_client_reads_streams_that_went_through_us(name: str) -> None:
    data = lines(*STREAMS[name])
    events, response = read(NAME, data)
    assert isinstance(response, Response)
    back = check_back(NAME, events, response)
    assert as_client_reads(back) == as_client_reads(data)
    theirs = WIRE.decode_response(json.dumps(as_client_reads(back)))
    assert _content(theirs) == _content(response)


def _content(response: Response) -> list[Any]:
    """Content as the client can know it: its type of a call has no id."""
    return [
        (part.name, dict(part.arguments)) if isinstance(part, p.ToolCall) else part for part in response.message.content
    ]


@pytest.mark.parametrize(
    "event",
    [
        e.Failed("provider", "it broke", "500", Raw(b'{"x":1}')),
        e.Failed("corrupt", "it broke"),
        None,
    ],
)
def test_a_failure_is_an_error_to_the_official_client(event: e.Failed | None) -> None:
    begun = [e.Start(Response(p.AssistantMessage(model="m"))), e.PartStart(0, p.Text("")), e.TextDelta(0, "a")]
    data, _ = written(NAME, [*begun, *([] if event is None else [event])])
    assert b'"done":true' not in data
    with pytest.raises(ollama.ResponseError, match="it broke" if event else "ended before"):
        as_client_reads(data)
    assert failure(NAME, data).kind == "provider"


def test_an_error_of_its_own_goes_back_as_it_was() -> None:
    raw = {"error": "out of memory", "status": 500}
    events, _ = read(NAME, lines(says("a"), raw))
    data, _ = written(NAME, events)
    assert json.loads(data.splitlines()[-1]) == raw


def test_several_texts_become_one() -> None:
    response = Response(p.AssistantMessage(content=(p.Text("a"), p.Text(""), p.Text("b"))))
    assert answer(NAME, written(NAME, replay_events(response))[0]).message.text == "a\n\n\n\nb"


def test_what_is_not_carried_is_on_the_receipt() -> None:
    cited = p.Text("a", citations=(p.Citation(wire="openai_chat", url="u"),))
    response = Response(
        p.AssistantMessage(
            content=(p.Reasoning("hm", "sig", wire="anthropic_messages"), cited, p.Image(p.Inline(PNG)))
        ),
        alternatives=(p.AssistantMessage(content=(p.Text("b"),)),),
    )
    data, losses = written(NAME, replay_events(response))
    assert {loss.what for loss in losses} >= {"reasoning", "citations", "image", "alternatives"}
    assert answer(NAME, data).message.content == (p.Text("a"),)


def test_no_usage_is_no_counter() -> None:
    response = answer(NAME, lines(says("a"), line({"content": ""}, done=True)))
    assert response.usage is None
    assert response.message.finish_reason_raw is UNSET
