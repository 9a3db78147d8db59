"""The stream of Messages, read and written (docs/spec/wires.md#4.5, #4.7)."""

from __future__ import annotations

import json
import random
from typing import Any

import anthropic
import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET

import palaver as p
from palaver import wires
from palaver.core import events as e, jsontext
from palaver.core.errors import StreamError
from palaver.core.request import Response
from palaver.stream.replay_events import replay_events
from tests.corpus import Exchange
from tests.loopback import serve
from tests.wires import stream_laws as laws
from tests.wires.anthropic_messages import streams as s

NAME = "anthropic_messages"
WIRE = wires.get(NAME)


def answer(*chunks: bytes) -> Response:
    return laws.answer(NAME, *chunks)


def recorded(exchange: Exchange) -> bytes:
    return exchange.record["stream"].encode()


# -- law 3 -------------------------------------------------------------------------------------------------------------


@pytest.mark.law(3)
@pytest.mark.parametrize("behind", [b"", b"event: ping\ndata: {}\n\n", b"\xff{[", b"event: content_block_delta\n"])
def test_any_split_gives_the_same(behind: bytes):
    laws.check_chunks(NAME, s.RICH, behind)
    laws.check_order(laws.read(NAME, s.RICH)[0])


@pytest.mark.law(3)
@pytest.mark.recorded(NAME, has="stream")
def test_any_split_of_a_recorded_stream_gives_the_same(exchange: Exchange):
    data = recorded(exchange)
    laws.check_chunks(NAME, data, b"event: error\ndata: {}\n\n")
    laws.check_order(laws.read(NAME, data)[0])


# -- law 4: the official client's own accumulator is the oracle -------------------------------------------------------


def final(data: bytes) -> dict[str, Any]:
    """What the official client makes of a stream that it is served."""
    with serve(data) as server, anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0) as client:
        with client.beta.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        ) as stream:
            message = stream.get_final_message()
        return message.model_dump(mode="json", exclude_unset=True, warnings=False)


@pytest.mark.law(4)
@pytest.mark.recorded(NAME, has="stream")
def test_a_recorded_stream_is_what_the_official_client_makes_of_it(exchange: Exchange):
    data = recorded(exchange)
    same_as_clients(data, answer(data))


def same_as_clients(data: bytes, found: Response) -> None:
    theirs = WIRE.decode_response(final(data))
    assert bare(theirs) == bare(found)
    assert (theirs.finish_reason, theirs.message.finish_reason_raw) == (
        found.finish_reason,
        found.message.finish_reason_raw,
    )
    assert (theirs.id, theirs.model) == (found.id, found.model)
    assert repr(theirs.usage) == repr(found.usage)


def bare(response: Response) -> list[Any]:
    """Parts as both can know them: the client parses the input of calls, and fills absent fields with null."""
    out: list[Any] = []
    for part in response.message.content:
        fields = {key: value for key, value in part.provider.get(NAME, {}).items() if value not in (None, [])}
        if isinstance(part, p.ToolCall):
            out.append((part.id, part.name, part.arguments, part.provider_executed, fields))
        elif isinstance(part, (p.ServerToolResult, p.Opaque)):
            out.append(without_nulls(part.output if isinstance(part, p.ServerToolResult) else part.raw))
        elif isinstance(part, p.Text):
            cited = [
                without_nulls(jsontext.value(each.raw_json)) for each in part.citations if each.raw_json is not UNSET
            ]
            out.append((part.text, cited, fields))
        else:
            out.append((part.replace(provider_json=UNSET), fields))
    return out


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


@pytest.mark.law(4)
def test_our_stream_is_what_the_official_client_makes_of_it():
    same_as_clients(s.RICH, answer(s.RICH))


