"""An edited value is laid over the text that it came from: what was not edited keeps its spelling."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from palaver.core.overlay import laid_over
from palaver.testing.strategies import json_values

SPACED = {"indent": 1, "sort_keys": True}


def _spelled(value: Any) -> bytes:
    """Another spelling of the same value: spaces, escapes, the order of keys."""
    return json.dumps(value, **SPACED).encode()


def _written(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _over(original: bytes, before: Any, after: Any) -> bytes:
    return laid_over(original, _written(before), _written(after))


def test_an_unedited_value_is_the_original() -> None:
    original = b'{ "b" : 1.0, "a":"\\u00e9" }'
    assert _over(original, {"a": "é", "b": 1}, {"a": "é", "b": 1}) == original


def test_an_item_that_was_edited_keeps_its_spelling_where_others_were_added() -> None:
    original = b'[{"text": "a", "list": [{"x": 1}]}]'
    before, after = [{"text": "a", "list": [{"x": 1}]}], [{"text": "b", "list": [{"x": 1}]}, {"text": "c"}]
    assert _over(original, before, after) == b'[{"text":"b","list":[{"x": 1}]},{"text":"c"}]'


def test_only_what_was_edited_is_written_anew() -> None:
    original = b'{"list": [{"text": "\\u00e9"}, {"text": "b"}], "model":  "m"}'
    before = {"model": "m", "list": [{"text": "é"}, {"text": "b"}]}
    after = {"model": "m", "list": [{"text": "é"}, {"text": "c"}]}
    assert _over(original, before, after) == b'{"model":"m","list":[{"text": "\\u00e9"},{"text":"c"}]}'


@pytest.mark.parametrize(
    ("original", "before", "after", "over"),
    [
        ({"content": "a"}, {"content": [{"text": "a"}]}, {"content": [{"text": "b"}]}, {"content": [{"text": "b"}]}),
        ({"most": 5}, {"limit": 5}, {"limit": 5, "model": "m"}, {"limit": 5, "model": "m"}),
        ({"tools": [], "n": 1}, {"n": 1}, {"n": 1, "tools": ["t"]}, {"n": 1, "tools": ["t"]}),
        ({"a": None, "n": 1}, {"n": 1}, {"n": 2}, {"n": 2}),
        ([1, 2, 3], [1, 2, 3], [1, 9, 2, 3], [1, 9, 2, 3]),
        ([["a"], "b"], [{"t": "a"}, "b"], [{"t": "a"}], [["a"]]),
        (["a", "b"], ["a b"], ["a b", "c"], ["a b", "c"]),
        ({"a": 1}, 5, {"a": 2}, {"a": 2}),
        ({"n": 1}, {"n": 1, "made": None}, {"n": 2, "made": None}, {"n": 2}),
        ({"n": 1, "none": []}, {"n": 1, "made": None}, {"n": 2, "made": None}, {"n": 2}),
        ({"n": 1}, {"n": 1, "made": 1}, {"n": 1, "made": 2}, {"n": 1, "made": 2}),
        ({"n": 1}, {"n": 1}, {"n": 1, "made": None}, {"n": 1, "made": None}),
    ],
)
def test_an_edit_wins_over_another_spelling(original: Any, before: Any, after: Any, over: Any) -> None:
    assert json.loads(_over(_spelled(original), before, after)) == over


@given(json_values(), json_values())
def test_no_edit_is_undone(before: Any, after: Any) -> None:
    """The original says what was written before; after it says what is written now."""
    assert json.loads(_over(_spelled(before), before, after)) == after


@given(st.lists(json_values(), max_size=6), st.data())
def test_items_that_were_not_edited_keep_their_bytes(items: list[Any], data: st.DataObject) -> None:
    original = [_spelled(each).replace(b"\n", b"\r\n") for each in items]
    # text with half a character is split by value, and infinity is no JSON
    assume(not any(b"\\ud" in each or b"Infinity" in each for each in original))
    place = data.draw(st.integers(0, len(items)))
    over = _over(b"[" + b" , ".join(original) + b"]", items, [*items[:place], {"new": 1}, *items[place:]])
    for each in original:
        assert each in over


def test_the_arguments_of_a_call_that_was_edited_are_the_new_text() -> None:
    original = b'{"name": "f", "input": {"a": 1, "b": [ 2 ]}}'
    before = b'{"name":"f","input":{"a": 1, "b": [ 2 ]}}'
    after = b'{"name":"f","input":{ "a":1,  "b":[3] }}'
    assert laid_over(original, before, after) == after


def test_a_text_that_is_no_json_gives_way() -> None:
    assert laid_over(b"{", b'{"a":1}', b'{"a":2}') == b'{"a":2}'
