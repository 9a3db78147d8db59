"""Arguments that are not quite an object become one, or one error; and every change is said."""

import json
import random

import pytest
from hypothesis import assume, given, settings, strategies as st

from palaver import ArgumentsError
from palaver.core import jsontext
from palaver.stream.argument_repair import Repaired, repair
from palaver.testing import strategies
from tests.generated import examples
from tests.stream.jsontexts import contained, json_texts, once

ENDS = "the text ends early; what was open is closed"
CASES = [
    # nothing
    ("", "{}", ["character 0: no arguments, written as {}"]),
    (" \n", "{}", ["character 2: no arguments, written as {}"]),
    ("null", "{}", ["character 0: no arguments, written as {}"]),
    ("[]", "{}", ["character 0: no arguments, written as {}"]),
    ('""', "{}", ["character 0: the object was packed in a string", "character 0: no arguments, written as {}"]),
    # truncated
    ("{", "{}", [f"character 1: {ENDS}"]),
    ('{"a": 1, "b": "x', '{"a": 1, "b": "x"}', [f"character 16: {ENDS}"]),
    ('{"a": 1, "b', '{"a": 1}', ["character 9: key without a value dropped", f"character 11: {ENDS}"]),
    ('{"a": 1, "b"', '{"a": 1}', ["character 9: key without a value dropped", f"character 12: {ENDS}"]),
    ('{"a": 1, "b":', '{"a": 1}', ["character 9: key without a value dropped", f"character 13: {ENDS}"]),
    ('{"a": 1,', '{"a": 1}', [f"character 8: {ENDS}"]),
    ('{"a": 12', "{}", ["character 6: number that may be cut off dropped", f"character 8: {ENDS}"]),
    ('{"a": [1, -', '{"a": [1]}', ["character 10: number that may be cut off dropped", f"character 11: {ENDS}"]),
    ('{"a": tr', '{"a": true}', ["character 6: tr written as true", f"character 8: {ENDS}"]),
    ('{"a": "x\\', '{"a": "x"}', ["character 8: cut escape dropped", f"character 9: {ENDS}"]),
    ('{"a": "x\\u12', '{"a": "x"}', ["character 8: cut escape dropped", f"character 12: {ENDS}"]),
    ('{"a": "x\\ud83d\\ude', '{"a": "x"}', ["character 8: cut escape dropped", f"character 18: {ENDS}"]),
    ('{"a": [1, {"b": "c', '{"a": [1, {"b": "c"}]}', [f"character 18: {ENDS}"]),
    # more than one
    ('{"a":1}{"a":1}', '{"a":1}', ["character 7: the same object again dropped"]),
    ('{"a":1, "b":2}\n{"b": 2, "a": 1}', '{"a":1, "b":2}', ["character 15: the same object again dropped"]),
    ('{"a":1}{"a":2}', '{"a":1}', ["character 7: another object dropped"]),
    ('{"a":1}{"a":1', '{"a":1}', ["character 7: another object dropped"]),
    ('{}{"a":1}', '{"a":1}', ["character 2: empty object dropped"]),
    # around it
    ('"{\\"a\\": 1}"', '{"a": 1}', ["character 0: the object was packed in a string"]),
    ('"\\"{\\\\\\"a\\\\\\": 1}\\""', '{"a": 1}', ["character 0: the object was packed in a string"] * 2),
    ('"{\\"a\\": \\"x', '{"a": "x"}', ["character 0: the object was packed in a string", f"character 8: {ENDS}"]),
    ("'{\"a\": 1}'", '{"a": 1}', ["character 0: the object was packed in a string"]),
    (
        '{\\"a\\": \\"b\\"}',
        '{"a": "b"}',
        ["character 0: the object was escaped like the inside of a string"],
    ),
    (
        '"{"a": 1}"',
        '{"a": 1}',
        ["character 0: text before the object dropped", "character 9: text after the object dropped"],
    ),
    ('```json\n{"a": 1}\n```', '{"a": 1}', ["character 0: Markdown fence taken away"]),
    ('```\n{"a": "1', '{"a": "1"}', ["character 0: Markdown fence taken away", f"character 12: {ENDS}"]),
    (
        'Sure! {"a": 1} Done.',
        '{"a": 1}',
        ["character 0: text before the object dropped", "character 15: text after the object dropped"],
    ),
    ('Use {x}: {"a": 1}', '{"a": 1}', None),
    ('{"a": 1}<|call|>', '{"a": 1}', ["character 8: text after the object dropped"]),
    ('[TOOL_CALLS]{"a":1}', '{"a":1}', ["character 0: text before the object dropped"]),
    ('[{"a":1}]', '{"a":1}', ["character 0: list of one taken away"]),
    ('[{"a":1', "{}", None),
    ('[{"a":"1', '{"a":"1"}', ["character 0: list of one taken away", f"character 8: {ENDS}"]),
    ('"a": 1}', '{"a": 1}', ["character 0: missing { added"]),
    (
        '{{"a": 1}}',
        '{"a": 1}',
        ["character 1: stray { dropped", "character 9: text after the object dropped"],
    ),
    # another language
    ("{'a': 'b'}", '{"a": "b"}', ["characters 1 and 6: quotes written as double quotes"]),
    (
        "{'a': 'it\\'s \"x\"'}",
        '{"a": "it\'s \\"x\\""}',
        [
            "characters 1 and 6: quotes written as double quotes",
            "character 9: escaped apostrophe written plainly",
        ],
    ),
    ("{“a”: “b”}", '{"a": "b"}', ["characters 1 and 6: quotes written as double quotes"]),
    (
        '{"a": True, "b": None, "c": NaN, "d": -Infinity}',
        '{"a": true, "b": null, "c": null, "d": null}',
        [
            "character 6: True written as true",
            "character 17: None written as null",
            "character 28: NaN written as null",
            "character 38: -Infinity written as null",
        ],
    ),
    ('{a: 1, b_c: "x"}', '{"a": 1, "b_c": "x"}', ["characters 1 and 7: quotes added around a key"]),
    ('{"a":"b",c":"d"}', '{"a":"b","c":"d"}', ["character 9: quotes added around a key"]),
    (
        '{"k": PERCENTILE function, "p": "s"}',
        '{"k": "PERCENTILE function", "p": "s"}',
        ["character 6: quotes added around a value"],
    ),
    (
        '{"a": .5, "b": 5., "c": +1, "d": -.5e3}',
        '{"a": 0.5, "b": 5.0, "c": 1, "d": -0.5e3}',
        ["characters 6, 15, 24 and 1 more: number written as JSON writes it"],
    ),
    ('{"a": 007}', '{"a": "007"}', ["character 6: quotes added around a value"]),
    (
        '{"a": 1, // why\n "b": /* x */ 2}',
        '{"a": 1, \n "b":  2}',
        ["characters 9 and 22: comment dropped"],
    ),
    ('{"a" = 1}', '{"a" : 1}', ["character 5: = written as a colon"]),
    ('{"a":\xa01}', '{"a": 1}', ["character 5: unusual whitespace written as a space"]),
    # commas, colons and brackets
    ('{"a": 1,}', '{"a": 1}', ["character 7: trailing comma dropped"]),
    ('{"a": [1, 2,],}', '{"a": [1, 2]}', ["characters 11 and 13: trailing comma dropped"]),
    ('{"a": 1,, "b": 2}', '{"a": 1, "b": 2}', ["character 8: extra comma dropped"]),
    ('{"a": 1 "b": 2}', '{"a": 1, "b": 2}', ["character 8: missing comma added"]),
    ('{"a": "x"\n "b": 2}', '{"a": "x",\n "b": 2}', ["character 11: missing comma added"]),
    ('{"a": [1 2 "x" "y"]}', '{"a": [1, 2, "x", "y"]}', ["characters 9, 11 and 15: missing comma added"]),
    ('{"a" 1}', '{"a": 1}', ["character 5: missing colon added"]),
    ('{"a": , "b": 2}', '{ "b": 2}', ["character 1: key without a value dropped"]),
    ('{"a": [1, 2}', '{"a": [1, 2]}', ["character 11: missing ] added"]),
    ('{"a": 1]}', '{"a": 1}', ["character 7: stray ] dropped"]),
    (
        '{"view": \\n[1, 2]\\n\\n}',
        '{"view": [1, 2]}',
        ["characters 9 and 17: escaped whitespace between values dropped"],
    ),
    # inside strings
    ('{"a": "x\n\ty\x00"}', '{"a": "x\\n\\ty\\u0000"}', ["characters 8, 9 and 11: control character escaped"]),
    (
        '{"a": "\\x41 \\d+ don\\\'t"}',
        '{"a": "\\\\x41 \\\\d+ don\'t"}',
        ["characters 7 and 12: backslash kept as text", "character 19: escaped apostrophe written plainly"],
    ),
    ('{"a": "\\uZZ"}', '{"a": "\\\\uZZ"}', ["character 7: backslash kept as text"]),
    (
        '{"p": "C:\\Users\\new\\temp"}',
        '{"p": "C:\\\\Users\\\\new\\\\temp"}',
        ["characters 9, 15 and 19: backslash kept as text"],
    ),
    ('{"p": "C:\\\\Users\\new",}', '{"p": "C:\\\\Users\\new"}', ["character 21: trailing comma dropped"]),
    (
        '{"a": "he said "hi", then left"}',
        '{"a": "he said \\"hi\\", then left"}',
        ["characters 15 and 18: quote inside a string kept"],
    ),
    ("{'a': 'it's'}", '{"a": "it\'s"}', None),
    ('{"a": "b" c}', '{"a": "b"}', None),
    ('{"a": "\ud83d"}', '{"a": "\\ud83d"}', ["character 7: lone surrogate escaped"]),
    ('{"a": "\\ud83d",}', '{"a": "\\ud83d"}', ["character 14: trailing comma dropped"]),
    # what was fine stays as it was written
    ('{"a":5e-06 , "b" :\t1.50,"c":"\\/\\u0041é",}', '{"a":5e-06 , "b" :\t1.50,"c":"\\/\\u0041é"}', None),
]


