"""Laws 2 and 6 on every wire: what was decoded is written as it was, and any bytes give a value or one error."""

from __future__ import annotations

import copy
import importlib
import json
import random
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import Raw, structs

import palaver as p
from palaver import wires
from palaver.core import canonical, events
from palaver.stream.replay_events import replay_events
from palaver.testing.tables import row
from tests.corpus import NO_COMPLETION, Exchange

WHAT = ("request", "response")


def _sides(exchange: Exchange) -> list[str]:
    return [what for what in WHAT if what in exchange.record]


def _decoded(wire: str, what: str, value: Any) -> Any:
    return getattr(wires.get(wire), f"decode_{what}")(value)


def _encoded(wire: str, what: str, value: Any) -> p.Encoded:
    return getattr(wires.get(wire), f"encode_{what}")(value)


def _exact(value: Any) -> Any:
    """A form in which 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return {key: _exact(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_exact(each) for each in value]
    return (type(value).__name__, value)


def _normal(wire: str, body: Any) -> Any:
    """A body in the one form of all its spellings that mean the same, by the wire's `forms`."""
    return importlib.import_module(f"tests.wires.{wire}.forms").normal(body)


def _round_trip(wire: str, what: str, value: Any) -> None:
    """Law 2 with the bytes: the very same. Without them: the same but for the spelling."""
    data = json.dumps(value, indent=1).encode()
    decoded = _decoded(wire, what, data)
    encoded = _encoded(wire, what, decoded)
    assert encoded.body == data
    assert encoded.losses == ()
    bare = _encoded(wire, what, structs.replace(decoded, original=None))
    assert _exact(_normal(wire, json.loads(bare.body))) == _exact(_normal(wire, value))
    assert bare.losses == ()


@pytest.mark.law(6)
@pytest.mark.parametrize("wire", wires.names())
@pytest.mark.parametrize("name", ["a\nb", "a\r", "\ud800", ""])
def test_an_event_may_have_any_name(wire: str, name: str) -> None:
    encoder = wires.get(wire).stream_encoder()
    said = encoder.feed(events.Start(p.Response(p.assistant(""))))
    said += encoder.feed(events.ProviderEvent(wire, name, Raw(b'{"news":7}'))) + encoder.finish()
    unsaid = wire == "google_generate"  # events that have a name were read there
    assert b'"news":7' in said or encoder.losses or unsaid


@pytest.mark.law(2)
def test_recorded_bodies_are_written_as_they_were(exchange: Exchange) -> None:
    for what in _sides(exchange):
        if what == "response" and exchange.record["status"] >= 400:
            with pytest.raises(p.ProviderError):
                _decoded(exchange.wire, what, exchange.record[what])
            continue
        if what == "response" and exchange.file.stem in NO_COMPLETION:
            with pytest.raises(p.ProviderError):
                _decoded(exchange.wire, what, exchange.record[what])
            continue
        _round_trip(exchange.wire, what, exchange.record[what])


@pytest.mark.law(1)
@pytest.mark.row("MSG-09")
def test_recorded_bodies_survive_storage(exchange: Exchange) -> None:
    """docs/spec/pains.md#2: decode, store, load, encode gives every proof and argument byte for byte."""
    for what in _sides(exchange):
        try:
            decoded = _decoded(exchange.wire, what, exchange.record[what])
        except p.ProviderError:
            continue
        cls = p.Request if what == "request" else p.Response
        loaded = canonical.decode(canonical.encode(decoded), cls)
        assert loaded == decoded
        assert _encoded(exchange.wire, what, loaded).body == _encoded(exchange.wire, what, decoded).body


@pytest.mark.law(2)
@pytest.mark.recorded(share=8)
def test_unknown_keys_and_types_survive(exchange: Exchange) -> None:
    """docs/spec/pains.md#9: a key or a block type that nobody has heard of is written back, and sent nowhere else."""
    rng = random.Random(exchange.file.stem)
    for what in _sides(exchange):
        if exchange.record["status"] >= 400 and what == "response":
            continue
        for _ in range(3):
            value = copy.deepcopy(exchange.record[what])
            found = [each for each in _objects(value) if each is not value]
            if not found:
                continue
            target = rng.choice(found)
            target["x_unheard_of"] = {"deep": ["marker-unheard-of", 1.0]}
            try:
                decoded = _decoded(exchange.wire, what, json.dumps(value))
            except p.ProviderError:
                continue
            assert json.loads(_encoded(exchange.wire, what, decoded).body) == value
            bare = _encoded(exchange.wire, what, structs.replace(decoded, original=None))
            assert _normal(exchange.wire, json.loads(bare.body)) == _normal(exchange.wire, value)
            if what == "request":
                for other in wires.names():
                    if other != exchange.wire:
                        assert b"marker-unheard-of" not in wires.get(other).encode_request(decoded).body


