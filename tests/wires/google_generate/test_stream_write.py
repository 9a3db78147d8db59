"""The stream of Gemini is written: what every answer says, failures, and what the official client reads."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from google import genai
from google.genai import errors
from msgspec import UNSET, Raw

from palaver import assistant
from palaver.core.events import (
    ArgumentsDelta,
    CitationDelta,
    Event,
    Failed,
    Finish,
    PartEnd,
    PartStart,
    ProviderEvent,
    ReasoningDelta,
    Start,
    TextDelta,
    Update,
)
from palaver.core.messages import AssistantMessage
from palaver.core.parts import Citation, File, Inline, MalformedToolCall, Reasoning, Refusal, Text, ToolCall
from palaver.core.request import Loss, Response
from palaver.core.usage import Usage
from palaver.stream.replay_events import replay_events
from tests.loopback import serve
from tests.wires.google_generate.streams import (
    STREAMS,
    WIRE,
    append,
    body,
    decoded,
    dumped,
    error,
    event,
    follow_the_rules,
    joined,
    response,
    sse,
    text,
)
from tests.wires.stream_laws import assembled, recorded

named = pytest.mark.parametrize("bodies", STREAMS.values(), ids=STREAMS)


def written(events: Iterable[Event]) -> tuple[bytes, tuple[Loss, ...]]:
    encoder = WIRE.stream_encoder()
    out = b"".join(map(encoder.feed, events))
    out += encoder.finish()
    assert encoder.finish() == b""
    assert encoder.feed(TextDelta(0, "late")) == b""
    return out, encoder.losses


def bodies_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(block.removeprefix("data: ")) for block in data.decode().split("\r\n\r\n") if block]


# -- the same answer -------------------------------------------------------------------------------


@pytest.mark.law(4)
@pytest.mark.recorded("google_generate", has="stream")
def test_a_recorded_stream_goes_out_as_it_came_in(exchange):
    events, found = decoded(exchange.record["stream"].encode())
    data, losses = written(events)
    assert losses == ()
    assert response(data) == found


@pytest.mark.law(4)
@named
def test_a_stream_goes_out_as_it_came_in(bodies):
    events, found = decoded(event(bodies[0]) + event({"novel": 1}) + sse(bodies[1:]))
    novel = [each for each in events if isinstance(each, ProviderEvent)]
    data, losses = written(events)
    assert losses == ()
    again, other = decoded(data)
    follow_the_rules([each for each in again if not isinstance(each, ProviderEvent)])
    assert [each for each in again if isinstance(each, ProviderEvent)] == novel
    assert isinstance(found, Response)
    assert isinstance(other, Response)
    if bodies is STREAMS["candidates without index"]:  # told by their place, which an event with one cannot show
        assert [each.content for each in other.alternatives] == [each.content for each in found.alternatives]
    else:
        assert other == found


def as_streamed(body_: bytes) -> Response:
    """A whole answer as a stream can hold it: texts that adjoin are one, and an empty one is none."""
    whole = json.loads(body_)
    for candidate in whole.get("candidates", []):
        if "parts" in candidate.get("content", {}):
            parts: list[Any] = []
            for part in candidate["content"]["parts"]:
                append(parts, part)
            candidate["content"]["parts"] = parts
    return WIRE.decode_response(dumped(whole))


@pytest.mark.law(4)
@pytest.mark.recorded(has=("answer", "stream"), share=4)
def test_every_recorded_answer_can_be_streamed(exchange):
    events = recorded(exchange)
    if not events:
        return  # a stream that failed
    encoded = WIRE.encode_response(assembled(events))
    expected = as_streamed(encoded.body)
    data, losses = written(events)
    found = response(data)
    assert [plain(part) for part in found.message.content] == [plain(part) for part in expected.message.content]
    assert bare(found) == bare(expected)
    assert {(each.kind, each.what) for each in losses} == {(each.kind, each.what) for each in encoded.losses}


def plain(part: Any) -> Any:
    """A part, whose arguments may be written with other space, and in another order."""
    if not isinstance(part, ToolCall):
        return part
    return part.replace(arguments_json=json.dumps(part.arguments, sort_keys=True)) if part.arguments_json else part


def bare(found: Response) -> Response:
    return found.replace(message=found.message.replace(content=()))


# -- what is written -------------------------------------------------------------------------------

HEAD = Response(AssistantMessage(model="gemini-3-flash", response_id="r1"))


def test_every_event_is_a_whole_answer():
    events = [
        Start(HEAD),
        PartStart(0, Text("")),
        TextDelta(0, "a\u2028"),
        TextDelta(0, "b"),
        PartEnd(0),
        PartStart(1, ToolCall("c", "f", "")),
        ArgumentsDelta(1, '{"x":'),
        ArgumentsDelta(1, "1}"),
        PartEnd(1),
        Finish("tool_calls"),
    ]
    encoder = WIRE.stream_encoder()
    said = [encoder.feed(each) for each in events]
    assert [bool(each) for each in said] == [False, False, True, True, False, False, False, False, True, False]
    assert encoder.losses == ()
    around = {"modelVersion": "gemini-3-flash", "responseId": "r1"}

    def chunk(part: Any, **more: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0, **more}], **around}

    data = b"".join(said) + encoder.finish()
    assert data.count(b"\n") == data.count(b"\r\n") == 8
    assert bodies_of(data) == [
        chunk({"text": "a\u2028"}),
        chunk({"text": "b"}),
        chunk({"functionCall": {"name": "f", "id": "c", "args": {"x": 1}}}),
        chunk({"text": ""}, finishReason="STOP"),
    ]


def test_the_model_may_be_known_late():
    late = HEAD.replace(message=HEAD.message.replace(model="later"))
    data, _ = written(
        [Start(HEAD), Update(late), PartStart(0, Text("")), TextDelta(0, "a"), PartEnd(0), Finish("stop")]
    )
    assert {each["modelVersion"] for each in bodies_of(data)} == {"later"}


def test_parts_go_out_one_after_another():
    events = [
        Start(HEAD),
        PartStart(0, ToolCall("c", "f", "")),
        PartStart(1, ToolCall("d", "g", "")),
        ArgumentsDelta(1, '{"y":2}'),
        ArgumentsDelta(0, '{"x":1}'),
        PartEnd(0),
        PartEnd(1),
        Finish("tool_calls"),
    ]
    found = response(written(events)[0])
    assert [(each.id, each.arguments) for each in found.message.tool_calls] == [("c", {"x": 1}), ("d", {"y": 2})]


def test_a_thought_is_signed_where_its_signature_comes():
    own = HEAD.replace(origin="google_generate")
    thought = Reasoning("I think that this is so, and long enough.", "c2ln", wire="google_generate")
    message = HEAD.message.replace(content=(thought,), finish_reason="stop", finish_reason_raw="STOP")
    whole = Response(message, origin="google_generate")
    found = response(written(replay_events(whole))[0]).message.content
    assert [(part.text, part.signature) for part in found] == [(thought.text, None), ("", "c2ln")]
    events = [Start(own), PartStart(0, thought.replace(text="")), ReasoningDelta(0, "I "), ReasoningDelta(0, "think")]
    found = response(written([*events, PartEnd(0), Finish("stop", "STOP")])[0]).message.content
    assert found == (thought.replace(text="I think"),)


def test_a_marked_text_is_one_event():
    marked = Text(
        "A text that is longer than one piece.", provider_json=Raw(b'{"google_generate":{"thoughtSignature":"QQ=="}}')
    )
    message = HEAD.message.replace(content=(marked,), finish_reason="stop", finish_reason_raw="STOP")
    whole = Response(message, origin="google_generate")
    assert response(written(replay_events(whole))[0]) == whole


def test_interleaving_marked_texts_are_written_one_after_the_other():
    marked = Text("", provider_json=Raw(b'{"google_generate":{"thoughtSignature":"QQ=="}}'))
    events: list[Event] = [Start(Response(HEAD.message, origin="google_generate")), PartStart(0, marked)]
    events += [TextDelta(0, "a"), PartStart(1, marked), TextDelta(1, "x"), TextDelta(0, "b"), PartEnd(0), PartEnd(1)]
    found = response(written([*events, Finish("stop", "STOP")])[0])
    assert found.message.content == tuple([marked.replace(text=each) for each in ("a", "x", "b")])


def test_what_is_not_carried_is_on_the_receipt():
    cited = Citation(url="https://a.example", wire="anthropic_messages")
    events = [
        Start(HEAD.replace(provider_json=Raw(b'{"openai_chat":{"system_fingerprint":"x"}}'))),
        PartStart(0, Reasoning("", wire="anthropic_messages")),
        ReasoningDelta(0, "hm"),
        PartEnd(0),
        PartStart(1, Text("")),
        TextDelta(1, "a"),
        CitationDelta(1, cited),
        PartEnd(1),
        PartStart(2, Refusal("")),
        TextDelta(2, "no"),
        PartEnd(2),
        PartStart(3, MalformedToolCall("{x", "no JSON", "f", "c")),
        PartEnd(3),
        Finish("refusal"),
    ]
    data, losses = written(events)
    assert {each.what for each in losses} >= {
        "system_fingerprint",
        "reasoning",
        "citations",
        "refusal",
        "finish_reason",
    }
    found = response(data)
    assert found.message.text == "ano"
    assert found.message.tool_calls[0].name == "f"
    own = written(
        [Start(HEAD), PartStart(0, Text("a")), CitationDelta(0, Citation(wire="google_generate")), Finish("stop")]
    )
    assert [each.what for each in own[1]] == ["citations"]


def test_odd_text_is_carried():
    odd = '\u2028\u2029\u0085 \r\n\t"\\ 👋 \ud83d . \x00\x7f'
    found = assistant(odd).replace(finish_reason="stop")
    data, losses = written(replay_events(Response(found)))
    assert response(data).message.text == odd.replace("\ud83d", "\ufffd")
    assert [each.why for each in losses] == ["lone surrogates; U+FFFD in their place"]


# -- failure ---------------------------------------------------------------------------------------


def test_a_failure_is_an_error_of_the_provider():
    begun: list[Event] = [Start(HEAD), PartStart(0, Text("")), TextDelta(0, "a")]
    cases = [
        (begun, "INTERNAL", 500),
        ([*begun, Failed("provider", "busy", "UNAVAILABLE")], "UNAVAILABLE", 500),
        ([*begun, Failed("provider", "busy", "429")], "INTERNAL", 429),
        ([*begun, Failed("provider", "busy", "overloaded_error", Raw(b'{"type":"error"}'))], "INTERNAL", 500),
        ([Failed("torn", "it broke off")], "INTERNAL", 500),
    ]
    for events, status, code in cases:
        data, _ = written(events)
        assert bodies_of(data)[-1]["error"] | {"message": ""} == {"code": code, "message": "", "status": status}
        found = error(data)
        assert (found.kind, found.code) == ("provider", status)
        assert b"finishReason" not in data


def test_an_own_error_goes_out_as_it_came_in():
    raw = {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE", "details": [{"x": 1}]}}
    for body_ in (raw, [raw]):
        events, _ = decoded(event(body(text("a"))) + event(body_))
        assert bodies_of(written(events)[0])[-1] == raw


def test_no_event_makes_it_raise():
    dice = random.Random(7)
    everything = [each for bodies in STREAMS.values() for each in decoded(sse(bodies))[0]]
    everything += [
        Failed("torn", "x"),
        Finish("length"),
        PartEnd(9),
        Refusal and PartStart(3, Refusal("")),
        TextDelta(8, "z"),
    ]
    for _ in range(300):
        data, _losses = written(dice.choices(everything, k=dice.randint(0, 12)))
        decoded(data)


# -- the official client ---------------------------------------------------------------------------


def client_reads(data: bytes) -> dict[str, Any]:
    """What the official client makes of a stream, joined by hand."""
    with serve(data) as server, genai.Client(api_key="dummy", http_options={"base_url": server.url}) as client:
        chunks = list(client.models.generate_content_stream(model="gemini-3-flash", contents="hi"))
    dumped_chunks = [chunk.model_dump(mode="json", by_alias=True, exclude_none=True) for chunk in chunks]
    for chunk in dumped_chunks:
        chunk.pop("sdkHttpResponse", None)
        for candidate in chunk.get("candidates", []):
            for part in candidate.get("content", {}).get("parts", []):
                if "thoughtSignature" in part:  # bytes to the client, which writes them in its own alphabet
                    part["thoughtSignature"] = part["thoughtSignature"].replace("-", "+").replace("_", "/")
    return joined(dumped_chunks)


def check_client(data: bytes, found: Response) -> None:
    read = WIRE.decode_response(dumped(client_reads(data)))
    assert [plain(part) for part in read.message.content] == [plain(part) for part in found.message.content]
    assert (read.message.finish_reason, read.message.model) == (found.message.finish_reason, found.message.model)
    assert read.message.response_id == found.message.response_id
    assert counters(read.message.usage) == counters(found.message.usage)


def counters(usage: Usage | None) -> Any:
    return usage and (usage.input, usage.output, usage.cache_read, usage.reasoning)


@pytest.mark.law(4)
@pytest.mark.recorded("google_generate", has="stream")
def test_the_official_client_reads_a_recorded_stream_as_we_do(exchange):
    data = exchange.record["stream"].encode()
    events, found = decoded(data)
    assert isinstance(found, Response)
    check_client(data, found)
    check_client(written(events)[0], found)


OFFICIAL = [
    "text",
    "text, then its signature",
    "thoughts",
    "calls",
    "nothing in it",
    "late fields",
    "code that Google ran",
]


@pytest.mark.law(4)
@pytest.mark.parametrize("name", OFFICIAL)
def test_the_official_client_reads_our_own_streams(name):
    events, found = decoded(sse(STREAMS[name]))
    assert isinstance(found, Response)
    check_client(written(events)[0], found)


USAGE = Usage(input=5, cache_read=2, output=7, reasoning=3)
CALLS = (ToolCall("c1", "f", '{"x": [1.5, "ü"]}'), ToolCall("c2", "g", "{}"))
FOREIGN: dict[str, AssistantMessage] = {
    "text": assistant("A text that comes in several pieces."),
    "reasoning and text": assistant(Reasoning("hm", "sig", wire="anthropic_messages"), "So it is."),
    "two calls": assistant("I call.", *CALLS),
    "a refusal": assistant(Refusal("I will not.")),
    "nothing": assistant(),
    "odd text": assistant('\u2028 \u0085 "\\ 👋\r\n'),
    "a file": assistant("Here.", File(Inline("aGk="), "application/pdf")),
}


@pytest.mark.law(4)
@pytest.mark.parametrize("name", FOREIGN)
def test_the_official_client_reads_foreign_answers(name):
    reason: Any = "tool_calls" if name == "two calls" else "stop"
    message = FOREIGN[name].replace(model="m", response_id="r", usage=USAGE, finish_reason=reason)
    found = Response(message)
    data, losses = written(replay_events(found))
    expected = WIRE.decode_response(WIRE.encode_response(found).body)
    check_client(data, expected)
    assert losses == WIRE.encode_response(found).losses
    assert message.finish_reason_raw is UNSET


@pytest.mark.parametrize("failed", [Failed("provider", "busy", "UNAVAILABLE"), Failed("torn", "it broke off")])
def test_the_official_client_raises_our_failures(failed):
    data, _ = written([Start(HEAD), PartStart(0, Text("")), TextDelta(0, "a"), failed])
    with pytest.raises(errors.APIError, match=failed.reason):
        client_reads(data)


def test_content_that_was_null_before_there_was_any():
    """A candidate without content may get some, and one may end without any."""
    for first, last in [(None, {"role": "m", "parts": [{"text": "a"}]}), ({"parts": [{"text": "a"}]}, None)]:
        said = [{"candidates": [{"content": first}]}, {"candidates": [{"content": last, "finishReason": "STOP"}]}]
        events, answer = decoded(sse(said))
        data, losses = written(events)
        assert not losses
        assert answer.message.text == "a"
        assert decoded(data)[1].message.text == "a"


def test_a_call_whose_last_word_is_cut_is_written_as_one_that_is_no_json():
    call = ToolCall("c", "f")
    events = [Start(Response(assistant("").replace(content=()), origin="google_generate")), PartStart(0, call)]
    events += [ArgumentsDelta(0, '{"y":""'), PartEnd(0, call.replace(arguments_json='{"y":""')), Finish("stop", "STOP")]
    data, losses = written(events)
    assert losses
    assert isinstance(decoded(data)[1], Response)
