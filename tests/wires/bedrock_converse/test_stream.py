"""Reading a ConverseStream (docs/spec/wires.md#6.3): every split, the answer that was not streamed, odd and broken
streams."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver import wires
from palaver.core import jsontext
from palaver.core.errors import StreamError
from palaver.core.events import (
    ArgumentsDelta,
    CitationDelta,
    DataDelta,
    Event,
    Failed,
    Finish,
    PartEnd,
    PartStart,
    ProviderEvent,
    ReasoningDelta,
    SignatureDelta,
    Start,
    TextDelta,
    Update,
    UsageUpdate,
)
from palaver.core.parts import MalformedToolCall
from palaver.stream import event_stream
from palaver.wires.bedrock_converse.stream import Decoder
from tests.corpus import Exchange, exchanges
from tests.stream.chunking import bytewise, cut, places
from tests.wires.bedrock_converse import client, streams
from tests.wires.bedrock_converse.streams import (
    BEGIN,
    CITATION,
    INTERLEAVED,
    OWN,
    PLAIN,
    call,
    delta,
    frame,
    image,
    joined,
    metadata,
    over,
    redacted,
    result,
    start,
    stop,
    stream,
    text,
    thought,
)

WIRE = wires.get("bedrock_converse")
DELTAS = (TextDelta, ReasoningDelta, ArgumentsDelta, SignatureDelta, DataDelta, CitationDelta)


def events_of(chunks: Iterable[bytes]) -> list[Event]:
    decoder = WIRE.stream_decoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.close()


def read(*events: streams.Event) -> p.Response:
    return answer(stream(*events))


def answer(data: bytes) -> p.Response:
    decoder = WIRE.stream_decoder()
    decoder.feed(data)
    return decoder.finish()


def failure(data: bytes) -> StreamError:
    with pytest.raises(StreamError) as caught:
        answer(data)
    return caught.value


def alike(response: p.Response) -> p.Response:
    """The same answer with arguments in their one form: a whole answer has them as JSON, a stream as text."""
    content = tuple(
        part.replace(arguments_json=jsontext.normal(part.arguments_json.encode()).decode())
        if isinstance(part, p.ToolCall)
        else part
        for part in response.message.content
    )
    return response.replace(message=response.message.replace(content=content))


def recorded(recording: Exchange) -> bytes:
    return base64.b64decode(recording.record["stream_base64"])


def well_told(events: list[Event]) -> None:
    """Start first, each part begun once, grown only while it is open, and ended before the one finish."""
    assert isinstance(events[0], Start)
    open_parts: set[int] = set()
    begun = 0
    finishes = 0
    for event in events[1:]:
        match event:
            case PartStart(index):
                assert index == begun
                begun += 1
                open_parts.add(index)
            case PartEnd(index):
                open_parts.remove(index)
            case Finish():
                finishes += 1
                assert not open_parts
            case Start():
                raise AssertionError("a second start")
            case _ if isinstance(event, DELTAS):
                assert event.index in open_parts
            case _:
                assert isinstance(event, (Update, UsageUpdate, ProviderEvent))
    assert finishes == 1
    assert sum(isinstance(event, UsageUpdate) for event in events) <= 1
    assert sum(isinstance(event, Update) for event in events) <= 1


RECORDED = pytest.mark.parametrize(
    "recording",
    [param for param in exchanges("bedrock_converse") if param.marks or "stream_base64" in param.values[0].record],
)
own = pytest.mark.parametrize("events", OWN.values(), ids=OWN)

# -- law 3: any split ------------------------------------------------------------------------------


def split_anyhow(data: bytes) -> None:
    whole = events_of([data])
    assert events_of(bytewise(data)) == whole
    dice = random.Random(len(data))
    for _ in range(8):
        assert events_of(cut(data, [dice.randrange(len(data)) for _ in range(dice.randrange(1, 9))])) == whole
    response = answer(data)
    decoder = WIRE.stream_decoder()
    for byte in bytewise(data):
        decoder.feed(byte)
    ended = decoder.done
    assert decoder.finish() == response
    if ended:
        for more in (b"\x00", b"garbage" * 9, data):
            assert events_of([data + more]) == whole
            assert answer(data + more) == response


@pytest.mark.law(3)
@RECORDED
def test_a_recorded_stream_may_be_split_anywhere(recording: Exchange) -> None:
    split_anyhow(recorded(recording))


@pytest.mark.law(3)
@own
def test_a_stream_may_be_split_anywhere(events: list[streams.Event]) -> None:
    split_anyhow(stream(*events))


@pytest.mark.law(3)
@given(st.sampled_from(sorted(OWN)), places())
def test_cuts_change_nothing(name: str, at: list[int]) -> None:
    data = stream(*OWN[name], padded=True)
    assert events_of(cut(data, at)) == events_of([data])


def test_padding_changes_nothing() -> None:
    for events in OWN.values():
        assert events_of([stream(*events, padded=True)]) == events_of([stream(*events)])


def test_what_follows_the_end_is_not_read() -> None:
    decoder = WIRE.stream_decoder()
    decoder.feed(stream(*PLAIN))
    assert decoder.done
    assert decoder.feed(stream(*PLAIN)) == []
    assert decoder.close() == []
    assert decoder.finish().message.text == "Hello"


# -- law 4: as if it had not been streamed ---------------------------------------------------------


@pytest.mark.law(4)
@RECORDED
def test_a_recorded_stream_is_the_answer_not_streamed(recording: Exchange) -> None:
    data = recorded(recording)
    same_as_whole(data, streams.split(data))


@pytest.mark.law(4)
@own
def test_a_stream_is_the_answer_not_streamed(events: list[streams.Event]) -> None:
    same_as_whole(stream(*events), events)


def same_as_whole(data: bytes, events: list[streams.Event]) -> None:
    response = answer(data)
    expected = WIRE.decode_response(json.dumps(joined(events)))
    assert alike(response) == alike(expected)
    assert response.origin == expected.origin
    encoded = WIRE.encode_response(response)
    assert encoded.losses == ()
    assert alike(WIRE.decode_response(encoded.body)) == alike(response)
    well_told(events_of([data]))


@pytest.mark.law(4)
@RECORDED
def test_a_recorded_stream_is_what_the_official_client_reads(recording: Exchange) -> None:
    read_alike(recorded(recording))


@pytest.mark.law(4)
@pytest.mark.parametrize("name", sorted(OWN.keys() - {"usage that says nothing"}))  # which makes the client fall over
def test_a_stream_is_what_the_official_client_reads(name: str) -> None:
    read_alike(stream(*OWN[name]))


def read_alike(data: bytes) -> None:
    """Hold our answer against that of the client, which drops fields that its schema does not know."""
    response = answer(data)
    expected = WIRE.decode_response(json.dumps(client.assembled(data)))
    assert [bare(part) for part in response.message.content] == [bare(part) for part in expected.message.content]
    assert (response.finish_reason, response.message.finish_reason_raw) == (
        expected.finish_reason,
        expected.message.finish_reason_raw,
    )
    assert repr(response.usage) == repr(expected.usage)  # the counters


def bare(part: Any) -> Any:
    """A part without fields of the service's own, arguments in their one form."""
    if isinstance(part, p.ToolCall):
        part = part.replace(arguments_json=jsontext.normal(part.arguments_json.encode()).decode())
    return part.replace(provider={})


