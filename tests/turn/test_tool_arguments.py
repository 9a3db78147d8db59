"""The arguments of a call, read from the model's own text."""

import contextlib
import json

import pytest
from hypothesis import given, strategies as st

from palaver.core.parts import ToolCall
from palaver.turn.tool import InvalidArgumentsError, invalid, read_arguments, read_text

START = "Invalid arguments for 'look': "
STRING = "expected the tool arguments to be an object, but received a string."


def read(text, repairs=()):
    return read_arguments(ToolCall("c1", "look", text), repairs)


def refused(text, repairs=()):
    call = ToolCall("c1", "look", text)
    with pytest.raises(InvalidArgumentsError) as caught:
        read_arguments(call, repairs)
    assert call.arguments_json == text
    return str(caught.value).removeprefix(START)


def packed(value, times):
    text = json.dumps(value)
    for _ in range(times):
        text = json.dumps(text)
    return text


FITTING = {
    "nothing": ("", (), {}),
    "blank": (" \n", (), {}),
    "null": ("null", (), {}),
    "object": ('{"path": "a.py", "n": 2, "x": 2.5}', (), {"path": "a.py", "n": 2, "x": 2.5}),
    "string": (packed({"path": "a.py"}, 1), (), {"path": "a.py"}),
    "string in a string": (packed({"path": "a.py"}, 2), (), {"path": "a.py"}),
    "bare value": ('{"path": src/main.py}', ("path",), {"path": "src/main.py"}),
    "bare key and value": ("{path: src/main.py}", ("path",), {"path": "src/main.py"}),
    "bare value in a string": (json.dumps('{"path": src/main.py}'), ("path",), {"path": "src/main.py"}),
    "same key, same value": ('{"a": 1, "a": 1}', (), {"a": 1}),
    "odd text": ('{"a": "\\ud800 \u2028"}', (), {"a": "\ud800 \u2028"}),
    "big number": ('{"a": 1267650600228229401496703205376}', (), {"a": 2**100}),
}
REFUSED = {
    "not JSON": ('{"path": ', (), "expected an object, but received text that is not JSON (expecting value at"),
    "no opt-in": ('{"path": src/main.py}', (), "expected an object, but received text that is not JSON"),
    "other parameter": ('{"path": src/main.py}', ("file",), "expected an object, but received text that is not JSON"),
    "two parameters": ('{"path": a, "n": b}', ("path",), "expected an object, but received text that is not JSON"),
    "string, not JSON": (json.dumps("look there"), (), f"{STRING} The string is not JSON"),
    "still a string": (packed({}, 3), (), f"{STRING} After 3 rounds of parsing the parsed value was still a string"),
    "array": ("[1]", (), "expected an object, but received an array"),
    "number": ("3", (), "expected an object, but received a number"),
    "boolean": ("true", (), "expected an object, but received a boolean"),
    "twice": ('{"a": 1, "b": {"c": 1, "c": 2}}', (), "the key 'c' occurs twice in one object, with different values"),
    "True and 1": ('{"a": 1, "a": true}', (), "the key 'a' occurs twice"),
    "NaN": ('{"a": NaN}', (), "NaN is not JSON; use a number or null"),
    "too large": ('{"a": 1e999}', (), "the number 1e999 is too large"),
    "too long": ('{"a": ' + "9" * 5000 + "}", (), "the number 999"),
    "too deep": ('{"a":' * 100_000, (), "nested too deeply"),
}


@pytest.mark.row("CBF-17")
@pytest.mark.parametrize(("text", "repairs", "value"), FITTING.values(), ids=FITTING)
def test_arguments_that_are_read(text, repairs, value):
    assert read(text, repairs) == value


@pytest.mark.row("CBF-17")
@pytest.mark.parametrize(("text", "repairs", "reason"), REFUSED.values(), ids=REFUSED)
def test_arguments_that_are_refused_each_with_its_reason(text, repairs, reason):
    told = refused(text, repairs)
    assert told.startswith(reason)
    assert len(told) < 250


@pytest.mark.row("CBF-17")
@given(st.dictionaries(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists)), st.integers(0, 2))
def test_an_object_is_read_however_it_is_packed(value, times):
    assert read(packed(value, times)) == value


@given(st.text() | st.text(alphabet='{}[]":,\\ \n0aNe-'))
def test_any_text_gives_an_object_or_one_error(text):
    with contextlib.suppress(InvalidArgumentsError):
        assert isinstance(read(text, ("a",)), dict)


def test_the_first_few_issues_are_listed_and_none_is_long():
    error = invalid(ToolCall("c1", "look", "{}"), [f"{number}: {'x' * 1000}" for number in range(7)])
    assert str(error).startswith(f"{START}0: xxx")
    assert str(error).endswith("; and 2 more")
    assert len(str(error)) < 1700


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('"say \\"hi\\"\\n"', 'say "hi"\n'),
        ('{"input": "ls -l"}', "ls -l"),
        ('{"input": "ls", "more": 1}', '{"input": "ls", "more": 1}'),
        ("ls -l", "ls -l"),
        ("", ""),
        ("[1]", "[1]"),
    ],
)
def test_the_text_of_a_free_text_call(text, read):
    assert read_text(ToolCall("c1", "shell", text, custom=True)) == read
