"""Laws 2 and 6 on bodies of the Messages wire: what was decoded is written as it was, and anything gives one error."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver import wires
from tests.corpus import Exchange
from tests.wires.anthropic_messages.bodies import ANSWERS, REFUSED, VALID, body, said, use

WIRE = wires.get("anthropic_messages")
REQUESTS = VALID | REFUSED


def _bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _same(encoded: p.Encoded, value: Any) -> None:
    assert json.dumps(json.loads(encoded.body), sort_keys=True) == json.dumps(value, sort_keys=True)
    assert encoded.losses == ()


@pytest.mark.law(2)
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_written_as_it_was(name: str) -> None:
    _same(WIRE.encode_request(WIRE.decode_request(_bytes(REQUESTS[name]))), REQUESTS[name])


@pytest.mark.law(2)
@pytest.mark.parametrize("name", VALID)
def test_an_edited_request_is_written_as_it_was_where_the_provider_takes_it(name: str) -> None:
    _same(WIRE.encode_request(WIRE.decode_request(_bytes(VALID[name])).replace()), VALID[name])


@pytest.mark.law(2)
@pytest.mark.parametrize("name", ANSWERS)
def test_a_response_is_written_as_it_was(name: str) -> None:
    _same(WIRE.encode_response(WIRE.decode_response(_bytes(ANSWERS[name]))), ANSWERS[name])


@pytest.mark.law(2)
@pytest.mark.recorded("anthropic_messages")
def test_an_edited_recording_is_written_as_it_was(exchange: Exchange) -> None:
    request = exchange.record["request"]
    _same(WIRE.encode_request(WIRE.decode_request(request).replace()), request)


@pytest.mark.law(2)
def test_arguments_keep_every_byte() -> None:
    text = '{ "b" : 1.0, "a":5e-06, "c":"\\u00e9é" , "d":[]}'
    raw = json.dumps(body(said("assistant", use()))).replace('"input": {}', f'"input": {text}').encode()
    request = WIRE.decode_request(raw)
    assert request.messages[0].tool_calls[0].arguments_json == text
    assert text.encode() in WIRE.encode_request(request).body


@pytest.mark.law(2)
def test_messages_keep_their_bytes_when_others_are_added() -> None:
    for name in ("tool loop", "results apart", "server tools", "media", "later system"):
        request = WIRE.decode_request(_bytes(VALID[name]))
        grown = json.loads(WIRE.encode_request(request.append(p.assistant("Then."), p.user("And?"))).body)
        assert grown["messages"][: len(VALID[name]["messages"])] == VALID[name]["messages"]


# -- anything, anywhere ----------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        found += _places(each, (*path, key))
    return found


@st.composite
def mutated(draw: st.DrawFn, bodies: dict[str, dict[str, Any]]) -> Any:
    """A body with one to three values replaced, dropped or renamed."""
    value = copy.deepcopy(bodies[draw(st.sampled_from(sorted(bodies)))])
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([place for place in _places(value) if place] or [("content",)]))
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        match draw(st.sampled_from(["replace", "drop", "rename", "repeat"])):
            case "rename" if isinstance(holder, dict) and path[-1] in holder:
                new = draw(st.text(max_size=6).filter(lambda name: not name.startswith("@@")))
                holder[new] = holder.pop(path[-1])
            case "drop" if path[-1] in holder or isinstance(holder, list):
                del holder[path[-1]]
            case "repeat" if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[path[-1]]))
            case _:
                holder[path[-1]] = draw(VALUES)
    return value


@pytest.mark.law(6)
@given(value=mutated(REQUESTS))
def test_any_request_is_written_as_it_was_or_refused(value: Any) -> None:
    try:
        request = WIRE.decode_request(value)
    except p.DecodeError:
        return
    assert json.loads(WIRE.encode_request(request).body) == value
    WIRE.encode_request(request.replace())
    for name in wires.names():
        wires.get(name).encode_request(request)


@pytest.mark.law(6)
@given(value=mutated(ANSWERS))
def test_any_response_is_written_as_it_was_or_refused(value: Any) -> None:
    try:
        response = WIRE.decode_response(value)
    except (p.DecodeError, p.ProviderError):
        return
    assert json.loads(WIRE.encode_response(response).body) == value
    WIRE.encode_response(response.replace())


@pytest.mark.law(6)
@given(data=st.binary(max_size=40) | st.sampled_from(sorted(ANSWERS)).map(lambda name: _bytes(ANSWERS[name])[:-3]))
def test_any_bytes_give_one_error(data: bytes) -> None:
    for decode in (WIRE.decode_request, WIRE.decode_response):
        with pytest.raises(p.PalaverError):
            decode(data)
