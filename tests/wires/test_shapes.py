"""A shape is read in one step or field by field, with the same result."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET, Raw, UnsetType, structs

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.wires._engine.shapes import ABSENT, NOTHING, Shape, Union, from_fields, list_reader, reader


class Inner(Shape):
    """An object inside another."""

    url: str
    detail: str | UnsetType | None = UNSET


class Text(Shape, tag="text", tag_field="type"):
    """One kind of block."""

    text: str
    number: int | float | UnsetType = UNSET
    marked: bool | UnsetType = UNSET
    raw: Raw = ABSENT


class Image(Shape, tag="image", tag_field="type"):
    """Another kind of block."""

    image: Inner
    others: list[Inner] | UnsetType = UNSET
    words: list[str] | UnsetType = UNSET


BLOCKS: Union[Text | Image] = Union(Text, Image)


def _json(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def _plain(value: Any) -> Any:
    """What a shape holds, as plain values; `rest` counts as unknown fields."""
    if isinstance(value, Shape):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Raw):
        return "raw", bytes(value) and jsontext.value(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {key: _plain(each) for key, each in value.items()} if hasattr(value, "items") else value


texts = st.text(max_size=8)
inners = st.fixed_dictionaries({"url": texts}, optional={"detail": st.none() | texts})
blocks = st.fixed_dictionaries(
    {"type": st.just("text"), "text": texts},
    optional={
        "number": st.integers() | st.floats(-9, 9),
        "marked": st.booleans(),
        "raw": st.none() | texts | st.lists(texts, max_size=2),
    },
) | st.fixed_dictionaries(
    {"type": st.just("image"), "image": inners},
    optional={"others": st.lists(inners, max_size=2), "words": st.lists(texts, max_size=2)},
)


@given(blocks)
def test_both_paths_give_the_same(block: dict[str, Any]) -> None:
    quick = BLOCKS.item(_json(block))
    assert isinstance(quick, Shape)
    slow = from_fields(type(quick), jsontext.fields(_json(block)))
    assert _plain(quick) == _plain(slow)
    assert quick.rest == {}


@given(blocks, texts.filter(lambda key: key not in {"type", *Text.__struct_fields__, *Image.__struct_fields__}))
def test_an_unknown_field_stays_in_the_rest(block: dict[str, Any], key: str) -> None:
    found = BLOCKS.item(_json({**block, key: [1]}))
    known = BLOCKS.item(_json(block))
    assert isinstance(found, Shape)
    assert isinstance(known, Shape)
    assert {name: json.loads(bytes(raw)) for name, raw in found.rest.items()} == {key: [1]}
    assert _plain(structs.replace(found, rest=NOTHING)) == _plain(known)


def test_an_unknown_field_of_an_inner_object_stays_there() -> None:
    [found] = BLOCKS.items(
        _json([{"type": "image", "image": {"url": "u", "new": 1}, "others": [{"url": "v", "n": 2}]}])
    )
    assert isinstance(found, Image)
    assert isinstance(found.others, list)
    assert (found.rest, list(found.image.rest), list(found.others[0].rest)) == ({}, ["new"], ["n"])


def test_a_block_of_an_unknown_word_stays_text() -> None:
    found = BLOCKS.items(_json([{"type": "text", "text": "a"}, {"type": "hologram", "text": 5}]))
    assert isinstance(found[0], Text)
    assert found[1] == _json({"type": "hologram", "text": 5})


def test_null_counts_as_absent_and_stays() -> None:
    found = BLOCKS.item(_json({"type": "text", "text": "a", "marked": None, "raw": None}))
    assert isinstance(found, Text)
    assert (found.marked, found.raw, list(found.rest)) == (UNSET, jsontext.NULL, ["marked"])


def test_the_rest_of_a_known_object_cannot_be_changed() -> None:
    found = reader(Inner)(_json({"url": "u"}))
    with pytest.raises(TypeError):
        found.rest["new"] = jsontext.NULL


@pytest.mark.law(6)
@pytest.mark.parametrize(
    ("items", "path", "message"),
    [
        ([5], "[0]", "expected an object, got a number"),
        ([{"text": "a"}], "[0].type", "missing"),
        ([{"type": "text"}], "[0].text", "missing"),
        ([{"type": "text", "text": None}], "[0].text", "missing"),
        ([{"type": "text", "text": "a", "number": "1"}], "[0].number", "expected a number, got a string"),
        ([{"type": "text", "text": "a", "marked": 1}], "[0].marked", "expected true or false, got a number"),
        ([{"type": "image", "image": {}}], "[0].image.url", "missing"),
        ([{"type": "image", "image": {"url": "u"}, "others": [{"url": 1}]}], "[0].others[0].url", "expected a string"),
        ([{"type": "image", "image": {"url": "u"}, "words": ["a", 1]}], "[0].words[1]", "expected a string"),
    ],
)
def test_what_is_wrong_is_named(items: list[Any], path: str, message: str) -> None:
    with pytest.raises(DecodeError, match=message) as error:
        BLOCKS.items(_json(items))
    assert error.value.path == path


def test_halves_of_characters_are_read() -> None:
    found = BLOCKS.item(Raw(b'{"type":"text","text":"\\ud800"}'))
    assert isinstance(found, Text)
    assert found.text == "\ud800"


class Said(Shape):
    """Content that is a text or a list of blocks."""

    content: str | list[Text | Image] | UnsetType | None = UNSET
    texts: list[Text] | UnsetType = UNSET


_said = reader(Said)


@pytest.mark.parametrize("extra", [{}, {"x": 1}])
def test_content_is_a_text_or_a_list_in_which_other_words_stay_text(extra: dict[str, Any]) -> None:
    assert _said(_json({"content": "a", **extra})).content == "a"
    assert _said(_json({"content": None, **extra})).content is None
    blocks = [{"type": "text", "text": "a"}, {"type": "odd"}]
    for key in ("content", "texts"):
        one, other = getattr(_said(_json({key: blocks, **extra})), key)
        assert (one.text, other) == ("a", _json({"type": "odd"}))


@pytest.mark.parametrize(
    ("value", "path"), [(7, "content"), ([7], "content[0]"), ([{"type": "text", "text": 7}], "content[0].text")]
)
def test_wrong_content_is_named(value: Any, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        _said(_json({"content": value}))
    assert caught.value.path == path


def test_a_list_of_one_shape_names_the_item() -> None:
    read = list_reader(Inner)
    assert [each.url for each in read(_json([{"url": "a"}, {"url": "b", "x": 1}]))] == ["a", "b"]
    with pytest.raises(DecodeError) as caught:
        read(_json([{"url": "a"}, {}]))
    assert caught.value.path == "[1].url"


def test_a_field_named_none_is_kept() -> None:
    assert reader(Inner)(_json({"url": "a", "None": 1})).rest == {"None": _json(1)}