def test_an_image_that_failed_is_kept() -> None:
    response = read(*OWN["an image that failed"])
    (part,) = response.message.content
    assert isinstance(part, p.Opaque)
    assert part.raw == {"image": {"format": "png", "error": {"message": "no"}}}
    encoded = WIRE.encode_response(response)
    assert encoded.losses == ()
    assert WIRE.decode_response(encoded.body) == response


def test_arguments_stay_the_models_own_text() -> None:
    (part,) = read(BEGIN, *call(0, '{ "q" : ', "1E2 }"), over("tool_use")).message.tool_calls
    assert part.arguments_json == '{ "q" : 1E2 }'


# -- what is told, and when ------------------------------------------------------------------------


def test_the_events_of_a_stream() -> None:
    events = events_of([stream(BEGIN, *text(0, "a", "b"), *call(1, "{}"), over("tool_use"), metadata())])
    assert events[0] == Start(p.Response(p.AssistantMessage(), origin="bedrock_converse"))
    assert events[1:8] == [
        PartStart(0, p.Text(""), 0, (0,)),
        TextDelta(0, "a"),
        TextDelta(0, "b"),
        PartEnd(0),
        PartStart(1, p.ToolCall("t1", "search"), 0, (1,)),
        ArgumentsDelta(1, "{}"),
        PartEnd(1),
    ]
    finish, usage, update = events[8:]
    assert finish == Finish("tool_calls", "tool_use")
    assert isinstance(usage, UsageUpdate)
    assert (usage.usage.input, usage.usage.output) == (10, 5)
    assert isinstance(update, Update)
    assert update.response.provider == {"bedrock_converse": {"metrics": {"latencyMs": 7}}}


