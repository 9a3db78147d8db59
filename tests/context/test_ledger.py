"""A ledger estimates each message once, tells a prompt from the last report that may be trusted, and learns."""

import itertools

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.context import Ledger
from palaver.context.ledger import same_model
from palaver.context.plan import SOURCE
from palaver.core.errors import MessageError
from palaver.testing import strategies
from palaver.threads import RECORD, Thread
from palaver.threads.thread import ListPrefix
from palaver.tokens import Calibration, counter, estimate, overhead


def usage(prompt, output=20, **more):
    return p.Usage(input=prompt, output=output, **more)


def answer(text="Done.", prompt=1000, output=20, **fields):
    return p.assistant(text, usage=usage(prompt, output), **fields)


def path_of(*messages):
    thread = Thread(clock=itertools.count().__next__)
    thread.append(*messages)
    return thread.path()


def anchored(*messages, ledger=None):
    path = path_of(*messages)
    sent = [entry.message for entry in path if not isinstance(entry.message, p.FlushMarker | p.RescueMarker)]
    return (Ledger() if ledger is None else ledger).anchored(path, sent)


@pytest.fixture
def estimated(monkeypatch):
    """The messages that were estimated, in order."""
    made = []

    def counting(message, rates=None):
        made.append(message)
        return estimate(message, rates)

    monkeypatch.setattr(counter, "estimate", counting)
    return made


# -- following ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(strategies.any_messages(), max_size=4), max_size=5), st.booleans())
def test_any_appends_give_what_a_fresh_ledger_gives(batches, windows):
    held, ledger = [], Ledger()
    for batch in batches:
        held.extend(batch)
        messages = ListPrefix(held) if windows else list(held)
        fresh = Ledger()
        assert ledger.measure(messages, fixed=7) == fresh.measure(list(held), fixed=7)
        assert list(ledger.estimates) == list(fresh.estimates) == [estimate(each) for each in held]
        assert ledger.sum == sum(ledger.estimates)


@given(st.lists(strategies.any_messages(), max_size=8), st.data())
def test_any_other_sequence_gives_what_a_fresh_ledger_gives(messages, data):
    ledger = Ledger()
    ledger.follow(messages)
    before = ledger.estimates
    kept = list(before)
    other = data.draw(st.lists(st.sampled_from(messages), max_size=8)) if messages else []
    assert ledger.measure(other, fixed=0) == Ledger().measure(other, fixed=0)
    assert list(ledger.estimates) == [estimate(each) for each in other]
    assert list(before) == kept


@pytest.mark.parametrize("windows", [True, False])
def test_after_one_append_one_message_is_estimated(estimated, windows):
    held, ledger = [p.user(f"message {n}") for n in range(1000)], Ledger()
    for _ in range(20):
        held.append(p.user("one more"))
        ledger.measure(ListPrefix(held) if windows else list(held), fixed=0)
    assert len(estimated) == 1020


def test_what_changes_in_the_middle_is_estimated_from_there(estimated):
    held, ledger = [p.user(f"message {n}") for n in range(10)], Ledger()
    ledger.follow(held)
    ledger.follow([*held[:7], p.user("shorter"), *held[8:]])
    assert len(estimated) == 10 + 3


def test_looking_for_the_anchor_reads_what_is_new_in_the_path():
    reads = []

    class Counted(list):
        def __getitem__(self, index):
            reads.append(index)
            return super().__getitem__(index)

    thread, ledger = Thread(clock=itertools.count().__next__), Ledger()
    thread.append(*[p.user(f"message {n}") for n in range(1000)])
    for _ in range(10):
        thread.append(p.user("one more"))
        path = thread.path()
        ledger.anchored(Counted(path), path.messages)
    assert len(reads) < 1000 + 10 * 6


# -- what a prompt is --------------------------------------------------------------------------------------------------


@pytest.mark.row("KAI-03")
def test_the_decision_is_made_from_the_last_report_and_the_estimate_of_what_came_after():
    """Scripted usage: the provider counts far more than any estimate would."""
    messages = [p.user("Hi."), answer(prompt=50_000, output=400), p.user("x" * 7000)]
    ledger = Ledger(calibration=Calibration())
    found = ledger.measure(messages, fixed=100, anchor=1)
    after = found.tokens - 50_400
    assert after == pytest.approx(ledger.calibration.scale * estimate(messages[2]), abs=10)
    assert found.estimate == sum(map(estimate, messages)) + sum(map(overhead, messages)) + 100
    assert ledger.measure(messages, fixed=100).tokens < 5000


@pytest.mark.row("KAI-03")
def test_cached_tokens_are_part_of_the_prompt():
    cached = p.assistant("Done.", usage=p.Usage(input=10, cache_read=4000, cache_write=600, output=30))
    found = Ledger().measure([p.user("Hi."), cached], fixed=0, anchor=1)
    assert found.tokens == 4640


