"""The stream of Responses, written: it says what the answer sent whole would say, and the official client reads it."""

from __future__ import annotations

import base64
import json
import random
from itertools import pairwise
from typing import Any, get_args

import openai
import pytest
from hypothesis import given, strategies as st
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

import palaver as p
from palaver import wires
from palaver.core.errors import StreamError
from palaver.core.events import (
    ArgumentsDelta,
    Event,
    Failed,
    Finish,
    PartEnd,
    PartStart,
    ProviderEvent,
    Start,
    TextDelta,
    Update,
    UsageUpdate,
)
from palaver.stream.replay_events import replay_events
from palaver.stream.sse import SSEReader
from palaver.wires.openai_responses.stream_write import Unquoted
from tests.corpus import Exchange
from tests.loopback import serve
from tests.wires.openai_responses.fixtures import OUTPUT, RESPONSE, answer
from tests.wires.openai_responses.forms import normal, normal_items
from tests.wires.openai_responses.streams import begun, decoded, event, item, stream
from tests.wires.openai_responses.test_stream import CALL, CUSTOM, EVERYTHING, SAID, THOUGHT, TOLD

WIRE = wires.get("openai_responses")
SEVERAL = {**OUTPUT[1], "id": "msg_7", "content": OUTPUT[1]["content"][:3]}


def _sent(events: list[Event]) -> tuple[bytes, tuple[p.Loss, ...]]:
    encoder = WIRE.stream_encoder()
    out = b"".join([*map(encoder.feed, events), encoder.finish()])
    assert encoder.finish() == b""
    assert encoder.feed(TextDelta(0, "late")) == b""
    return out, encoder.losses


def _read(out: bytes) -> p.Response:
    return decoded(out)[1].finish()


def _data(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(frame.data) for frame in SSEReader().feed(out)]


def _why(losses: tuple[p.Loss, ...]) -> set[tuple[str, str, str]]:
    return {(loss.kind, loss.what, loss.why) for loss in losses}


def _response(*content: Any, reason: Any = "stop", **fields: Any) -> p.Response:
    return p.Response(p.AssistantMessage(content=content, model="m", finish_reason=reason, **fields))


# -- as if it had been sent whole ------------------------------------------------------------------


def _streams(exchange: Exchange) -> tuple[list[Event], Any]:
    stored = exchange.record.get("stream")
    decoder = wires.get(exchange.wire).stream_decoder()
    data = base64.b64decode(exchange.record["stream_base64"]) if stored is None else stored.encode()
    events = [*decoder.feed(data), *decoder.close()]
    try:
        return events, decoder.finish()
    except StreamError as error:
        return events, error


@pytest.mark.recorded(has="answer", share=4)
def test_recorded_answers_of_every_wire(exchange: Exchange) -> None:
    found = wires.get(exchange.wire).decode_response(exchange.record["response"])
    whole = WIRE.encode_response(found)
    want = WIRE.decode_response(whole.body)
    out, losses = _sent(list(replay_events(found)))
    assert _why(losses) == _why(whole.losses)
    assert _read(out) == want
    _consistent(out)


@pytest.mark.recorded(has="stream")
def test_recorded_streams_of_every_wire(exchange: Exchange) -> None:
    """Two exceptions more: items keep the ids and the order of the events, which count them as they come, not as they
    stand; and what a part begins with is judged when it begins, also if the provider takes it back."""
    events, found = _streams(exchange)
    out, losses = _sent(events)
    if isinstance(found, StreamError):
        with pytest.raises(StreamError, match="the provider ended the stream") as caught:
            _read(out)
        assert caught.value.reason == found.reason
        return
    whole = WIRE.encode_response(found)
    assert _why(losses) - {("dropped", "citations", "a field of anthropic_messages")} == _why(whole.losses)
    assert _without_ids(_read(out)) == _without_ids(WIRE.decode_response(whole.body))
    _consistent(out)


def _without_ids(response: p.Response) -> Any:
    body = json.loads(WIRE.encode_response(response).body)
    for each in body["output"]:
        each.pop("id", None)
    body["output"].sort(key=json.dumps)
    return body


