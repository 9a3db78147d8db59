"""The stream of Responses, read: laws 3, 4 and 6, and every odd stream that docs/spec/wires.md#3.8 and
docs/spec/pains.md name."""

from __future__ import annotations

import copy
import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET, structs

import palaver as p
from palaver import wires
from palaver.core import jsontext
from palaver.core.errors import StreamError
from palaver.core.events import (
    ArgumentsDelta,
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
    UsageUpdate,
)
from palaver.stream.sse import SSEReader
from tests.corpus import Exchange
from tests.wires.openai_responses.fixtures import HOSTED, OUTPUT, PAIRS, RESPONSE, USAGE, answer
from tests.wires.openai_responses.forms import normal
from tests.wires.openai_responses.streams import begun, decoded, event, item, stream, well_formed, written

WIRE = wires.get("openai_responses")
MESSAGE, CALL, CUSTOM = OUTPUT[1], OUTPUT[2], OUTPUT[3]
CALLS = [each for each in PAIRS if each["type"].endswith("_call")]
THOUGHT: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_2",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then, second."}],
    "encrypted_content": "gAAA",
}
TOLD: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_3",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "So it"}, {"type": "reasoning_text", "text": "goes."}],
}
SAID: dict[str, Any] = {
    "type": "message",
    "id": "msg_9",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Good morning, 世界 👋.", "annotations": [], "logprobs": []}],
}
EVERYTHING = [THOUGHT, *OUTPUT, TOLD, *HOSTED, *CALLS, SAID]


def _recorded(exchange: Exchange) -> bytes:
    return exchange.record["stream"].encode()


def _last(data: bytes) -> bytes:
    """The `response` of the last event, as it was written."""
    return bytes(jsontext.fields(SSEReader().feed(data)[-1].data)["response"])


def _in(chunks: list[bytes]) -> tuple[list[Event], p.Response]:
    decoder = WIRE.stream_decoder()
    events = [each for chunk in chunks for each in decoder.feed(chunk)]
    events += decoder.close()
    return events, decoder.finish()


def _cut(data: bytes, rng: random.Random) -> list[bytes]:
    places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(1, 40)))
    return [data[start:end] for start, end in pairwise([0, *places, len(data)])]


def _torn(events: list[dict[str, Any]]) -> tuple[list[Event], StreamError]:
    found, decoder = decoded(events)
    with pytest.raises(StreamError) as caught:
        decoder.finish()
    assert caught.value.response.finish_reason == "error"
    return found, caught.value


def _kinds(events: list[Event], *classes: type) -> list[Any]:
    return [each for each in events if isinstance(each, classes)]


# -- laws 3 and 4 ----------------------------------------------------------------------------------


@pytest.mark.law(3)
@pytest.mark.recorded("openai_responses", has="stream")
def test_recorded_streams_in_any_chunks(exchange: Exchange) -> None:
    data = _recorded(exchange)
    whole = _in([data])
    well_formed(whole[0])
    assert _in([data[at : at + 1] for at in range(len(data))]) == whole
    rng = random.Random(exchange.file.stem)
    for _ in range(5):
        assert _in(_cut(data, rng)) == whole
    assert _in([data + b"data: [DONE]\n\ndata: {broken\n\n"]) == whole
    assert _in([data, b"\xff\xff\n\n", data]) == whole


@pytest.mark.law(4)
@pytest.mark.recorded("openai_responses", has="stream")
def test_a_recorded_stream_is_the_answer_that_its_last_event_holds(exchange: Exchange) -> None:
    data = _recorded(exchange)
    _, got = _in([data])
    assert got == WIRE.decode_response(_last(data))
    encoded = WIRE.encode_response(got)
    assert encoded.losses == ()
    assert normal(json.loads(encoded.body)) == normal(json.loads(_last(data)))
    assert WIRE.decode_response(encoded.body) == got


@pytest.mark.law(4)
@pytest.mark.recorded("openai_responses", has="stream")
def test_the_message_before_the_last_event_is_the_same(exchange: Exchange) -> None:
    """docs/spec/wires.md#3.8: apart from encrypted content, which is another one in each event."""
    data = _recorded(exchange)
    _, whole = _in([data])
    decoder = WIRE.stream_decoder()
    decoder.feed(data[: data.rindex(b"event: ")])
    before = decoder.response.message.content
    assert [_bare(each) for each in before] == [_bare(each) for each in whole.message.content]
    with pytest.raises(StreamError):
        decoder.finish()


