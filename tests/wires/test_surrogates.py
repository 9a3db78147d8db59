"""Half a character: kept in the message, and U+FFFD on every wire (CBF-14)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver import wires
from palaver.core.jsontext import sayable, sayable_json

HALF = "\ud83d"
TEXT = st.lists(st.sampled_from(["a", "é", "😀", "\ud83d", "\ude00", "\\", "\\ud83d", '"', "\n"]), max_size=8).map(
    "".join
)
LONE = re.compile("[\ud800-\udfff]")


def strings(value: Any) -> Any:
    """Every string of a value, keys and JSON within strings too."""
    if isinstance(value, str):
        yield value
        try:
            inner = json.loads(value)
        except ValueError:
            return
        if isinstance(inner, dict | list):
            yield from strings(inner)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)


def conversation(text: str) -> p.Request:
    """A request that holds a text wherever a program can put one."""
    call = p.tool_call("look", {"q": f"x{text}", f"k{text}": [{"deep": text}]}, id="c1")
    return p.Request(
        model="some-model",
        messages=(
            p.system(f"s{text}"),
            p.user(f"u{text}"),
            p.assistant(f"a{text}", tool_calls=[call]),
            p.tool(f"t{text}", tool_call_id="c1"),
            p.assistant(
                tool_calls=[p.tool_call("look", {"q": "y"}, id="c2")],
            ),
            p.ToolMessage(content=(p.Json.of({"value": text, "list": [text]}),), tool_call_id="c2"),
            p.user(f"v{text}"),
        ),
        tools=(p.Tool.of("look", f"d{text}", {"type": "object", "description": f"p{text}"}),),
    )


@pytest.mark.row("CBF-14")
@pytest.mark.law(5)
@pytest.mark.parametrize("wire", wires.names())
@given(text=TEXT)
def test_every_string_of_a_body_is_one_that_utf_8_can_say(wire: str, text: str) -> None:
    request = conversation(text)
    encoded = wires.get(wire).encode_request(request)
    found = list(strings(json.loads(encoded.body.decode())))
    assert [each for each in found if LONE.search(each)] == []
    for mark in "sudpvxat":
        assert any(mark + sayable(text) in each for each in found), mark
    assert request == conversation(text)  # the thread keeps what was said
    told = any("U+FFFD" in str(loss) for loss in encoded.losses)
    assert told == (sayable(text) != text)


@pytest.mark.row("CBF-14")
@pytest.mark.parametrize("wire", wires.names())
def test_the_receipt_names_each_place(wire: str) -> None:
    losses = [str(each) for each in wires.get(wire).encode_request(conversation(HALF)).losses]
    places = {each.partition(":")[0] for each in losses if "U+FFFD" in each}
    texts = {f"messages[{index}].content[0]" for index in (0, 1, 2, 3, 5, 6)}
    assert places == {"request", "messages[2].content[1]", *texts}


@pytest.mark.row("CBF-14")
@pytest.mark.parametrize("wire", wires.names())
def test_a_body_that_goes_back_unedited_is_as_it_came(wire: str) -> None:
    """What the wire's own program wrote is its own business: bytes are not changed, escapes of halves neither."""
    codec = wires.get(wire)
    body = codec.encode_request(conversation("HALF")).body.replace(b"HALF", rb"\ud83d")
    again = codec.encode_request(codec.decode_request(body)).body
    assert json.loads(again) == json.loads(body)
    assert rb"\ud83d" in again


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ""),
        ("plain", "plain"),
        ("é😀", "é😀"),
        ("a\ud83d", "a\ufffd"),
        ("\ude00a", "\ufffda"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
    ],
)
def test_halves_in_text(text: str, said: str) -> None:
    assert sayable(text) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r'"\ud83d\ude00"', r'"\ud83d\ude00"'),
        (r'"\ud83d"', r'"\ufffd"'),
        (r'"\uDE00\ud83d"', r'"\ufffd\ufffd"'),
        (r'"\\ud83d"', r'"\\ud83d"'),
        (r'"\\\ud83d"', r'"\\\ufffd"'),
        (r'"\u00e9"', r'"\u00e9"'),
        ('"\ud83d"', '"\ufffd"'),
    ],
)
def test_halves_in_json(text: str, said: str) -> None:
    assert sayable_json(text) == said
