"""What a compaction kept stands in a thread twice, and is read once."""

import pytest

import palaver as p
from palaver.threads import Thread
from palaver.threads.view import fingerprint, without_copies

pytestmark = pytest.mark.finding("F-77")
CALL = p.ToolCall("c", "read", "{}")


def texts(*messages):
    thread = Thread()
    thread.append(*messages)
    return [entry.message.text or entry.message.role for entry in without_copies(thread.path())]


def test_copies_are_left_out_and_summaries_stay():
    kept = [p.assistant("found it", CALL), p.tool("seen", tool_call_id="c")]
    copies = [each.replace(source="compaction") for each in kept]
    summary = p.user("They went on.", source="compaction")
    found = texts(p.user("look"), *kept, p.flush(), summary, *copies, p.user("and now?"))
    assert found == ["look", "found it", "seen", "flush", "They went on.", "and now?"]


def test_what_somebody_says_twice_is_there_twice():
    assert texts(p.user("yes"), p.user("yes"), p.user("sum", source="compaction")) == ["yes", "yes", "sum"]


def test_a_copy_without_its_original_stays():
    assert texts(p.flush(), p.user("yes", source="compaction"), p.user("no")) == ["flush", "yes", "no"]


@pytest.mark.parametrize(
    "other",
    [p.user("a"), p.tool("a", tool_call_id="2"), p.tool("a", "", tool_call_id="1"), p.tool(tool_call_id="1")],
)
def test_role_parts_and_call_tell_messages_apart(other):
    assert fingerprint(p.tool("a", tool_call_id="1")) != fingerprint(other)