@pytest.mark.law(4)
def test_a_stream_is_the_answer_that_was_not_streamed():
    whole = {
        **s.MESSAGE,
        "content": [
            {"type": "thinking", "thinking": "Hmm.", "signature": "c2ln+/=="},
            {"type": "redacted_thinking", "data": "ZW5j"},
            {**s.SEARCH, "input": {"query": "rain"}},
            s.FOUND,
            {"type": "text", "text": "It rains.", "citations": [s.CITATION]},
            {"type": "text", "text": "So:\u2028 odd \U0001f600"},
            {**s.CALL, "input": {"q": "a", "n": 2.0}},
            {**s.CALL, "id": "toolu_2"},
        ],
        "stop_reason": "tool_use",
        "container": {"id": "c1", "expires_at": "2026"},
        "usage": {**s.MESSAGE["usage"], "output_tokens": 25, "input_tokens": 12},
    }
    found = answer(s.RICH)
    expected = WIRE.decode_response(whole)
    written = [
        part.replace(arguments_json=jsontext.encode(jsontext.value(part.arguments_json)).decode())
        if isinstance(part, p.ToolCall)
        else part
        for part in found.message.content
    ]
    assert tuple(written) == expected.message.content
    assert found == Response(
        expected.message.replace(content=found.message.content), origin=NAME, provider_json=expected.provider_json
    )
    assert found.message.tool_calls[1].arguments_json == '{"q": "a", "n": 2.0}'


@pytest.mark.law(4)
@pytest.mark.recorded(NAME, has="stream")
def test_a_recorded_stream_goes_back_and_loses_nothing(exchange: Exchange):
    events, found = laws.read(NAME, recorded(exchange))
    assert isinstance(found, Response)
    laws.check_whole(NAME, found)
    same_as_clients(laws.check_back(NAME, events, found), found)


def test_our_stream_goes_back_and_loses_nothing():
    events, found = laws.read(NAME, s.RICH)
    assert isinstance(found, Response)
    laws.check_whole(NAME, found)
    laws.check_back(NAME, events, found)


# -- events ------------------------------------------------------------------------------------------------------------


def test_events_are_emitted_in_their_order():
    data = s.START + s.PING + s.block(0, s.TEXT, s.text("a"), s.text(""), s.text("b")) + s.end(container={"id": "c"})
    events, _ = laws.read(NAME, data)
    assert [type(event).__name__ for event in events] == [
        "Start",
        "UsageUpdate",
        "ProviderEvent",
        "PartStart",
        "TextDelta",
        "TextDelta",
        "PartEnd",
        "UsageUpdate",
        "Update",
        "Finish",
    ]
    first, last = (event.usage for event in events if isinstance(event, e.UsageUpdate))
    assert (first.input, first.output, last.input, last.cache_read, last.output) == (10, 1, 10, 4, 25)
    assert last.raw == {**s.MESSAGE["usage"], "output_tokens": 25}


def test_what_nobody_knows_is_kept():
    odd = s.event("content_block_delta", index=0, delta={"type": "novel_delta", "x": 1})
    data = (
        s.START
        + s.event("novel", x=[1])
        + s.block(0, s.TEXT, s.text("a"))
        + odd
        + b'data: {"no": "type"}\n\n'
        + s.end()
    )
    events, _ = laws.read(NAME, data)
    kept = [(event.name, event.data) for event in events if isinstance(event, e.ProviderEvent)]
    assert kept == [
        ("novel", {"type": "novel", "x": [1]}),
        ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"type": "novel_delta", "x": 1}}),
        ("", {"no": "type"}),
    ]


@pytest.mark.parametrize("name", ["a\\nb", "\\ud800"])
def test_an_event_whose_name_no_line_can_hold_goes_back(name: str):
    odd = b'data: {"type":"%b"}\n\n' % name.encode()
    events, found = laws.read(NAME, s.START + odd + s.block(0, s.TEXT, s.text("a")) + s.end())
    assert isinstance(found, Response)
    laws.check_back(NAME, events, found)


