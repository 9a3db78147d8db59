"""Reading streams of Chat Completions (docs/spec/wires.md#2.6, #2.9, #2.10; docs/spec/pains.md#8): laws 3, 4 and 6."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET, structs
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

import palaver as p
from palaver import wires
from palaver.core import events as e
from palaver.core.errors import StreamError
from palaver.wires._engine.stream_decoder import StreamDecoder
from palaver.wires.openai_chat import stream
from palaver.wires.openai_chat.stream_calls import Call
from tests.corpus import Exchange
from tests.stream.chunking import cut, places
from tests.wires.openai_chat.forms import normal
from tests.wires.openai_chat.streams import (
    CALLED,
    CHOICES,
    CLEAR,
    HEAD,
    NO_TEXT,
    ROLE,
    SAME,
    STOP,
    USAGE,
    calls,
    chunk,
    more,
    opened,
    sse,
    usage,
)

NAME = "openai_chat"
WIRE = wires.get(NAME)
Outcome = tuple[list[Any], p.Response, str]


def read(*pieces: bytes, wire: Any = WIRE) -> Outcome:
    """Everything a decoder says, the answer, and how it failed."""
    decoder = wire.stream_decoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    events += decoder.close()
    assert decoder.feed(b"data: more\n\n") == decoder.close() == []
    try:
        return events, decoder.finish(), ""
    except StreamError as error:
        return events, error.response, str(error)


def said(data: bytes) -> p.Response:
    """The answer of a stream that is whole, whose events keep the rules."""
    events, response, failure = read(data)
    assert failure == ""
    check(events)
    return response


def check(events: list[Any]) -> None:
    """A start first; a part begins before its deltas, and ends before the finish."""
    shown = [event for event in events if not isinstance(event, e.ProviderEvent)]
    assert isinstance(shown[0], e.Start)
    assert sum(isinstance(event, e.Start) for event in shown) == 1
    assert sum(isinstance(event, e.Update) for event in shown) <= 1
    begun: dict[int, int] = {}
    ended: set[int] = set()
    finished: list[int] = []
    for event in shown:
        match event:
            case e.PartStart():
                assert event.index == len(begun)
                begun[event.index] = event.choice
            case e.PartEnd():
                assert event.index in begun
                ended.add(event.index)
            case e.Finish():
                finished.append(event.choice)
                assert {index for index, choice in begun.items() if choice == event.choice} <= ended
            case _ if hasattr(event, "index"):
                assert event.index in begun
                assert event.text != "" if hasattr(event, "text") else True
            case _:
                pass
    assert len(finished) == len(set(finished))


def streamed(exchange: Exchange) -> bytes:
    return exchange.record["stream"].encode()


# -- law 4: a stream says what the whole answer says -----------------------------------------------


@pytest.mark.law(4)
@pytest.mark.row("DAS-12")
@pytest.mark.parametrize("name", SAME)
def test_a_stream_is_the_answer_that_is_not_streamed(name: str):
    data, body = SAME[name]
    response = said(data)
    assert response == WIRE.decode_response(body)
    written = WIRE.encode_response(response)
    assert written.losses == ()
    assert normal(json.loads(written.body)) == normal(body)


@pytest.mark.law(4)
def test_choices_stay_apart():
    response = said(CHOICES)
    body = {
        **HEAD,
        "object": "chat.completion",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"},
            {
                "index": 1,
                "message": {
                    "role": "assistant",
                    "content": "bc",
                    "tool_calls": [{"id": "c0", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                "finish_reason": "tool_calls",
            },
        ],
        "usage": USAGE,
    }
    assert response == WIRE.decode_response(body)


@pytest.mark.law(4)
@pytest.mark.recorded(NAME, has="stream")
def test_a_recorded_stream_is_a_whole_answer(exchange: Exchange):
    events, response, failure = read(streamed(exchange))
    check(events)
    if failure:
        return
    written = WIRE.encode_response(response)
    assert written.losses == ()
    assert WIRE.decode_response(written.body) == response


def accumulated(data: bytes) -> dict[str, Any]:
    """What the official client makes of a stream: the oracle of law 4.

    It joins every string, the words that come with each delta too, keeps the index by which it told calls apart,
    takes fields of the answer from the first chunk only, and adds a refusal of ``null``.
    """
    frames = [json.loads(line[6:]) for line in data.decode().splitlines() if line[:6] == "data: " and line[6] == "{"]
    state: Any = ChatCompletionStreamState()
    for frame in frames:
        state.handle_chunk(ChatCompletionChunk.construct(**frame))
    found = state.current_completion_snapshot.model_dump(exclude_unset=True, warnings=False)
    for choice in found["choices"]:
        message = choice["message"]
        message.pop("parsed", None)
        message.pop("channel", None)
        message.pop("executed_tools", None)
        message["role"] = "assistant"
        choice["logprobs"] = choice.get("logprobs")
        for call in message.get("tool_calls") or ():
            del call["index"]
            call["function"].pop("parsed_arguments", None)
        if message.get("tool_calls") is None:
            message.pop("tool_calls", None)
    return found


def bare(response: p.Response) -> Any:
    """What both sides know: without the fields that the accumulator joins, loses or takes from the first chunk."""
    message = response.message
    return (
        message.content,
        message.model,
        message.response_id,
        message.finish_reason,
    )


@pytest.mark.law(4)
@pytest.mark.recorded(NAME, has="stream")
def test_the_official_accumulator_says_the_same(exchange: Exchange):
    data = streamed(exchange)
    _, response, failure = read(data)
    if failure:
        return  # the accumulator knows no errors
    other = WIRE.decode_response(accumulated(data))
    assert bare(response) == bare(other)
    if other.usage is not None:  # Groq says it in x_groq alone
        assert response.usage == other.usage


# -- law 3: any chunking ---------------------------------------------------------------------------


def cuts_of(data: bytes, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    return cut(data, [chance.randrange(len(data)) for _ in range(chance.randrange(1, 40))])


@pytest.mark.law(3)
@pytest.mark.recorded(NAME, has="stream")
def test_any_chunking_of_a_recording_says_the_same(exchange: Exchange):
    data = streamed(exchange)
    found = read(data)
    assert read(*[data[at : at + 1] for at in range(len(data))]) == found
    for seed in range(5):
        assert read(*cuts_of(data, seed)) == found
    if data.rstrip().endswith(b"[DONE]"):
        assert read(data, b"data: {]\n\ngarbage", b"\xff") == found
        assert read(data + b"data: {]\n\ngarbage") == found


@pytest.mark.law(3)
@pytest.mark.row("DAS-12")
@pytest.mark.parametrize("name", SAME)
def test_every_split_point(name: str):
    data, _ = SAME[name]
    found = read(data)
    assert read(*[data[at : at + 1] for at in range(len(data))]) == found
    for at in range(0, len(data), max(1, len(data) // 60)):
        assert read(data[:at], data[at:]) == found


@pytest.mark.law(3)
@given(st.sampled_from(sorted(SAME)), places())
def test_any_cuts(name: str, where: list[int]):
    data, _ = SAME[name]
    assert read(*cut(data, where)) == read(data)


# -- events ----------------------------------------------------------------------------------------


def shown(*frames: Any, done: bool = True) -> list[Any]:
    return read(sse(*frames, done=done))[0]


def test_text_comes_as_it_is_said():
    assert shown(ROLE, chunk({"content": "a"}), chunk({"content": "b"}), STOP)[1:-1] == [
        e.PartStart(0, p.Text(""), 0, (1, 0)),
        e.TextDelta(0, "a"),
        e.TextDelta(0, "b"),
        e.PartEnd(0),
    ]


def test_fields_that_come_late_are_said_once_at_the_end():
    events = shown(ROLE, chunk({"content": "a"}), chunk({}, "stop", system_fingerprint="fp"), usage())
    assert [type(event) for event in events[-4:]] == [e.UsageUpdate, e.PartEnd, e.Update, e.Finish]
    start, update = events[0].response, events[-2].response
    assert start.provider[NAME]["object"] == "chat.completion"
    assert update.provider[NAME] == {**start.provider[NAME], "system_fingerprint": "fp"}
    assert update.message.provider_json is UNSET
    assert update.message.content == ()


def test_a_call_is_held_back_until_its_name_and_id_are_known():
    decoder = WIRE.stream_decoder()

    def fed(frame: Any) -> list[type]:
        return [type(event) for event in decoder.feed(sse(frame, done=False))]

    assert fed(calls({"index": 0, "function": {"name": "get_"}})) == [e.Start]
    assert fed(calls(more('{"a"'))) == []
    assert fed(calls({"index": 0, "id": "c0"})) == [e.PartStart, e.ArgumentsDelta]
    assert fed(calls(more(": [1"))) == [e.ArgumentsDelta]
    (call,) = decoder.calls
    assert (call.id, call.name, call.arguments_so_far) == ("c0", "get_", {"a": []})
    assert fed(calls(more("]}"))) == [e.ArgumentsDelta]


def test_a_call_that_is_whole_ends_when_the_next_begins():
    events = shown(
        calls(opened("f", "{}")), calls(opened("g", index=1, call_id="c1")), calls(more("{}", index=1)), CALLED
    )
    assert [(type(event), event.index) for event in events if hasattr(event, "index")] == [
        (e.PartStart, 0),
        (e.ArgumentsDelta, 0),
        (e.PartEnd, 0),
        (e.PartStart, 1),
        (e.ArgumentsDelta, 1),
        (e.PartEnd, 1),
    ]


def test_a_call_that_is_not_whole_goes_on():
    events = shown(calls(opened("f", "{")), calls(opened("g", "{}", index=1, call_id="c1")), calls(more("}")), CALLED)
    assert [event.index for event in events if isinstance(event, e.PartEnd)] == [0, 1]


def test_usage_is_all_that_is_known():
    events = shown(
        chunk({"content": "a"}, usage={"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 2}}),
        chunk({}, "stop", x_groq={"usage": {"completion_tokens": 3}}),
        usage(completion_tokens=4),
    )
    found = [event.usage for event in events if isinstance(event, e.UsageUpdate)]
    assert [(each.input, each.cache_read, each.output) for each in found] == [(7, 2, None), (7, 2, 3), (7, 2, 4)]
    assert found[-1].raw == {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens": 4}


def test_usage_in_x_groq_alone():
    response = said(
        sse(
            chunk({"content": "a"}, x_groq={"id": "req_1", "seed": 5}),
            chunk({}, "stop", x_groq={"id": "req_1", "usage": USAGE, "usage_breakdown": {"models": []}}),
        )
    )
    assert response.usage == WIRE.decode_response({**HEAD, "choices": [{"message": {}}], "usage": USAGE}).usage
    x_groq = {"id": "req_1", "seed": 5, "usage": USAGE, "usage_breakdown": {"models": []}}
    assert response.provider[NAME]["x_groq"] == x_groq


def test_what_is_no_chunk_is_kept():
    other = {"type": "ping", "at": 1.0}
    events = shown(other, ROLE, 'event: state\ndata: {"a":[1]}', chunk({"content": "a"}), STOP)
    found = [(event.wire, event.name, event.data) for event in events if isinstance(event, e.ProviderEvent)]
    assert found == [(NAME, "ping", other), (NAME, "state", {"a": [1]})]
    check(events)


def test_a_whole_message_behind_its_deltas_is_kept_but_not_said_again():
    final = {
        **HEAD,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ab"}}],
    }
    events, response, _ = read(sse(chunk({"content": "a"}), chunk({"content": "b"}), final))
    assert response.message.text == "ab"
    assert [event.data for event in events if isinstance(event, e.ProviderEvent)] == [final]
    assert WIRE.decode_response(WIRE.encode_response(response).body) == response


def test_a_variant_is_its_own_origin():
    wire = wires.get(NAME, variant="groq")
    _, response, _ = read(SAME["reasoning"][0], wire=wire)
    assert response == wire.decode_response(SAME["reasoning"][1])


# -- streams that end badly ------------------------------------------------------------------------

ERROR = {
    "error": {
        "message": "no such tool",
        "type": "invalid_request_error",
        "code": "tool_use_failed",
        "failed_generation": "<f>",
    }
}


@pytest.mark.row("DAS-12")
@pytest.mark.parametrize(
    "frame",
    [ERROR, f"event: error\ndata: {json.dumps(ERROR)}", {**chunk({}, "error"), **ERROR}],
    ids=["chunk", "event", "beside a choice"],
)
def test_an_error_ends_the_stream_with_the_text_so_far(frame: Any):
    decoder = WIRE.stream_decoder()
    events = decoder.feed(
        sse(ROLE, chunk({"content": "so far"}), calls(opened("f", '{"a')), frame, chunk({"content": "x"}))
    )
    assert decoder.done
    failed = events[-1]
    assert isinstance(failed, e.Failed)
    assert (failed.kind, failed.reason, failed.code) == ("provider", "no such tool", "tool_use_failed")
    assert failed.raw["error"]["failed_generation"] == "<f>"
    with pytest.raises(StreamError) as caught:
        decoder.finish()
    assert (caught.value.kind, caught.value.code) == ("provider", "tool_use_failed")
    text, call, failed_call = caught.value.response.message.content
    assert failed_call == p.MalformedToolCall("<f>", "the provider could not read the call")
    assert text == p.Text("so far")
    assert isinstance(call, p.MalformedToolCall)
    assert (call.raw, call.name, call.id) == ('{"a', "f", "c0")
    assert caught.value.response.model == "m-1"


@pytest.mark.parametrize(
    ("frame", "reason", "code"),
    [
        ("event: error\ndata: overloaded", "overloaded", None),
        ("event: error\ndata: {}", "no completion", None),
        ({"error": "broken", "code": 7}, "broken", "7"),
        ({"error": {}}, "", None),
        ({"error": [1]}, "", None),
        ({"object": "error", "message": "broken", "type": "invalid", "code": 400}, "broken", "400"),
    ],
)
def test_errors_of_other_forms(frame: Any, reason: str, code: str | None):
    events, _, failure = read(sse(ROLE, frame))
    assert isinstance(events[-1], e.Failed)
    assert (events[-1].kind, events[-1].code) == ("provider", code)
    assert reason in events[-1].reason
    assert "the provider ended the stream" in failure


def test_a_long_call_is_looked_at_once_however_many_begin_behind_it(monkeypatch: pytest.MonkeyPatch):
    joined: list[int] = []
    text = Call.text
    monkeypatch.setattr(Call, "text", lambda call: joined.append(call.index) or text(call))
    decoder = WIRE.stream_decoder()
    decoder.feed(sse(calls(opened("f", '{"a": "')), done=False))
    for index in range(1, 20):
        decoder.feed(sse(calls(more("x")), calls(opened("g", "{", index=index, call_id=f"c{index}")), done=False))
    assert joined.count(0) <= 2


def test_an_error_that_is_null_is_none():
    assert said(sse(chunk({"content": "a"}, "stop", error=None))).message.text == "a"


@pytest.mark.row("DAS-12")
def test_names_without_index_and_id_are_calls_of_their_own():
    data = sse(
        ROLE, calls({"function": {"name": "f", "arguments": ""}}), calls({"function": {"name": "g", "arguments": ""}})
    )
    assert [call.name for call in read(data)[1].message.tool_calls] == ["f", "g"]


def test_a_torn_stream_gives_what_came():
    data = sse(ROLE, chunk({"reasoning": "hm"}), chunk({"content": "so f"}), calls(opened("f", '{"a')), done=False)
    events, response, failure = read(data)
    assert isinstance(events[-1], e.Failed)
    assert (events[-1].kind, "broke off" in failure) == ("torn", True)
    assert not any(isinstance(event, e.Finish) for event in events)
    reasoning, text, call = response.message.content
    assert (reasoning.text, text.text) == ("hm", "so f")  # type: ignore[union-attr]
    assert call == p.MalformedToolCall('{"a', "the arguments are not JSON", "f", "c0")


@pytest.mark.parametrize(
    ("delta", "call"),
    [
        (opened("f", '{"a', call_id=None), p.MalformedToolCall('{"a', "the arguments are not JSON", "f", "call_0")),
        (
            {"index": 0, "id": "c0", "function": {"arguments": "{}"}},
            p.MalformedToolCall("{}", "a call without a name", None, "c0"),
        ),
        ({"index": 0, "id": "c0"}, None),
        (
            {"index": 0, "id": "c0", "type": "custom", "custom": {"name": "f", "input": "ab"}},
            p.MalformedToolCall('"ab', "the arguments are not JSON", "f", "c0"),
        ),
    ],
)
def test_a_call_that_was_torn_is_kept(delta: Any, call: Any):
    _, response, failure = read(sse(NO_TEXT, calls(delta), done=False))
    assert "broke off" in failure
    found = [structs.replace(part, provider_json=UNSET) for part in response.message.content]
    assert found == ([] if call is None else [call])


@pytest.mark.parametrize("data", [b"", b"data: [DONE]\n\n", b": ping\n\n", b'{"error":{"message":"x"}}', sse(usage())])
def test_a_stream_of_nothing_is_torn(data: bytes):
    events, response, failure = read(data)
    assert "broke off" in failure
    assert response.message.content == ()
    assert isinstance(events[-1], e.Failed)


def test_one_choice_that_did_not_finish_tears_the_stream():
    data = sse(chunk({"content": "a"}, "stop"), chunk({"content": "b"}, index=1), done=False)
    _, response, failure = read(data)
    assert "broke off" in failure
    assert [message.text for message in (response.message, *response.alternatives)] == ["a", "b"]


@pytest.mark.parametrize(
    ("frame", "path"),
    [
        ("data: {", ""),
        ("data: []", ""),
        ({"id": 1, "choices": []}, "id"),
        ({**HEAD, "choices": {}}, "choices"),
        ({**HEAD, "choices": [1]}, "choices[0]"),
        ({**HEAD, "choices": [{"index": "0"}]}, "choices[0].index"),
        ({**HEAD, "choices": [{"index": -1}]}, "choices[0].index"),
        ({**HEAD, "choices": [{"index": 10**9}]}, "choices[0].index"),
        ({**HEAD, "choices": [{"index": 0, "delta": []}]}, "choices[0].delta"),
        ({**HEAD, "choices": [{"index": 0, "finish_reason": 1}]}, "choices[0].finish_reason"),
        (chunk({"content": 1}), "choices[0].delta.content"),
        (chunk({"content": [1]}), "choices[0].delta.content[0]"),
        (chunk({"content": [{"type": "text"}]}), "choices[0].delta.content[0].text"),
        (chunk({"content": [{"type": "thinking"}]}), "choices[0].delta.content[0].thinking"),
        (chunk({"role": 1}), "choices[0].delta.role"),
        (chunk({"refusal": {}}), "choices[0].delta.refusal"),
        (chunk({"tool_calls": {}}), "choices[0].delta.tool_calls"),
        (calls({"index": "0"}), "choices[0].delta.tool_calls[0].index"),
        (calls({"index": 0, "id": 1}), "choices[0].delta.tool_calls[0].id"),
        (calls({"index": 0, "function": 1}), "choices[0].delta.tool_calls[0].function"),
        (calls({"index": 0, "function": {"name": 1}}), "choices[0].delta.tool_calls[0].function.name"),
        (calls({"index": 0, "function": {"arguments": 1}}), "choices[0].delta.tool_calls[0].function.arguments"),
        (chunk({"reasoning_details": [{**CLEAR, "text": 1}]}), "choices[0].delta.reasoning_details[0]"),
    ],
)
def test_a_known_field_of_a_wrong_type_is_damage(frame: Any, path: str):
    events, response, failure = read(sse(chunk({"content": "so far"}), frame, chunk({"content": "x"})))
    assert isinstance(events[-1], e.Failed)
    assert events[-1].kind == "corrupt"
    assert path in events[-1].reason
    assert "corrupt" in failure
    assert response.message.text == "so far"


def test_a_field_of_a_stream_may_have_any_name():
    fields = {"@@content": "x", "@": {"id": [1], "@@x": 1}}
    assert said(sse(chunk({"content": "a", **fields}), STOP)).message.provider == {NAME: fields}


def test_a_call_that_never_gets_a_name_is_damage_once_the_stream_is_whole():
    events, response, failure = read(sse(calls({"index": 0, "id": "c0", "function": {"arguments": "{}"}}), CALLED))
    assert "name: missing" in failure
    assert response.message.malformed_tool_calls[0].raw == "{}"
    assert sum(isinstance(event, e.Failed) for event in events) == 1


@pytest.mark.parametrize("tail", [b"data: {]\n\n", b'data: {"choices":1}\n\n', b"\xff\xff\n\n", b"data: {"])
def test_damage_behind_the_finish_changes_nothing(tail: bytes):
    data = sse(chunk({"content": "a"}), STOP, done=False)
    assert read(data + tail)[1] == read(data)[1]
    assert read(data + tail)[2] == ""


def test_an_error_behind_the_finish_still_fails():
    _, response, failure = read(sse(chunk({"content": "a"}), STOP, ERROR))
    assert "the provider ended the stream" in failure
    assert response.message.text == "a"


# -- law 6: any bytes ------------------------------------------------------------------------------

POOL = [data for data, _ in SAME.values()] + [CHOICES, sse(ROLE, ERROR)]
WORDS = """
    id object choices index delta message finish_reason logprobs content role refusal tool_calls function name arguments
    custom input type reasoning reasoning_content reasoning_details text data signature audio transcript annotations
    usage x_groq error code function_call thinking model prompt_tokens