@pytest.mark.parametrize(("text", "repaired", "changes"), CASES)
def test_what_models_write(text, repaired, changes):
    result = repair(text)
    assert result.text == repaired
    assert result.changes
    if changes is not None:
        assert list(result.changes) == changes
    assert repair(repaired) == Repaired(repaired)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("true", "no JSON object"),
        ("12", "no JSON object"),
        ('"Paris"', "no JSON object"),
        ("I could not do that.", "no JSON object"),
        ("[1, 2]", "a list, not an object"),
        ('[{"a":1},{"b":2}]', "a list of several values"),
        ('{"a":' * 20_000, "nested too deeply"),
    ],
)
def test_what_holds_no_object_is_refused_and_says_why(text, why):
    with pytest.raises(ArgumentsError, match=why) as raised:
        repair(text)
    assert len(str(raised.value)) < 100


@pytest.mark.law(6)
def test_an_object_is_unpacked_from_seven_strings_and_no_more():
    text = '{"a": 1}'
    for _ in range(7):
        text = json.dumps(text)
    assert repair(text) == Repaired('{"a": 1}', ("character 0: the object was packed in a string",) * 7)
    with pytest.raises(ArgumentsError, match="packed in strings too often"):
        repair(json.dumps(text))


@given(strategies.json_objects())
def test_an_object_of_ours_stays_as_it_is(table):
    text = jsontext.encode(table).decode()
    assert repair(text) == Repaired(text)


