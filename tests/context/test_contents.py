"""What fills a window, of conversations that are not whole."""

import pytest

import palaver as p
from palaver.context.contents import contents
from palaver.core.pairs import MISSING_RESULT
from palaver.threads import Thread


@pytest.mark.finding("F-16")
@pytest.mark.parametrize("calls", [1, 2])
def test_a_call_without_a_result_counts_as_it_is_sent(calls):
    """A run that waits for an approval, or was killed, ends in an open call."""
    thread = Thread()
    asked = [p.ToolCall(f"c{number}", "look", '{"n":1}') for number in range(calls)]
    thread.append(p.user("go"), p.assistant(*asked))
    found = contents(thread.path(), [entry.message for entry in thread.path()], window=1000)
    assert found.messages == 2 + calls
    assert [share.count for share in found.kinds if share.kind == "results"] == [calls]
    assert MISSING_RESULT in [heavy.message.text for heavy in found.largest]
    assert sum(share.tokens for share in found.kinds) == found.tokens