def _bare(part: Any) -> Any:
    match part:
        case p.Reasoning():
            assert part.encrypted
            return structs.replace(part, encrypted=None)
        case p.Opaque() if "encrypted_content" in part.raw:
            return {**part.raw, "encrypted_content": None}
        case _:
            return part


@pytest.mark.law(4)
@pytest.mark.parametrize("whole", EVERYTHING, ids=lambda each: f"{each['type']}-{each.get('id')}")
def test_every_item_streams_to_what_it_is(whole: dict[str, Any]) -> None:
    want = WIRE.decode_response(json.dumps(answer(whole)))
    events, decoder = decoded(stream(whole))
    assert decoder.finish() == want
    well_formed(events)
    torn, error = _torn(stream(whole)[:-1])
    assert error.kind == "torn"
    assert error.response.message.content == want.message.content
    assert error.response.id == want.id
    assert _kinds(torn, PartStart) == _kinds(events, PartStart)


@pytest.mark.law(3)
@pytest.mark.law(4)
@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
def test_all_items_in_one_stream(named: bool) -> None:
    data = written(stream(*EVERYTHING), named=named)
    events, got = _in([data])
    well_formed(events)
    assert got == WIRE.decode_response(json.dumps(answer(*EVERYTHING)))
    assert WIRE.encode_response(got).losses == ()
    assert _in([data[at : at + 1] for at in range(len(data))]) == (events, got)
    assert _in([data.replace(b"\n", b"\r\n")]) == (events, got)


@pytest.mark.law(4)
def test_what_reasoning_led_to_knows_it_before_the_end() -> None:
    """docs/spec/wires.md#3.3.2: also in a stream that broke off."""
    _, error = _torn(stream(THOUGHT, SAID, TOLD, CALL)[:-1])
    assert (
        error.response.message.content
        == WIRE.decode_response(json.dumps(answer(THOUGHT, SAID, TOLD, CALL))).message.content
    )


@pytest.mark.law(4)
def test_items_that_arrive_interleaved() -> None:
    """docs/spec/pains.md#8: what belongs together is told by the index, whatever the order."""
    whole = [CALL, {**CALL, "id": "fc_2", "call_id": "call_9", "arguments": '{"x": [1, 2]}'}, SAID, CUSTOM]
    told = [list(item(index, each)) for index, each in enumerate(whole)]
    rng = random.Random(3)
    for _ in range(10):
        queues, mixed = copy.deepcopy(told), [queue[0] for queue in told]
        for queue in queues:
            queue.pop(0)
        while any(queues):
            mixed.append(rng.choice([queue for queue in queues if queue]).pop(0))
        events, decoder = decoded([*begun(), *mixed, event("response.completed", response=answer(*whole))])
        well_formed(events)
        assert decoder.finish() == WIRE.decode_response(json.dumps(answer(*whole)))
        _, error = _torn([*begun(), *mixed])
        assert error.response.message.content == decoder.finish().message.content


# -- events ----------------------------------------------------------------------------------------


def test_the_events_of_a_text() -> None:
    events, _ = decoded(stream(SAID, usage=USAGE))
    start, progress, began, *deltas, end, update, usage, finish = events
    assert isinstance(start, Start)
    assert start.response.id == "resp_1"
    assert start.response.message.finish_reason is None
    assert isinstance(progress, ProviderEvent)
    assert progress.name == "response.in_progress"
    assert isinstance(began, PartStart)
    assert (began.index, began.place) == (0, (0, 0, 0))
    assert "".join(each.text for each in deltas if isinstance(each, TextDelta)) == "Good morning, 世界 👋."
    assert all(isinstance(each, TextDelta) for each in deltas)
    assert isinstance(end, PartEnd)
    assert end.part is not None
    assert isinstance(update, Update)
    assert update.response.provider["openai_responses"]["object"] == "response"
    assert usage == UsageUpdate(
        p.Usage(input=30, cache_read=60, cache_write=10, output=30, reasoning=20, raw_json=jsontext.raw(USAGE))
    )
    assert finish == Finish("stop", "completed")


def test_an_update_is_said_when_there_is_news_only() -> None:
    head = {**RESPONSE, "output": []}
    events, _ = decoded([event("response.created", response=head), event("response.completed", response=head)])
    assert _kinds(events, Update) == []


