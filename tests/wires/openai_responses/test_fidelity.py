"""Law 2: what was decoded is written as it was, whatever it is; unedited, and as an edited copy of a valid request."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import structs

import palaver as p
from palaver import wires
from tests.corpus import Exchange
from tests.wires.openai_responses.fixtures import HOSTED, INPUT, OUTPUT, PAIRS, REQUEST, RESPONSE, answer, asked
from tests.wires.openai_responses.forms import normal, normal_items

WIRE = wires.get("openai_responses")
HI = {"role": "user", "content": "hi"}


def round_trip(body: Any) -> None:
    _both_ways(body, WIRE.decode_request, WIRE.encode_request)


def round_trip_response(body: Any) -> None:
    _both_ways(body, WIRE.decode_response, WIRE.encode_response)


def _both_ways(body: Any, decode: Callable[..., Any], encode: Callable[..., p.Encoded]) -> None:
    """Law 2 with the bytes: the very same. Without them: the same but for the spelling."""
    data = json.dumps(body).encode()
    decoded = decode(data)
    encoded, bare = encode(decoded), encode(structs.replace(decoded, original=None))
    assert encoded.body == data
    assert normal(json.loads(bare.body)) == normal(body)
    assert (encoded.losses, bare.losses) == ((), ())


REQUESTS: list[Any] = [
    REQUEST,
    {"input": "hi"},
    {"input": ""},
    {"input": None},
    {"input": []},
    {},
    {"instructions": "", "input": [HI]},
    {"instructions": None, "input": [HI], "tools": [], "tool_choice": None, "reasoning": None, "text": {}},
    {"instructions": "only"},
    {"instructions": "and", "input": "hi", "previous_response_id": "resp_1"},
    asked(
        {"role": "user", "content": []},
        {"role": "user", "content": None},
        {"type": None, "role": "user", "content": ""},
    ),
    asked({"role": "assistant", "content": None}, {"type": None, "role": "assistant", "content": "x"}),
    asked({"role": "assistant", "content": [{"type": "input_text", "text": "x"}, {"type": "output_text", "text": ""}]}),
    asked({"role": "user", "content": [{"type": "output_text", "text": "x", "annotations": None}]}),
    asked({"role": "critic", "content": "hm"}, {"type": "message", "role": "tool", "content": 5}),
    asked({"type": "function_call_output", "call_id": "c", "output": None}),
    asked({"type": "function_call_output", "output": []}),
    asked({"type": "function_call_output", "call_id": None, "output": [{"type": "input_text", "text": "x"}]}),
    asked({"type": "local_shell_call_output", "call_id": "c", "output": "x"}),
    asked({"type": "computer_call_output", "call_id": "c", "output": {"type": "odd"}}),
    asked({"type": "tool_search_call", "arguments": None}, {"type": "tool_search_output", "tools": []}),
    asked({"type": "code_interpreter_call", "code": [1], "outputs": []}),
    asked({"role": "user", "content": [{"type": "input_file", "file_data": "YQ==", "file_url": "https://a.example"}]}),
    asked({"role": "user", "content": [{"type": "input_file", "file_data": "data:,a%20b", "filename": None}]}),
    asked(HI, text={"format": {"type": "grammar", "syntax": "lark"}, "verbosity": None}),
    asked(HI, text={"format": {"type": "json_schema", "schema": {}}}, reasoning={}),
    asked(HI, text={"format": {"type": "json_object", "odd": 1}}, reasoning={"effort": None}),
    asked(HI, tool_choice={"type": "function", "name": "f", "odd": 1}),
    asked(HI, max_output_tokens=2**70, temperature=1.0, top_p=0),
]


@pytest.mark.law(2)
@pytest.mark.parametrize("body", REQUESTS)
def test_requests(body: Any):
    round_trip(body)


@pytest.mark.law(2)
@pytest.mark.parametrize("item", [*OUTPUT, *HOSTED, *PAIRS, *INPUT], ids=lambda item: item.get("type", "easy"))
def test_every_item_alone(item: Any):
    round_trip(asked(item))
    round_trip(asked(item, item))
    if "type" in item:
        round_trip_response(answer(item))


RESPONSES: list[Any] = [
    RESPONSE,
    answer(),
    {"object": "response"},
    {"object": "response", "output": None, "status": None},
    {"output": []},
    answer(usage=None, status="queued"),
    answer(usage={"input_tokens": "many"}, status="failed", error={"code": "server_error", "message": "boom"}),
    answer({"type": "message", "role": "user", "content": "compacted"}, object="response.compaction"),
    answer({"type": "function_call_output", "call_id": "c", "output": "x", "id": "o"}),
]


@pytest.mark.law(2)
@pytest.mark.parametrize("body", RESPONSES)
def test_responses(body: Any):
    round_trip_response(body)


VALID = [
    REQUEST,
    {"model": "m", "input": "hi"},
    asked(
        {
            "role": "user",
            "content": [
                {"type": "input_file", "file_data": "data:text/plain; charset=utf-8;base64,YQ==", "filename": "a"}
            ],
        }
    ),
    {"model": "m", "instructions": "be", "input": "hi"},
    {"model": "m", "previous_response_id": "resp_1"},
    {"model": "m", "prompt": {"id": "p"}, "instructions": "be"},
    asked({"type": "function_call_output", "call_id": "c", "output": "x"}, previous_response_id="resp_1"),
    asked({"type": "function_call_output", "call_id": "c", "output": "x"}, HI, conversation={"id": "conv_1"}),
    asked(HI, *OUTPUT[:2], {**HI, "content": "bye"}, store=False),
    asked(
        HI, {"role": "assistant", "content": ""}, {**HI, "content": "as JSON"}, text={"format": {"type": "json_object"}}
    ),
]


@pytest.mark.law(2)
@pytest.mark.parametrize("body", VALID)
def test_an_edited_copy_of_a_valid_request(body: Any):
    encoded = WIRE.encode_request(WIRE.decode_request(body).replace())
    assert json.loads(encoded.body) == body
    assert encoded.losses == ()


def test_message_by_message():
    """What was decoded keeps its meaning inside any other request, and its bytes do not change as the request grows."""
    decoded = WIRE.decode_request(REQUEST)
    moved = p.Request(messages=decoded.messages, model="other").append(p.user("more"))
    body = json.loads(WIRE.encode_request(moved, join_neighbors=False).body)
    assert normal_items(body["input"]) == normal_items([*INPUT, {"role": "user", "content": "more"}])
    encoder = WIRE.request_encoder(p.Request(model="other"))
    for message in moved.messages:
        encoder.append(message)
    assert b"".join(encoder.chunks()) == WIRE.encode_request(moved).body


def test_text_stays_as_it_was_written():
    raw = (
        b'{"input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{\\"a\\": 1.50,\\n\\"\\u00e9\\":1}"},'
        b'{"type":"web_search_call","id":"w","action":{"b" : 5e-06, "a":"\\u00e9"}},'
        b'{"type":"odd","n": 1E4, "s":"\\u00e9"}]}'
    )
    body = WIRE.encode_request(WIRE.decode_request(raw)).body
    for text in (rb'"{\"a\": 1.50,\n\"', b'{"b" : 5e-06, "a":"\\u00e9"}', b'{"type":"odd","n": 1E4, "s":"\\u00e9"}'):
        assert text in body


# -- anything may be added, renamed, or emptied ------------------------------------------------------


def _nodes(value: Any) -> list[dict[str, Any]]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [*([value] if isinstance(value, dict) else []), *(node for each in inner for node in _nodes(each))]


def _mutated(body: Any, seed: int) -> Any:
    chance = random.Random(seed)
    made = copy.deepcopy(body)
    for _ in range(chance.randint(1, 4)):
        node = chance.choice([node for node in _nodes(made) if node])
        key = chance.choice(list(node))
        odd = chance.choice([None, "", "odd", 0, 1.5, True, [], {}, [None], ["x"], {"type": "odd"}, [{}]])
        match chance.randrange(5):
            case 0:
                node["x_new"] = odd
            case 1:
                node[f"x_{key}"] = node.pop(key)
            case 2:
                node["type"] = "x_unheard_of"
            case 3:
                del node[key]
            case _:
                node[key] = odd
    return made


@pytest.mark.law(2)
@pytest.mark.law(6)
@given(seed=st.integers(0, 2**32))
def test_a_changed_request_survives_or_is_an_error(seed: int):
    body = _mutated(REQUEST, seed)
    try:
        decoded = WIRE.decode_request(body)
    except p.DecodeError:
        return
    round_trip(body)
    for wire in wires.names():
        wires.get(wire).encode_request(decoded.replace())


@pytest.mark.law(2)
@pytest.mark.law(6)
@given(seed=st.integers(0, 2**32))
def test_a_changed_response_survives_or_is_an_error(seed: int):
    body = _mutated(RESPONSE, seed)
    try:
        decoded = WIRE.decode_response(body)
    except (p.DecodeError, p.ProviderError):
        return
    round_trip_response(body)
    for wire in wires.names():
        wires.get(wire).encode_response(decoded.replace())


# -- recorded traffic --------------------------------------------------------------------------------


@pytest.mark.law(2)
@pytest.mark.recorded("openai_responses")
def test_recorded_requests_survive_an_edit(exchange: Exchange):
    """What the provider took needs no repair."""
    if exchange.record["status"] >= 400:
        pytest.skip("the provider refused it")
    encoded = WIRE.encode_request(WIRE.decode_request(exchange.record["request"]).replace())
    assert json.loads(encoded.body) == exchange.record["request"]
    assert encoded.losses == ()


@pytest.mark.law(2)
@pytest.mark.recorded("openai_responses")
def test_recorded_events_hold_responses_and_items(exchange: Exchange):
    for line in exchange.record.get("stream", "").splitlines():
        event = json.loads(line[5:]) if line.startswith("data:") else {}
        if "response" in event:
            round_trip_response(event["response"])
        if "item" in event:
            round_trip_response(answer(event["item"]))