def test_what_cannot_be_written_ends_in_an_error():
    call = p.ToolCall("t", "f", "\ud800")
    events = [e.Start(Response(p.AssistantMessage(), origin=NAME)), e.PartStart(0, call), e.TextDelta(1, "late")]
    error = laws.failure(NAME, laws.written(NAME, events)[0])
    assert error.kind == "provider"
    encoder = WIRE.stream_encoder()
    odd = Response(p.AssistantMessage(model="\ud800"), origin=NAME)
    told = b"".join(map(encoder.feed, [e.Start(odd), e.PartStart(0, call), e.Finish("stop")])) + encoder.finish()
    assert laws.failure(NAME, told).kind == "provider"


def test_unknown_fields_of_a_known_event_are_read_all_the_same():
    delta = s.event("content_block_delta", index=0, delta={**s.text("b"), "novel": 1}, novel=2)
    begun = s.event("content_block_start", index=0, content_block={**s.TEXT, "novel": 3})
    data = s.START + begun + delta + s.event("content_block_stop", index=0) + s.end(novel=4)
    found = answer(data)
    assert found.message.text == "b"
    assert found.message.content[0].provider == {NAME: {"novel": 3}}
    assert found.provider[NAME]["novel"] == 4


def test_both_paths_agree():
    """The quick path takes events of the common shape, the careful one the same events with one field more."""
    slow = b""
    for frame in s.RICH.split(b"\n\n"):
        name, _, data = frame.partition(b"\ndata: ")
        slow += name + b"\ndata: " + data.replace(b'"index"', b'"novel": 0, "index"') + b"\n\n" if data else b""
    quick, found = laws.read(NAME, s.RICH)
    careful, other = laws.read(NAME, slow)
    assert (careful, other) == (quick, found)


# -- odd streams (docs/spec/wires.md#4.5, #4.7; docs/spec/pains.md#8)
# -----------------------------------------------------------------------


def test_a_call_without_input_has_an_empty_object():
    data = s.START + s.block(0, s.CALL) + s.end("tool_use")
    assert answer(data).message.tool_calls[0].arguments_json == "{}"


def test_input_in_the_start_counts_when_no_delta_comes():
    begun = {**s.CALL, "input": {"q": 1}}
    assert answer(s.START + s.block(0, begun) + s.end()).message.tool_calls[0].arguments == {"q": 1}
    grown = s.block(0, begun, s.typed('{"r":2}'))
    assert answer(s.START + grown + s.end()).message.tool_calls[0].arguments == {"r": 2}


def test_blocks_may_interleave():
    def said(index: int, words: dict[str, Any]) -> bytes:
        return s.event("content_block_delta", index=index, delta=words)

    data = b"".join(
        [
            s.START,
            s.event("content_block_start", index=0, content_block=s.TEXT),
            s.event("content_block_start", index=1, content_block=s.CALL),
            said(0, s.text("a")),
            said(1, s.typed('{"q"')),
            said(0, s.text("b")),
            said(1, s.typed(":1}")),
            s.end("tool_use"),
        ]
    )
    found = answer(data).message
    assert (found.text, found.tool_calls[0].arguments) == ("ab", {"q": 1})


def test_a_delta_without_a_start_is_kept():
    data = s.START + s.event("content_block_delta", index=4, delta=s.thought("hm")) + s.end()
    assert answer(data).message.content == (p.Reasoning("hm", wire=NAME),)


def test_a_start_that_holds_content_already():
    message = {**s.MESSAGE, "content": [s.CALL, {"type": "text", "text": "a"}], "stop_reason": "tool_use"}
    data = s.event("message_start", message=message) + s.event("message_stop")
    found = answer(data)
    assert [type(part).__name__ for part in found.message.content] == ["ToolCall", "Text"]
    assert found.finish_reason == "tool_calls"


