"""Levels of the loop detector: docs/spec/kairo.md#2.7, golden ``loop_detector``."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, strategies as st
from msgspec import structs

import palaver as p
from palaver.agent.loops import RULES, Seen, Thresholds, Watch, seen

DEFAULT = Thresholds()
OFF = Thresholds(same_round=(0, 0), same_call=0, alternating=0, calls=(0, 0), idle=0, growing=0)
N, W, S = "none", "warn", "stop"


def call(name="read", **arguments):
    return p.tool_call(name, arguments, id="c")


def result(text, is_error=False):
    return p.tool(text, tool_call_id="c", is_error=is_error)


def watched(turns, thresholds=DEFAULT, **options):
    """Every turn is (calls, results), or calls."""
    watch, found = Watch(), []
    for turn in turns:
        calls, results = turn if isinstance(turn, tuple) else (turn, ())
        watch, one = seen(watch, calls, results, thresholds=thresholds, **options)
        found.append(one)
    return found


def levels(turns, *args, **options):
    return [one.level for one in watched(turns, *args, **options)]


READ = call(p=1)
GOLDEN = {
    "identical_call_streak": ([[READ]] * 6, Thresholds(same_call=4), [N, N, W, S, S, S]),
    "alternating_a_b": ([[call("a")], [call("b")]] * 3, Thresholds(same_call=3), [N, N, N, N, N, S]),
    "growing_arguments": (
        [[call("write", p="y" * (10 * 2**i))] for i in range(5)],
        Thresholds(same_call=3),
        [N, N, N, W, W],
    ),
    "distinct_reads": ([[call(p=i)] for i in range(12)], Thresholds(), [N] * 12),
    "window_history": (
        [[call(name)] for name in "AAAAABABAB"],
        structs.replace(OFF, among=(3, 5, 5)),
        [N, N, W, W, S, N, W, N, W, W],
    ),
}


@pytest.mark.row("KAI-14")
@pytest.mark.parametrize("name", GOLDEN)
def test_levels_equal_the_goldens(name):
    turns, thresholds, expected = GOLDEN[name]
    assert levels(turns, thresholds) == expected


@pytest.mark.row("KAI-14")
@pytest.mark.parametrize("name", ["identical_call_streak", "alternating_a_b", "growing_arguments"])
def test_levels_equal_the_goldens_by_default(name):
    turns, _, expected = GOLDEN[name]
    assert levels(turns) == expected


@pytest.mark.row("KAI-14")
@pytest.mark.parametrize("count", [12, 30])
def test_distinct_reads_are_progress(count):
    turns = [([call(p=i)], [result("the same empty page")]) for i in range(count)]
    assert levels(turns) == [N] * count


def test_the_same_round_warns_and_then_stops_without_the_rule_of_the_same_call():
    assert levels([[READ]] * 6, Thresholds(same_call=0)) == [N, N, W, W, S, S]
    both = [[READ, call(p=2)], [call(p=2), READ]]
    assert levels(both * 3, Thresholds(same_call=0)) == [N, N, W, W, S, S]


def test_the_same_call_beside_new_ones_is_no_loop():
    turns = [[call("edit", p=i), call("test")] for i in range(12)]
    assert levels(turns) == [N] * 12
    assert levels([*turns[:5], [call("edit", p=0), call("test")]])[-1] == S


@pytest.mark.parametrize(
    "turns",
    [
        [[call("a")], [call("b")]] * 2 + [[call("a")], [call("c")]],
        [[call("a"), call("a", x=1)], [call("b")]] * 3,
        [[call("a")]] * 6,
    ],
)
def test_only_two_single_calls_in_turn_alternate(turns):
    assert levels(turns, structs.replace(OFF, alternating=6)) == [N] * 6


@pytest.mark.parametrize(("count", "level"), [(49, N), (50, W), (99, W), (100, S), (300, S)])
def test_a_tool_that_is_called_often_is_noticed(count, level):
    thresholds = structs.replace(OFF, calls=(50, 100))
    assert levels([[call(p=i)] for i in range(count)], thresholds)[-1] == level
    assert levels([[call(p=i) for i in range(count)]], thresholds)[-1] == level


def test_only_calls_within_the_time_count():
    thresholds = structs.replace(OFF, calls=(3, 5), seconds=10.0)
    watch, found = Watch(), []
    for at in (0, 1, 2, 10.5, 11.5, 12, 30):
        watch, one = seen(watch, [call(p=at)], now=at, thresholds=thresholds)
        found.append(one.level)
    assert found == [N, N, W, W, W, W, N]
    _, other = seen(watch, [call("other")], now=30, thresholds=thresholds)
    assert other.level == N


@pytest.mark.row("KAI-14")
def test_no_progress_is_nothing_new_called_and_nothing_new_learned():
    thresholds = structs.replace(OFF, idle=10)
    known = [([call(p=i % 3)], [result(f"page {i % 3}")]) for i in range(30)]
    assert levels(known, thresholds) == [N] * 12 + [W] * 18
    polled = [([READ], [result(f"{i} percent")]) for i in range(30)]
    assert levels(polled, thresholds) == [N] * 30
    turned = [([READ], [result("same", is_error=i > 10)]) for i in range(15)]
    assert levels(turned, thresholds) == [N] * 10 + [W, N, N, N, N]
    with_new = [*known[:20], ([call(p=99)], []), *known[:5]]
    assert levels(with_new, thresholds)[19:] == [W] + [N] * 6


@pytest.mark.parametrize(
    ("sizes", "level"),
    [([10, 12, 15, 30], W), ([10, 12, 11, 30], N), ([20, 21, 22, 23], N), ([10, 20, 40], N), ([0, 0, 0, 0], N)],
)
def test_growing_arguments_double_at_least(sizes, level):
    turns = [[p.ToolCall("c", f"t{i}", "1" * size)] for i, size in enumerate(sizes)]
    assert levels(turns, structs.replace(OFF, growing=4))[-1] == level


def test_tools_that_poll_are_not_looked_at():
    poll = call("wait")
    assert levels([[poll]] * 200, polling=frozenset({"wait"})) == [N] * 200
    assert levels([[READ], [poll]] * 10, polling=frozenset({"wait"})) == [N] * 20
    assert levels([[READ, poll]] * 3, polling=frozenset({"wait"})) == [N, N, W]


@pytest.mark.row("KAI-14")
def test_a_warning_is_said_once_and_again_after_a_pause():
    found = watched([[READ]] * 3 + [[READ]] + [[call(p=2)]] * 3, Thresholds(same_call=0, idle=0))
    assert [one.text is not None for one in found] == [False, False, True, False, False, False, True]
    assert found[2].text == "The same calls were made 3 times in a row. Their results are above."


def test_every_rule_can_speak():
    turns = {
        "same_round": [[READ]] * 3,
        "same_call": [[READ, call(p=i % 2)] for i in range(6)],
        "alternating": GOLDEN["alternating_a_b"][0],
        "calls": [[call(p=i) for i in range(50)]],
        "idle": [[call(p=i % 3)] for i in range(13)],
        "growing": GOLDEN["growing_arguments"][0],
        "among": [[READ], [READ], [READ]],
    }
    for name, _, _ in RULES:
        limits = structs.replace(OFF, among=(3, 5, 5)) if name == "among" else Thresholds()
        found = watched(turns[name], limits)
        assert name in {one.rule for one in found if one.text}


def test_nothing_called_changes_nothing():
    watch, _ = seen(Watch(), [READ])
    assert seen(watch, []) == (watch, Seen())


def test_what_is_remembered_is_bounded():
    watch = Watch()
    for i in range(3000):
        watch, _ = seen(watch, [call(f"t{i}", p=i)], [result(str(i))], now=i)
    assert len(watch.known) + len(watch.older) <= 512
    assert len(watch.times) == 64
    assert len(watch.turns) == 6
    for i in range(3000):
        watch, _ = seen(watch, [call(p=i)], now=3000)
    assert len(watch.times["read"]) == 100
    assert sum(sys.getsizeof(each) for each in (watch.known, watch.older, watch.times, watch.turns)) < 100_000


calls = st.builds(lambda name, n: call(name, p=n), st.sampled_from("ab"), st.integers(0, 2))


@given(st.lists(st.lists(calls, max_size=3), max_size=30))
def test_a_watch_is_a_value(turns):
    watch = Watch()
    for turn in turns:
        before = structs.replace(watch)
        one = seen(watch, turn, [result("r")] * len(turn))
        assert watch == before
        assert seen(watch, turn, [result("r")] * len(turn)) == one
        watch = one[0]


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=1, max_size=2), max_size=20, unique_by=min))
def test_runs_that_always_call_something_new_are_never_stopped(turns):
    found = levels([[call(p=n) for n in turn] for turn in turns])
    assert S not in found