def test_parts_are_emitted_as_soon_as_they_begin() -> None:
    decoder = WIRE.stream_decoder()
    assert decoder.feed(stream(BEGIN)) == [Start(p.Response(p.AssistantMessage(), origin="bedrock_converse"))]
    begun = decoder.feed(stream(start(0, toolResult={"toolUseId": "s1", "type": "code_result"})))
    assert [type(event) for event in begun] == [PartStart]
    decoder.feed(stream(delta(0, toolResult=[{"text": "a"}])))
    (ended,) = decoder.feed(stream(stop(0)))
    assert isinstance(ended, PartEnd)
    assert isinstance(ended.part, p.ServerToolResult)
    assert ended.part.output == {"toolResult": {"toolUseId": "s1", "type": "code_result", "content": [{"text": "a"}]}}


def test_arguments_can_be_looked_at_while_they_arrive() -> None:
    decoder = WIRE.stream_decoder()
    decoder.feed(stream(BEGIN, *call(0, '{"q": "a', 'b", "n')[:-1]))
    (looked,) = decoder.calls
    assert (looked.id, looked.name, looked.arguments_so_far) == ("t1", "search", {"q": "ab"})


def test_a_text_with_citations_tells_them_as_they_come() -> None:
    events = events_of([stream(*OWN["a text with citations"])])
    cited = [event for event in events if isinstance(event, CitationDelta)]
    assert [each.citation.title for each in cited] == ["T", "U"]
    assert cited[0].citation.wire == "bedrock_converse"
    assert cited[0].citation.url == "https://a.example"
    (end,) = [event for event in events if isinstance(event, PartEnd) and event.part]
    assert isinstance(end.part, p.Text)
    assert end.part.citations == tuple(each.citation for each in cited)


@own
def test_fast_and_slow_paths_agree(events: list[streams.Event], monkeypatch: pytest.MonkeyPatch) -> None:
    quick = events_of([stream(*events)])
    monkeypatch.setattr(Decoder, "read", Decoder._read)
    assert events_of([stream(*events)]) == quick


def test_the_quick_path_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[str] = []
    read_carefully = Decoder._read

    def noted(self: Decoder, each: Any) -> None:
        slow.append(each.name)
        read_carefully(self, each)

    monkeypatch.setattr(Decoder, "_read", noted)
    begun = [BEGIN, *text(0, "a", "b", "c")[:-1], *thought(1, "a", "b", "c")[:-1], *call(2, "{", "}")[:-1]]
    read(*begun, over("tool_use"), metadata())
    assert slow.count("contentBlockDelta") == 2  # those that begin the text and the reasoning


# -- odd streams -----------------------------------------------------------------------------------


