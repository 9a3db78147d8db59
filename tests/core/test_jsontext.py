"""JSON text: as it was written, or one of our errors."""

import json

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Raw

from palaver import DecodeError, EncodeError, MessageError
from palaver.core import jsontext
from palaver.testing import strategies
from tests.generated import examples


@pytest.mark.law(1)
@settings(deadline=None)
@given(strategies.json_values())
def test_every_value_reads_back(value):
    text = jsontext.encode(value)
    again = jsontext.value(text)
    assert jsontext.encode(again) == text
    assert jsontext.equal(Raw(text), Raw(jsontext.encode(again)))
    assert jsontext.normal(text) == jsontext.normal(jsontext.normal(text))


@pytest.mark.law(1)
def test_parsed_numbers_remember_their_text():
    text = b"[5e-6,5e-06,1e400,2.0,2,1.10,-0.0,%d,%s]" % (2**70, b"9" * 5000)
    assert jsontext.encode(jsontext.value(text)) == text
    assert jsontext.value(b"5e-6") == 5e-6


@settings(deadline=None)
@given(strategies.json_objects())
def test_the_order_of_keys_does_not_matter(table):
    turned = dict(reversed(table.items()))
    assert jsontext.equal(jsontext.raw(table), jsontext.raw(turned))


@pytest.mark.law(6)
@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_give_a_value_or_our_error(data):
    for read in (jsontext.source, jsontext.fields, jsontext.items, jsontext.text, jsontext.value):
        try:
            read(data)
        except DecodeError:
            continue
    assert isinstance(jsontext.is_json(data), bool)


def test_a_view_too_deep_to_freeze_is_our_error():
    with pytest.raises(DecodeError, match="nested too deeply"):
        jsontext.view(b"[" * 50_000 + b"]" * 50_000)


def test_writing_refuses_with_our_error():
    for wrong in ({1: object()}, 10**5000, {"\ud800": object()}):
        with pytest.raises(EncodeError):
            jsontext.encode(wrong)
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(EncodeError, match="nested too deeply"):
        jsontext.encode(["\ud800", deep])
    with pytest.raises(MessageError, match="nested too deeply"):
        jsontext.checked(deep, "x")


def test_a_parsed_object_with_nan_is_refused_not_nulled():
    with pytest.raises(DecodeError, match=r"\$\.a: nan is not a JSON number"):
        jsontext.source({"a": float("nan")})


def test_integers_and_floats_differ_and_spellings_of_a_float_do_not():
    assert jsontext.normal(b"5e-06") == jsontext.normal(b"5E-6") == jsontext.normal(b"0.000005")
    assert jsontext.normal(b"2") != jsontext.normal(b"2.0")
    assert jsontext.normal(b'{"b":1,"a":[ ]}') == b'{"a":[],"b":1}'


def test_frozen_views_are_plain_dicts_and_lists_to_everyone_else():
    view = jsontext.view(b'{"a":[1,{"b":null}]}')
    assert view == {"a": [1, {"b": None}]}
    assert json.dumps(view) == '{"a": [1, {"b": null}]}'
    assert jsontext.encode(view) == b'{"a":[1,{"b":null}]}'