def test_a_compaction_is_gathered():
    block = {"type": "compaction", "content": None}
    first = {"type": "compaction_delta", "content": "sum", "encrypted_content": None}
    last = {"type": "compaction_delta", "content": "mary", "encrypted_content": "RW5j"}
    found = answer(s.START + s.block(0, block, first, last) + s.end("compaction"))
    assert [part.raw for part in found.message.content if isinstance(part, p.Opaque)] == [
        {"type": "compaction", "content": "summary", "encrypted_content": "RW5j"}
    ]
    assert found.finish_reason == "pause"


def test_a_compaction_in_many_pieces_is_joined_once(monkeypatch: pytest.MonkeyPatch):
    piece = {"type": "compaction_delta", "content": "é"}
    data = s.START + s.block(0, {"type": "compaction", "content": "a"}, *[piece] * 50) + s.end("compaction")
    written: list[int] = []
    raw = jsontext.raw
    monkeypatch.setattr(jsontext, "raw", lambda item: written.append(len(item)) or raw(item))
    (part,) = answer(data).message.content
    assert isinstance(part, p.Opaque)
    assert part.raw["content"] == "a" + 50 * "é"
    assert len([size for size in written if size > 20]) == 1


def test_a_turn_that_pauses_is_whole():
    assert answer(s.START + s.block(0, s.TEXT, s.text("a")) + s.end("pause_turn")).finish_reason == "pause"


def test_usage_that_says_null_replaces_nothing():
    data = s.START + s.end(usage={"input_tokens": None, "output_tokens": 7})
    usage = answer(data).usage
    assert usage is not None
    assert (usage.input, usage.output) == (10, 7)


def test_what_is_said_behind_the_stop_reason_still_counts_once():
    late = s.event("message_delta", delta={"container": {"id": "c"}}, usage={"output_tokens": 9})
    begun, _, stop = s.end("tool_use").rpartition(b"event: ")
    events, found = laws.read(NAME, s.START + begun + late * 3 + b"event: " + stop)
    assert isinstance(found, Response)
    assert (found.finish_reason, found.provider[NAME]["container"]) == ("tool_calls", {"id": "c"})
    assert found.usage is not None
    assert found.usage.output == 9
    assert [type(event).__name__ for event in events].count("UsageUpdate") == 3
    assert [type(event).__name__ for event in events].count("Finish") == 1


def test_a_second_start_says_nothing_or_is_a_splice():
    assert answer(s.START + s.START + s.block(0, s.TEXT, s.text("a")) + s.end()).message.text == "a"
    other = s.event("message_start", message={**s.MESSAGE, "id": "msg_2"})
    error = laws.failure(NAME, s.START + s.block(0, s.TEXT, s.text("a")) + other + s.end())
    assert (error.kind, error.response.message.text) == ("corrupt", "a")
    laws.check_chunks(
        NAME, s.START + s.block(0, s.TEXT, s.text("a")) + other + s.block(1, s.TEXT, s.text("b")) + s.end()
    )
    for before in (s.START, s.block(0, s.TEXT, s.text("a"))):
        laws.check_chunks(NAME, before + other + s.block(0, s.TEXT, s.text("b")) + s.end())


def test_an_error_inside_the_stream_keeps_what_came():
    said = s.event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    error = laws.failure(NAME, s.START + s.block(0, s.TEXT, s.text("so far")) + said + s.block(1, s.TEXT, s.text("x")))
    assert (error.kind, error.code, error.reason) == ("provider", "overloaded_error", "Overloaded")
    assert error.response.message.text == "so far"
    assert json.loads(error.body)["error"]["message"] == "Overloaded"


@pytest.mark.parametrize("cut", range(0, len(s.RICH), 61))
def test_a_torn_stream_keeps_what_came(cut: int):
    _, found = laws.read(NAME, s.RICH[:cut])
    if isinstance(found, Response):
        assert found == answer(s.RICH)
        return
    assert found.kind == "torn"
    assert found.wire == NAME
    assert found.response.finish_reason == "error"
    whole = answer(s.RICH).message
    assert whole.text.startswith(found.response.message.text)
    assert (whole.reasoning or "").startswith(found.response.message.reasoning or "")