def test_one_index_for_every_block_keeps_them_apart() -> None:
    said = [*call(0, '{"a":1}'), *call(0, '{"b":2}', call_id="t2"), *text(0, "x"), *text(0, "y")]
    content = read(BEGIN, *said, over("tool_use"), metadata()).message.content
    assert [type(part) for part in content] == [p.ToolCall, p.ToolCall, p.Text, p.Text]
    assert [part.arguments_json for part in content if isinstance(part, p.ToolCall)] == ['{"a":1}', '{"b":2}']


def test_a_call_begins_where_another_was_not_ended() -> None:
    said = [*call(0, '{"a":1}')[:-1], *call(0, '{"b":2}', call_id="t2")]
    data = stream(BEGIN, *said, over("tool_use"), metadata())
    assert [call_.id for call_ in answer(data).message.tool_calls] == ["t1", "t2"]
    well_told(events_of([data]))


def test_a_delta_of_another_kind_begins_a_block() -> None:
    said = [delta(0, text="a"), delta(0, reasoningContent={"text": "b"}), delta(0, text="c"), stop(0)]
    assert read(BEGIN, *said, over()).message.content == (
        p.Text("a"),
        p.Reasoning("b", wire="bedrock_converse"),
        p.Text("c"),
    )


def test_blocks_stand_in_the_order_of_their_indexes() -> None:
    assert read(BEGIN, *text(1, "b"), *text(0, "a"), over()).message.text == "ab"
    begun = start(1, toolUse={"toolUseId": "t1", "name": "f"})
    content = read(BEGIN, begun, delta(0, text="a"), stop(1), stop(0), over("tool_use")).message.content
    assert content == (p.Text("a"), p.ToolCall("t1", "f", "{}"))


@pytest.mark.law(4)
def test_blocks_may_interleave() -> None:
    same_as_whole(stream(*INTERLEAVED), INTERLEAVED)
    split_anyhow(stream(*INTERLEAVED))


def test_the_first_block_needs_no_start_of_the_message() -> None:
    response = read(*text(0, "a"), over(), metadata())
    assert response.message.text == "a"
    assert events_of([stream(*text(0, "a"), BEGIN)])[-1].kind == "corrupt"  # type: ignore[union-attr]


def test_usage_may_come_before_the_end_of_the_message() -> None:
    early = events_of([stream(BEGIN, *text(0, "a"), metadata(), over())])
    well_told(early)
    assert read(BEGIN, *text(0, "a"), metadata(), over()) == read(BEGIN, *text(0, "a"), over(), metadata())


def test_usage_that_comes_twice_is_counted_once_field_by_field() -> None:
    first = ("metadata", {"usage": {"inputTokens": 9, "outputTokens": 1, "cacheReadInputTokens": 3}})
    second = ("metadata", {"usage": {"inputTokens": 10, "outputTokens": 5, "cacheReadInputTokens": None}})
    usage = read(BEGIN, first, second, over()).usage
    assert usage is not None
    assert (usage.input, usage.output, usage.cache_read) == (10, 5, 3)
    assert usage.raw == {"inputTokens": 10, "outputTokens": 5, "cacheReadInputTokens": 3}


def test_a_message_that_ends_twice_finishes_once() -> None:
    well_told(events_of([stream(BEGIN, *text(0, "a"), over(), over("max_tokens"), metadata())]))


def test_a_call_that_never_began_is_one_without_a_name() -> None:
    response = read(BEGIN, delta(0, toolUse={"input": '{"a":1}'}), stop(0), over("tool_use"), metadata())
    assert response.message.content == (p.ToolCall("", "", '{"a":1}'),)
    assert response.finish_reason == "tool_calls"


def test_arguments_that_are_no_json_are_kept() -> None:
    response = read(BEGIN, *call(0, '{"a":', " oops"), over("tool_use"), metadata())
    assert response.message.malformed_tool_calls == (
        MalformedToolCall('{"a": oops', "the arguments are not JSON", "search", "t1"),
    )


def test_base64_that_is_none_is_kept_as_it_came() -> None:
    (part,) = read(BEGIN, *redacted(0, "a=", "%%"), over()).message.content
    assert isinstance(part, p.Reasoning)
    assert part.encrypted == "a=%%"


