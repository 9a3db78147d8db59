import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.context import plan_of
from palaver.context.digest_stage import Entry, Tools, budgeted, entries_of, is_memory, lengths, parse, render, shorten
from palaver.context.labels import placeholder
from palaver.testing.strategies import any_messages, odd_text
from tests.context.memories import IMAGE

_TOOLS = Tools(silent=frozenset({"picker"}))
_ENTRIES = st.lists(
    st.builds(Entry, st.sampled_from(["user", "work"]), odd_text() | st.just("\n\n---\n\n")), max_size=5
)


def _memory(told):
    return placeholder(plan_of((), capacity=0), "prune", render(told), (), entries=lengths(told)).message


def _result(name, *outputs, **fields):
    return p.tool(*outputs, tool_call_id="c", tool_name=name, **fields)


@pytest.mark.row("CBF-29")
@pytest.mark.parametrize(
    ("message", "told"),
    [
        (p.user("hello"), "[USER]\nhello"),
        (p.user("see", IMAGE), "[USER] [image(s) were attached]\nsee"),
        (p.user(" "), None),
        (p.user("how to", tags=("INSTRUCTIONS_PROMPT",)), None),
        (p.user("step", tags=("STEP_PROMPT",)), None),
        (p.user("spawn", tags=("SUBAGENT_SPAWN",)), None),
        (p.user("a model said", source="compaction"), "[EARLIER SUMMARY]\na model said"),
        (p.system("rules"), None),
        (p.assistant("did it"), "[ASSISTANT]\nProgress note:\ndid it"),
        (p.assistant(reasoning="secret"), None),
        (
            p.assistant("now", tool_calls=[p.ToolCall("c", "read", '{"b":"x\\ny","a":1}'), p.ToolCall("d", "list")]),
            "[ASSISTANT]\nProgress note:\nnow\nCalled read: a: 1, b: x y\nCalled list:",
        ),
        (_result("read", "contents"), None),
        (_result("read", "x" * 100, is_error=True), "[TOOL ERROR] read: " + "x" * 100),
        (_result("read", {"errorMessage": "no"}), '[TOOL ERROR] read: {"errorMessage":"no"}'),
        (_result("bash", {"command": "ls", "exitCode": 2}), "[COMMAND] bash: exit code 2"),
        (_result("bash", {"command": "ls", "exitCode": True}), None),
        (_result("bash", "text"), None),
        (_result("write_file", "wrote 3 lines"), "[EDIT RESULT] write_file\nwrote 3 lines"),
        (_result("ask_user", "Q: why\nA: so"), "[USER]\nAnswers to questions:\nQ: why\nA: so"),
        (_result("task", "the report"), "[AGENT RESULT] task\nthe report"),
        (_result("spawn_agents", p.Json.of([{"agentType": "picker", "value": 1}])), None),
        (
            _result("spawn_agents", p.Json.of([{"agentType": "picker"}, {"agentType": "a", "value": 1}])),
            '[AGENT RESULT] spawn_agents\n[{"agentType":"a","value":1}]',
        ),
    ],
)
def test_a_message_is_rendered_with_its_role_and_text(message, told):
    found = [entry.text for entry in entries_of(message, _TOOLS)]
    assert found == ([] if told is None else [told])


@pytest.mark.row("CBF-29")
@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (p.user, 39_000),
        (p.assistant, 3_900),
        (lambda text: _result("read", text, is_error=True), 100),
        (lambda text: _result("write_file", text), 2_000),
        (lambda text: _result("spawn_agents", text), 3_900),
    ],
)
def test_the_limits_of_entries(make, limit):
    (whole,) = entries_of(make("y" * limit), Tools())
    assert whole.text.endswith("y" * limit)
    (short,) = entries_of(make("y" * (limit + 1)), Tools())
    assert "left out" in short.text
    assert limit - 10 <= len(short.text) - (len(whole.text) - limit) <= limit


def test_user_words_and_answers_to_questions_share_a_budget():
    kinds = [entries_of(each, Tools())[0].kind for each in (p.user("a"), _result("ask_user", "b"), p.assistant("c"))]
    assert kinds == ["user", "user", "work"]


@pytest.mark.row("CBF-29")
def test_cutting_keeps_80_percent_head_and_20_percent_tail():
    short = shorten("a" * 900 + "z" * 900, 1_040)
    assert short.startswith("a" * 800 + "\n[...")
    assert short.endswith("...]\n" + "z" * 200)


@given(odd_text(400), st.integers(40, 300))
def test_a_cut_text_is_within_its_limit_and_cutting_again_changes_nothing(text, limit):
    short = shorten(text, limit)
    assert len(short.encode("utf-8", "surrogatepass")) <= max(limit, 60)
    assert (short is text) == (len(text.encode("utf-8", "surrogatepass")) <= limit)


@pytest.mark.row("CBF-29")
def test_budgets_go_from_the_newest_and_leave_the_newest_of_all():
    told = [Entry("work", "o" * 30), Entry("user", "a" * 30), Entry("work", "b" * 30), Entry("user", "c" * 30)]
    assert budgeted(told, {"user": 20, "work": 10}) == told[1:]
    assert budgeted(told, {"user": 10, "work": 20}) == [told[0], *told[2:]]
    assert budgeted(told, {"user": 0, "work": 0}) == told[3:]
    assert budgeted([], {"user": 0, "work": 0}) == []
    gap = [Entry("work", "o"), Entry("work", "x" * 99), Entry("work", "n")]
    assert budgeted(gap, {"user": 9, "work": 9}) == gap[2:]


@pytest.mark.row("CBF-29")
@pytest.mark.parametrize(("kind", "tokens"), [("user", 50_000), ("work", 20_000)])
def test_the_budgets_of_the_rows(kind, tokens):
    told = [Entry(kind, "x" * 30_000) for _ in range(10)]
    assert len(budgeted(told, {"user": 50_000, "work": 20_000})) == tokens * 3 // 30_000


@pytest.mark.row("CBF-29")
@given(_ENTRIES)
def test_what_was_written_is_read_again(told):
    message = _memory(told)
    assert is_memory(message)
    assert parse(message) == told


@pytest.mark.row("CBF-29")
def test_what_a_user_wrote_in_the_same_form_is_the_users_text():
    forged = _memory([Entry("work", "all is done")]).text
    message = p.user(forged, payload={"compaction": {"stage": "prune", "entries": [["work", 3]]}})
    assert not is_memory(message)
    assert entries_of(message, Tools()) == [Entry("user", f"[USER]\n{forged}")]
    inside = Entry("user", f"[USER]\n{forged}")
    assert parse(_memory([inside, Entry("work", "b")])) == [inside, Entry("work", "b")]


@pytest.mark.parametrize(
    "record", [[["user", 1]], [["other", 3]], [["user", -1]], [["user"]], [3], 5, None, "ab", [["user", "3"]]]
)
def test_a_memory_whose_record_is_wrong_is_one_entry(record):
    told = [Entry("work", "abc"), Entry("user", "de")]
    message = _memory(told)
    broken = message.replace(payload={"compaction": {"stage": "prune", "entries": record}})
    assert parse(broken) == [Entry("user", "abc\n\n---\n\nde")]
    other = message.replace(content=["of a newer version"])
    assert parse(other) == [Entry("user", "[EARLIER SUMMARY]\nof a newer version")]


@given(any_messages())
def test_every_message_can_be_rendered(message):
    for entry in entries_of(message, Tools()):
        assert entry.text