def test_arguments_can_be_looked_at_while_they_arrive() -> None:
    decoder = WIRE.stream_decoder()
    seen = []
    for each in stream(CALL)[:-1]:
        decoder.feed(written([each]))
        seen += [copy.deepcopy(call.arguments_so_far) for call in decoder.calls]
    assert [call.name for call in decoder.calls] == ["look"]
    assert {"b": 1} in seen
    assert seen[-1] == {"b": 1, "a": 2.0}


def test_summaries_are_joined_as_in_the_answer() -> None:
    events, decoder = decoded(stream(THOUGHT))
    assert "".join(each.text for each in _kinds(events, ReasoningDelta)) == "First.\n\nThen, second."
    assert decoder.finish().message.content[0].text == "First.\n\nThen, second."


def test_a_summary_beside_content() -> None:
    """The content is the text (as in `decode`); the summary, which came first, was told before."""
    both = {**TOLD, "summary": THOUGHT["summary"]}
    events, decoder = decoded(stream(both))
    assert decoder.finish() == WIRE.decode_response(json.dumps(answer(both)))
    assert "".join(each.text for each in _kinds(events, ReasoningDelta)) == "First.\n\nThen, second."
    names = [each.name for each in _kinds(events, ProviderEvent)]
    assert names.count("response.reasoning_text.delta") == 4


def test_free_text_of_a_custom_call_is_one_json_string() -> None:
    text = 'say "hi"\n\\ é 👋'
    events, decoder = decoded(stream({**CUSTOM, "input": text}))
    joined = "".join(each.text for each in _kinds(events, ArgumentsDelta))
    assert json.loads(joined) == text
    assert joined == decoder.finish().message.tool_calls[0].arguments_json


def test_progress_and_unknown_events_are_kept() -> None:
    told = stream(SAID, HOSTED[2])
    odd = [
        event("response.telepathy.sensed", depth=1.50),
        event("keepalive"),
        {"no": "type"},
        event("response.output_item.added", output_index=7, item=None),
        event("response.audio.delta", delta="AAAA"),
        event("response.shell_call_command.delta", output_index=0, command_index=0, delta="l"),
    ]
    told[3:3] = odd
    events, decoder = decoded(told)
    well_formed(events)
    found = {each.name: each.data for each in _kinds(events, ProviderEvent)}
    assert found["response.telepathy.sensed"]["depth"] == 1.5
    assert found[""]["no"] == "type"
    names = {"response.in_progress", "response.telepathy.sensed", "keepalive", "", "response.audio.delta"}
    assert found.keys() == names | {"response.shell_call_command.delta", "response.output_item.added"}
    assert decoder.finish() == WIRE.decode_response(json.dumps(answer(SAID, HOSTED[2])))


def test_unknown_fields_of_known_events_are_kept() -> None:
    told = stream(SAID)
    for each in told:
        each["x_unheard_of"] = [1.0]
    events, decoder = decoded(told)
    well_formed(events)
    assert decoder.finish() == WIRE.decode_response(json.dumps(answer(SAID)))
    names = [each.name for each in _kinds(events, ProviderEvent)]
    assert names == [each["type"] for each in told]


@pytest.mark.parametrize("whole", [SAID, CALL, THOUGHT, TOLD, CUSTOM, *HOSTED[4:5]], ids=lambda each: each["type"])
def test_fast_and_slow_paths_agree(whole: dict[str, Any]) -> None:
    told = stream(whole)
    events, _ = decoded(told)
    for spoiled in ({"item_id": None}, {"obfuscation": None}, {"sequence_number": None}):
        slow = [{**each, **spoiled} if each["type"].endswith(".delta") else each for each in told]
        data = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in slow)
        again = [each for each in decoded(data)[0] if not isinstance(each, ProviderEvent)]
        assert again == [each for each in events if not isinstance(each, ProviderEvent)]


# -- odd streams -----------------------------------------------------------------------------------