# -- what nobody knows -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        ("thinkingPing", {"x": 1}),
        ("thinkingPing", {}),
        start(3, newBlock={"x": 1}),
        delta(3, newBlock={"x": 1}),
        delta(3, reasoningContent={"newProof": "x"}),
        stop(3),
        start(3),
    ],
    ids=str,
)
def test_an_unknown_event_is_handed_on(event: streams.Event) -> None:
    name, data = event
    events = events_of([stream(BEGIN, (name, {**data, "p": "x"}), *PLAIN[1:])])
    (found,) = [each for each in events if isinstance(each, ProviderEvent)]
    assert (found.wire, found.name, found.data) == ("bedrock_converse", name, data)
    assert read(BEGIN, event, *PLAIN[1:]) == read(*PLAIN)


@pytest.mark.parametrize(
    "event",
    [
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "a"}, "new": 1}),
        delta(0, text="a", newer=1),
        (
            "contentBlockStart",
            {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t", "name": "f"}}, "new": 1},
        ),
        delta(0, reasoningContent={"text": "a", "new": 1}),
    ],
    ids=str,
)
def test_an_unknown_field_without_a_place_is_handed_on_beside_what_is_known(event: streams.Event) -> None:
    events = events_of([stream(BEGIN, event, over(), metadata())])
    (found,) = [each for each in events if isinstance(each, ProviderEvent)]
    assert (found.name, found.data) == event
    assert any(isinstance(each, PartStart) for each in events)


@pytest.mark.parametrize("payload", [b"", b"[1]", b"\xff\xfe", b'"x"', b"{"])
def test_an_unknown_event_need_not_be_an_object(payload: bytes) -> None:
    events = events_of([frame("odd", payload), stream(*PLAIN)])
    assert isinstance(events[0], Start)
    assert isinstance(events[1], ProviderEvent)
    assert events[1].data == payload.decode(errors="backslashreplace")


def test_an_unknown_event_alone_is_handed_on() -> None:
    assert [type(event) for event in events_of([stream(("odd", {}))])] == [ProviderEvent, Failed]


# -- broken streams --------------------------------------------------------------------------------

_NAMES = [
    "internalServerException",
    "modelStreamErrorException",
    "validationException",
    "throttlingException",
    "serviceUnavailableException",
    "somethingNewException",
]


@pytest.mark.parametrize("name", _NAMES)
def test_an_exception_is_the_providers_error(name: str) -> None:
    body = {"message": "Too much.", "originalStatusCode": 500}
    data = stream(BEGIN, *text(0, "a")[:-1]) + frame(name, body, kind="exception")
    error = failure(data + stream(stop(0), over(), metadata()))
    assert (error.kind, error.reason, error.code, json.loads(error.body)) == ("provider", "Too much.", name, body)
    assert (error.response.message.text, error.response.finish_reason) == ("a", "error")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (frame("x", b"Overloaded.", kind="error"), "Overloaded."),
        (frame("x", b"", kind="exception"), "x"),
        (frame("", b"", kind="exception"), "an error without a message"),
        (frame("x", b"not JSON \xff", kind="exception"), "not JSON \ufffd"),
        (frame("x", {"Message": "Big."}, kind="exception"), "Big."),
        (frame("throttlingException", {"message": "As an event."}), "As an event."),
    ],
)
def test_an_error_may_say_little(sent: bytes, reason: str) -> None:
    error = failure(stream(BEGIN) + sent)
    assert (error.kind, error.reason) == ("provider", reason)


def test_an_exception_behind_the_finish_still_fails_the_answer() -> None:
    data = stream(*PLAIN[:-1]) + frame("internalServerException", {"message": "x"}, kind="exception")
    assert failure(data).response.message.text == "Hello"


def test_damage_behind_the_end_comes_between_nothing() -> None:
    """A part that began behind the end is ended by the end of the input; no failure is told before that."""
    events = events_of(
        [stream(BEGIN, over(), start(1, toolUse={"toolUseId": "t", "name": "f"})) + frame("x", b"[]") + b"{" * 99]
    )
    assert not [event for event in events if isinstance(event, Failed)]
    assert isinstance(events[-1], PartEnd)