def test_a_last_event_without_its_blank_line_counts():
    whole = s.START + s.block(0, s.TEXT, s.text("a")) + s.end().rpartition(b"event: ")[0]
    assert answer(whole.rstrip(b"\n")).finish_reason == "stop"
    assert laws.failure(NAME, whole[:-9]).kind == "torn"


def test_a_provider_event_before_the_start_waits_for_it():
    events, found = laws.read(NAME, s.PING + s.START + s.block(0, s.TEXT, s.text("a")) + s.end())
    assert isinstance(events[0], e.ProviderEvent)
    assert isinstance(found, Response)
    data, losses = laws.written(NAME, events)
    again, other = laws.read(NAME, data)
    assert (other, losses) == (found, ())
    assert [type(event).__name__ for event in again[:3]] == ["Start", "UsageUpdate", "ProviderEvent"]


def test_a_call_that_is_torn_is_malformed():
    data = s.START + s.event("content_block_start", index=0, content_block=s.CALL)
    data += s.event("content_block_delta", index=0, delta=s.typed('{"q": "ra'))
    (part,) = laws.failure(NAME, data).response.message.content
    assert isinstance(part, p.MalformedToolCall)
    assert (part.raw, part.name, part.id) == ('{"q": "ra', "look_up", "toolu_1")


def test_a_stream_that_ends_behind_its_stop_reason_is_whole():
    whole = s.START + s.block(0, s.TEXT, s.text("a")) + s.end().rpartition(b"event: ")[0]
    assert answer(whole).finish_reason == "stop"
    laws.failure(NAME, s.START + s.block(0, s.TEXT, s.text("a")))
    assert laws.failure(NAME, b"").response.message.content == ()


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (s.event("message_start"), "message_start: message: missing"),
        (s.START + s.event("content_block_start", index=0), "content_block: missing"),
        (s.START + s.event("content_block_start", content_block=s.TEXT), "content_block_start: index: missing"),
        (s.START + s.event("content_block_delta", index="x", delta=s.text("")), "index: expected an integer"),
        (
            s.START + s.event("content_block_delta", index=0, delta={"type": "text_delta", "text": 1}),
            "expected a string",
        ),
        (s.START + b"event: ping\ndata: {\n\n", "not JSON"),
    ],
)
def test_damage_names_the_place(data: bytes, where: str):
    error = laws.failure(NAME, data, s.end())
    assert error.kind == "corrupt"
    assert where in str(error) or where.replace(": ", ".", 1) in str(error)


# -- law 6 -------------------------------------------------------------------------------------------------------------


@pytest.mark.law(6)
@given(st.data())
def test_any_damage_gives_an_answer_or_one_error(data: st.DataObject):
    dice = random.Random(data.draw(st.integers()))
    stream = bytearray(s.RICH)
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(stream))
        match dice.randrange(4):
            case 0:
                stream[at] = dice.randrange(256)
            case 1:
                del stream[at : at + dice.randint(1, 40)]
            case 2:
                stream[at:at] = stream[dice.randrange(len(stream)) :][: dice.randint(1, 200)]
            case _:
                stream[at:at] = dice.choice([b"null", b"{}", b"[]", b'"', b"-1", b'"type":"text"', b"\n\n", b"1e999"])
    laws.read(NAME, bytes(stream))


@pytest.mark.law(6)
@given(
    st.lists(
        st.binary(max_size=40) | st.sampled_from([b"data: ", b"\n\n", b'{"type":"content_block_start"', b"event:"])
    )
)
def test_any_bytes_give_an_answer_or_one_error(chunks: list[bytes]):
    laws.read(NAME, *chunks)


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.law(4)
@pytest.mark.recorded(has="answer", share=4)
def test_the_stream_says_what_the_whole_answer_says(exchange: Exchange):
    response = wires.get(exchange.wire).decode_response(exchange.record["response"])
    whole = WIRE.encode_response(response)
    data, losses = laws.written(NAME, replay_events(response))
    assert answer(data) == WIRE.decode_response(whole.body)
    assert losses == whole.losses