def test_gateways_send_null_for_empty_texts() -> None:
    place = {"output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": None, "annotations": []}
    told = [
        *begun(),
        event("response.output_item.added", output_index=0, item={**SAID, "content": None}),
        event("response.content_part.added", **place, part=part),
        event("response.output_text.delta", **place, delta=None),
        event("response.output_text.delta", **place, delta="Hi"),
        event("response.output_text.done", **place, text=None),
        event("response.content_part.done", **place, part=part),
        event("response.output_item.added", output_index=1, item={**CALL, "arguments": None}),
        event("response.function_call_arguments.delta", output_index=1, delta=None),
        event("response.function_call_arguments.done", output_index=1, arguments=None),
        event("response.output_item.added", output_index=2, item={**CUSTOM, "input": None}),
        event("response.custom_tool_call_input.delta", output_index=2, delta=None),
        event("response.output_item.added", output_index=3, item={"type": "reasoning", "id": "rs_9", "summary": None}),
        event("response.reasoning_summary_text.delta", output_index=3, summary_index=0, delta=None),
    ]
    events, error = _torn(told)
    text, call, custom, reasoning = error.response.message.content
    assert text == decoded(stream(SAID))[1].finish().message.content[0].replace(text="Hi", provider=text.provider)
    assert isinstance(call, p.ToolCall)
    assert call.arguments_json == ""
    assert isinstance(custom, p.ToolCall)
    assert isinstance(reasoning, p.Reasoning)
    assert all(each.text for each in _kinds(events, TextDelta, ArgumentsDelta, ReasoningDelta))


@pytest.mark.parametrize("whole", [SAID, CALL, CUSTOM, THOUGHT, TOLD, MESSAGE, *HOSTED[4:5]], ids=lambda e: e["type"])
@pytest.mark.parametrize("left", [".delta", ".done", "part.added", "item.added", "item.done", "response."])
def test_events_are_emitted_once(whole: dict[str, Any], left: str) -> None:
    """Deltas may be left out, or ends, or beginnings, or all but the terminal event."""
    told = [each for each in stream(whole)[:-1] if left not in each["type"]]
    end = event("response.completed", response=answer(whole))
    events, decoder = decoded([*told, end])
    well_formed(events)
    want = WIRE.decode_response(json.dumps(answer(whole)))
    assert decoder.finish() == want
    if left not in ("item.done", "response.", ".done"):
        assert _torn(told)[1].response.message.content == want.message.content


def test_arguments_in_one_piece() -> None:
    """The event that says all of them may be the only one."""
    told = [
        each for each in stream(CALL, CUSTOM)[:-1] if each["type"][-6:] != ".delta" and "item.done" not in each["type"]
    ]
    _, error = _torn(told)
    first, second = error.response.message.tool_calls
    assert first.arguments_json == CALL["arguments"]
    assert json.loads(second.arguments_json) == CUSTOM["input"]


@pytest.mark.parametrize("output", [[], None, "absent"])
def test_emitted_parts_stay_when_the_last_event_leaves_them_out(output: Any) -> None:
    told = stream(SAID, CALL)
    if output == "absent":
        del told[-1]["response"]["output"]
    else:
        told[-1]["response"]["output"] = output
    events, decoder = decoded(told)
    well_formed(events)
    got = decoder.finish()
    assert got.message.content == WIRE.decode_response(json.dumps(answer(SAID, CALL))).message.content
    assert (got.finish_reason, got.message.finish_reason_raw) == ("tool_calls", "completed")
    assert json.loads(WIRE.encode_response(got).body)["output"] == [SAID, CALL]


def test_a_last_event_that_says_little() -> None:
    events, decoder = decoded(
        [*stream(SAID)[:-1], event("response.completed", response={"id": "resp_1", "usage": USAGE})]
    )
    well_formed(events)
    got = decoder.finish()
    assert got.message.text == "Good morning, 世界 👋."
    assert got.usage.total == 150
    assert got.finish_reason == "stop"


def test_the_last_event_may_tell_more_and_otherwise() -> None:
    edited = {**SAID, "content": [{**SAID["content"][0], "text": "Otherwise."}]}
    told = [*stream(SAID)[:-1], event("response.completed", response=answer(edited, CALL, HOSTED[3]))]
    events, decoder = decoded(told)
    assert decoder.finish() == WIRE.decode_response(json.dumps(answer(edited, CALL, HOSTED[3])))
    assert len(_kinds(events, PartStart)) == 4


def test_a_call_that_turns_out_to_be_a_text_does_not_get_it_as_arguments() -> None:
    call = {**CALL, "arguments": ""}
    told = [*begun(), event("response.output_item.added", output_index=0, item=call)]
    events, decoder = decoded([*told, event("response.completed", response=answer(SAID))])
    assert decoder.finish().message.text == SAID["content"][0]["text"]
    assert _kinds(events, ArgumentsDelta) == []