@pytest.mark.recorded("openai_responses", has="stream")
def test_recorded_streams_go_back_as_they_came(exchange: Exchange) -> None:
    events, found = _streams(exchange)
    out, losses = _sent(events)
    assert losses == ()
    again, decoder = decoded(out)
    assert decoder.finish() == found
    assert _native(again) == _native(events)


def _native(events: list[Event]) -> list[Any]:
    kept = [each for each in events if isinstance(each, ProviderEvent)]
    return [(each.name, {**each.data, "sequence_number": None}) for each in kept]


@pytest.mark.parametrize("whole", EVERYTHING, ids=lambda each: f"{each['type']}-{each.get('id')}")
def test_every_item_goes_back_as_it_came(whole: dict[str, Any]) -> None:
    told = stream(whole, SAID)
    events, decoder = decoded(told)
    for sent in (events, list(replay_events(decoder.finish()))):
        out, losses = _sent(sent)
        assert losses == ()
        assert _read(out) == decoder.finish()
        _consistent(out)
        found = _data(out)
        done = [each["item"] for each in found if each["type"] == "response.output_item.done"]
        assert normal_items(done) == normal_items([whole, SAID])
    if whole is not TOLD and whole.get("arguments") != "{not json":
        assert {each["type"] for each in _data(_sent(events)[0])} == {each["type"] for each in told}


def test_all_items_in_one_stream() -> None:
    events, decoder = decoded(stream(*EVERYTHING))
    for sent in (events, list(replay_events(decoder.finish()))):
        out, losses = _sent(sent)
        assert losses == ()
        assert _read(out) == decoder.finish()
        _consistent(out)


def test_items_that_interleave() -> None:
    other = {**CALL, "id": "fc_2", "call_id": "call_9", "arguments": '{"x": [1, 2]}'}
    whole = [CALL, other, SAID, OUTPUT[1], CUSTOM]
    queues = [list(item(index, each)) for index, each in enumerate(whole)]
    mixed = [queue.pop(0) for queue in queues]
    rng = random.Random(5)
    while any(queues):
        mixed.append(rng.choice([queue for queue in queues if queue]).pop(0))
    events, decoder = decoded([*begun(), *mixed, event("response.completed", response=answer(*whole))])
    out, losses = _sent(events)
    assert losses == ()
    assert _read(out) == decoder.finish()
    _consistent(out)


# -- the events ------------------------------------------------------------------------------------


def _types() -> dict[str, TypeAdapter[Any]]:
    classes = get_args(get_args(ResponseStreamEvent)[0])
    return {get_args(each.model_fields["type"].annotation)[0]: TypeAdapter(each) for each in classes}


TYPES = _types()
WHOLE = ("INVALID_JSON", "half ? of it")
"""Signs of what only the whole text can tell: until then it is told as it comes."""


def _consistent(out: bytes) -> None:
    """Events are numbered, begin before they grow, and name the items that the last event holds."""
    found = _data(out)
    assert [each["sequence_number"] for each in found] == list(range(len(found)))
    assert [frame.name for frame in SSEReader().feed(out)] == [each["type"] for each in found]
    assert [each["type"] for each in found[:2]] == ["response.created", "response.in_progress"]
    assert found[-1]["response"]["id"] == found[0]["response"]["id"]
    added: dict[int, Any] = {}
    done: dict[int, Any] = {}
    for each in found:
        index = each.get("output_index")
        if each["type"] == "response.output_item.added":
            assert index == len(added)
            added[index] = each["item"]
        elif each["type"] == "response.output_item.done":
            assert index not in done
            done[index] = each["item"]
        elif "item_id" in each:
            assert each["item_id"] == added[index].get("id", each["item_id"])
            assert index not in done or each["type"].endswith((".completed", ".failed"))
    assert added.keys() == done.keys()
    for index, each in done.items():
        assert (added[index]["type"], added[index].get("id")) == (each["type"], each.get("id"))
    final = {json.dumps(each, sort_keys=True) for each in found[-1]["response"]["output"]}
    proofless = {json.dumps({**each, "encrypted_content": 0}) for each in found[-1]["response"]["output"]}
    for each in done.values():
        same = json.dumps(each, sort_keys=True) in final
        assert (
            same
            or json.dumps({**each, "encrypted_content": 0}) in proofless
            or any(sign in str(final) for sign in WHOLE)
        )