def test_a_plan_made_with_the_measure_weighs_the_same():
    messages = [p.user("x" * 500), answer("y" * 300, prompt=3210), p.user("z" * 900)]
    ledger = Ledger()
    for anchor in (None, 1):
        found = ledger.measure(messages, fixed=50, anchor=anchor)
        plan = ledger.plan(messages, found, capacity=9999)
        assert abs(plan.tokens - found.tokens) <= 1


def test_reasoning_is_part_of_the_prompt_while_its_turn_is_open():
    call = p.ToolCall("c", "f", "{}")
    thought = p.Reasoning("thought", signature="s" * 90, wire="anthropic_messages")
    said = p.assistant(thought, tool_calls=[call], usage=usage(1000, 20, reasoning=500))
    result = p.tool("ok", tool_call_id="c")
    ledger = Ledger()
    opened = ledger.measure([p.user("Hi."), said, result], fixed=0, anchor=1)
    closed = ledger.measure([p.user("Hi."), said, result, p.user("Go on.")], fixed=0, anchor=1)
    assert opened.tokens > 1520 > closed.tokens > 1020
    bare = said.replace(content=[p.Reasoning("thought"), call])
    assert ledger.measure([p.user("Hi."), bare, result], fixed=0, anchor=1).tokens < 1100


def test_reasoning_of_earlier_answers_falls_away_with_the_turn():
    thought = p.Reasoning("", encrypted="s" * 4000, wire="openai_responses")
    call, result = p.ToolCall("c", "f", "{}"), p.tool("ok", tool_call_id="c")
    first = p.assistant(thought, tool_calls=[call], usage=usage(1000, 20, reasoning=500))
    last = answer(prompt=1600)
    found = Ledger().measure([p.user("Hi."), first, result, last, p.user("Go on.")], fixed=0, anchor=3)
    assert 1100 < found.tokens < 1160
    more = [p.user("Go on."), answer(prompt=1200), p.user("And on.")]
    found = Ledger().measure([p.user("Hi."), first, result, last, *more], fixed=0, anchor=5)
    assert 1220 < found.tokens < 1260


def test_reasoning_that_is_reported_with_the_output_falls_away_with_the_turn():
    said = p.assistant(p.Reasoning("x" * 3500, signature="s" * 90), "y" * 70, usage=usage(1000, 900))
    found = Ledger().measure([p.user("Hi."), said, p.user("Go on.")], fixed=0, anchor=1)
    assert 1000 < found.tokens < 1060


def test_whether_reasoning_comes_back_is_learned():
    call, result = p.ToolCall("c", "f", "{}"), p.tool("ok", tool_call_id="c")
    said = p.assistant(p.Reasoning("", encrypted="s" * 900), tool_calls=[call], usage=usage(1000, 20, reasoning=500))
    ledger, messages = Ledger(), [p.user("Hi."), said, result]
    ledger.learn(ledger.measure(messages, fixed=0, anchor=1), answer(prompt=1035))
    assert ledger.measure(messages, fixed=0, anchor=1).tokens < 1100
    ledger.learn(ledger.measure(messages, fixed=0, anchor=1), answer(prompt=1535))
    assert 1200 < ledger.measure(messages, fixed=0, anchor=1).tokens < 1400


def test_an_image_is_not_scaled_like_text():
    image = p.Image(p.Url("https://example.org/a.png"))
    ledger = Ledger(calibration=Calibration().learned(10_000, 16_000).learned(20_000, 32_000))
    messages = [p.user("Hi."), answer(), p.user(image)]
    assert ledger.measure(messages, fixed=0, anchor=1).tokens - 1020 == pytest.approx(estimate(messages[2]), abs=10)


def test_bad_arguments_are_refused():
    ledger, messages = Ledger(), [p.user("Hi."), p.assistant("No usage."), answer()]
    with pytest.raises(MessageError, match="fixed"):
        ledger.measure(messages, fixed=-1)
    for anchor in (0, 1, 3, -1):
        with pytest.raises(MessageError, match=f"message {anchor} "):
            ledger.measure(messages, fixed=0, anchor=anchor)


# -- the anchor --------------------------------------------------------------------------------------------------------