def test_a_piece_of_code_that_is_no_utf_8_is_damage() -> None:
    item = {"type": "code_interpreter_call", "id": "ci_1", "code": None}
    piece = {"type": "response.code_interpreter_call_code.delta", "output_index": 0, "delta": "X"}
    told = [{"type": "response.output_item.added", "output_index": 0, "item": item}, piece]
    data = b"".join([b"event: %b\ndata: %b\n\n" % (x["type"].encode(), json.dumps(x).encode()) for x in told])
    decoder = WIRE.stream_decoder()
    decoder.feed(data.replace(b'"X"', b'"\x9c"'))
    with pytest.raises(StreamError, match="corrupt"):
        decoder.finish()


def test_numbers_of_items_may_have_gaps() -> None:
    told = [*begun(), *item(2, SAID), *item(5, CALL), event("response.completed", response=answer(SAID, CALL))]
    assert decoded(told)[1].finish() == WIRE.decode_response(json.dumps(answer(SAID, CALL)))


def test_every_item_under_one_number() -> None:
    """docs/spec/pains.md#8: calls that all come at index 0 are separate calls."""
    other = {**CALL, "id": "fc_2", "call_id": "call_9", "arguments": '{"x": [1, 2]}'}
    ran = HOSTED[4]
    whole = [CALL, other, MESSAGE, ran, {**ran, "id": "ci_9"}, SAID]
    told = [*begun(), *(each for one in whole for each in item(0, one))]
    _, error = _torn(told)
    want = WIRE.decode_response(json.dumps(answer(*whole)))
    assert error.response.message.content == want.message.content
    done_only = [each for each in told if each["type"] in ("response.created", "response.output_item.done")]
    assert _torn(done_only)[1].response.message.content == want.message.content
    assert decoded([*told, event("response.completed", response=answer(*whole))])[1].finish() == want


def test_ids_of_items_may_change() -> None:
    """Some gateways give an item another id in each event."""
    told = stream(SAID, CALL)
    for number, each in enumerate(told):
        if "item_id" in each:
            each["item_id"] = f"id_{number}"
    assert decoded(told)[1].finish() == WIRE.decode_response(json.dumps(answer(SAID, CALL)))


def test_an_item_announced_twice_begins_once() -> None:
    told = stream(CALL)
    told.insert(4, told[2])
    events, decoder = decoded(told)
    well_formed(events)
    assert decoder.finish() == WIRE.decode_response(json.dumps(answer(CALL)))


def test_a_native_call_that_begins_incomplete() -> None:
    """docs/spec/wires.md#3.8: the id of a client's tool search is right when it is done."""
    search = next(each for each in CALLS if each["type"] == "tool_search_call")
    for begun_as in ({**search, "call_id": None}, {**search, "call_id": "other"}):
        told = stream(search)
        told[2]["item"] = begun_as
        assert decoded(told)[1].finish() == WIRE.decode_response(json.dumps(answer(search)))


def test_items_that_the_first_event_holds() -> None:
    """A background response that is looked at again begins with what it has."""
    told = [event("response.created", response={**RESPONSE, "output": [SAID], "status": "in_progress"}), *item(1, CALL)]
    assert len(_torn(told)[1].response.message.content) == 2
    told.append(event("response.completed", response=answer(SAID, CALL)))
    assert decoded(told)[1].finish() == WIRE.decode_response(json.dumps(answer(SAID, CALL)))


def test_two_halves_of_a_surrogate_pair() -> None:
    place = b'"output_index":0,"content_index":0'
    half = b'data: {"type":"response.output_text.delta",%b,"delta":"%b"}\n\n'
    decoder = WIRE.stream_decoder()
    decoder.feed(written([*begun(), *list(item(0, SAID))[:2]]))
    decoder.feed(half % (place, b"\\ud83d") + half % (place, b"\\udc4b"))
    assert decoder.response.message.text == "👋"


def test_probabilities_of_a_torn_text_are_kept() -> None:
    chance = {"token": "Good", "logprob": -0.5, "bytes": [1], "top_logprobs": []}
    told = stream(SAID)[:-1]
    for each in told:
        if each["type"] == "response.output_text.delta":
            each["logprobs"] = [chance]
    cut = next(at for at, each in enumerate(told) if each["type"] == "response.output_text.done")
    _, error = _torn(told[:cut])
    text = error.response.message.content[0]
    assert text.provider["openai_responses"]["logprobs"] == [chance] * len(
        [each for each in told if each["type"] == "response.output_text.delta"]
    )
    assert _torn(told)[1].response.message.content[0].provider["openai_responses"]["logprobs"] == []