FOREIGN = {
    "text": _response(p.Text("Good morning, 世界 👋."), usage=p.Usage(input=3, output=2, reasoning=1)),
    "two texts": _response(p.Text("One."), p.Text("Two.")),
    "nothing": _response(),
    "empty text": _response(p.Text("")),
    "odd text": _response(p.Text('\u2028 \x00 "\\" \r\n </script> é')),
    "lone surrogate": _response(p.Text("half \ud800 of it")),
    "refusal": _response(p.Text("Well,"), p.Refusal("I will not."), reason="refusal"),
    "reasoning": _response(p.Reasoning("So.", wire="anthropic_messages", signature="s"), p.Text("Yes.")),
    "calls": _response(
        p.Text("Let me see."),
        p.ToolCall("call_1", "look", '{"at": "the sky"}'),
        p.ToolCall("call_2", "listen", ""),
        reason="tool_calls",
    ),
    "text behind calls": _response(p.ToolCall("a", "f", "{}"), p.Text("Done."), p.ToolCall("b", "f", "[1]")),
    "odd ids": _response(p.ToolCall("x" * 80, "odd name", "{}"), p.ToolCall("", "f", "{}"), reason="tool_calls"),
    "same ids": _response(p.ToolCall("a", "f", "{}"), p.ToolCall("a", "f", "{}"), reason="tool_calls"),
    "custom call": _response(p.ToolCall("call_1", "sql", '"SELECT \\"a\\"\\n\\u00e9 👋"', custom=True)),
    "malformed": _response(p.MalformedToolCall("{no", "not JSON", "f", "call_1"), p.MalformedToolCall("", "no name")),
    "length": _response(p.Text("It goes on and"), reason="length"),
    "filtered": _response(reason="content_filter"),
    "paused": _response(p.Text("Wait."), reason="pause"),
    "image": _response(p.Text("Here:"), p.Image(p.Inline("AAAA"), "image/png")),
    "cited": _response(p.Text("Said.", (p.Citation(wire="google_generate", url="https://a.example"),))),
    "opaque": _response(p.Opaque("cohere_chat", p.Json.of({"type": "plan"}).value_json), p.Text("Hm.")),
    "alternatives": p.Response(
        p.AssistantMessage(content=(p.Text("A."),), finish_reason="stop"),
        (p.AssistantMessage(content=(p.Text("B."),), finish_reason="stop"),),
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_answer_streams_as_it_would_be_sent_whole(name: str) -> None:
    found = FOREIGN[name]
    whole = WIRE.encode_response(found)
    out, losses = _sent(list(replay_events(found, size=3)))
    assert _read(out) == WIRE.decode_response(whole.body)
    _consistent(out)
    for each in _data(out):
        TYPES[each["type"]].validate_python(each)
    named = {(kind, what.rstrip("s")) for kind, what, _ in _why(losses)}
    assert named == {(kind, what.rstrip("s")) for kind, what, _ in _why(whole.losses)}


def test_the_events_of_a_call() -> None:
    call = p.ToolCall("call_1", "look", '{"at": "sky"}')
    found = _data(_sent(list(replay_events(_response(call, reason="tool_calls"), size=8)))[0])
    assert [each["type"].removeprefix("response.") for each in found] == [
        "created",
        "in_progress",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    place = {"item_id": "fc_0", "output_index": 0}
    blank = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "", "id": "fc_0"}
    assert found[2]["item"] == {**blank, "status": "in_progress"}
    assert found[3] | place | {"delta": '{"at": "'} == found[3]
    assert found[5] | place | {"name": "look", "arguments": '{"at": "sky"}'} == found[5]
    assert found[6]["item"] == {**blank, "arguments": '{"at": "sky"}', "status": "completed"}
    assert found[7]["response"]["output"] == [found[6]["item"]]


def test_texts_that_stand_together_are_one_message() -> None:
    found = _data(_sent(list(replay_events(FOREIGN["two texts"])))[0])
    assert [each["content_index"] for each in found if each["type"] == "response.content_part.added"] == [0, 1]
    assert len(found[-1]["response"]["output"]) == 1
    found = _data(_sent(list(replay_events(FOREIGN["text behind calls"])))[0])
    assert [each["type"] for each in found[-1]["response"]["output"]] == ["function_call", "message", "function_call"]


def test_free_text_is_written_without_its_marks() -> None:
    for size in (1, 2, 3, 100):
        found = _data(_sent(list(replay_events(FOREIGN["custom call"], size=size)))[0])
        deltas = [each["delta"] for each in found if each["type"] == "response.custom_tool_call_input.delta"]
        assert "".join(deltas) == 'SELECT "a"\né 👋'
        assert [e["input"] for e in found if e["type"] == "response.custom_tool_call_input.done"] == ["".join(deltas)]


def test_reasoning_of_the_wire_is_written_in_its_parts() -> None:
    for whole, name, field in ((THOUGHT, "reasoning_summary", "summary_index"), (TOLD, "content", "content_index")):
        events, decoder = decoded(stream(whole))
        found = _data(_sent(list(replay_events(decoder.finish())) if whole is TOLD else events)[0])
        parts = [each for each in found if each["type"] == f"response.{name}_part.done"]
        texts = [each["text"] for each in whole.get("content", whole["summary"])]
        if whole is THOUGHT:
            assert [each["part"]["text"] for each in parts] == texts
            assert [each[field] for each in parts] == [0, 1]
        assert "\n\n".join(each["part"]["text"] for each in parts) == "\n\n".join(texts)


def test_usage_and_an_id_that_come_late() -> None:
    """The client refuses an answer whose id changes."""
    told: list[Event] = [
        Start(p.Response(p.AssistantMessage())),
        PartStart(0, p.Text("")),
        TextDelta(0, "Hi"),
        PartEnd(0),
        Update(p.Response(p.AssistantMessage(response_id="late", model="m"))),
        Finish("stop"),
        UsageUpdate(p.Usage(input=1, output=2)),
    ]
    got = _read(_sent(told)[0])
    assert got.usage.total == 3
    assert (got.id, got.model) == ("resp_0", "m")
    assert _asked(_sent(told)[0])[0]["id"] == "resp_0"


def test_the_final_items_are_those_of_the_events_in_their_order() -> None:
    """The client refuses an item whose id changes."""
    told: list[Event] = [
        Start(p.Response(p.AssistantMessage())),
        PartStart(0, p.ToolCall("call_1", "f"), place=(1,)),
        PartStart(1, p.Text(""), place=(0,)),
        ArgumentsDelta(0, "{}"),
        TextDelta(1, "Hi"),
        PartEnd(0),
        PartEnd(1),
        Finish("tool_calls"),
    ]
    out, _ = _sent(told)
    final, _ = _asked(out)
    assert [(each["type"], each["id"]) for each in final["output"]] == [("function_call", "fc_0"), ("message", "msg_1")]
    _consistent(out)


def test_unknown_fields_of_known_events_are_on_the_receipt() -> None:
    told = stream(SAID)
    for each in told:
        each["x_unheard_of"] = 1
    out, losses = _sent(decoded(told)[0])
    assert {loss.what for loss in losses} == {"x_unheard_of"}
    assert _read(out) == decoded(told)[1].finish()


def test_progress_of_an_item_that_comes_whole_follows_its_beginning() -> None:
    listed = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "wiki", "tools": []}
    told = stream(SAID, listed)
    place = {"output_index": 1, "item_id": "mcpl_1"}
    told.insert(-2, event("response.mcp_list_tools.in_progress", **place))
    told.insert(-2, event("response.mcp_list_tools.completed", **place))
    told.insert(-1, event("response.mcp_list_tools.completed", **{**place, "output_index": 9}))
    out, _ = _sent(decoded(told)[0])
    assert [each["type"] for each in _data(out)][-6:] == [each["type"] for each in told][-6:]


def test_events_of_another_wire_are_not_sent() -> None:
    stray = ProviderEvent("anthropic_messages", "ping", p.Json.of({"type": "ping"}).value_json)
    events = list(replay_events(FOREIGN["text"]))
    assert _sent([events[0], stray, *events[1:]]) == _sent(events)


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_a_background_response_stays_paused(status: str) -> None:
    _, decoder = decoded([*begun(background=True, status=status), *item(0, SAID)])
    out, losses = _sent(list(replay_events(decoder.finish())))
    assert losses == ()
    assert _data(out)[-1]["type"] == f"response.{status}"
    assert _read(out) == decoder.finish()


# -- failures --------------------------------------------------------------------------------------


def test_a_failure_is_an_error_event() -> None:
    start = list(replay_events(FOREIGN["text"]))[:4]
    out, _ = _sent([*start, Failed("provider", "Too much.", "overloaded")])
    last = _data(out)[-1]
    assert (last["type"], last["code"], last["message"], last["param"]) == ("error", "overloaded", "Too much.", None)
    TYPES["error"].validate_python(last)
    with pytest.raises(StreamError) as caught:
        _read(out)
    assert (caught.value.kind, caught.value.reason, caught.value.code) == ("provider", "Too much.", "overloaded")
    assert caught.value.response.message.text.startswith("Good")


def test_an_unfinished_stream_never_ends_as_if_whole() -> None:
    events = list(replay_events(FOREIGN["calls"]))
    for end in range(len(events) - 1):
        last = _data(_sent(events[:end])[0])[-1]
        assert last["type"] == "error"


def test_an_error_of_its_own_goes_back_as_it_came() -> None:
    failed = answer(SAID, status="failed", error={"code": "server_error", "message": "Sorry."})
    for error in (event("response.failed", response=failed), event("error", code="x", message="No.", param=None)):
        events, _ = decoded([*stream(SAID)[:-1], error])
        last = _data(_sent(events)[0])[-1]
        assert {**last, "sequence_number": 0} == {**error, "sequence_number": 0}


# -- the official client ---------------------------------------------------------------------------


def _asked(out: bytes) -> tuple[Any, list[Any]]:
    """What the official client makes of these bytes: what it gathered itself, and the events."""
    with (
        serve(out, out) as server,
        openai.OpenAI(api_key="k", base_url=server.url, max_retries=0) as client,
    ):
        with client.responses.create(model="m", input="Hi", stream=True) as found:
            events = list(found)
        final = None
        if events[-1].type == "response.completed":
            with client.responses.stream(model="m", input="Hi") as gathering:
                texts = [each.snapshot for each in gathering if each.type == "response.output_text.delta"]
                final = gathering.get_final_response().to_dict(mode="json")
                assert not texts or texts[-1] in gathering.get_final_response().output_text or "\ud800" in texts[-1]
    return final, events


def _unparsed(body: Any) -> Any:
    """An answer of the official client's without what it adds."""
    if isinstance(body, dict):
        return {key: _unparsed(each) for key, each in body.items() if key not in ("parsed", "parsed_arguments")}
    return [_unparsed(each) for each in body] if isinstance(body, list) else body


@pytest.mark.parametrize("name", FOREIGN)
def test_the_official_client_reads_foreign_answers(name: str) -> None:
    found = FOREIGN[name]
    out, _ = _sent(list(replay_events(found)))
    final, events = _asked(out)
    want = json.loads(WIRE.encode_response(found).body)
    assert events[-1].response.to_dict(mode="json") == want
    assert {each.type for each in events} <= TYPES.keys()
    if final is not None:
        assert _unparsed(final) == want
    else:
        assert want["status"] == "incomplete"


@pytest.mark.parametrize("whole", [SAID, CALL, THOUGHT, SEVERAL], ids=lambda each: each["id"])
def test_the_official_client_reads_answers_of_this_wire(whole: dict[str, Any]) -> None:
    events, _ = decoded(stream(whole))
    final, _ = _asked(_sent(events)[0])
    assert _unparsed(final)["output"] == [whole]


@pytest.mark.law(4)
@pytest.mark.recorded("openai_responses", has="stream")
def test_the_official_client_makes_the_same_of_a_recorded_stream(exchange: Exchange) -> None:
    """Of what the provider sent, and of what we send of it."""
    events, found = _streams(exchange)
    want = json.loads(WIRE.encode_response(found).body)
    for out in (exchange.record["stream"].encode(), _sent(events)[0]):
        final, _ = _asked(out)
        assert normal(_unparsed(final)) == normal(want)


@pytest.mark.parametrize("kind", ["provider", "torn", "corrupt"])
def test_the_official_client_raises_what_failed(kind: Any) -> None:
    out, _ = _sent([*list(replay_events(FOREIGN["text"]))[:4], Failed(kind, "Too much.", "overloaded")])
    with (
        serve(out) as server,
        openai.OpenAI(api_key="k", base_url=server.url, max_retries=0) as client,
        pytest.raises(openai.APIError, match="Too much"),
        client.responses.stream(model="m", input="Hi") as found,
    ):
        found.until_done()


# -- law 6, and pieces -----------------------------------------------------------------------------

_POOL = [
    each
    for response in [*FOREIGN.values(), WIRE.decode_response(json.dumps(RESPONSE))]
    for each in replay_events(response)
    if not isinstance(each, Start)
]


@pytest.mark.law(6)
@given(events=st.lists(st.sampled_from([*_POOL, *replay_events(FOREIGN["calls"])]), max_size=30), own=st.booleans())
def test_any_events_give_a_stream(events: list[Event], own: bool) -> None:
    start = Start(p.Response(p.AssistantMessage(), origin="openai_responses" if own else None))
    out, _ = _sent([start, *events])
    found = _data(out)
    assert found[-1]["type"] in {"error", "response.completed", "response.incomplete", "response.failed"}
    decoded(out)


@given(
    text=st.text(),
    ascii_only=st.booleans(),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    head=st.sampled_from(["", '{"code":']),
)
def test_marks_are_taken_off_in_any_pieces(text: str, ascii_only: bool, cuts: list[int], head: str) -> None:
    whole = head + json.dumps(text, ensure_ascii=ascii_only) + ("}" if head else "")
    marks = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    unquoted = Unquoted(head + '"')
    told = [json.loads(bytes(unquoted.feed(whole[a:b]))) for a, b in pairwise(marks)]
    assert "".join(told) == text
    assert all(not ("\ud800" <= each[-1:] <= "\udbff") for each in told)


@given(pieces=st.lists(st.text(alphabet='"\\u0dD8ax\n{', max_size=6), max_size=8))
def test_any_value_in_the_place_of_a_string_is_written(pieces: list[str]) -> None:
    unquoted = Unquoted('"')
    for each in pieces:
        assert isinstance(json.loads(bytes(unquoted.feed(each))), str)


def test_a_value_that_is_no_string_is_written_as_it_is() -> None:
    unquoted = Unquoted('"')
    assert [bytes(unquoted.feed(each)) for each in ("SELECT", ' "1"')] == [b'"SELECT"', b'" \\"1\\""']


@pytest.mark.law(4)
def test_a_citation_that_only_the_whole_answer_holds_goes_back():
    cited = {"type": "url_citation", "url": "https://a.test", "title": "A", "start_index": 0, "end_index": 1}
    said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    text = {"type": "output_text", "text": "a", "annotations": []}
    whole = answer({**said, "content": [{**text, "annotations": [cited]}]})
    told = [*begun(), *item(0, {**said, "content": [text]}), event("response.completed", response=whole)]
    events, decoder = decoded(told)
    assert _read(_sent(events)[0]) == decoder.finish() == WIRE.decode_response(whole)


def test_an_event_whose_name_no_line_can_hold_goes_back():
    events, _ = decoded([*begun(), event("a\nb", x=1), event("response.completed", response=answer())])
    assert "a\nb" in [said["type"] for said in _data(_sent(events)[0])]


def test_code_that_is_cut_off_goes_back_as_it_came() -> None:
    """A part ends within its arguments, as one does that another item takes the number of."""
    encoder = wires.get("openai_responses").stream_encoder()
    item = {"type": "code_interpreter_call", "id": "ci_1", "code": None}
    decoder = wires.get("openai_responses").stream_decoder()
    told = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.code_interpreter_call_code.delta", "output_index": 0, "delta": "1 +"},
    ]
    events = decoder.feed(b"".join([b"data: %b\n\n" % json.dumps(each).encode() for each in told]))
    data = b"".join([encoder.feed(each) for each in events]) + encoder.finish()
    assert b"1 +" in data