def test_the_anchor_is_the_last_answer_that_reports_its_prompt():
    call = p.ToolCall("c", "web", "{}", provider_executed=True)
    assert anchored(p.user("a"), answer(), p.user("b"), answer(), p.user("c")) == 3
    for untrusted in (
        p.assistant("no usage"),
        p.assistant("no prompt", usage=p.Usage(output=5)),
        p.assistant("several prompts", tool_calls=[call], usage=usage(5)),
        p.assistant(p.Opaque("elsewhere", strategies.jsontext.raw({})), usage=usage(5)),
        p.assistant("passes", usage=p.Usage(input=5, passes=(p.UsagePass(kind="compaction", usage=usage(5)),))),
        answer(tags=("discarded",)),
    ):
        assert anchored(p.user("a"), answer(), p.user("b"), untrusted, p.user("c")) == 1, untrusted
    assert anchored(p.user("a")) is None
    assert anchored() is None


@pytest.mark.parametrize(
    "mark",
    [p.flush(), p.rescue(), p.assistant(tags=(RECORD,), source=SOURCE), p.system("", tags=(RECORD,), source=SOURCE)],
)
def test_no_anchor_stands_before_a_marker_or_a_compaction(mark):
    ledger = Ledger()
    thread = Thread(clock=itertools.count().__next__)
    for messages, expected in (
        ([p.user("a"), answer()], 1),
        ([mark], None),
        ([p.user("b")], None),
        ([answer(), p.user("c")], True),
    ):
        thread.append(*messages)
        path = thread.path()
        for each in (ledger, Ledger()):
            found = each.anchored(path, [e.message for e in path])
            assert found == (len(path) - 2 if expected is True else expected)


def test_other_records_hide_nothing():
    assert anchored(p.user("a"), answer(), p.system("", tags=(RECORD,), source="agent"), p.user("b")) == 1


def test_answers_of_other_models_and_other_agents_are_passed_over():
    messages = (p.user("a"), answer(model="m-1"), p.user("b"), answer(model="m-2", agent="x"), p.user("c"))
    assert anchored(*messages, ledger=Ledger("m-1")) == 1
    assert anchored(*messages, ledger=Ledger("m-2")) == 3
    assert anchored(*messages, ledger=Ledger("m-3")) is None
    assert anchored(*messages, ledger=Ledger(agent="y")) == 1


def test_an_anchor_that_is_not_among_the_messages_is_none():
    path = path_of(p.user("a"), answer(), p.user("b"))
    assert Ledger().anchored(path, [p.user("b")]) is None


def test_another_path_is_read_anew():
    ledger = Ledger()
    long, short = path_of(p.user("a"), answer(), p.user("b")), path_of(p.user("a"), p.user("b"))
    assert ledger.anchored(long, [e.message for e in long]) == 1
    assert ledger.anchored(short, [e.message for e in short]) is None
    assert ledger.anchored(long, [e.message for e in long]) == 1


@pytest.mark.parametrize(
    ("asked", "answered", "same"),
    [
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", True),
        ("claude-sonnet-4-0", "claude-sonnet-4-20250514", True),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5-20250929", True),
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("openai/gpt-4o", "gpt-4o", True),
        ("mistral-medium-latest", "mistral-medium", True),
        ("gpt-4o", "gpt-4o-mini", False),
        ("gpt-5", "gpt-5.1", False),
        ("claude-sonnet-4-5", "claude-opus-4-5", False),
        (None, "gpt-5", True),
        ("gpt-5", None, True),
    ],
)
def test_names_of_one_model(asked, answered, same):
    assert same_model(asked, answered) is same
    assert same_model(answered, asked) is same


# -- learning ----------------------------------------------------------------------------------------------------------


def test_after_one_answer_a_whole_prompt_is_told_within_a_tenth():
    messages = [p.user("x" * 20_000), p.assistant("y" * 200), p.user("z" * 3000)]
    ledger = Ledger()
    ledger.learn(ledger.measure(messages[:1], fixed=500), answer(prompt=9000))
    assert ledger.measure(messages[:1], fixed=500).tokens == pytest.approx(9000, rel=0.02)
    assert ledger.measure(messages, fixed=500).tokens == pytest.approx(9000 + 1300, rel=0.1)


@pytest.mark.parametrize("said", [p.assistant("no usage"), answer(model="another"), answer(prompt=0)])
def test_nothing_is_learned_from_what_cannot_be_trusted(said):
    ledger = Ledger("a-model")
    ledger.learn(ledger.measure([p.user("Hi.")], fixed=0), said)
    assert ledger.calibration == Calibration()


def test_a_fresh_ledger_learns_from_the_answers_of_its_thread():
    def turn(n):
        return [p.user("x" * 7000), answer("y" * 700, prompt=3000 * n, output=300)]

    old = path_of(*turn(9), p.flush(), *turn(1), *turn(2), *turn(3))
    messages = old.messages[3:]
    ledger = Ledger()
    ledger.recall(old, messages, fixed=0)
    assert ledger.calibration.reports == 3
    assert ledger.measure(messages[:5], fixed=0).tokens == pytest.approx(9000, rel=0.1)