def sayable(text):
    return not any("\ud800" <= char <= "\udfff" for char in text)


@settings(max_examples=examples(200))
@given(json_texts(kinds="{").filter(sayable))
def test_an_object_stays_as_it_is_and_each_prefix_of_it_is_contained_in_it(text):
    assert repair(text) == Repaired(text)
    assume(once(text))
    whole = jsontext.value(text)
    for size in range(len(text)):
        result = repair(text[:size])
        shown = jsontext.value(result.text)
        assert isinstance(shown, dict)
        assert contained(shown, whole), (text[:size], result)


MARKS = [
    *"{}[]:,\"'\\ \n0123.eE-+/*ab`“\x00\ud83d\udc00\xa0=",
    "\\u",
    "d83d",
    "//",
    "/*",
    "*/",
    "true",
    "NaN",
    "```",
    "{}",
]


def check(text):
    try:
        result = repair(text)
    except ArgumentsError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert "not JSON" not in refusal  # what was put together is always JSON
        return False
    assert isinstance(jsontext.value(result.text), dict)
    result.text.encode()
    assert repair(result.text) == Repaired(result.text)
    return True


@pytest.mark.law(6)
@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from(MARKS)).map("".join))
def test_any_text_is_repaired_or_refused(text):
    check(text)


@pytest.mark.law(6)
def test_a_damaged_object_is_repaired():
    rng = random.Random(5)
    seed = '{"a": [1, -2.5e+3, true, null, "x\\ud83d\\ude00\\n"], \'b\': {"c": "it\'s", "d": [{}, []]}, e: None}'
    for _ in range(3000):
        text = list(seed)
        for _ in range(rng.randint(1, 4)):
            at = rng.randint(1, len(text))
            text[at : at + rng.randint(0, 3)] = rng.choice(MARKS) * rng.randint(0, 2)
        assert check("".join(text))


@pytest.mark.law(6)
@pytest.mark.parametrize("size", [50_000, pytest.param(200_000, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("head", "unit"),
    [
        ("", "["), ("", "{"), ("", "\\"), ("", "'"), ("", '"'), ("", "`"), ("", "{}"), ("", '{"a":'), ("", "x{"),
        ("", '{"a":1}'), ("", "p{x}"), ("", "[{"), ("", '"\\'), ("", " "), ("```x", " "), ("{", " "), ("{", ","),
        ("{", "/*"), ("{", "a:"), ("{", "]"), ('{"a":"', "\\"), ('{"a":"', "\\x"), ('{"a":"', '"'), ('{"a":"', '" '),
        ('{"a":"', '" \\n'), ('{"a":["', '", a'), ('{"a":["', '" ,'), ("{'a':'", "'\""), ('{"a":', "9"), ('{"a":', "-"),
        ('{"a":[', "1 "), ('{"a":"', "\\ud83d"), ('{"a":"', "\n"), ('{"a":"C:\\d', "\\d"), ('{\\"a', "\\"),
    ],
)  # fmt: skip
def test_a_hostile_text_does_not_hang(head, unit, size):
    text = head + unit * (size // len(unit))
    check(text + "y")
    check(text)  # so long that quadratic time would run for minutes