# -- how a stream ends -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "fields", "reason", "raw"),
    [
        ([SAID], {}, "stop", "completed"),
        ([SAID, CALL], {}, "tool_calls", "completed"),
        ([MESSAGE], {}, "refusal", "completed"),
        (
            [SAID],
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "length",
            "incomplete",
        ),
        (
            [SAID],
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "content_filter",
            "incomplete",
        ),
        ([SAID], {"status": "incomplete", "incomplete_details": {"reason": "steered"}}, "other", "incomplete"),
        ([SAID], {"status": "cancelled"}, "error", "cancelled"),
        ([HOSTED[0]], {}, "stop", "completed"),
    ],
)
def test_finish_reason(items: list[Any], fields: dict[str, Any], reason: str, raw: str) -> None:
    events, decoder = decoded(stream(*items, **fields))
    assert events[-1] == Finish(reason, raw)  # type: ignore[arg-type] (a word of the table)
    assert decoder.finish() == WIRE.decode_response(json.dumps(answer(*items, **fields)))


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_a_background_response_is_paused(status: str) -> None:
    """docs/spec/wires.md#1.1: it goes on elsewhere."""
    told = [*begun(background=True, status=status), *item(0, SAID)]
    events, decoder = decoded(told)
    well_formed(events)
    got = decoder.finish()
    assert (got.finish_reason, got.message.finish_reason_raw) == ("pause", status)
    assert got.message.text == "Good morning, 世界 👋."
    assert json.loads(WIRE.encode_response(got).body)["output"] == [SAID]


def test_a_stream_that_breaks_off() -> None:
    events, error = _torn(stream(THOUGHT, SAID)[:-1])
    assert error.kind == "torn"
    assert isinstance(events[-1], Failed)
    assert [type(part) for part in error.response.message.content] == [p.Reasoning, p.Text]
    assert json.loads(WIRE.encode_response(error.response).body)["output"] == [THOUGHT, SAID]


@pytest.mark.parametrize("data", [b"", b": hello\n\n", b"data: [DONE]\n\n", b"data:\n\n", b"<html>nginx</html>"])
def test_nothing_at_all_is_torn(data: bytes) -> None:
    decoder = WIRE.stream_decoder()
    assert [type(each) for each in [*decoder.feed(data), *decoder.close()]] == [Failed]
    with pytest.raises(StreamError, match="broke off"):
        decoder.finish()


def test_a_call_torn_in_its_arguments_is_malformed() -> None:
    """docs/spec/pains.md#3: the exact text stays."""
    for whole, text in ((CALL, '{"b": 1,'), (CUSTOM, '"SELECT 1'), (HOSTED[4], '{"code":"1+1')):
        told = [each for each in stream(whole) if not each["type"].endswith(("done", "interpreting", "completed"))]
        told = told[: 3 + 2]
        _, error = _torn(told)
        (part,) = error.response.message.content
        assert isinstance(part, p.MalformedToolCall)
        assert part.raw == text


def test_reasoning_torn_before_its_proof_has_none() -> None:
    """docs/spec/wires.md#3.8: the encrypted content of an item that begins is never taken."""
    _, error = _torn([*begun(), *list(item(0, THOUGHT))[:-1]])
    (part,) = error.response.message.content
    assert isinstance(part, p.Reasoning)
    assert part.encrypted is None
    assert part.text == "First.\n\nThen, second."
    compaction = next(each for each in HOSTED if each["type"] == "compaction")
    (opaque,) = _torn([*begun(), next(item(0, compaction))])[1].response.message.content
    assert isinstance(opaque, p.Opaque)
    assert "encrypted_content" not in opaque.raw


def test_the_proof_is_that_of_the_last_event() -> None:
    told = stream({**THOUGHT, "encrypted_content": "second"}, SAID)
    told[-1]["response"]["output"][0] = {**THOUGHT, "encrypted_content": "third"}
    events, decoder = decoded(told)
    assert decoder.finish().message.content[0].encrypted == "third"
    ends = [each.part.encrypted for each in _kinds(events, PartEnd) if each.index == 0]
    assert ends == ["second", "third"]


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (
            event("error", code="rate_limit_exceeded", message="Slow down.", param=None),
            "Slow down.",
            "rate_limit_exceeded",
        ),
        (event("error", code=None, message="Odd.", param=None), "Odd.", None),
        (
            event("error", error={"type": "invalid_request_error", "code": None, "message": "No."}),
            "No.",
            "invalid_request_error",
        ),
        ({"error": {"message": "Gateway.", "code": 502}}, "Gateway.", "502"),
        ({"error": "Overloaded"}, "Overloaded", None),
    ],
)
def test_an_error_in_the_stream(error: dict[str, Any], message: str, code: str | None) -> None:
    told = [*stream(SAID, CALL)[:-1], error, *item(2, CALL)]
    events, found = _torn(told)
    assert (found.kind, found.reason, found.code) == ("provider", message, code)
    assert json.loads(found.body).items() >= error.items()
    assert isinstance(events[-1], Failed)
    assert len(found.response.message.content) == 2


