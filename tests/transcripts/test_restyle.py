"""A record that was edited is written as it was, as far as it is the same."""

from __future__ import annotations

import pytest

from palaver.transcripts.restyle import restyled


@pytest.mark.parametrize(
    ("old", "new", "written"),
    [
        pytest.param(b'{"a": 1.0, "x": 2}', b'{"a":3}', b'{"a": 3, "x": 2}', id="unknown keys stay"),
        pytest.param(
            b'{"p":[{"type":"text","text":"a","k":1},{"type":"text","text":"b","k":2}]}',
            b'{"p":[{"type":"text","text":"b"}]}',
            b'{"p":[{"type":"text","text":"b"}]}',
            id="an item that went leaves nothing to those behind it",
        ),
        pytest.param(
            b'{"p":[{"id":"1","k":5e-06},{"id":"2","k":2},{"id":"3"}]}',
            b'{"p":[{"id":"2","t":1},{"id":"3"}]}',
            b'{"p":[{"id":"2","k":2,"t":1},{"id":"3"}]}',
            id="items with an id are paired by it",
        ),
        pytest.param(
            b'{"p":{"type":"a","k":1},"q":{"state":"x","k":1},"r":{"status":"x","k":1}}',
            b'{"p":{"type":"b"},"q":{"state":"y"},"r":{"status":"x"}}',
            b'{"p":{"type":"b"},"q":{"state":"y"},"r":{"status":"x","k":1}}',
            id="an object of another kind keeps nothing",
        ),
        pytest.param(
            b'{"state":{"status":"x","k":1},"m":2}',
            b'{"state":{"status":"y"}}',
            b'{"state":{"status":"y"},"m":2}',
            id="what holds such an object is the same",
        ),
        pytest.param(b'{"p":[1,2]}', b'{"p":[0,1,2]}', b'{"p":[0,1,2]}', id="an item more in front"),
        pytest.param(b'{"p":[]}', b'{"p":[1]}', b'{"p":[1]}', id="the first item"),
    ],
)
def test_what_is_edited_is_laid_over_what_was(old, new, written):
    assert restyled(old, new) == written


def test_a_text_that_was_a_string_stays_one():
    new = b'{"content":[{"type":"text","text":"b"}]}'
    assert restyled(b'{"content": "a", "x": 1}', new) == b'{"content": "b", "x": 1}'
    assert restyled(b'{"content":["a"]}', new) == new
    named = b'{"content":[{"type":"text","text":"b","name":"n"}]}'
    assert b"name" in restyled(b'{"content":"a"}', named)