def test_what_is_known_of_the_whole_answer_is_not_lost_when_it_fails() -> None:
    sent = [("early", {}), metadata(), ("messageStop", {"x": 1})]
    for tail in (frame("internalServerException", {}, kind="exception"), frame("messageStart", b"[]")):
        error = failure(stream(*sent[:2], delta(0, text="a")) + tail)
        assert repr(error.response.usage) == "Usage(input=10, output=5)"
        assert error.response.provider == {"bedrock_converse": {"metrics": {"latencyMs": 7}}}
    failed = events_of([stream(sent[0]) + frame("validationException", {}, kind="exception")])
    assert [type(event) for event in failed] == [ProviderEvent, Failed]
    late = failure(stream(BEGIN, sent[2]) + frame("internalServerException", {}, kind="exception"))
    assert late.response.provider == {"bedrock_converse": {"x": 1}}


def test_damage_behind_the_finish_changes_nothing() -> None:
    for tail in (b"\x00" * 20, frame("metadata", b"[]"), stream(metadata())[:-1]):
        assert answer(stream(*PLAIN[:-1]) + tail).message.text == "Hello"


def test_nothing_at_all_is_torn() -> None:
    assert failure(b"").kind == "torn"
    assert failure(stream(BEGIN)).kind == "torn"


@own
def test_a_stream_that_breaks_off_gives_what_came(events: list[streams.Event]) -> None:
    whole = answer(stream(*events))
    for count in range(len([name for name, _ in events if name != "metadata"])):
        error = failure(stream(*events[:count]))
        assert error.kind == "torn"
        assert error.response.finish_reason == "error"
        assert len(error.response.message.content) <= len(whole.message.content)
    cut_short = failure(stream(*events[: [name for name, _ in events].index("messageStop")]))
    assert len(cut_short.response.message.content) == len(whole.message.content)


def test_a_frame_that_is_cut_is_a_stream_that_broke_off() -> None:
    data = stream(*PLAIN)
    for size in range(len(stream(*PLAIN[:-2]))):
        assert failure(data[:size]).kind == "torn"


def test_a_call_that_is_cut_is_malformed() -> None:
    error = failure(stream(BEGIN, *call(0, '{"q": "a')[:-1]))
    assert error.response.message.malformed_tool_calls[0].raw == '{"q": "a'


def test_a_result_an_image_and_citations_that_are_cut_are_kept() -> None:
    said = [
        *result(0, [{"text": "a"}])[:-1],
        *image(1, {"source": {"bytes": "iVBO"}})[:-1],
        delta(2, text="b"),
        delta(2, citation=CITATION),
    ]
    found, picture, cited = failure(stream(BEGIN, *said)).response.message.content
    assert isinstance(found, p.ServerToolResult)
    assert found.output["toolResult"]["content"] == [{"text": "a"}]
    assert picture == p.Image(p.Inline("iVBO"), "image/png")
    assert isinstance(cited, p.Text)
    assert (cited.text, len(cited.citations)) == ("b", 1)