def _objects(value: Any) -> list[dict[str, Any]]:
    """Every object of a body that is the provider's own, not data of the user (schemas, arguments, results)."""
    found: list[dict[str, Any]] = []
    if isinstance(value, dict):
        found.append(value)
        for key, each in value.items():
            if key not in _DATA:
                found += _objects(each)
    elif isinstance(value, list):
        for each in value:
            found += _objects(each)
    return found


_DATA = frozenset(
    [
        "parameters",
        "input_schema",
        "inputSchema",
        "parametersJsonSchema",
        "parameters_json_schema",
        "arguments",
        "args",
        "input",
        "json",
        "response",
        "schema",
        "responseSchema",
        "responseJsonSchema",
        "metadata",
        "properties",
        "labels",
        "json_schema",
        "jsonSchema",
        "format",
        "output",
        "options",
        "data",
    ]
)


# -- law 6 -----------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _total(wire: str, what: str, body: Any) -> Any:
    """Decode anything; what decodes must be stored, written as it was, and handed over."""
    try:
        decoded = _decoded(wire, what, body)
    except p.PalaverError as error:
        return error
    cls = p.Request if what == "request" else p.Response
    assert canonical.decode(canonical.encode(decoded), cls) == decoded
    for other in wires.names():
        _encoded(other, what, decoded)
    encoded = _encoded(wire, what, decoded)
    assert encoded.losses == ()
    assert _exact(json.loads(encoded.body)) == _exact(json.loads(body))
    return decoded


@pytest.mark.law(6)
@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("wire", wires.names())
@given(body=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_give_a_value_or_one_error(wire: str, what: str, body: bytes) -> None:
    _total(wire, what, body)


@pytest.mark.law(6)
@pytest.mark.recorded(share=8)
def test_damaged_recordings_give_a_value_or_one_error(exchange: Exchange) -> None:
    rng = random.Random(exchange.file.stem)
    for what in _sides(exchange):
        for _ in range(3):
            value = copy.deepcopy(exchange.record[what])
            _damage(value, rng)
            _total(exchange.wire, what, json.dumps(value).encode())
        text = json.dumps(exchange.record[what]).encode()
        cut = rng.randrange(len(text))
        _total(exchange.wire, what, text[:cut])
        _total(exchange.wire, what, text[:cut] + bytes([rng.randrange(256)]) + text[cut + 1 :])


def _damage(value: Any, rng: random.Random) -> None:
    """Take one value anywhere in the tree, and delete, retype or rename it."""
    spots: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, each in pairs:
            spots.append((node, key))
            walk(each)

    walk(value)
    if not spots:
        return
    node, key = rng.choice(spots)
    odd = rng.choice([None, True, 7, 2.5, "", "odd", [], {}, [None], {"type": "odd"}, [[1]], "\ud800"])
    action = rng.randrange(3)
    if action == 0:
        node[key] = odd
    elif action == 1:
        del node[key]
    elif isinstance(node, dict):
        node[f"{key}x"] = node.pop(key)


@pytest.mark.law(6)
@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("wire", wires.names())
def test_hostile_bodies(wire: str, what: str) -> None:
    for body in (
        b"[" * 100_000,
        b'{"messages":' + b"[" * 50_000,
        b'{"a":' * 20_000,
        b"\xff\xfe",
        b"",
        b"nul",
        b'"\\ud800"',
    ):
        error = _total(wire, what, body)
        assert isinstance(error, p.PalaverError)
        assert wire in str(error)


# -- usage -----------------------------------------------------------------------------------------

TOTALS = {
    "openai_chat": lambda usage: usage.get("total_tokens"),
    "openai_responses": lambda usage: usage.get("total_tokens"),
    "anthropic_messages": lambda usage: sum(
        usage.get(key) or 0
        for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    ),
    "google_generate": lambda usage: usage.get("totalTokenCount"),
    "bedrock_converse": lambda usage: usage.get("totalTokens"),
}
"""The provider's own total, where it gives one (docs/spec/wires.md#1.2)."""


def test_counters_add_up_to_the_provider_total(exchange: Exchange) -> None:
    """docs/spec/pains.md#14: disjoint counters."""
    if "response" not in exchange.record or exchange.wire not in TOTALS:
        return
    try:
        response = wires.get(exchange.wire).decode_response(exchange.record["response"])
    except p.ProviderError:
        return
    usage = response.usage
    if usage is None or not isinstance(usage.raw, dict):
        return
    total = TOTALS[exchange.wire](usage.raw)
    both = min(usage.cache_read or 0, usage.cache_write or 0)  # the same tokens, reported as read and as written
    assert total is None or usage.total - total in (0, both)


# -- edits -----------------------------------------------------------------------------------------

NULLED = {
    "openai_chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": None},
    "openai_responses": {"model": "m", "input": [{"role": "user", "content": "hi"}], "temperature": None},
    "anthropic_messages": {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": None,
    },
    "google_generate": {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "generationConfig": {"temperature": None},
    },
    "bedrock_converse": {
        "messages": [{"role": "user", "content": [{"text": "hi"}]}],
        "inferenceConfig": {"temperature": None},
    },
    "cohere_chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": None},
    "ollama_chat": {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "options": {"temperature": None},
    },
}