def test_an_answer_that_failed() -> None:
    told = stream(SAID, status="failed", error={"code": "server_error", "message": "Sorry."}, usage=USAGE)
    events, found = _torn(told)
    assert (found.kind, found.reason, found.code) == ("provider", "Sorry.", "server_error")
    want = WIRE.decode_response(json.dumps(told[-1]["response"]))
    assert found.response == want.replace(
        origin=want.origin, message=structs.replace(want.message, finish_reason_raw=UNSET)
    )
    assert json.loads(found.body)["response"] == told[-1]["response"]
    assert _kinds(events, Finish) == []
    bare = [*begun(), event("response.failed", response=answer(status="failed"))]
    assert decoded(bare)[1].finish() == WIRE.decode_response(json.dumps(answer(status="failed")))


def test_a_second_answer_within_the_first_is_corrupt() -> None:
    told = [*begun(), *item(0, SAID), event("response.created", response={**answer(), "id": "resp_2"})]
    assert _torn(told)[1].kind == "corrupt"
    again = stream(SAID)
    again.insert(3, again[0])
    assert decoded(again)[1].finish() == WIRE.decode_response(json.dumps(answer(SAID)))


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        (event("response.output_text.delta", content_index=0, delta="x"), "response.output_text.delta.output_index"),
        (event("response.output_text.delta", output_index=0, content_index=0), "response.output_text.delta.delta"),
        (event("response.output_text.delta", output_index=0, delta=5), "response.output_text.delta.delta"),
        (event("response.refusal.done", output_index=0), "response.refusal.done.refusal"),
        (event("response.function_call_arguments.delta", output_index="0", delta=""), "arguments.delta.output_index"),
        (
            event("response.reasoning_summary_part.added", summary_index=0),
            "response.reasoning_summary_part.added.output",
        ),
        (event("response.output_item.added", output_index=0, item=5), "response.output_item.added.item"),
        (event("response.output_item.added", output_index=0, item={"type": "function_call"}), "added.item.call_id"),
        (event("response.output_item.done", output_index=0, item={"type": "reasoning"}), "done.item.summary"),
        (
            event("response.content_part.added", output_index=0, content_index=5, part={"type": "output_text"}),
            "part.text",
        ),
        (event("response.content_part.done", output_index=0), "response.content_part.done.part"),
        (event("response.completed"), "response.completed.response"),
        (event("response.completed", response=answer({"type": "message"})), "completed.response.output[0].role"),
    ],
)
def test_a_known_event_that_is_broken_is_named(broken: dict[str, Any], path: str) -> None:
    """docs/spec/pains.md#9: it is not passed off as unknown."""
    _, error = _torn([*begun(), *item(0, SAID), broken, *item(1, CALL)])
    assert error.kind == "corrupt"
    assert path in error.reason
    assert error.response.message.text == "Good morning, 世界 👋."


@pytest.mark.parametrize("data", [b"data: {\n\n", b"data: 5\n\n", b"data: \xff\n\n", b'data: {"type": 5}\n\n'])
def test_what_is_no_event_is_corrupt(data: bytes) -> None:
    decoder = WIRE.stream_decoder()
    decoder.feed(written(stream(SAID)[:-1]))
    decoder.feed(data)
    with pytest.raises(StreamError) as caught:
        decoder.finish()
    assert caught.value.kind == "corrupt"
    assert caught.value.response.message.text == "Good morning, 世界 👋."


def test_nothing_behind_the_end_is_read() -> None:
    decoder = WIRE.stream_decoder()
    decoder.feed(written(stream(SAID)))
    assert decoder.done
    assert decoder.feed(written([event("error", message="late", code=None)])) == []
    assert decoder.finish().finish_reason == "stop"


# -- law 6 -----------------------------------------------------------------------------------------


