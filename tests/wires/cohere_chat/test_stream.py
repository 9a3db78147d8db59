"""The stream of Cohere (docs/spec/wires.md#7). There are no recordings of it: the streams here follow its SDK's own
types."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
from collections.abc import Iterator
from typing import Any

import cohere
import httpx
import pytest
from hypothesis import given, strategies as st
from msgspec import Raw, structs

import palaver as p
from palaver import wires
from palaver.core import events as e
from palaver.core.errors import StreamError
from palaver.core.request import Response
from palaver.core.usage import Usage
from palaver.stream.replay_events import replay_events
from palaver.wires.cohere_chat import decode, stream
from tests.corpus import Exchange
from tests.loopback import serve
from tests.wires.cohere_chat.bodies import ANSWER, CALLING, PNG, cited
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

NAME = "cohere_chat"
WIRE = wires.get(NAME)

Event = dict[str, Any]


def event(kind: str, **fields: Any) -> Event:
    return {"type": kind, **fields}


def inside(kind: str, key: str, found: Any, index: int | None = None, **fields: Any) -> Event:
    at = {} if index is None else {"index": index}
    return event(kind, **at, delta={"message": {key: found}}, **fields)


def sse(*found: Event, named: bool = True) -> bytes:
    return b"".join(
        [
            (b"event: %b\n" % each["type"].encode() if named else b"") + b"data: " + json.dumps(each).encode() + b"\n\n"
            for each in found
        ]
    )


DONE = b"data: [DONE]\n\n"
BEGIN = event(
    "message-start",
    id="a1",
    delta={"message": {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}},
)
USAGE = {
    "billed_units": {"input_tokens": 4, "output_tokens": 3},
    "tokens": {"input_tokens": 100, "output_tokens": 20},
    "cached_tokens": 64,
}


def end(word: str = "COMPLETE", **fields: Any) -> Event:
    return event("message-end", delta={"finish_reason": word, "usage": USAGE, **fields})


def text(*pieces: str, index: int = 0, **fields: Any) -> list[Event]:
    return [
        inside("content-start", "content", {"type": "text", "text": "", **fields}, index),
        *(inside("content-delta", "content", {"text": each}, index) for each in pieces),
        event("content-end", index=index),
    ]


def thinking(*pieces: str, index: int = 0) -> list[Event]:
    return [
        inside("content-start", "content", {"type": "thinking", "thinking": ""}, index),
        *(inside("content-delta", "content", {"thinking": each}, index) for each in pieces),
        event("content-end", index=index),
    ]


def plan(*pieces: str) -> list[Event]:
    return [inside("tool-plan-delta", "tool_plan", each) for each in pieces]


def arguments(piece: str, index: int | None = 0, **fields: Any) -> Event:
    return inside("tool-call-delta", "tool_calls", {"function": {"arguments": piece}, **fields}, index)


def call(*pieces: str, index: int = 0, begun: Any = "", **fields: Any) -> list[Event]:
    function = {"name": "find", **({} if begun is ... else {"arguments": begun})}
    found = {"id": f"find_{index}", "type": "function", "function": function, **fields}
    return [
        inside("tool-call-start", "tool_calls", {key: each for key, each in found.items() if each is not ...}, index),
        *(arguments(each, index) for each in pieces),
        event("tool-call-end", index=index),
    ]


def cites(words: str, start: int, index: int = 0, **fields: Any) -> list[Event]:
    found = inside("citation-start", "citations", cited(words, start, **fields), index)
    return [found, event("citation-end", index=index)]


def start_of(found: list[Event]) -> Event:
    return found[0]


WORDS = ["it", " was", " found"]
STREAMS: dict[str, list[Event]] = {
    "text": [BEGIN, *text(*WORDS), end()],
    "thinking": [BEGIN, *thinking("h", "m"), *text(*WORDS, index=1), end("MAX_TOKENS")],
    "the same index for each kind": [BEGIN, *thinking("hm"), *text(*WORDS), end()],
    "calls": [BEGIN, *plan("I", " look"), *call('{"q"', ": 1e-06}"), *call("{}", index=1), end("TOOL_CALL")],
    "all calls at index 0": [BEGIN, *plan("I look"), *call('{"a":1}'), *call('{"b":2}'), end("TOOL_CALL")],
    "calls without plan": [BEGIN, *call('{"a": "\u00e9\u2028"}'), end("TOOL_CALL")],
    "calls counted from 1, after text": [BEGIN, *text("a"), *call("{}", index=1), *call("{}", index=2), end()],
    "plan before text": [BEGIN, *plan("first"), *text("a"), *call("{}"), *plan(" more"), end("TOOL_CALL")],
    "empty plan": [BEGIN, *plan(""), *call("{}"), end("TOOL_CALL")],
    "empty text": [BEGIN, *text(), end()],
    "empty deltas": [BEGIN, *text("", "a", "", "b", ""), *call("", '{"a":', "", "1}"), end()],
    "nothing": [BEGIN, end()],
    "arguments that are not an object": [
        BEGIN,
        *call("nu", "ll"),
        *call(begun="null", index=1),
        *call(begun=None, index=2),
        *call(begun=..., index=3),
        *call(index=4),
        *call(begun={"a": 1.50}, index=5),
        *call("1]", begun="[", index=6),
        *call("x", begun="null", index=7),
        *call("1}", begun=None, index=8),
        *call("{broken", index=9),
        end("TOOL_CALL"),
    ],
    "calls without ids or types": [
        BEGIN,
        *call("{}", id=..., type=...),
        *call("{}", index=1, id=..., type="odd", more=[1]),
        end("TOOL_CALL"),
    ],
    "an id that comes late": [
        BEGIN,
        start_of(call(id=...)),
        arguments("{", id="late", odd=1),
        arguments("}", id="late"),
        inside("tool-call-delta", "tool_calls", {"function": {"strict": True}}, 0),
        event("tool-call-end", index=0),
        end("TOOL_CALL"),
    ],
    "interleaved": [
        BEGIN,
        *(start_of(each) for each in (text(), thinking(index=1), call(), call(index=1))),
        inside("content-delta", "content", {"text": "a"}, 0),
        arguments("{", 1),
        inside("content-delta", "content", {"thinking": "b"}, 1),
        arguments("[", 0),
        inside("content-delta", "content", {"text": "c"}, 0),
        arguments("}", 1),
        arguments("]", 0),
        end(),
    ],
    "a start instead of an end": [BEGIN, *text("a")[:-1], *text("b")[:-1], *call("{}")[:-1], *call("[]")[:-1], end()],
    "nothing is ended": [BEGIN, *text("a")[:-1], *call("{}")[:-1], end()],
    "nothing is begun": [
        inside("content-delta", "content", {"thinking": "hm"}, 0),
        inside("content-delta", "content", {"text": "a"}, 0),
        inside("content-delta", "content", {"type": "text", "text": "b"}, 0),
        inside("tool-call-delta", "tool_calls", start_of(call())["delta"]["message"]["tool_calls"], 0),
        arguments("{}"),
        event("message-end", id="late", delta={"finish_reason": "COMPLETE"}),
    ],
    "no indexes": [
        event("message-start", id="a"),
        inside("content-start", "content", {"type": "text", "text": "x"}),
        inside("content-delta", "content", {"text": "a"}),
        inside("content-delta", "content", {"text": "b"}, 0),
        event("content-end"),
        inside("tool-call-start", "tool_calls", {"id": "1", "type": "function", "function": {"name": "f"}}),
        arguments("{}", None),
        event("tool-call-end"),
        inside("tool-call-start", "tool_calls", {"id": "2", "type": "function", "function": {"name": "g"}}),
        arguments("[]", None),
        event("tool-call-end"),
        event("message-end"),
    ],
    "a citation behind the text": [BEGIN, *text(*WORDS), *cites("was", 3), *cites("found", 7, 1), end()],
    "a citation within the text": [
        BEGIN,
        *thinking("hm"),
        *text(*WORDS, index=1)[:3],
        *cites("was", 3, content_index=1, type="TEXT_CONTENT"),
        *text(*WORDS, index=1)[3:],
        end(),
    ],
    "citations of two texts": [
        BEGIN,
        *text("one"),
        *text("two", index=1),
        *cites("one", 0, content_index=0),
        *cites("two", 0, content_index=1),
        *cites("wo", 1, content_index=1),
        end(),
    ],
    "a citation of the plan": [BEGIN, *plan("I look"), *cites("look", 2, type="PLAN"), *call("{}"), end("TOOL_CALL")],
    "citations out of order": [
        BEGIN,
        *text("one"),
        *text("two", index=1),
        *cites("two", 0, content_index=1),
        *cites("one", 0, content_index=0),
        *cites("wo", 1, content_index=1),
        end(),
    ],
    "a citation of nothing": [BEGIN, *text("one"), *cites("one", 0), *cites("far", 0, content_index=7), end()],
    "a citation whose text is one of two in the end": [BEGIN, *text("a"), *cites("a", 0), *text("b", index=1), end()],
    "a citation of thinking": [BEGIN, *thinking("hm"), *cites("hm", 0, type="THINKING_CONTENT"), *text("a"), end()],
    "a citation with odd offsets": [BEGIN, *text("a"), *cites("a", 0), *cites("b", 0, end="x"), end()],
    "a citation before the text": [BEGIN, *cites("a", 0), *text("a"), end()],
    "logprobs": [
        BEGIN,
        start_of(text()),
        inside("content-delta", "content", {"text": "a"}, 0, logprobs={"token_ids": [1], "logprobs": [-1e-7]}),
        inside("content-delta", "content", {"text": "b"}, 0, logprobs=None),
        inside("content-delta", "content", {"text": ""}, 0, logprobs={"token_ids": [2]}),
        end(),
    ],
    "more fields": [
        {**BEGIN, "odd": 1, "delta": {"message": {"role": "assistant", "mood": "good"}, "even": [2]}},
        *text("a", more=1),
        start_of(text(index=1)),
        inside("content-delta", "content", {"text": "b", "late": {"x": 1}}, 1),
        event("content-end", index=1),
        event("message-end", last=True, delta={"finish_reason": "COMPLETE", "warnings": [], "message": {"n": 1}}),
    ],
    "other parts": [
        BEGIN,
        inside("content-start", "content", {"type": "image_url", "image_url": {"url": PNG}}, 0),
        event("content-end", index=0),
        inside("content-start", "content", {"type": "document", "document": {"id": "d"}}, 1),
        event("content-end", index=1),
        *text("a", index=2),
        end(),
    ],
    "other role": [
        event("message-start", id="a", delta={"message": {"role": "odd"}}),
        *text("a"),
        end("STOP_SEQUENCE"),
    ],
    "no role": [event("message-start", id=None, delta={"message": {}}), *text("a"), end("NEWS")],
    "no reason": [BEGIN, *text("a"), event("message-end", delta={"finish_reason": None, "usage": None})],
    "an error without a message": [BEGIN, *text("a"), end("ERROR", error=None)],
    "odd text": [BEGIN, *text("\ud83d", "\ude00 \u2028", "\r\n \x00 \udfff"), *call('{"a":"\ud83d', '\ude00"}'), end()],
    "started twice": [BEGIN, *text("a"), BEGIN, end()],
}


def merged(found: list[Event]) -> dict[str, Any]:
    """What the provider would have answered unstreamed, written down without a look at how it is read here."""
    body: dict[str, Any] = {}
    message: dict[str, Any] = {}
    content: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    current: dict[tuple[str, int | None], dict[str, Any]] = {}
    logprobs: list[Any] = []
    for each in found:
        kind, index, delta = each["type"], each.get("index"), each.get("delta") or {}
        said = delta.get("message") or {}
        if kind in ("message-start", "message-end"):
            beside = {key: item for key, item in each.items() if key not in ("type", "delta")}
            body |= beside | {key: item for key, item in delta.items() if key not in ("message", "error")}
            message |= {key: item for key, item in said.items() if item not in ([], "")}
        elif kind in ("content-start", "content-delta"):
            piece = said["content"]
            of = piece.get("type") or ("thinking" if "thinking" in piece else "text")
            open_ = current.get((of, index)) or current.get((of, None))
            if kind == "content-start" or open_ is None:
                open_ = current[of, index] = {"type": of, **({of: ""} if of in ("text", "thinking") else {})}
                content.append(open_)
            joined = of if of in ("text", "thinking") else ""
            open_ |= {key: open_.get(key, "") + item if key == joined else item for key, item in piece.items()}
            if each.get("logprobs"):
                logprobs.append(each["logprobs"])
        elif kind == "tool-plan-delta":
            message["tool_plan"] = message.get("tool_plan", "") + said["tool_plan"]
        elif kind in ("tool-call-start", "tool-call-delta"):
            piece = json.loads(json.dumps(said["tool_calls"]))
            open_ = current.get(("call", index))
            if kind == "tool-call-start" or open_ is None:
                current["call", index] = piece
                calls.append(piece)
            else:
                inner = piece.pop("function", {})
                more = inner.pop("arguments", "")
                if more:
                    open_["function"]["arguments"] = (open_["function"].get("arguments") or "") + more
                open_["function"] |= inner
                open_ |= piece
        elif kind == "citation-start":
            message.setdefault("citations", []).append(said["citations"])
    if content:
        message["content"] = content
    if calls:
        message["tool_calls"] = calls
    if logprobs:
        body["logprobs"] = logprobs
    return {**body, "message": {"role": "assistant", **message} if found[0].get("id", 0) is not None else message}


def paired(body: dict[str, Any]) -> str:
    """JSON in which halves of surrogate pairs that came to stand side by side are one character."""
    return json.dumps(body, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


every_stream = pytest.mark.parametrize("found", STREAMS.values(), ids=STREAMS)


@every_stream
@pytest.mark.law(3)
def test_any_cut_gives_the_same(found: list[Event]) -> None:
    check_chunks(NAME, sse(*found), trailing=DONE + sse(event("debug"), *text("behind"), event("error")))


@every_stream
def test_names_of_events_do_not_matter(found: list[Event]) -> None:
    expected = read(NAME, sse(*found))
    assert read(NAME, sse(*found, named=False) + DONE) == expected
    assert read(NAME, sse(*found).replace(b"\n", b"\r\n") + DONE) == expected


@every_stream
@pytest.mark.law(4)
def test_a_stream_is_the_answer_that_is_not_streamed(found: list[Event]) -> None:
    response = answer(NAME, sse(*found))
    assert response == WIRE.decode_response(paired(merged(found)))
    check_whole(NAME, response)


@every_stream
def test_parts_begin_and_end(found: list[Event]) -> None:
    check_order(read(NAME, sse(*found))[0])


@every_stream
@pytest.mark.law(4)
def test_a_stream_goes_back_to_its_own_wire(found: list[Event]) -> None:
    events, response = read(NAME, sse(*found))
    assert isinstance(response, Response)
    check_back(NAME, events, response)


BODIES: dict[str, dict[str, Any]] = {
    **{name: merged(found) for name, found in STREAMS.items()},
    "answer": ANSWER,
    "calling": CALLING,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.law(4)
def test_a_whole_answer_is_written_as_a_stream(body: dict[str, Any]) -> None:
    response = WIRE.decode_response(paired(body))
    data, losses = written(NAME, replay_events(response, size=3))
    assert losses == ()
    assert answer(NAME, data) == response


@every_stream
def test_fast_and_slow_paths_agree(found: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = read(NAME, sse(*found))
    monkeypatch.setattr(stream, "plain", decode.msgspec.json.Decoder(int).decode)
    assert read(NAME, sse(*found)) == expected


def test_the_quick_path_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []
    slow_path = stream.Decoder._slow_path

    def counted(self: stream.Decoder, frame: Any) -> None:
        taken.append(frame.data)
        slow_path(self, frame)

    monkeypatch.setattr(stream.Decoder, "_slow_path", counted)
    many = ["a"] * 50
    found = [*thinking(*many), *text(*many, index=1), *plan(*many), *call('"', *many, '"')]
    answer(NAME, sse(BEGIN, *found, end()))
    assert len(taken) == 2 + 2 * 3 + 1


def test_arguments_are_known_while_they_arrive() -> None:
    decoder = WIRE.stream_decoder()
    decoder.feed(sse(BEGIN, *call('{"path": "a.t', 'xt", "n"')[:-1]))
    assert [(each.id, each.name, dict(each.arguments_so_far)) for each in decoder.calls] == [
        ("find_0", "find", {"path": "a.txt"})
    ]


def test_citations_are_emitted_at_once() -> None:
    decoder = WIRE.stream_decoder()
    decoder.feed(sse(BEGIN, *text(*WORDS)))
    (told,) = decoder.feed(sse(*cites("was", 3)))
    assert isinstance(told, e.CitationDelta)
    assert (told.citation.wire, told.citation.quote, told.citation.start, told.citation.end) == (NAME, "was", 3, 6)
    assert decoder.response.message.content == (p.Text("it was found", (told.citation,)),)


def test_citations_that_point_back_are_not_emitted() -> None:
    events, _ = read(NAME, sse(*STREAMS["citations out of order"]))
    assert [each.citation.quote for each in events if isinstance(each, e.CitationDelta)] == ["two"]


def test_text_and_thinking_in_one_delta() -> None:
    both = inside("content-delta", "content", {"text": "b", "thinking": "m"}, 0)
    response = answer(NAME, sse(BEGIN, *thinking("h"), *text("a"), both, end()))
    assert response.message.content == (p.Reasoning("hm", wire=NAME), p.Text("ab"))


def test_the_plan_is_marked_text() -> None:
    response = answer(NAME, sse(*STREAMS["plan before text"]))
    assert [getattr(part, "text", None) for part in response.message.content] == ["a", "first more", None]
    assert decode.is_plan(response.message.content[1])


def test_usage_and_reason_are_known_at_the_end() -> None:
    response = answer(NAME, sse(*STREAMS["calls"]))
    assert response.usage is not None
    assert (response.usage.input, response.usage.cache_read, response.usage.output) == (36, 64, 20)
    assert response.usage.raw == USAGE
    assert (response.finish_reason, response.message.finish_reason_raw) == ("tool_calls", "TOOL_CALL")
    assert (response.id, response.message.provider) == ("a1", {})


def test_events_of_the_providers_own_are_kept_and_go_back() -> None:
    own = [event("debug", prompt="p"), event("telepathy", x=[1]), {"no": "type"}]
    data = sse(BEGIN, own[0], *text("a"), own[1]) + b"data: " + json.dumps(own[2]).encode() + b"\n\n" + sse(end())
    events, response = read(NAME, data)
    assert isinstance(response, Response)
    found = [(each.wire, each.name, each.data) for each in events if isinstance(each, e.ProviderEvent)]
    assert found == [(NAME, "debug", own[0]), (NAME, "telepathy", own[1]), (NAME, "", own[2])]
    assert b"telepathy" in check_back(NAME, events, response)
    assert b"telepathy" not in written("ollama_chat", events)[0]


@pytest.mark.parametrize(
    "odd",
    [
        event("content-delta", index=0, x=1, delta={"message": {"content": {"text": "b"}}}),
        event("content-delta", index=0, delta={"message": {"content": {"text": "b"}, "x": 1}}),
        event("content-delta", index=0, delta={"message": {"content": {"text": "b"}}, "x": 1}),
        inside("content-delta", "content", {"odd": "b"}, 5),
        event("content-end", index=9),
        event("tool-call-end", index=9),
        event("citation-end", index=0, x=1),
        event("message-start", delta={"message": {"role": "assistant", "content": ["whole"]}}),
    ],
)
def test_what_an_answer_has_no_place_for_is_an_event_too(odd: Event) -> None:
    events, response = read(NAME, sse(BEGIN, start_of(text()), odd, end()))
    assert isinstance(response, Response)
    assert [each.data for each in events if isinstance(each, e.ProviderEvent)] == [odd]
    data, losses = written(NAME, events)
    assert answer(NAME, data) == response
    assert [loss.what for loss in losses] == [odd["type"]]


# -- streams that end badly ------------------------------------------------------------------------


def test_an_error_at_the_end() -> None:
    error = failure(NAME, sse(BEGIN, *text("a"), end("ERROR", error="out of GPUs")))
    assert (error.kind, error.reason, error.code) == ("provider", "out of GPUs", "ERROR")
    assert json.loads(error.body)["delta"]["error"] == "out of GPUs"
    assert error.response.message.text == "a"
    assert error.response.usage is not None


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"message": "internal error"}, "internal error"),
        ({"type": "error", "message": "no"}, "no"),
        ({"type": "error", "error": {"message": "no"}}, "no"),
        ({"type": "error", "error": {"code": 5}}, '{"code":5}'),
        ({"type": "error"}, "an error without a message"),
        ({"type": "message-end", "delta": {"error": {"message": "no"}}}, "no"),
    ],
)
def test_an_error_on_the_way(raw: Event, reason: str) -> None:
    data = b"data: " + json.dumps(raw).encode() + b"\n\n"
    error = failure(NAME, sse(BEGIN, *text("a")) + data + sse(end()))
    assert (error.kind, error.reason) == ("provider", reason)
    assert json.loads(error.body) == raw
    events, _ = read(NAME, sse(BEGIN, *text("a")) + data)
    back, _ = written(NAME, events)
    assert failure(NAME, back).body == error.body


def test_an_error_is_named_by_its_event() -> None:
    assert failure(NAME, b'event: error\ndata: {"message": "no"}\n\n').reason == "no"


def test_a_splice() -> None:
    error = failure(NAME, sse(BEGIN, *text("a"), {**BEGIN, "id": "b"}, *text("b"), end()))
    assert (error.kind, error.response.message.text) == ("corrupt", "a")


@pytest.mark.parametrize("found", [[], [BEGIN], [BEGIN, *text("a")], [BEGIN, *text("a")[:-1]]])
@pytest.mark.parametrize("tail", [b"", DONE, b'data: {"type": "content-de'])
def test_a_stream_that_breaks_off(found: list[Event], tail: bytes) -> None:
    error = failure(NAME, sse(*found) + tail)
    assert error.kind == "torn"
    assert error.response.message.text == ("a" if len(found) > 1 else "")
    assert error.response.id == ("a1" if found else None)


def test_a_call_that_is_torn() -> None:
    error = failure(NAME, sse(BEGIN, *call('{"path": "a')[:-1]))
    assert error.response.message.content == (
        p.MalformedToolCall('{"path": "a', "the arguments are not JSON", "find", "find_0"),
    )


def test_what_a_torn_stream_knew_is_kept() -> None:
    error = failure(NAME, sse(*STREAMS["logprobs"][:-1]))
    assert len(error.response.provider[NAME]["logprobs"]) == 2


@pytest.mark.parametrize(
    ("odd", "path"),
    [
        ({"type": 7}, "type"),
        (event("content-start"), "delta: missing"),
        (event("content-start", delta=7), "delta"),
        (event("content-start", delta={}), "delta.message: missing"),
        (event("content-start", delta={"message": {}}), "delta.message.content: missing"),
        (inside("content-start", "content", [{}]), "delta.message.content"),
        (inside("content-start", "content", {"type": 7}), "delta.message.content.type"),
        (inside("content-start", "content", {"type": "text", "text": 7}), "delta.message.content.text"),
        (inside("content-delta", "content", {"text": "a"}, index="x"), "index"),  # type: ignore[arg-type] (what is tested)
        (inside("content-delta", "content", {"text": 7}), "delta.message.content.text"),
        (inside("content-delta", "content", {"thinking": 7}), "delta.message.content.thinking"),
        (inside("tool-plan-delta", "tool_plan", None), "delta.message.tool_plan"),
        (event("tool-plan-delta", delta={"message": {}}), "delta.message.tool_plan: missing"),
        (inside("tool-call-start", "tool_calls", [{}]), "delta.message.tool_calls"),
        (inside("tool-call-start", "tool_calls", {"function": {}}), "delta.message.tool_calls.function.name: missing"),
        (
            inside("tool-call-delta", "tool_calls", {"function": {"arguments": "{}"}}),
            "tool_calls.function.name: missing",
        ),
        (inside("citation-start", "citations", "x"), "delta.message.citations"),
        (event("message-start", delta={"message": 7}), "delta.message"),
        (event("message-start", id=7), "id"),
        (event("message-end", delta=7), "delta"),
        (end(7), "finish_reason"),  # type: ignore[arg-type] (what is tested)
    ],
)
def test_a_wrong_event_is_named(odd: Event, path: str) -> None:
    error = failure(NAME, b"data: " + json.dumps(odd).encode() + b"\n\n")
    assert error.kind == "corrupt"
    assert path in error.reason


@pytest.mark.parametrize("data", [b"data: nonsense\n\n", b"data: []\n\n", b'data: {"type": "debug", "x": "\xff"}\n\n'])
def test_no_event_at_all(data: bytes) -> None:
    assert failure(NAME, data).kind == "corrupt"


def test_blank_events_are_skipped() -> None:
    data = b": hi\n\ndata:\n\n" + sse(BEGIN) + b"data: \n\n" + sse(*text("a"), end())
    assert answer(NAME, data).message.text == "a"


# -- law 6 -----------------------------------------------------------------------------------------

ODD = st.sampled_from(
    [
        None,
        True,
        7,
        2.5,
        "",
        "null",
        "odd",
        [],
        {},
        [None],
        -1,
        {"type": "odd"},
        "\ud800",
        [[1]],
        "message-end",
        "[DONE]",
    ]
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
    written("ollama_chat", events)
    written(NAME, events)


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
    total(b"".join([b"data: " + json.dumps(each).encode() + b"\n\n" for each in found]))


@pytest.mark.law(6)
@given(st.binary(max_size=200), st.integers(0, 800))
def test_any_bytes_give_an_answer_or_one_error(noise: bytes, at: int) -> None:
    data = sse(*STREAMS["calls"])
    total(noise)
    total(data[:at] + noise + data[at:])


# -- answers of other wires ------------------------------------------------------------------------

LATE = {("converted", "order of parts"), ("dropped", "alternative"), ("converted", "text"), ("dropped", "text")}
"""What only a whole answer can know: text beside calls is sent as ``tool_plan`` there. A stream sends it as it comes,
when no call is known; clients that keep such an answer hand it over again, as any other."""


@pytest.mark.law(4)
@pytest.mark.recorded(share=4)
def test_recorded_answers_of_every_wire(exchange: Exchange) -> None:
    events = recorded(exchange)
    if not events:
        return
    response = assembled(events)
    whole = WIRE.encode_response(response)
    data, losses = written(NAME, events)
    assert unplanned(answer(NAME, data)) == unplanned(WIRE.decode_response(whole.body))
    expected = {(loss.kind, loss.what) for loss in whole.losses} - LATE
    assert {(loss.kind, loss.what) for loss in losses} >= expected
    if response.origin == NAME:
        assert losses == ()
        assert answer(NAME, data) == response


def unplanned(response: Response) -> Response:
    """The same with one text, where there are calls, whatever field it stood in."""
    content = response.message.content
    if not response.message.tool_calls:
        return response
    words = "\n\n".join([part.text for part in content if isinstance(part, p.Text) and part.text])
    others = [part for part in content if not isinstance(part, p.Text)]
    return structs.replace(response, message=structs.replace(response.message, content=(p.Text(words), *others)))


# -- the official client ---------------------------------------------------------------------------


@contextlib.contextmanager
def client(url: str) -> Iterator[cohere.ClientV2]:
    with httpx.Client() as http:
        yield cohere.ClientV2(api_key="none", base_url=url, httpx_client=http)


def as_client_reads(data: bytes, caplog: pytest.LogCaptureFixture) -> list[Event]:
    """The events that the official client gives, none of which it skipped."""
    with serve(data) as server, client(server.url) as made, caplog.at_level(logging.WARNING):
        found = list(made.chat_stream(model="m", messages=[cohere.UserChatMessageV2(content="hi")]))
    assert caplog.records == []
    return [json.loads(each.json(exclude_none=True), parse_float=_as_sent) for each in found]


def _as_sent(number: str) -> float:
    """The client makes floats of all counters."""
    return int(number[:-2]) if number.endswith(".0") else float(number)


FOREIGN: dict[str, Response] = {
    "text": Response(p.AssistantMessage(content=(p.Text("hello"),), model="x", finish_reason="stop", response_id="r")),
    "reasoning and text": Response(
        p.AssistantMessage(content=(p.Reasoning("hm"), p.Text("hello"), p.Text("again")), finish_reason="length")
    ),
    "two calls": Response(
        p.AssistantMessage(
            content=(p.ToolCall("c1", "f", '{"a": 1}'), p.ToolCall("c2", "g", "")),
            finish_reason="tool_calls",
            usage=Usage(input=3, cache_read=4, output=5, reasoning=6),
        )
    ),
    "text and a call": Response(
        p.AssistantMessage(content=(p.Text("I look."), p.ToolCall("c1", "f", "[1]")), finish_reason="tool_calls")
    ),
    "custom call": Response(p.AssistantMessage(content=(p.ToolCall("c", "f", '"ls \\"a\\""', custom=True),))),
    "malformed": Response(p.AssistantMessage(content=(p.MalformedToolCall("{oh", "no JSON", "f", "c"),))),
    "refusal": Response(p.AssistantMessage(content=(p.Refusal("I cannot."),), finish_reason="refusal")),
    "nothing": Response(p.AssistantMessage(finish_reason="stop")),
    "odd text": Response(p.AssistantMessage(content=(p.Text("\u2028 \x85 \x00 \r\n\n \U0001f600"),))),
    "odd reason": Response(p.AssistantMessage(content=(p.Text("a"),), finish_reason="pause")),
}


@pytest.mark.law(4)
@pytest.mark.parametrize("response", FOREIGN.values(), ids=FOREIGN)
def test_the_official_client_reads_what_we_write(response: Response, caplog: pytest.LogCaptureFixture) -> None:
    data, _ = written(NAME, replay_events(response, size=2))
    ours = answer(NAME, data)
    assert unplanned(ours) == unplanned(WIRE.decode_response(WIRE.encode_response(response).body))
    theirs = WIRE.decode_response(merged(as_client_reads(data, caplog)))
    assert theirs == ours


@pytest.mark.law(4)
@pytest.mark.parametrize(
    "name", ["text", "thinking", "calls", "plan before text", "a citation within the text", "logprobs"]
)
def test_the_official_client_reads_streams_that_went_through_us(name: str, caplog: pytest.LogCaptureFixture) -> None:
    events, response = read(NAME, sse(*STREAMS[name]) + DONE)
    assert isinstance(response, Response)
    theirs = as_client_reads(check_back(NAME, events, response), caplog)
    assert WIRE.decode_response(merged(theirs)) == response


@pytest.mark.parametrize(
    "failed", [e.Failed("provider", "it broke", "500", Raw(b'{"x":1}')), e.Failed("corrupt", "it broke"), None]
)
def test_a_failure_reaches_the_official_client(failed: e.Failed | None, caplog: pytest.LogCaptureFixture) -> None:
    """The client raises nothing for an error within a stream; it gives the event that says so."""
    begun = [e.Start(Response(p.AssistantMessage(model="m"))), e.PartStart(0, p.Text("")), e.TextDelta(0, "a")]
    data, _ = written(NAME, [*begun, *([] if failed is None else [failed])])
    last = as_client_reads(data, caplog)[-1]
    reason = "it broke" if failed else "it ended before the answer was finished"
    assert last == {"type": "message-end", "delta": {"finish_reason": "ERROR", "error": reason}}
    error = failure(NAME, data)
    assert (error.kind, error.reason) == ("provider", reason)


def test_what_is_not_carried_is_on_the_receipt() -> None:
    cited_text = p.Text("a", citations=(p.Citation(wire="openai_chat", url="u"),))
    content = (p.Reasoning("hm", "sig", wire="anthropic_messages"), cited_text, p.Image(p.Inline("iVBORw0KGgo=")))
    response = Response(
        p.AssistantMessage(content=content, model="m"), alternatives=(p.AssistantMessage(content=(p.Text("b"),)),)
    )
    data, losses = written(NAME, replay_events(response))
    assert {loss.what for loss in losses} >= {"reasoning", "citations", "image", "alternatives", "model"}
    assert answer(NAME, data).message.content == (p.Text("a"),)


def test_plans_are_parted_by_a_blank_line() -> None:
    marked = [p.Text(each, provider_json=decode.PLAN) for each in ("a", "", "b")]
    response = Response(p.AssistantMessage(content=(*marked, p.ToolCall("c", "f"))), origin=NAME)
    found = answer(NAME, written(NAME, replay_events(response))[0])
    assert found == WIRE.decode_response(WIRE.encode_response(response).body)


def test_an_object_for_arguments_goes_back_as_text() -> None:
    events, response = read(NAME, sse(BEGIN, *call(begun={"a": 1}), end("TOOL_CALL")))
    assert isinstance(response, Response)
    again = answer(NAME, written(NAME, events)[0])
    assert [each.arguments_json for each in again.message.tool_calls] == ['{"a": 1}']
    assert again.message == response.message


def test_a_citation_made_by_hand() -> None:
    own = p.Text("a", citations=(p.Citation(wire=NAME, quote="a", start=0, end=1),))
    found = answer(NAME, written(NAME, replay_events(Response(p.AssistantMessage(content=(own,)), origin=NAME)))[0])
    (citation,) = found.message.content[0].citations  # type: ignore[union-attr] (a text)
    assert citation.raw_json == Raw(b'{"start":0,"end":1,"text":"a"}')


def test_a_type_that_is_no_name_stands_in_the_data_alone() -> None:
    odd = event("a\nb")
    events, response = read(NAME, b"data: " + json.dumps(odd).encode() + b"\n\n" + sse(BEGIN, end()))
    assert isinstance(response, Response)
    check_back(NAME, events, response)
