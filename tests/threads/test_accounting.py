"""An answer counts once, however often it is reported."""

import palaver as p
from palaver.core.usage import Usage
from palaver.threads import usage_once


def answer(output, **fields):
    return p.assistant("yes", usage=Usage(input=10, output=output), **fields)


def test_answers_are_added():
    assert usage_once([p.user("hi"), answer(1, id="a"), answer(2, id="b")]) == Usage(input=20, output=3)
    assert usage_once([answer(1), answer(2)]) == Usage(input=20, output=3)
    assert usage_once([]) == Usage()


def test_an_answer_that_is_repeated_counts_once_and_with_its_largest_report():
    reports = [answer(1, id="a", response_id="r"), answer(7, id="b", response_id="r"), answer(3, response_id="r")]
    assert usage_once(reports) == Usage(input=10, output=7)
    assert usage_once([answer(1, id="a"), answer(1, id="a")]) == Usage(input=10, output=1)


def test_reasoning_is_generated_too():
    less = p.assistant("x", response_id="r", usage=Usage(output=5))
    more = p.assistant("x", response_id="r", usage=Usage(output=1, reasoning=9))
    assert usage_once([less, more]) == Usage(output=1, reasoning=9)


def test_an_answer_without_a_report_counts_for_nothing():
    assert usage_once([p.assistant("x", response_id="r")]) == Usage()