def _total(data: bytes) -> None:
    """Any bytes give an answer or one error, whole or in pieces."""
    outcomes: list[Any] = []
    for size in (len(data) + 1, 7):
        decoder = WIRE.stream_decoder()
        events = [each for at in range(0, len(data), size) for each in decoder.feed(data[at : at + size])]
        events += decoder.close()
        assert decoder.close() == []
        try:
            got = decoder.finish()
        except StreamError as error:
            outcomes.append((events, str(error), error.response))
        else:
            assert WIRE.encode_response(got).losses == ()
            outcomes.append((events, None, got))
    assert outcomes[0] == outcomes[1]


_KINDS = sorted({each["type"] for each in stream(*EVERYTHING)} | {"error", "response.failed", "response.queued", "odd"})
_SMALL = st.none() | st.sampled_from([0, 1, 2, -1, "", "x", "\ud800", [], {}, [1], True, 1.5])
_ITEMS = st.sampled_from([*EVERYTHING, {}, None, {"type": "message", "role": "assistant", "content": []}, {"type": 5}])
_EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(_KINDS)},
    optional={
        "output_index": st.integers(0, 2) | _SMALL,
        "content_index": st.integers(0, 2),
        "summary_index": st.integers(0, 2),
        "delta": st.text(max_size=3) | _SMALL,
        "text": st.text(max_size=5) | _SMALL,
        "arguments": st.sampled_from(['{"a": 1}', "", "{"]),
        "input": st.text(max_size=4),
        "code": st.text(max_size=4),
        "item": _ITEMS,
        "part": st.sampled_from([*MESSAGE["content"], {}, None, {"type": "reasoning_text", "text": "x"}]),
        "annotation": _SMALL,
        "response": st.builds(answer, _ITEMS) | st.just(answer()) | _SMALL,
        "message": _SMALL,
        "error": _SMALL,
        "odd": _SMALL,
    },
)


@pytest.mark.law(6)
@given(told=st.lists(_EVENTS, max_size=8), end=st.booleans())
def test_any_events_give_an_answer_or_one_error(told: list[dict[str, Any]], end: bool) -> None:
    _total(written([*begun(), *told, *([event("response.completed", response=answer(SAID))] if end else [])]))


@pytest.mark.law(6)
@given(
    data=st.binary(max_size=80),
    json_of=st.recursive(
        _SMALL, lambda each: st.lists(each) | st.dictionaries(st.text(max_size=4), each), max_leaves=6
    ),
)
def test_any_bytes_give_an_answer_or_one_error(data: bytes, json_of: Any) -> None:
    _total(data)
    _total(b"data: " + json.dumps(json_of).encode() + b"\n\n" + data)


@pytest.mark.law(6)
def test_damaged_streams_give_an_answer_or_one_error() -> None:
    rng = random.Random(6)
    data = written(stream(*EVERYTHING))
    for _ in range(60):
        start = rng.randrange(len(data))
        end = min(len(data), start + rng.choice([1, 3, 50, 2000]))
        _total(data[:start] + rng.choice([b"", b"\n\n", b"0", b"null", b"\x00", data[start:end] * 2]) + data[end:])


@pytest.mark.law(6)
@pytest.mark.recorded("openai_responses", has="stream")
def test_damaged_recordings_give_an_answer_or_one_error(exchange: Exchange) -> None:
    data = _recorded(exchange)
    rng = random.Random(exchange.file.stem)
    for _ in range(3):
        start = rng.randrange(len(data))
        end = min(len(data), start + rng.choice([1, 3, 50, 2000]))
        _total(data[:start] + rng.choice([b"", b"\n\n", b"0", b"null", b"\x00", data[start:end] * 2]) + data[end:])


@pytest.mark.law(6)
def test_long_and_deep_streams_take_linear_time() -> None:
    """No timing: quadratic work here would take minutes."""
    place = {"output_index": 0, "content_index": 0}
    many = [event("response.output_text.delta", **place, delta="x", odd=1) for _ in range(5_000)]
    ends = [event("response.output_text.done", **place, text="") for _ in range(5_000)]
    parts = [
        event("response.content_part.added", **{**place, "content_index": n}, part=SAID["content"][0])
        for n in range(5_000)
    ]
    alike = [event("response.output_item.added", output_index=0, item={**CALL, "id": f"fc_{n}"}) for n in range(5_000)]
    mixed = [each for pair in zip(many, ends, strict=True) for each in pair]
    for told in (many, mixed, parts, alike):
        decoder = WIRE.stream_decoder()
        decoder.feed(written([*begun(), *told]))
        decoder.close()
    deep = b'data: {"type":"response.completed","response":' + b"[" * 100_000 + b"\n\n"
    _total(deep)