@pytest.mark.parametrize("wire", wires.names())
def test_an_edit_wins_over_a_null_that_was_found(wire: str) -> None:
    request = wires.get(wire).decode_request(row(NULLED, wire, "NULLED in tests/wires/test_laws.py"))
    assert b"null" in wires.get(wire).encode_request(request).body
    edited = request.replace(settings=structs.replace(request.settings, temperature=0.25))
    body = wires.get(wire).encode_request(edited).body
    assert b"0.25" in body
    assert b"null" not in body


@pytest.mark.parametrize("wire", wires.names())
def test_the_usage_object_of_another_provider_is_not_sent(wire: str) -> None:
    usage = canonical.decode(b'{"raw": {"strange_counter": 3}}', p.Usage)
    response = p.Response(message=p.assistant("hi", usage=usage, finish_reason="stop"))
    assert b"strange_counter" not in wires.get(wire).encode_response(response).body


def _sent_usage(wire: p.wires.Wire, response: p.Response, *, stream: bool) -> tuple[p.Usage, list[str]]:
    if not stream:
        encoded = wire.encode_response(response)
        return wire.decode_response(encoded.body).usage or p.Usage(), [str(each) for each in encoded.losses]
    encoder, decoder = wire.stream_encoder(), wire.stream_decoder()
    for event in replay_events(response):
        decoder.feed(encoder.feed(event))
    decoder.feed(encoder.finish())
    return decoder.finish().usage or p.Usage(), [str(each) for each in encoder.losses]


TOTALS = ("input", "output")
"""What is listed. The other counters are parts of these, and Responses has 0 for those that nobody reported."""
REPORTED = [
    None,
    p.Usage(),
    p.Usage(input=3),
    p.Usage(output=7),
    p.Usage(input=3, output=7),
    p.Usage(input=3, cache_read=2, output=7),
    p.Usage(input=3, cache_read=2, cache_write=1, output=7, reasoning=5),
]


@pytest.mark.law(5)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("usage", REPORTED)
@pytest.mark.parametrize("wire", wires.names())
def test_a_number_that_nobody_reported_is_on_the_receipt(wire: str, usage: p.Usage | None, stream: bool) -> None:
    answer = p.assistant("hi", usage=usage, model="m", finish_reason="stop")
    sent, losses = _sent_usage(wires.get(wire), p.Response(answer), stream=stream)
    told = usage or p.Usage()
    zeros = [name for name in TOTALS if getattr(told, name) is None and getattr(sent, name) == 0]
    names = " and ".join(", ".join(zeros).rsplit(", ", 1))
    assert [each for each in losses if "usage" in each] == (
        [f"messages[0]: usage approximated ({names} not reported; 0 was sent)"] if zeros else []
    )
    assert "TokenCount" not in str(sent.raw) or told.total, "Gemini needs none"


def test_an_own_answer_without_usage_gets_zeros_in_a_stream_only() -> None:
    wire = wires.get("anthropic_messages")
    response = wire.decode_response(
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn"}
    )
    assert _sent_usage(wire, structs.replace(response, original=None), stream=False) == (p.Usage(), [])
    zeros, losses = _sent_usage(wire, response, stream=True)
    assert (zeros.input, zeros.output, losses) == (
        0,
        0,
        ["messages[0]: usage approximated (input and output not reported; 0 was sent)"],
    )


@pytest.mark.law(2)
@pytest.mark.parametrize("wire", wires.names())
def test_a_provider_field_may_begin_with_an_at_sign(wire: str) -> None:
    body = {**row(NULLED, wire, "NULLED in tests/wires/test_laws.py"), "@content": "list", "@": None}
    _round_trip(wire, "request", body)


@pytest.mark.law(2)
@pytest.mark.parametrize("wire", wires.names())
@pytest.mark.parametrize("key", ["@content", "@"])
def test_a_field_may_have_any_name(wire: str, key: str) -> None:
    """Found by atheris."""
    _round_trip(wire, "request", {**row(NULLED, wire, "NULLED in tests/wires/test_laws.py"), key: "absent"})


def test_a_number_written_oddly_is_equal_after_storage() -> None:
    """Found by atheris."""
    body = {**NULLED["ollama_chat"], "options": {}}
    text = json.dumps(body).replace('"options": {}', '"options": {"temperature": 0.50}').encode()
    request = wires.get("ollama_chat").decode_request(text)
    assert canonical.decode(canonical.encode(request), p.Request) == request
    assert b"0.50" in wires.get("ollama_chat").encode_request(request).body
