"""Regular expressions that read what models and strangers write: none of them is slower than linear.

The texts are so long that a pattern of quadratic time would run for many minutes.
"""

import pytest

import palaver as p
from palaver.agent import InvalidArgumentsError
from palaver.context.summary_stage import entry, transcript
from palaver.turn.tool import read_arguments

pytestmark = pytest.mark.finding("F-42")

LONG = 400_000


@pytest.mark.parametrize("end", ["", "x", "}x"])
def test_bare_arguments(end):
    call = p.tool_call("f", '{"a": b' + " " * LONG + end, id="1")
    with pytest.raises(InvalidArgumentsError):
        read_arguments(call, ["a"])


@pytest.mark.parametrize("text", ["<" + " " * LONG, "< /" + " " * LONG, "< " * LONG, "</ " * LONG])
def test_transcripts(text):
    made = entry(p.user(text))
    assert transcript([made], 10 * LONG).count("&lt;") == 0
