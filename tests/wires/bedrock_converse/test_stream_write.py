"""Writing a ConverseStream (docs/spec/wires.md#6.3): own and foreign answers, the official client, failures, the
receipt."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

import pytest
from botocore.exceptions import EventStreamError
from hypothesis import given, strategies as st
from msgspec import Raw, structs

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
from palaver.core.request import Loss
from palaver.stream.replay_events import replay_events
from tests.corpus import Exchange
from tests.wires.bedrock_converse import client, streams
from tests.wires.bedrock_converse.bodies import ANSWER, assistant
from tests.wires.bedrock_converse.streams import (
    BEGIN,
    OWN,
    PLAIN,
    call,
    delta,
    metadata,
    over,
    start,
    stop,
    stream,
    text,
)
from tests.wires.bedrock_converse.test_stream import RECORDED, alike, answer, events_of, own, recorded

WIRE = wires.get("bedrock_converse")


def written(events: Iterable[Event]) -> tuple[bytes, tuple[Loss, ...]]:
    encoder = WIRE.stream_encoder()
    data = b"".join([encoder.feed(event) for event in events]) + encoder.finish()
    assert encoder.finish() == b""
    return data, encoder.losses


def told(response: p.Response, *, size: int = 24) -> bytes:
    return written(replay_events(response, size=size))[0]


# -- own streams -----------------------------------------------------------------------------------


def goes_back(data: bytes) -> bytes:
    events = events_of([data])
    again, losses = written(events)
    assert losses == ()
    assert answer(again) == answer(data)
    assert [each for each in events_of([again]) if isinstance(each, ProviderEvent)] == [
        each for each in events if isinstance(each, ProviderEvent)
    ]
    return again


@pytest.mark.law(4)
@RECORDED
def test_a_recorded_stream_goes_back_as_it_came(recording: Exchange) -> None:
    data = recorded(recording)
    assert streams.split(goes_back(data)) == streams.split(data)


@pytest.mark.law(4)
@own
def test_a_stream_goes_back_as_it_came(events: list[streams.Event]) -> None:
    goes_back(stream(*events))


@pytest.mark.law(4)
def test_events_of_the_service_go_out_again() -> None:
    said = [("ping", {"a": 1}), delta(0, reasoningContent={"new": 1}), ("ping", {"a": 2})]
    data = stream(BEGIN, *said, *PLAIN[1:])
    assert streams.split(goes_back(data))[0:4] == [BEGIN, *said]


def test_a_block_of_an_unknown_kind_gets_a_number_that_is_free() -> None:
    unknown = [start(0, newBlock={"x": 1}), delta(0, newBlock={"y": 2}), stop(0)]
    again = goes_back_but_numbers(BEGIN, *unknown, *text(1, "a"), *text(1, "b"), over())
    assert again == [BEGIN, *unknown, *text(1, "a"), *text(2, "b"), over()]
    twice = goes_back_but_numbers(BEGIN, *unknown, *unknown, over())
    assert [data["contentBlockIndex"] for _, data in twice[1:-1]] == [0, 0, 0, 1, 1, 1]


def goes_back_but_numbers(*events: streams.Event) -> list[streams.Event]:
    data, losses = written(events_of([stream(*events)]))
    assert losses == ()
    return streams.split(data)


def test_an_event_that_others_say_is_not_said_twice() -> None:
    data = stream(BEGIN, delta(0, text="a", new=1), stop(0), over(), metadata())
    again, losses = written(events_of([data]))
    assert answer(again) == answer(data)
    assert [(loss.kind, loss.what) for loss in losses] == [("dropped", "contentBlockDelta")]


@pytest.mark.recorded("bedrock_converse")
def test_a_recorded_answer_can_be_streamed(exchange: Exchange) -> None:
    record = exchange.record
    if record["status"] != 200 or "response" not in record:
        return
    response = WIRE.decode_response(record["response"])
    data, losses = written(replay_events(response))
    assert losses == ()
    assert alike(answer(data)) == alike(response)


# -- foreign answers -------------------------------------------------------------------------------


def as_whole(response: p.Response) -> p.Response:
    return WIRE.decode_response(WIRE.encode_response(response).body)


@pytest.mark.law(4)
@pytest.mark.recorded(share=4)
def test_every_recorded_answer_is_streamed_as_it_is_written_whole(exchange: Exchange) -> None:
    """No exception was needed: what the corpus holds, both forms hold."""
    record = exchange.record
    if record["status"] != 200 or "response" not in record:
        return
    try:
        response = wires.get(exchange.wire).decode_response(record["response"])
    except p.PalaverError:
        return
    data, losses = written(replay_events(response))
    assert alike(answer(data)) == alike(as_whole(response))
    expected = WIRE.encode_response(response).losses
    assert [(loss.kind, loss.what) for loss in losses] == [(loss.kind, loss.what) for loss in expected]


@pytest.mark.law(4)
@pytest.mark.recorded("openai_chat", "openai_responses", "anthropic_messages", "google_generate", "cohere_chat")
def test_every_recorded_stream_is_streamed_as_it_is_written_whole(exchange: Exchange) -> None:
    record = exchange.record
    if record["status"] != 200 or "stream" not in record or find_spec(f"palaver.wires.{exchange.wire}.stream") is None:
        return
    decoder = wires.get(exchange.wire).stream_decoder()
    events = decoder.feed(record["stream"].encode()) + decoder.close()
    try:
        response = decoder.finish()
    except StreamError:
        return
    data, losses = written(events)
    assert alike(answer(data)) == alike(as_whole(response))
    expected = WIRE.encode_response(response).losses
    assert {(loss.kind, loss.what) for loss in losses} == {(loss.kind, loss.what) for loss in expected}


FOREIGN: dict[str, p.Response] = {
    "text": p.Response(p.assistant("Hello there."), origin="openai_chat"),
    "nothing": p.Response(p.AssistantMessage(), origin="openai_chat"),
    "odd text": p.Response(p.assistant("\u2028\u0000é\U0001f600 "), origin="openai_chat"),
    "reasoning and text": p.Response(
        p.AssistantMessage(content=(p.Reasoning("Hm.", "c2ln", wire="anthropic_messages"), p.Text("Yes."))),
        origin="anthropic_messages",
    ),
    "two calls": p.Response(
        p.AssistantMessage(
            content=(p.Text("I look."), p.ToolCall("call:1", "f", '{"a": [1, 2.0]}'), p.ToolCall("call:1", "g h", "")),
            finish_reason="tool_calls",
        ),
        origin="openai_chat",
    ),
    "a refusal": p.Response(
        p.AssistantMessage(content=(p.Refusal("I will not."),), finish_reason="refusal"), origin="openai_chat"
    ),
    "a free-text call": p.Response(
        p.AssistantMessage(content=(p.ToolCall("c", "f", '"a\\nb"', custom=True),), finish_reason="tool_calls"),
        origin="openai_responses",
    ),
    "arguments that are not an object": p.Response(
        p.AssistantMessage(content=(p.ToolCall("c", "f", "[1, 2]"),), finish_reason="tool_calls"), origin="openai_chat"
    ),
    "a malformed call": p.Response(
        p.AssistantMessage(content=(MalformedToolCall('{"a', "no JSON", "f", "c"),), finish_reason="tool_calls"),
        origin="openai_chat",
    ),
    "blank texts": p.Response(
        p.AssistantMessage(content=(p.Text(""), p.Text(" \n"), p.Text(" a")), finish_reason="length"),
        origin="openai_chat",
    ),
    "alternatives": p.Response(p.assistant("a"), (p.assistant("b"),), origin="openai_chat"),
    "what no other wire takes": p.Response(
        p.AssistantMessage(
            content=(
                p.Image(p.Inline("iVBORw0KGgoAAAA="), "image/png"),
                p.Opaque("anthropic_messages", Raw(b'{"type":"x"}')),
                p.ServerToolResult("s", Raw(b"{}"), "anthropic_messages"),
                p.Text("a", (p.Citation(wire="anthropic_messages", url="https://a.example"),)),
            ),
            usage=p.Usage(input=3, cache_read=1, output=2, reasoning=4, raw_json=Raw(b'{"prompt_tokens":4}')),
            model="m",
            response_id="r",
        ),
        origin="anthropic_messages",
    ),
    "an edited answer of its own": WIRE.decode_response({**ANSWER, "metrics": {"latencyMs": 3}}).replace(),
}

foreign = pytest.mark.parametrize("response", FOREIGN.values(), ids=FOREIGN)


@pytest.mark.law(4)
@foreign
@pytest.mark.parametrize("size", [1, 24])
def test_a_foreign_answer_is_streamed_as_it_is_written_whole(response: p.Response, size: int) -> None:
    data, losses = written(replay_events(response, size=size))
    assert alike(answer(data)) == alike(as_whole(response))
    whole = WIRE.encode_response(response).losses
    assert {loss.what.rstrip("s") for loss in losses} == {loss.what.rstrip("s") for loss in whole}
    assert len(losses) == len(whole)


@pytest.mark.law(4)
@foreign
def test_the_official_client_reads_a_foreign_answer(response: p.Response) -> None:
    client_reads(told(response))


@pytest.mark.law(4)
@RECORDED
def test_the_official_client_reads_a_recorded_stream_that_was_written_again(recording: Exchange) -> None:
    client_reads(written(events_of([recorded(recording)]))[0])


@pytest.mark.law(4)
@pytest.mark.parametrize("name", sorted(OWN.keys() - {"usage that says nothing"}))
def test_the_official_client_reads_a_stream_that_was_written_again(name: str) -> None:
    client_reads(written(events_of([stream(*OWN[name])]))[0])


def client_reads(data: bytes) -> None:
    ours = answer(data)
    theirs = WIRE.decode_response(json.dumps(client.assembled(data)))
    assert [plain(part) for part in theirs.message.content] == [plain(part) for part in ours.message.content]
    assert (theirs.finish_reason, theirs.message.finish_reason_raw) == (
        ours.finish_reason,
        ours.message.finish_reason_raw,
    )
    assert repr(theirs.usage) == repr(ours.usage)


def plain(part: Any) -> Any:
    if isinstance(part, p.ToolCall):
        part = part.replace(arguments_json=jsontext.normal(part.arguments_json.encode()).decode())
    return part.replace(provider={})


def test_a_stream_has_all_that_the_clients_schema_requires() -> None:
    *_, stopped, (name, measured) = client.events(told(FOREIGN["text"]))
    assert stopped == ("messageStop", {"stopReason": "end_turn"})
    assert (name, measured["metrics"]) == ("metadata", {"latencyMs": 0})
    assert measured["usage"] == {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}


# -- when events go out ----------------------------------------------------------------------------


def test_what_is_known_goes_out_at_once() -> None:
    encoder = WIRE.stream_encoder()
    assert streams.split(encoder.feed(Start(p.Response(p.AssistantMessage())))) == [BEGIN]
    assert encoder.feed(PartStart(0, p.Text(""))) == b""
    assert streams.split(encoder.feed(TextDelta(0, "a"))) == [delta(0, text="a")]
    assert streams.split(encoder.feed(PartEnd(0))) == [stop(0)]
    begun = streams.split(encoder.feed(PartStart(1, p.ToolCall("t1", "f"))))
    assert begun == [start(1, toolUse={"toolUseId": "t1", "name": "f"})]
    assert streams.split(encoder.feed(ArgumentsDelta(1, '{"a"'))) == [delta(1, toolUse={"input": '{"a"'})]
    encoder.feed(ArgumentsDelta(1, ":1}"))
    encoder.feed(PartEnd(1))
    assert encoder.feed(Finish("tool_calls")) == b""
    assert [name for name, _ in streams.split(encoder.finish())] == ["messageStop", "metadata"]


def test_a_part_that_waits_for_its_turn_loses_nothing() -> None:
    data, losses = written(
        [
            Start(p.Response(p.AssistantMessage())),
            PartStart(0, p.ToolCall("a", "f")),
            PartStart(1, p.ToolCall("b", "g")),
            ArgumentsDelta(1, '{"x":'),
            ArgumentsDelta(0, "{}"),
            ArgumentsDelta(1, "1}"),
            PartEnd(1),
            PartEnd(0),
            UsageUpdate(p.Usage(input=1, output=1)),
            Finish("tool_calls"),
        ]
    )
    assert losses == ()
    assert [(each.id, each.arguments_json) for each in answer(data).message.tool_calls] == [
        ("a", "{}"),
        ("b", '{"x":1}'),
    ]


def test_interleaving_blocks_are_written_one_after_the_other() -> None:
    """The one thing that a stream of its own loses: which pieces of text made one block."""
    content = answer(written(events_of([stream(*streams.INTERLEAVED)]))[0]).message.content
    assert content == (p.Text("a"), p.ToolCall("t1", "f", '{"x":1}'), p.Text("b"))


def test_a_call_without_arguments_can_be_parsed_by_who_reads_it() -> None:
    response = p.Response(p.AssistantMessage(content=(p.ToolCall("a", "f"),), finish_reason="tool_calls"))
    assert delta(0, toolUse={"input": "{}"}) in streams.split(told(response))


def test_a_delta_too_long_for_a_frame_goes_out_in_several() -> None:
    long = "\u20ac" * 8_000_000
    start = Start(p.Response(p.AssistantMessage(usage=p.Usage(input=1, output=1))))
    data, losses = written([start, PartStart(0, p.Text("")), TextDelta(0, long), Finish("stop")])
    assert losses == ()
    assert answer(data).message.text == long


def test_fields_that_became_known_late_are_said() -> None:
    late = p.Response(p.AssistantMessage(), provider_json=Raw(b'{"bedrock_converse":{"trace":{"a":1}}}'))
    head = structs.replace(late, origin="bedrock_converse")
    begun = Start(p.Response(p.AssistantMessage(), origin="bedrock_converse"))
    data, _ = written([begun, PartStart(0, p.Text("")), TextDelta(0, "a"), Update(head), Finish("stop", "end_turn")])
    assert answer(data).provider == {"bedrock_converse": {"trace": {"a": 1}}}


# -- what cannot be carried ------------------------------------------------------------------------


def losses_of(*content: Any) -> list[tuple[str, str]]:
    body = {**ANSWER, "output": {"message": assistant(*content)}}
    response = WIRE.decode_response(json.dumps(body))
    data, losses = written(replay_events(response))
    answer(data)
    return [(loss.kind, loss.what) for loss in losses]


@pytest.mark.parametrize(
    ("block", "what"),
    [
        ({"document": {"format": "pdf", "name": "a", "source": {"bytes": "JVBERi0="}}}, "document"),
        ({"video": {"format": "mp4", "source": {"bytes": "AAAA"}}}, "video"),
        ({"cachePoint": {"type": "default"}}, "cachePoint"),
        ({"newBlock": {"x": 1}}, "newBlock"),
        ({}, "opaque block"),
        ({"text": "a", "new": 1}, "new"),
        ({"reasoningContent": {"reasoningText": {"text": "a", "new": 1}}}, "reasoningText"),
        ({"citationsContent": {"content": [{"text": "a"}, {"text": "b"}], "citations": []}}, "content"),
    ],
    ids=str,
)
def test_what_only_a_whole_answer_can_hold_is_on_the_receipt(block: dict[str, Any], what: str) -> None:
    assert ("dropped", what) in losses_of({"text": "x"}, block)


def test_a_citation_of_ours_without_a_block_is_on_the_receipt() -> None:
    begun = Start(p.Response(p.AssistantMessage(), origin="bedrock_converse"))
    cited = CitationDelta(0, p.Citation(wire="bedrock_converse", url="https://a.example"))
    _, losses = written([begun, PartStart(0, p.Text("")), TextDelta(0, "a"), cited, Finish("stop")])
    assert [(loss.kind, loss.what) for loss in losses] == [("dropped", "citations")]


def test_what_is_too_long_for_a_frame_is_on_the_receipt() -> None:
    huge = p.Opaque("bedrock_converse", jsontext.raw({"image": {"format": "x", "source": {"bytes": "A" * 26_000_000}}}))
    begun = Start(p.Response(p.AssistantMessage(), origin="bedrock_converse"))
    data, losses = written([begun, PartStart(0, huge), PartEnd(0), Finish("stop", "end_turn")])
    assert [(loss.kind, loss.what) for loss in losses] == [("dropped", "contentBlockDelta")]
    assert WIRE.stream_decoder().feed(data)


def test_an_empty_signature_is_kept() -> None:
    begun = Start(p.Response(p.AssistantMessage(), origin="bedrock_converse"))
    part = PartStart(0, p.Reasoning("a", wire="bedrock_converse"))
    data, _ = written([begun, part, SignatureDelta(0, ""), Finish("stop", "end_turn")])
    assert answer(data).message.content == (p.Reasoning("a", "", wire="bedrock_converse"),)


def test_a_part_that_began_with_all_it_has_is_said() -> None:
    begun = Start(p.Response(p.AssistantMessage(), origin="bedrock_converse"))
    parts = (
        p.Text("a"),
        p.Reasoning("b", "c2ln", wire="bedrock_converse"),
        p.Reasoning(encrypted="cmVk", wire="bedrock_converse"),
        p.Reasoning(wire="bedrock_converse"),
    )
    starts = [PartStart(index, part) for index, part in enumerate(parts)]
    data, _ = written([begun, *starts, Finish("stop", "end_turn")])
    assert answer(data).message.content == parts


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failed", "name"),
    [
        (Failed("provider", "Too much.", "throttlingException"), "throttlingException"),
        (Failed("provider", "Overloaded.", "overloaded_error", Raw(b'{"type":"error"}')), "modelStreamErrorException"),
        (Failed("torn", "it ended"), "internalServerException"),
        (Failed("corrupt", " "), "internalServerException"),
    ],
    ids=str,
)
def test_a_failure_is_an_exception_that_the_client_raises(failed: Failed, name: str) -> None:
    begun = [Start(p.Response(p.AssistantMessage())), PartStart(0, p.Text("")), TextDelta(0, "a")]
    data, _ = written([*begun, failed, TextDelta(0, "b"), Finish("stop")])
    with pytest.raises(EventStreamError, match=name):
        client.events(data)
    decoder = WIRE.stream_decoder()
    decoder.feed(data)
    with pytest.raises(StreamError) as caught:
        decoder.finish()
    error = caught.value
    assert (error.kind, error.code, error.response.message.text) == ("provider", name, "a")
    assert error.reason == (failed.reason.strip() or name)


def test_an_exception_of_its_own_goes_back_as_it_came() -> None:
    body = {"message": "x", "originalStatusCode": 429}
    sent = streams.frame("modelStreamErrorException", body, kind="exception")
    data, losses = written(events_of([stream(BEGIN, delta(0, text="a")) + sent]))
    assert losses == ()
    assert data.endswith(sent)


def test_an_error_code_of_another_wire_is_on_the_receipt() -> None:
    _, losses = written([Failed("provider", "x", "overloaded_error")])
    assert [(loss.kind, loss.what) for loss in losses] == [("approximated", "error code")]


@own
def test_a_stream_that_was_not_finished_never_ends_as_if_whole(events: list[streams.Event]) -> None:
    told_so_far = events_of([stream(*events)])
    finish = next(index for index, event in enumerate(told_so_far) if isinstance(event, Finish))
    for count in range(finish + 1):
        data, _ = written(told_so_far[:count])
        decoder = WIRE.stream_decoder()
        decoder.feed(data)
        with pytest.raises(StreamError) as caught:
            decoder.finish()
        assert caught.value.code == "internalServerException"


def test_a_second_answer_within_the_first_fails() -> None:
    first = Start(p.Response(p.AssistantMessage(response_id="a")))
    data, _ = written([first, Start(p.Response(p.AssistantMessage(response_id="b")))])
    with pytest.raises(EventStreamError):
        client.events(data)


def test_arguments_that_are_no_json_are_let_through() -> None:
    data = stream(BEGIN, *call(0, '{"a":', " oops"), over("tool_use"), metadata())
    goes_back(data)


# -- any events ------------------------------------------------------------------------------------

HEADS = [
    p.Response(p.AssistantMessage(), origin="bedrock_converse"),
    p.Response(p.AssistantMessage(), origin="openai_chat"),
    p.Response(p.AssistantMessage(response_id="other")),
]
PARTS: list[Any] = [
    *FOREIGN["what no other wire takes"].message.content,
    p.Text(""),
    p.Refusal(""),
    p.Reasoning(wire="bedrock_converse"),
    p.Reasoning(wire="openai_chat"),
    p.ToolCall("", ""),
    p.ToolCall("a", "f", custom=True),
    p.ToolCall("a", "f", provider_executed=True),
    MalformedToolCall("x", "odd"),
    p.ServerToolResult("s", Raw(b'{"toolResult":{"toolUseId":"s"}}'), "bedrock_converse"),
    p.Opaque("bedrock_converse", Raw(b"1")),
    p.Opaque("bedrock_converse", Raw(b'{"image":null}')),
]
ODD: list[Any] = [
    p.ServerToolResult("s", Raw(b"[]"), "bedrock_converse"),
    p.ServerToolResult("s", Raw(b'{"toolResult":{}}'), "bedrock_converse"),
    p.Opaque("bedrock_converse", Raw(b'{"image":{"format":"x"}}')),
]
"""Blocks that the service would not have sent."""
NATIVE = [
    ("ping", b"{}"),
    ("\ud800", b"{}"),
    ("contentBlockStart", b'{"contentBlockIndex":0,"start":{"new":{}}}'),
    ("contentBlockStart", b'{"start":1}'),
    ("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"reasoningContent":1}}'),
    ("contentBlockDelta", b'{"contentBlockIndex":"x"}'),
    ("contentBlockStop", b'{"contentBlockIndex":0}'),
    ("contentBlockStop", b"[]"),
    ("messageStop", b"null"),
]


def any_events() -> st.SearchStrategy[Any]:
    index, words = st.integers(0, 2), st.sampled_from(["", " ", "a", '{"', "}", "\ud800", "YQ=="])
    cited = st.sampled_from(
        [p.Citation(wire="bedrock_converse"), p.Citation(wire="bedrock_converse", raw_json=Raw(b"{}"))]
    )
    grown = (TextDelta, ReasoningDelta, ArgumentsDelta, SignatureDelta, DataDelta)
    return st.lists(
        st.one_of(
            st.builds(Start, st.sampled_from(HEADS)),
            st.builds(Update, st.sampled_from(HEADS)),
            st.builds(PartStart, index, st.sampled_from(PARTS + ODD), st.integers(0, 1)),
            *(st.builds(kind, index, words) for kind in grown),
            st.builds(CitationDelta, index, cited),
            st.builds(PartEnd, index, st.none() | st.sampled_from(PARTS + ODD)),
            st.builds(UsageUpdate, st.just(p.Usage(input=1))),
            st.builds(Finish, st.sampled_from(["stop", "tool_calls", "refusal"])),
            st.builds(lambda each: ProviderEvent("bedrock_converse", each[0], Raw(each[1])), st.sampled_from(NATIVE)),
            st.builds(Failed, st.sampled_from(["torn", "provider"]), words, st.none() | words),
        ),
        max_size=12,
    )


@pytest.mark.law(6)
@given(any_events())
def test_any_events_are_written(events: list[Event]) -> None:
    decoder = WIRE.stream_decoder()
    decoder.feed(written(events)[0])
    kind = None
    try:
        decoder.finish()
    except StreamError as error:
        kind = error.kind
    odd = any(isinstance(each, ProviderEvent) or getattr(each, "part", None) in ODD for each in events)
    assert odd or kind in {None, "provider"}
