"""A round that equals the one before is answered, not run: docs/spec/deepagents-swift.md#1.5, #7.3."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.agent import loops
from palaver.agent.loops import Repetition, signature
from palaver.core.parts import MalformedToolCall


def call(arguments="", name="read", id="c"):
    return p.ToolCall(id, name, arguments)


SAME = [
    ("", "{}"),
    (" \n", "{ }"),
    ('{"a":1,"b":2}', '{ "b": 2, "a": 1 }'),
    ('{"a":"\\u0041"}', '{"a":"A"}'),
    ('{"a":5e-6}', '{"a":5e-06}'),
    ('{"a":{"y":[1,{"q":1,"p":2}],"x":null}}', '{"a":{"x":null,"y":[1,{"p":2,"q":1}]}}'),
    ("{broken", "{broken"),
]
DIFFERENT = [
    ('{"a":"1"}', '{"a":1}'),
    ('{"a":1}', '{"a":1.0}'),
    ('{"a":true}', '{"a":1}'),
    ('{"a":null}', "{}"),
    ('{"a":[1,2]}', '{"a":[2,1]}'),
    ("{broken", "{broken "),
    ('"\\ud800"', '"\\ud801"'),
]


@pytest.mark.row("DAS-07")
@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_spelling_of_arguments_does_not_matter(one, other):
    assert signature(call(one, id="1")) == signature(call(other, id="2"))


@pytest.mark.row("DAS-07")
@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_the_values_of_arguments_matter(one, other):
    assert signature(call(one)) != signature(call(other))


def test_the_tool_matters_and_where_its_name_ends():
    assert signature(call("{}", "read")) != signature(call("{}", "write"))
    assert signature(call("1", "read1")) != signature(call("11", "read"))
    assert signature(call("{x", "read")) != signature(MalformedToolCall("{x", "no JSON", "read"))
    assert signature(MalformedToolCall("\ud800", "x")) != signature(MalformedToolCall("\ud801", "x"))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=12,
)


@pytest.mark.row("DAS-07")
@given(st.dictionaries(st.text(), values), st.randoms())
def test_any_order_and_any_spelling_gives_one_signature(arguments, random):
    items = list(arguments.items())
    random.shuffle(items)
    one = json.dumps(arguments, ensure_ascii=True, indent=1)
    other = json.dumps(dict(items), ensure_ascii=False)
    assert signature(call(one)) == signature(call(other))


@given(st.text() | st.text('[{"\\'), st.text())
def test_any_text_has_a_signature(arguments, name):
    assert len(signature(call(arguments, name))) == 16
    assert len(signature(call("[" * 100_000))) == 16


A, B = call('{"p":1}'), call('{"p":2}')


@pytest.mark.row("DAS-23")
@pytest.mark.parametrize(
    ("rounds", "verdicts"),
    [
        ([[A], [A], [A], [A]], ["", "answer", "final", "final"]),
        ([[A, B], [B, A]], ["", "answer"]),
        ([[A, B], [A]], ["", ""]),
        ([[A, A], [A]], ["", ""]),
        ([[A], [B], [A], [B]], ["", "", "", ""]),
        ([[A], [A], [B], [B], [B]], ["", "answer", "", "answer", "final"]),
        ([[A], [], [A], [A]], ["", "", "", "answer"]),
        ([[], []], ["", ""]),
    ],
)
def test_a_round_is_a_repeat_only_of_the_one_before(rounds, verdicts):
    state, given_ = Repetition(), []
    for round_ in rounds:
        state, verdict = loops.repeated(state, round_)
        if not verdict:
            state = loops.ran(state, failed=False)
        given_.append(verdict)
    assert given_ == verdicts


@pytest.mark.row("DAS-23")
@pytest.mark.parametrize("failed", [True, False])
def test_the_wording_says_whether_the_round_failed(failed):
    state, _ = loops.repeated(Repetition(), [A])
    state = loops.ran(state, failed=failed)
    state, _ = loops.repeated(state, [A])
    assert state.failed is failed
    text = loops.told("read", failed=state.failed)
    assert text.startswith("You already called read with the same arguments")
    assert ("and it failed" in text) is failed
    assert ("its result is in the conversation above" in text) is not failed


def test_a_new_round_forgets_that_the_last_one_failed():
    state, _ = loops.repeated(loops.ran(loops.repeated(Repetition(), [A])[0], failed=True), [B])
    assert not state.failed
