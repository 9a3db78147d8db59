"""The stream of Gemini is read: any cut, the answer not streamed, odd streams, pieces of arguments, any bytes."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from palaver import wires
from palaver.core.errors import PalaverError, StreamError
from palaver.core.events import Failed, Finish, PartEnd, ProviderEvent, Start, TextDelta, Update, UsageUpdate
from palaver.core.parts import MalformedToolCall, Reasoning, Text, ToolCall
from palaver.core.request import Response
from palaver.wires.google_generate import stream
from tests.stream.chunking import bytewise, cut
from tests.wires.google_generate.streams import (
    STREAMS,
    WIRE,
    array,
    body,
    call,
    decoded,
    dumped,
    error,
    event,
    follow_the_rules,
    joined,
    response,
    sse,
    text,
    thought,
    usage,
)

named = pytest.mark.parametrize("bodies", STREAMS.values(), ids=STREAMS)


def recorded_stream(exchange: Any) -> bytes:
    return exchange.record["stream"].encode()


def cuts(data: bytes, count: int = 6) -> list[list[bytes]]:
    dice = random.Random(len(data))
    return [cut(data, dice.choices(range(len(data) + 1), k=dice.randint(1, 12))) for _ in range(count)]


# -- laws 3 and 4 ----------------------------------------------------------------------------------


def check_any_cut(data: bytes) -> None:
    whole = decoded(data)
    for chunks in (bytewise(data), *cuts(data)):
        assert decoded(*chunks) == whole
    for behind in (b"data: x\r\n\r\n", b"\xff\xfe\r\n\r\n", b"data: [DONE]\r\n\r\n", b"\r\n", b": comment\r\n\r\n"):
        assert decoded(data, behind) == whole
        assert decoded(data + behind) == whole


@pytest.mark.law(3)
@pytest.mark.recorded("google_generate", has="stream")
def test_a_recorded_stream_means_the_same_at_any_cut(exchange):
    check_any_cut(recorded_stream(exchange))


@pytest.mark.law(3)
@named
def test_a_stream_means_the_same_at_any_cut(bodies):
    check_any_cut(sse(bodies))
    data = array(bodies)
    assert [decoded(*chunks) for chunks in (bytewise(data), *cuts(data))] == [decoded(data)] * 7


def events_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(block.removeprefix("data: ")) for block in data.decode().split("\r\n\r\n") if block]


@pytest.mark.law(4)
@pytest.mark.recorded("google_generate", has="stream")
def test_a_recorded_stream_is_the_answer_that_was_not_streamed(exchange):
    data = recorded_stream(exchange)
    events, found = decoded(data)
    follow_the_rules(events)
    assert found == WIRE.decode_response(joined(events_of(data)))
    encoded = WIRE.encode_response(found)
    assert encoded.losses == ()
    assert WIRE.decode_response(encoded.body) == found


@pytest.mark.law(4)
@named
def test_a_stream_is_the_answer_that_was_not_streamed(bodies):
    expected = WIRE.decode_response(dumped(joined(bodies)))
    for data in (sse(bodies), array(bodies)):
        events, found = decoded(data)
        assert found == expected
        follow_the_rules(events)
    encoded = WIRE.encode_response(expected)
    assert encoded.losses == ()
    assert WIRE.decode_response(encoded.body) == expected


def test_lists_that_each_event_goes_on_with_are_joined():
    def said(text, tokens, cited):
        logprobs = {"chosenCandidates": [{"token": each} for each in tokens]}
        sources = {"citationSources": [{"uri": each} for each in cited]}
        beside = {"logprobsResult": logprobs, "citationMetadata": sources}
        return {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, **beside}]}

    last = {"candidates": [{"content": {"role": "model", "parts": [{"text": "c"}]}, "finishReason": "STOP"}]}
    whole = said("abc", ["a", "b"], ["u", "v"])
    whole["candidates"][0]["finishReason"] = "STOP"
    for second in (["b"], ["a", "b"]):  # what is new, or all so far
        data = b"".join(map(event, [said("a", ["a"], ["u"]), said("b", second, ["v"]), last]))
        assert response(data) == WIRE.decode_response(whole)


@pytest.mark.law(4)
@pytest.mark.recorded("google_generate", has="answer")
def test_a_recorded_answer_is_a_stream_of_one_event(exchange):
    found = exchange.record["response"]
    expected = WIRE.decode_response(found)
    assert response(event(found)) == expected
    assert response(array([found])) == expected
    assert response(b"\n " + dumped(found) + b"\n") == expected


@named
def test_both_paths_agree(bodies, monkeypatch):
    quick = decoded(sse(bodies))

    def refuse(_data: bytes) -> None:
        raise msgspec.ValidationError

    monkeypatch.setattr(stream, "plain", refuse)
    assert decoded(sse(bodies)) == quick


def test_an_event_of_the_common_shape_takes_the_fast_path(monkeypatch):
    bodies = [body(text("a"), usage=usage(1)), body(text("b"), usage=usage(1, 2)), body(thought("c"))]
    more = [body(text("c"), usage=usage(1, 3)), body(text("d")), body({"text": "e", "thought": False})]
    taken: list[bytes] = []
    read = stream.Decoder._event

    def counted(self: Any, data: bytes) -> None:
        taken.append(data)
        read(self, data)

    monkeypatch.setattr(stream.Decoder, "_event", counted)
    decoded(sse(bodies[:2] + more[:2]))
    assert len(taken) == 1
    taken.clear()
    decoded(sse([*bodies, *more]))
    assert len(taken) == 4


# -- what the events say ---------------------------------------------------------------------------


def test_what_is_known_late_is_said_once():
    events, found = decoded(sse(STREAMS["late fields"]))
    assert [type(each) for each in events if not isinstance(each, TextDelta)][-4:] == [
        PartEnd,
        Update,
        UsageUpdate,
        Finish,
    ]
    assert sum(isinstance(each, Update) for each in events) == 1
    assert [each.usage.input for each in events if isinstance(each, UsageUpdate)] == [55, 260]
    assert isinstance(found, Response)
    assert found.message.usage is not None
    assert found.message.usage.raw == {
        "promptTokenCount": 257,
        "candidatesTokenCount": 8,
        "toolUsePromptTokenCount": 3,
        "trafficType": "ON_DEMAND",
    }
    held = found.message.provider["google_generate"]
    assert held["groundingMetadata"]["webSearchQueries"] == ["q"]
    assert held["urlContextMetadata"] == {"urlMetadata": []}
    beside = found.message.provider["@google_generate"]["candidate"]
    assert beside["safetyRatings"] == [{"category": "HARM_CATEGORY_HATE_SPEECH"}]
    assert found.provider["google_generate"] == {"createTime": "2026-01-01T00:00:00Z", "unknown": {"x": 1}}


def test_text_is_said_as_it_comes():
    decoder = WIRE.stream_decoder()
    first, second, last = map(event, STREAMS["text"])
    assert [type(each).__name__ for each in decoder.feed(first)] == ["Start", "UsageUpdate", "PartStart", "TextDelta"]
    assert decoder.feed(second) == [TextDelta(0, STREAMS["text"][1]["candidates"][0]["content"]["parts"][0]["text"])]
    assert decoder.response.message.content[0].text.startswith("Hello")
    assert decoder.feed(last) == [TextDelta(0, ".")]
    assert [type(each).__name__ for each in decoder.close()] == ["PartEnd", "UsageUpdate", "Finish"]


def test_a_signature_stays_on_its_part():
    assert response(sse(STREAMS["text, then its signature"])).message.content == (
        Text("ab"),
        Text("", provider_json=msgspec.Raw(b'{"google_generate":{"thoughtSignature":"c2ln"}}')),
    )
    signed = response(sse(STREAMS["thoughts"])).message.content
    assert [(type(part), part.text) for part in signed] == [
        (Reasoning, "I think"),
        (Text, "So it is"),
        (Reasoning, "signed"),
    ]
    assert (signed[0].signature, signed[2].signature, signed[2].wire) == (None, "c2ln", "google_generate")


def test_calls_without_an_id_get_one_from_their_place():
    calls = response(sse(STREAMS["calls"])).message.tool_calls
    assert [each.id for each in calls] == ["call_r1_1", "call_r1_2", "id1", "call_r1_4"]
    assert [each.arguments_json for each in calls] == ['{"a":[1.0,5e-06]}', "{}", '{"b":"ü"}', "{}"]


@pytest.mark.parametrize(
    ("name", "reason", "raw"),
    [
        ("calls", "tool_calls", "STOP"),
        ("a call behind the finish", "tool_calls", "STOP"),
        ("text behind the finish", "length", "MAX_TOKENS"),
        ("unexpected call", "error", "UNEXPECTED_TOOL_CALL"),
        ("nothing in it", "stop", "STOP"),
        ("media and blocks nobody knows", "other", "SOMETHING_NEW"),
        ("a blocked prompt", "content_filter", msgspec.UNSET),
        ("a blocked prompt, no candidates", "content_filter", msgspec.UNSET),
    ],
)
def test_finish_reasons(name, reason, raw):
    message = response(sse(STREAMS[name])).message
    assert (message.finish_reason, message.finish_reason_raw) == (reason, raw)


def test_several_candidates_are_alternatives():
    found = response(sse(STREAMS["two candidates"]))
    assert found.message.text == "ab"
    assert [type(part) for part in found.alternatives[0].content] == [Text, ToolCall, Text]
    assert found.alternatives[0].finish_reason == "tool_calls"
    assert found.alternatives[0].tool_calls[0].id == "call_r1_1_1"


# -- odd streams -----------------------------------------------------------------------------------

ERROR = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE", "details": []}}


@pytest.mark.parametrize("data", [event(ERROR), event([ERROR]), array([ERROR]), json.dumps(ERROR, indent=1).encode()])
@pytest.mark.parametrize("before", [[], [body(text("a"), usage=usage(3))], [body(text("a"), finish="STOP")]])
def test_an_error_is_the_providers(data, before):
    data = array([*before, ERROR]) if before and data[:1] in b"[{" else sse(before) + data
    events, found = decoded(data, event(body(text("more"))))
    assert isinstance(found, StreamError)
    assert (found.kind, found.reason, found.code) == ("provider", "The model is overloaded.", "UNAVAILABLE")
    assert json.loads(found.body) in (ERROR, [ERROR])
    assert found.response.message.text == "a" * len(before)
    assert found.response.message.finish_reason == "error"
    assert isinstance(events[-1], Failed)
    assert (found.response.message.usage is not None) == (bool(before) and "usageMetadata" in before[0])


@pytest.mark.row("pains-8")
@named
def test_a_stream_without_a_finish_reason_is_torn(bodies):
    for keep in range(len(bodies)):
        events, found = decoded(sse(bodies[:keep]))
        if isinstance(found, StreamError):
            assert found.kind == "torn"
            assert found.response.message.finish_reason == "error"
            assert not any(isinstance(each, Finish) for each in events)


def test_nothing_at_all_is_torn():
    assert [error(data).kind for data in (b"", b"\r\n", b"\xef\xbb\xbf", b"[", b"[]", b": hi\n\n", b"data:\n\n")] == [
        "torn"
    ] * 7


def test_a_stream_that_breaks_off_within_an_event_is_torn():
    data = event(body(text("a"))) + event(body(text("b")))
    for end in (len(data) - 20, len(data) - 40):
        found = error(data[:end])
        assert (found.kind, found.response.message.content) == ("torn", (Text("a"),))
    data = array([body(text("a")), body(text("b"))])
    found = error(data[:-20])
    assert (found.kind, found.response.message.content) == ("torn", (Text("a"),))
    assert error(json.dumps(body(text("b"))).encode()[:-3]).kind == "torn"


def test_an_array_without_its_end_is_whole_with_a_finish_reason():
    data = array(STREAMS["text"])
    assert response(data.rstrip(b"\r\n]")) == response(data)
    assert response(data + b"x") == response(data)


@pytest.mark.row("pains-9")
@pytest.mark.parametrize(
    ("found", "path"),
    [
        ({"candidates": {}}, "candidates"),
        ({"candidates": [1]}, "candidates[0]"),
        ({"candidates": [{"content": []}]}, "candidates[0]"),
        ({"candidates": [{"content": {"parts": [1]}}]}, "parts[0]"),
        ({"candidates": [{"index": "x"}]}, "candidates[0].index"),
        ({"candidates": [{"index": -1}]}, "candidates[0].index"),
        ({"candidates": [{"index": 1_000_000}]}, "candidates[0].index"),
        (body(text("a"), {"text": 3}), "candidates[0].content.parts[1].text"),
        (body({"functionCall": {"args": {}}}), "candidates[0].content.parts[0].functionCall.name"),
        (body({"functionCall": {}}), "candidates[0].content.parts[0].functionCall.name"),
        (body({"functionCall": {"willContinue": True}}), "candidates[0].content.parts[0].functionCall.name"),
        (body({"functionCall": 3}), "candidates[0].content.parts[0].functionCall"),
        (body({"inlineData": {}}), "candidates[0].content.parts[0].inlineData.data"),
        (body({"functionCall": {"name": "f", "partialArgs": 3}}), "functionCall.partialArgs"),
        (body({"functionCall": {"name": "f", "partialArgs": [{}]}}), "functionCall.partialArgs[0].jsonPath"),
    ],
)
def test_a_known_field_of_the_wrong_form_is_damage(found, path):
    events, failed = decoded(event(body(text("before"))) + event(found))
    assert isinstance(failed, StreamError)
    assert failed.kind == "corrupt"
    assert path in failed.reason
    assert failed.response.message.text.startswith("before")
    assert isinstance(events[-1], Failed)


def test_a_field_may_have_any_name():
    data = event(body(text("a"), usage=usage(1))) + event(body(text("b"), finish="STOP", usage={"XXx": 1}, XXy=2))
    for name in (b"@@", b"\\u0040@", b"@\\u0040"):
        found = response(data.replace(b"XX", name))
        assert found.message.usage.raw == {"promptTokenCount": 1, "@@x": 1}
        assert found.provider["google_generate"] == {"@@y": 2}


def test_damage_behind_a_finish_reason_changes_nothing():
    whole = response(sse(STREAMS["text"]))
    for behind in (b"data: {\r\n\r\n", event({"candidates": 3}), event([]), b"data: {"):
        assert response(sse(STREAMS["text"]) + behind) == whole


def test_objects_that_nobody_knows_are_provider_events():
    for odd in ({}, {"x": [1]}, {"createTime": "now"}):
        events, found = decoded(event(odd) + sse(STREAMS["text"]))
        assert [each.data for each in events if isinstance(each, ProviderEvent)] == [odd]
        assert found == response(sse(STREAMS["text"]))


# -- arguments in pieces ---------------------------------------------------------------------------


def piece(path: str, *, more: bool = True, **value: Any) -> dict[str, Any]:
    return {"functionCall": {"partialArgs": [{"jsonPath": path, **value}], **({"willContinue": True} if more else {})}}


BEGIN = {"functionCall": {"name": "f", "willContinue": True}, "thoughtSignature": "c2ln"}
END: dict[str, Any] = {"functionCall": {}}
STRING = (piece("$.s", stringValue='a"b', willContinue=True), piece("$.s", stringValue=" ü👋"), END)


def streamed(*parts: Any, finish: str = "STOP") -> bytes:
    return sse([*[body(part) for part in parts], body(text(""), finish=finish)])


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        (STRING, '{"s":"a\\"b ü👋"}'),
        ((END,), "{}"),
        ((), "{}"),
        (
            (
                piece("$.n", numberValue=5e-06),
                piece("$.b", boolValue=False),
                piece("$.z", nullValue="NULL_VALUE", more=False),
            ),
            '{"n":5e-06,"b":false,"z":null}',
        ),
        ((piece("$.n", numberValue=0.5, more=False), END), '{"n":0.5}'),
        (
            (
                piece("$.a.b[0].c", stringValue="x"),
                piece("$.a.b[0].d", stringValue="y"),
                piece("$.a.b[1].c", stringValue="z"),
                piece("$.a.e", boolValue=True),
                piece("$.f", stringValue=""),
                END,
            ),
            '{"a":{"b":[{"c":"x","d":"y"},{"c":"z"}],"e":true},"f":""}',
        ),
        ((piece("$.m[0][1]", numberValue=1), piece("$.m[2][0]", numberValue=2), END), '{"m":[[null,1],null,[2]]}'),
        ((piece("$['it\\'s'][\"q\\\"\\u00e9\"].x y", stringValue="v"), END), '{"it\'s":{"q\\"é":{"x y":"v"}}}'),
        # not in the order of a document
        (
            (piece("$.a.x", numberValue=1), piece("$.b", numberValue=2), piece("$.a.y", numberValue=3), END),
            '{"a":{"x":1,"y":3},"b":2}',
        ),
        (
            (
                piece("$.a", stringValue="x", willContinue=True),
                piece("$.b", stringValue="y", willContinue=True),
                piece("$.a", stringValue="z"),
                piece("$.b", stringValue="w"),
                END,
            ),
            '{"a":"xz","b":"yw"}',
        ),
        ((piece("$.a", stringValue="x"), piece("$.a", stringValue="y"), END), '{"a":"y"}'),
        ((piece("$.l[1]", numberValue=1), piece("$.l[0]", numberValue=0), END), '{"l":[0,1]}'),
        (
            (piece("$.a", numberValue=1), piece("$.a.b", numberValue=2), piece("$.a", numberValue=3), END),
            '{"a":3}',
        ),
        ((piece("$.a", numberValue=1), piece("$.a.b", numberValue=2), END), '{"a":{"b":2}}'),
        (
            (piece("$.a", numberValue=1), {"functionCall": {"willContinue": True}}, piece("$.b", numberValue=2)),
            '{"a":1,"b":2}',
        ),
        (({"functionCall": {"args": {"k": [1, 2]}}},), '{"k":[1,2]}'),
    ],
)
def test_arguments_are_gathered(pieces, arguments):
    data = streamed(BEGIN, *pieces)
    events, found = decoded(data)
    follow_the_rules(events)
    whole = {"functionCall": {"name": "f", "args": json.loads(arguments)}, "thoughtSignature": "c2ln"}
    expected = WIRE.decode_response(body(whole, finish="STOP")).message.tool_calls[0].replace(arguments_json=arguments)
    assert isinstance(found, Response)
    assert found.message.content == (expected,)
    assert found.message.finish_reason == "tool_calls"
    assert decoded(*bytewise(data)) == (events, found)


def test_arguments_are_said_while_they_arrive():
    decoder = WIRE.stream_decoder()
    decoder.feed(event(body(BEGIN)))
    said: list[Any] = []
    for each in STRING:
        decoder.feed(event(body(each)))
        said.append(dict(decoder.calls[0].arguments_so_far or {}))
    assert said == [{"s": 'a"b'}, {"s": 'a"b ü👋'}, {"s": 'a"b ü👋'}]


def test_calls_in_pieces_follow_each_other():
    more = {"functionCall": {"name": "f", "id": "i", "willContinue": True}}
    again = {"functionCall": {"name": "f", "id": "i", "partialArgs": [{"jsonPath": "$.a", "numberValue": 2}]}}
    data = streamed(BEGIN, *STRING, BEGIN, piece("$.a", numberValue=1), more, again, END, call("g", {}))
    found = response(data).message.tool_calls
    assert [(each.id, each.name, each.arguments_json) for each in found] == [
        ("call_r1_0", "f", '{"s":"a\\"b ü👋"}'),
        ("call_r1_1", "f", '{"a":1}'),
        ("i", "f", '{"a":2}'),
        ("call_r1_3", "g", "{}"),
    ]


def test_halves_of_a_character_are_joined():
    data = streamed(BEGIN, piece("$.s", stringValue="XX", willContinue=True), piece("$.s", stringValue="YY"), END)
    halves = data.replace(b"XX", b"\\ud83d").replace(b"YY", b"\\udc4b")
    assert response(halves).message.tool_calls[0].arguments == {"s": "👋"}
    data = event(body(text("XX"))) + event(body(text("YY"), finish="STOP"))
    halves = data.replace(b"XX", b"\\ud83d").replace(b"YY", b"\\udc4b")
    assert response(halves).message.text == "👋"


def test_snake_case_pieces_and_late_marks():
    first = {"function_call": {"name": "f", "will_continue": True}}
    second = {
        "function_call": {"partial_args": [{"json_path": "$.a", "string_value": "x"}], "hint": 1},
        "thoughtSignature": "QQ==",
    }
    found = response(streamed(first, second)).message.tool_calls[0]
    assert found.arguments_json == '{"a":"x"}'
    held = found.provider["google_generate"]
    assert (held["thoughtSignature"], held["functionCall"]) == ("QQ==", {"hint": 1})


def test_a_piece_with_a_field_nobody_knows_is_also_a_provider_event():
    events, _ = decoded(streamed(BEGIN, piece("$.a", structValue={"b": 1}), END))
    assert [each.name for each in events if isinstance(each, ProviderEvent)] == ["partialArgs"]


@pytest.mark.row("pains-3")
def test_a_call_torn_in_its_arguments_is_malformed():
    begun = [body(BEGIN), body(STRING[0])]
    found = error(sse(begun))
    assert found.kind == "torn"
    (part,) = found.response.message.content
    assert isinstance(part, MalformedToolCall)
    assert (part.raw, part.name) == ('{"s":"a\\"b', "f")
    cut_off = response(streamed(BEGIN, STRING[0], finish="MAX_TOKENS"))
    assert (cut_off.message.finish_reason, type(cut_off.message.content[0])) == ("length", MalformedToolCall)
    back = (
        piece("$.a.x", numberValue=1),
        piece("$.b", numberValue=2),
        piece("$.a.y", stringValue="z", willContinue=True),
    )
    for found in (
        error(sse([body(each) for each in (BEGIN, *back)])).response,
        response(streamed(BEGIN, *back, finish="MAX_TOKENS")),
    ):
        (part,) = found.message.content
        assert isinstance(part, MalformedToolCall)
        assert part.raw == '{"a":{"x":1,"y":"z"},"b":2'


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "$",
        "$[0]",
        "$.",
        "$.a[",
        "$.a[x]",
        "$.a['b]",
        "$..a",
        "$.a]",
        "$.a[0",
        "$" + ".a" * 300,
        "$.a[500]",
        "$['\\x']",
    ],
)
def test_a_path_that_leads_nowhere_is_damage(path):
    assert error(streamed(BEGIN, piece(path, numberValue=1), END)).kind == "corrupt"


def test_a_value_of_the_wrong_type_is_damage():
    for value in ({"stringValue": 3}, {"numberValue": "NaN"}, {"boolValue": "true"}, {"numberValue": True}):
        assert "partialArgs[0]" in error(streamed(BEGIN, piece("$.a", **value), END)).reason


SCALARS = st.one_of(
    st.text(max_size=5).map(lambda found: {"stringValue": found}),
    st.text(max_size=5).map(lambda found: {"stringValue": found, "willContinue": True}),
    st.integers(-5, 5).map(lambda found: {"numberValue": found}),
    st.booleans().map(lambda found: {"boolValue": found}),
    st.just({"nullValue": None}),
    st.just({}),
)
PATHS = st.lists(st.sampled_from([".a", ".b", "[0]", "[1]", "[3]", "['c d']"]), max_size=3).map(
    lambda found: "$.r" + "".join(found)
)


@given(st.lists(st.tuples(PATHS, SCALARS), max_size=8))
def test_pieces_in_any_order_make_arguments(pieces):
    parts = [piece(path, **value) for path, value in pieces]
    data = streamed(BEGIN, *parts, END)
    events, found = decoded(data)
    follow_the_rules(events)
    assert isinstance(found, Response)
    (part,) = found.message.content
    assert isinstance(part, ToolCall)
    assert isinstance(part.arguments, dict)
    assert decoded(*bytewise(data))[1] == found


# -- law 6 -----------------------------------------------------------------------------------------

ALL = [sse(bodies) for bodies in STREAMS.values()] + [array(bodies) for bodies in STREAMS.values()]
ALL.append(streamed(BEGIN, *STRING, piece("$.a.x", numberValue=1)))


def check_any_bytes(*chunks: bytes) -> None:
    decoder = WIRE.stream_decoder()
    for chunk in chunks:
        decoder.feed(chunk)
    try:
        found = decoder.finish()
    except StreamError as failed:
        found = failed.response
    assert isinstance(found, Response)


@pytest.mark.law(6)
@given(st.sampled_from(ALL), st.data())
def test_any_change_gives_an_answer_or_one_error(data, draw):
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        place = draw.draw(st.integers(0, len(changed)))
        changed[place : place + draw.draw(st.integers(0, 30))] = draw.draw(
            st.sampled_from([b"", b'"', b"{", b"}", b"null", b"\xff", b"\\", b"3", b"[]", b"\r\n\r\n", b"@@"])
        )
    check_any_bytes(bytes(changed))
    check_any_bytes(*cut(bytes(changed), [len(changed) // 3]))


@pytest.mark.law(6)
@given(st.lists(st.binary(max_size=30) | st.sampled_from([b"data: ", b"{", b"[", b"\r\n\r\n"]), max_size=10))
def test_any_bytes_give_an_answer_or_one_error(chunks):
    check_any_bytes(*chunks)


NAMES = (
    "candidates content parts text thought functionCall name args partialArgs jsonPath $.a stringValue willContinue "
    "finishReason STOP index usageMetadata error promptFeedback role"
)
WORDS = st.sampled_from(NAMES.split())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 300) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.law(6)
@given(st.lists(VALUES, max_size=4), st.lists(VALUES, max_size=4))
def test_any_json_gives_an_answer_or_one_error(found, parts):
    bodies = [*found, {"candidates": [{"content": {"parts": parts}}]}, *[body(part) for part in parts], *found]
    check_any_bytes(sse(bodies))
    check_any_bytes(array(bodies))


@pytest.mark.law(6)
def test_deep_nesting_is_an_error_like_any_other():
    deep = b"[" * 100_000 + b"]" * 100_000
    for data in (
        b'data: {"candidates":' + deep + b"}\n\n",
        b'data: {"promptFeedback":{"x":' + deep + b"}}\n\n",
        b"[" + deep + b"]",
    ):
        check_any_bytes(data)
    check_any_bytes(event(body(text("a"))) + b'data: {"promptFeedback":{"x":' + deep + b"}}\n\n")


def test_the_wire_gives_its_decoder():
    assert isinstance(wires.get("google_generate").stream_decoder(), stream.Decoder)
    assert issubclass(StreamError, PalaverError)
    assert isinstance(decoded(sse(STREAMS["text"]))[0][0], Start)