@pytest.mark.parametrize(
    ("event", "path"),
    [
        (("contentBlockDelta", {"delta": {"text": "a"}}), "contentBlockDelta.contentBlockIndex: missing"),
        (delta("0", text="a"), "contentBlockIndex: expected an integer"),  # type: ignore[arg-type]
        (("contentBlockDelta", {"contentBlockIndex": 0}), "contentBlockDelta.delta: missing"),
        (("contentBlockDelta", {"contentBlockIndex": 0, "delta": []}), "delta: expected an object"),
        (delta(0, text=5), "contentBlockDelta.delta.text: expected a string"),
        (delta(0, text=None), "contentBlockDelta.delta.text: expected a string"),
        (delta(0, toolUse={}), "delta.toolUse.input: missing"),
        (delta(0, toolUse={"input": {}}), "delta.toolUse.input: expected a string"),
        (delta(0, reasoningContent={"signature": 1}), "delta.reasoningContent.signature: expected a string"),
        (delta(0, toolResult=[]), "delta.toolResult: a delta of a block that did not start"),
        (delta(0, image={}), "delta.image: a delta of a block that did not start"),
        (delta(0, citation="x"), "delta.citation: expected an object"),
        (start(0, toolUse={"name": "f"}), "contentBlockStart.toolUse.toolUseId: missing"),
        (start(0, toolUse=[]), "contentBlockStart.toolUse: expected an object"),
        (start(0, toolResult={}), "toolResult.toolUseId: missing"),
        (start(0, image={}), "image.format: missing"),
        (("contentBlockStart", {"contentBlockIndex": 0}), "contentBlockStart.start: missing"),
        (("contentBlockStop", {}), "contentBlockStop.contentBlockIndex: missing"),
        (("messageStart", b"[]"), "messageStart: expected an object"),
        (("metadata", b'{"a":"\xff"}'), "metadata: not UTF-8"),
    ],
    ids=str,
)
def test_a_known_event_that_is_wrong_is_named(event: streams.Event, path: str) -> None:
    error = failure(stream(event))
    assert error.kind == "corrupt"
    assert path in error.reason


def test_a_second_answer_within_the_first_is_corrupt() -> None:
    error = failure(stream(BEGIN, *text(0, "a"), *PLAIN))
    assert error.kind == "corrupt"
    assert error.response.message.text == "a"


# -- law 6: any bytes ------------------------------------------------------------------------------


def survives(chunks: Iterable[bytes]) -> None:
    decoder = WIRE.stream_decoder()
    for chunk in chunks:
        decoder.feed(chunk)
    try:
        found = decoder.finish()
    except StreamError as error:
        found = error.response
    assert isinstance(found, p.Response)
    if not found.message.malformed_tool_calls:
        WIRE.encode_response(found)


@pytest.mark.law(6)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_read(data: bytes, begun: bool) -> None:
    survives([stream(BEGIN) if begun else b"", data])


@pytest.mark.law(6)
@RECORDED
def test_a_recorded_stream_may_be_damaged(recording: Exchange) -> None:
    data = bytearray(recorded(recording))
    dice = random.Random(1)
    for _ in range(30):
        changed = bytearray(data)
        changed[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        survives([bytes(changed)])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "a", "YQ==", "\ud800", "@@x", "assistant", "png"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["text", "bytes", "source", "toolUseId", "x", "@@x", "\ud800"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
ODD_EVENTS = [*(event for events in OWN.values() for event in events), ("odd", {})]


@st.composite
def odd_events(draw: Any) -> bytes:
    """Events of ours in any order, with values replaced at any depth."""
    chosen = draw(st.lists(st.sampled_from(ODD_EVENTS), max_size=8))
    frames = []
    for name, data in chosen:
        body = json.loads(json.dumps(data))
        for _ in range(draw(st.integers(0, 2))):
            holder: Any = body
            while True:
                keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
                if not keys:
                    break
                key = draw(st.sampled_from(keys))
                if isinstance(holder[key], (dict, list)) and draw(st.booleans()):
                    holder = holder[key]
                    continue
                if isinstance(holder, dict) and draw(st.booleans()):
                    holder[draw(st.sampled_from(["new", "\ud800", "text", "p"]))] = holder.pop(key)
                else:
                    holder[key] = draw(JSON)
                break
        frames.append(event_stream.write(json.dumps(body).encode(), name))
    return b"".join(frames)


@pytest.mark.law(6)
@given(odd_events(), places())
def test_any_events_are_read(data: bytes, at: list[int]) -> None:
    assert events_of(cut(data, at)) == events_of([data])
    survives([data])


@pytest.mark.law(6)
def test_deep_nesting_is_read() -> None:
    deep = (
        b'{"contentBlockIndex":0,"start":{"toolResult":{"toolUseId":"a","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}}"
    )
    survives([stream(BEGIN) + frame("contentBlockStart", deep) + frame("odd", deep)])
