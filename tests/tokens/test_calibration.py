"""A calibration is right after one report, learns slope and fixed part from more, and no report throws it off."""

import msgspec
import pytest
from hypothesis import given, strategies as st

from palaver.core.errors import MessageError
from palaver.tokens import Calibration


def taught(pairs, start=Calibration()):  # noqa: B008 (frozen)
    for estimate, reported in pairs:
        start = start.learned(estimate, reported)
    return start


@given(st.integers(1, 200_000), st.floats(0.6, 1.6), st.integers(0, 900))
def test_one_report_is_enough_for_a_prompt_of_that_size(estimate, slope, fixed):
    reported = round(slope * estimate) + fixed
    found = taught([(estimate, reported)]).apply(estimate)
    assert abs(found - reported) <= 0.1 * reported + 8


@given(
    st.lists(st.integers(50, 50_000), min_size=4, max_size=30, unique=True),
    st.floats(0.6, 1.6),
    st.integers(0, 900),
)
def test_it_goes_on_being_right_as_a_conversation_grows(estimates, slope, fixed):
    calibration = Calibration()
    for estimate in sorted(estimates):
        calibration = calibration.learned(estimate, round(slope * estimate + fixed))
    last = max(estimates)
    reported = slope * last + fixed
    assert abs(calibration.apply(last) - reported) <= 0.1 * reported + 8


def test_short_and_long_prompts_tell_the_fixed_part_from_the_slope():
    found = taught([(20, 514), (3000, 2900), (9000, 7700)])
    assert found.scale == pytest.approx(0.8, abs=0.03)
    assert found.fixed == pytest.approx(500, abs=20)


def test_it_begins_near_the_estimate():
    assert Calibration().apply(1000) == pytest.approx(900, abs=50)
    assert Calibration().apply(0) >= 1


@pytest.mark.parametrize("reported", [0, -5, 10**9])
def test_what_is_no_count_is_left_out(reported):
    known = taught([(1000, 900)])
    assert known.learned(1000, reported) == known


def test_one_outlier_hardly_moves_the_calibration():
    known = taught([(size, size) for size in range(1000, 21_000, 1000)])
    moved = known.learned(21_000, 90_000)
    assert moved.apply(22_000) < 36_000
    assert taught([(size, size) for size in range(22_000, 26_000, 1000)], moved).apply(26_000) < 30_000


def test_it_follows_a_change():
    known = taught([(size, size) for size in range(1000, 11_000, 1000)])
    changed = taught([(size, 2 * size) for size in range(11_000, 21_000, 1000)], known)
    assert changed.apply(21_000) == pytest.approx(42_000, rel=0.1)


def test_a_report_of_a_prompt_with_much_media_tells_less():
    known = taught([(1000, 1000), (2000, 2000)])
    assert abs(known.learned(2000, 4000, unsure=4000).apply(2000) - 2000) < 100
    assert known.learned(2000, 4000).apply(2000) > 2200


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(-5, 2**45)), max_size=12), st.integers(0, 2**40))
def test_whatever_is_reported_the_answer_is_a_count(pairs, estimate):
    found = taught(pairs)
    assert found.apply(estimate) >= 1
    assert 0.2 <= found.scale <= 5


def test_the_share_of_reasoning_that_comes_back_is_learned():
    assert Calibration().replay == 1.0
    assert Calibration().with_replay(-0.2).replay == 0.0
    assert Calibration().with_replay(float("nan")) == Calibration()
    assert Calibration().with_replay(0.0).with_replay(1.0).replay == 0.5
    assert taught([(100, 90)]).with_replay(0.0).apply(100) == taught([(100, 90)]).apply(100)


def test_a_negative_estimate_is_refused():
    with pytest.raises(MessageError, match="-1"):
        Calibration().learned(-1, 5)


@pytest.mark.finding("F-10")
def test_what_was_learned_is_read_back_and_nonsense_is_not():
    known = Calibration().learned(1000, 800).learned(4000, 3300).with_replay(0.5)
    fields = msgspec.to_builtins(known)
    assert Calibration.from_record(fields) == known
    for name, wrong in [("ee", -1.0), ("n", "1"), ("r", None), ("e", 10**400), ("replay", 2.0), ("er", float("nan"))]:
        assert Calibration.from_record({**fields, name: wrong}) is None
    assert Calibration.from_record({**fields, "e": 1e6}) is None
    assert Calibration.from_record({}) is None


@pytest.mark.finding("F-10")
def test_what_a_report_said_beyond_expectation_holds_until_the_next():
    known = Calibration().learned(1_000, 900).learned(5_000, 4_400)
    carried = known.carry_over(4_000, 4_800)
    assert carried.apply(4_000) == 4_800
    assert carried.apply(2_000) < 4_800
    assert carried.scale == pytest.approx(known.scale * carried.ratio)
    assert Calibration.from_record(msgspec.to_builtins(carried)) == carried
    assert carried.learned(6_000, 5_000).ratio == 1.0
    assert known.carry_over(0, 0) == known