@pytest.mark.law(4)
@pytest.mark.recorded(has="stream")
def test_recorded_streams_of_every_wire_are_written(exchange: Exchange):
    events = laws.recorded(exchange)
    if not events:
        return  # it failed
    response = laws.assembled(events)
    data, losses = laws.written(NAME, events)
    whole = WIRE.encode_response(response)
    found, expected = answer(data), WIRE.decode_response(whole.body)
    assert found.message.text == expected.message.text
    assert [call.arguments for call in found.message.tool_calls] == [c.arguments for c in expected.message.tool_calls]
    assert (found.finish_reason, found.usage) == (expected.finish_reason, expected.usage)
    assert {loss.what for loss in losses} == {loss.what for loss in whole.losses}


FOREIGN = {
    "text": [p.Text("Hello\u2028 \U0001f600")],
    "reasoning and text": [p.Reasoning("hm", wire="openai_chat"), p.Text("Hi")],
    "two calls": [p.Text("So:"), p.ToolCall("c1", "f", '{"a": 1}'), p.ToolCall("c 2", "g.h", "")],
    "a refusal": [p.Refusal("No.")],
    "nothing": [],
    "blank text": [p.Text(" \n"), p.Text("")],
    "custom call": [p.ToolCall("c1", "sh", '"ls \\"x\\""', custom=True)],
    "arguments that are a list": [p.ToolCall("c1", "f", "[1]")],
    "malformed": [p.MalformedToolCall('{"a": 1', "cut", "f", "c1")],
    "the same id twice": [p.ToolCall("c1", "f", "{}"), p.ToolCall("c1", "f", "{}")],
}


@pytest.mark.law(4)
@pytest.mark.parametrize("case", FOREIGN)
def test_the_official_client_reads_what_we_write(case: str):
    response = Response(p.AssistantMessage(content=tuple(FOREIGN[case]), finish_reason="stop"), origin="openai_chat")
    data, losses = laws.written(NAME, replay_events(response, size=3))
    found = answer(data)
    same_as_clients(data, found)
    whole = WIRE.encode_response(response)
    assert found == WIRE.decode_response(whole.body)
    assert {(loss.what, loss.part) for loss in losses} == {(loss.what, loss.part) for loss in whole.losses}


def test_calls_that_interleave_go_out_one_after_another():
    data, _ = laws.written(
        NAME,
        [
            e.Start(Response(p.AssistantMessage())),
            e.PartStart(0, p.ToolCall("a", "f")),
            e.PartStart(1, p.ToolCall("b", "g")),
            e.ArgumentsDelta(0, '{"x"'),
            e.ArgumentsDelta(1, '{"y"'),
            e.ArgumentsDelta(0, ":1}"),
            e.ArgumentsDelta(1, ":2}"),
            e.Finish("tool_calls"),
        ],
    )
    starts = [line for line in data.decode().splitlines() if line.startswith("event: content_block")]
    assert (
        starts == ["event: content_block_start", *["event: content_block_delta"] * 2, "event: content_block_stop"] * 2
    )
    assert [call.arguments for call in answer(data).message.tool_calls] == [{"x": 1}, {"y": 2}]
    same_as_clients(data, answer(data))


def test_a_failure_is_the_clients_error():
    begun = [e.Start(Response(p.AssistantMessage())), e.PartStart(0, p.Text("")), e.TextDelta(0, "so far")]
    data, _ = laws.written(NAME, [*begun, e.Failed("provider", "too much", "overloaded_error")])
    with pytest.raises(anthropic.APIStatusError, match="too much"):
        final(data)
    torn, _ = laws.written(NAME, begun)
    with pytest.raises(anthropic.APIStatusError, match="before the answer was finished"):
        final(torn)
    assert isinstance(laws.read(NAME, torn)[1], StreamError)