"""
KEYS = st.sampled_from(WORDS.split())
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-1, 3)
    | st.sampled_from(["", "a", "{}", "text", "thinking", "custom", "\ud83d"])
)
ANY = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
DELTAS = st.dictionaries(KEYS, ANY, max_size=5).map(chunk)
CALLS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "index": st.integers(0, 2) | st.none(),
            "id": st.sampled_from(["", "a", "b"]) | st.none(),
            "type": st.sampled_from(["function", "custom"]),
            "function": st.fixed_dictionaries(
                {},
                optional={
                    "name": st.sampled_from(["", "f", "g"]),
                    "arguments": st.sampled_from(["", "{", "}", "{}", '"']),
                },
            ),
            "custom": st.fixed_dictionaries(
                {}, optional={"name": st.just("h"), "input": st.sampled_from(["", "x", '"'])}
            ),
        },
    ),
    max_size=2,
).map(lambda found: calls(*found))


def survives(data: bytes) -> None:
    events, response, _ = read(data)
    assert sum(isinstance(event, (e.Failed, e.Finish)) for event in events) >= 1
    repr(response)


@pytest.mark.law(6)
@given(st.lists(ANY | DELTAS | CALLS, max_size=6), st.booleans())
def test_any_chunks_give_an_answer_or_the_named_error(frames: list[Any], done: bool):
    survives(sse(*[frame if isinstance(frame, dict) else {"a": frame} for frame in frames], done=done))


@pytest.mark.law(6)
@given(st.lists(CALLS, max_size=6))
def test_any_calls_give_an_answer_or_the_named_error(frames: list[Any]):
    data = sse(*frames, CALLED)
    survives(data)
    assert read(data) == read(*[data[at : at + 1] for at in range(len(data))])


@pytest.mark.law(6)
@given(st.sampled_from(POOL), st.lists(st.tuples(st.integers(0, 5000), st.binary(max_size=3)), min_size=1, max_size=4))
def test_any_damage_gives_an_answer_or_the_named_error(data: bytes, changes: list[tuple[int, bytes]]):
    damaged = bytearray(data)
    for at, new in changes:
        damaged[at % len(damaged) : at % len(damaged) + len(new)] = new
    survives(bytes(damaged))


@pytest.mark.law(6)
@given(st.binary(max_size=200))
def test_any_bytes_give_the_named_error(data: bytes):
    survives(data)


@pytest.mark.law(6)
@pytest.mark.recorded(NAME, has="stream")
def test_a_damaged_recording_gives_an_answer_or_the_named_error(exchange: Exchange):
    data = streamed(exchange)
    chance = random.Random(len(data))
    for _ in range(10):
        at = chance.randrange(len(data))
        survives(data[:at] + chance.randbytes(2) + data[at + chance.randrange(3) :])
        survives(data[:at])


@pytest.mark.law(6)
def test_nesting_is_no_way_out():
    deep = "[" * 20_000 + "]" * 20_000
    for field in ("content", "x", "reasoning_details", "tool_calls", "annotations", "audio"):
        survives(sse(f'data: {{"choices":[{{"index":0,"delta":{{"{field}":{deep}}}}}]}}', STOP))
    nested = '{"a":' * 20_000 + "1" + "}" * 20_000
    for _ in range(2):
        survives(sse(*[f'data: {{"choices":[{{"index":0,"delta":{{"x":{nested}}}}}],"y":{nested}}}'] * 2, STOP))


# -- the fast path ---------------------------------------------------------------------------------


class _Careful(stream.Decoder):
    def read(self, frame: Any, /) -> None:
        self._read(frame)


def slow(data: bytes) -> list[Any]:
    decoder: StreamDecoder = _Careful(NAME)
    return decoder.feed(data) + decoder.close()


@pytest.mark.parametrize("name", SAME)
def test_both_paths_say_the_same(name: str):
    assert slow(SAME[name][0]) == read(SAME[name][0])[0]


@pytest.mark.recorded(NAME, has="stream")
def test_both_paths_say_the_same_of_recordings(exchange: Exchange):
    data = streamed(exchange)
    assert slow(data) == read(data)[0]


PIECES = st.sampled_from(
    [
        chunk({"content": "a"}),
        chunk({"content": ""}),
        chunk({"content": "a", "role": "assistant"}),
        chunk({"content": None, "reasoning_content": "r"}),
        chunk({"reasoning": "r", "channel": "analysis"}),
        chunk({"reasoning": "r", "channel": "final"}),
        chunk({"content": "c", "channel": "final"}),
        chunk({"content": "a", "reasoning": "r"}),
        chunk({"content": "a"}, system_fingerprint="fp"),
        chunk({"content": "a"}, system_fingerprint="fp2"),
        chunk({"content": "a"}, beside={"logprobs": None}),
        chunk({"content": "a"}, index=1),
        chunk({"content": [{"type": "text", "text": "l"}]}),
        chunk({"content": "a"}, usage=None, created=5),
        chunk({}, "stop"),
        calls(opened("f", "{")),
        calls(opened("f", "{", call_id="c1")),
        calls(opened("g", index=1, call_id="c2")),
        calls(more("1")),
        calls(more("}")),
        calls(more("1", index=1)),
        calls(more("", index=1)),
        calls({"index": 0, "function": {"arguments": "2", "name": ""}}),
        calls(more("3"), more("4")),
        calls({"index": 0, "custom": {"input": "x"}}),
        calls({"index": 0, "function": {"arguments": {"a": 1}}}),
    ]
)


@given(st.lists(PIECES, max_size=12))
def test_both_paths_say_the_same_in_any_order(frames: list[Any]):
    data = sse(*frames)
    assert slow(data) == read(data)[0]


@pytest.mark.parametrize(
    "frames",
    [
        [chunk({"content": "a", "reasoning": "r"})] * 3,
        [chunk({"content": "a", "reasoning_content": "r"})] * 3,
        [chunk({"reasoning": "a", "reasoning_content": "r"})] * 3,
        [calls(opened("f", "{")), *[chunk({"content": "a", **calls(more("1"))["choices"][0]["delta"]})] * 3],
        [
            chunk({"content": "a"}, system_fingerprint="one"),
            chunk({"reasoning": "a"}, system_fingerprint="two"),
            chunk({"content": "a"}, system_fingerprint="one"),
        ],
        [chunk({"content": "a", "channel": "x"}), chunk({"reasoning": "a", "channel": "y"})] * 2 + [NO_TEXT],
        [calls(opened("f", "{")), calls(more("1")), calls(opened("g", "{", call_id="c1")), calls(more("1"))],
    ],
)
def test_both_paths_say_the_same_where_only_one_could_be_right(frames: list[Any]):
    data = sse(*frames, STOP)
    assert slow(data) == read(data)[0]


def test_the_common_deltas_take_the_fast_path(monkeypatch: pytest.MonkeyPatch):
    slow: list[Any] = []
    monkeypatch.setattr(
        stream.Decoder, "_read", lambda self, frame, read=stream.Decoder._read: (slow.append(frame), read(self, frame))
    )
    frames = [ROLE, calls(opened("f", "{")), calls(opened("g", "{", index=1, call_id="c1"))]
    for _ in range(20):
        frames += [
            chunk({"content": "a"}, obfuscation="x"),
            chunk({"reasoning": "b"}),
            calls(more("1")),
            calls(more("2", index=1)),
        ]
    said(sse(*frames, CALLED))
    assert len(slow) == 3 + 4 + 2


def test_the_common_chunk_holds_what_recordings_hold():
    assert stream.read_chunk(
        json.dumps({**chunk({"content": "a"}), "obfuscation": "x", "service_tier": "default"}).encode()
    )
