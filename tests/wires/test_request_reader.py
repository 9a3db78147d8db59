"""A reader of requests that grow returns what ``decode_request`` does, whatever came before."""

import json
from copy import deepcopy

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import structs

from palaver import wires
from palaver.core.errors import PalaverError
from palaver.testing import strategies

LISTS = {"openai_responses": "input", "google_generate": "contents"}
RESUMING = ("anthropic_messages", "openai_chat", "openai_responses")


def bare(read, body):
    try:
        return structs.replace(read(json.dumps(body).encode()), original=None)
    except PalaverError as error:
        return str(error)


def with_length(body, key, length):
    return {**body, key: body[key][:length]}


@pytest.mark.law(2)
@pytest.mark.recorded
def test_each_recorded_conversation_is_read_alike_as_it_grows_shrinks_and_changes(exchange):
    body = exchange.record["request"]
    key = LISTS.get(exchange.wire, "messages")
    wire = wires.get(exchange.wire)
    items = body.get(key) if isinstance(body, dict) else None
    if not isinstance(items, list) or not items:
        return
    read = wire.request_reader().read
    lengths = sorted({1, len(items) // 2, len(items) - 1, len(items)} - {0})
    for length in [*lengths, *reversed(lengths)]:
        shown = with_length(body, key, length)
        assert bare(read, shown) == bare(wire.decode_request, shown)
    edited = deepcopy(body)
    edited[key].insert(len(items) // 2, deepcopy(items[0]))
    assert bare(read, edited) == bare(wire.decode_request, edited)
    other = {**body, "system": "Another one.", "instructions": "Another one."}
    assert bare(read, other) == bare(wire.decode_request, other)


@pytest.mark.law(2)
@pytest.mark.parametrize("name", RESUMING)
def test_messages_in_common_are_the_same_objects(name):
    wire, key = wires.get(name), LISTS.get(name, "messages")

    @given(strategies.requests(), st.data())
    @settings(max_examples=20)
    def holds(request, data):
        body = json.loads(wire.encode_request(request).body)
        if not isinstance(body.get(key), list):
            return
        read = wire.request_reader().read
        length = data.draw(st.integers(0, len(body[key])))
        first = bare(read, with_length(body, key, length))
        second = bare(read, body)
        assert second == bare(wire.decode_request, body)
        if not isinstance(first, str) and not isinstance(second, str):
            common = [one is other for one, other in zip(first.messages, second.messages, strict=False)]
            assert all(common[:-2])  # a turn of the assistant may go on

    holds()


@pytest.mark.parametrize("name", RESUMING)
def test_what_cannot_be_read_is_named_by_its_place_and_forgotten(name):
    wire, key = wires.get(name), LISTS.get(name, "messages")
    said = {"role": "user", "content": "Hi"}
    read = wire.request_reader().read
    good = {"model": "m", "max_tokens": 9, key: [said, said]}
    bad = {**good, key: [said, said, {"role": 7}]}
    for body in (good, bad, good, bad):
        assert bare(read, body) == bare(wire.decode_request, body)
    assert f"{key}[2]" in bare(read, bad)
