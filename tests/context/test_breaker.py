"""The breaker: three failures open it, a while later one probe decides (KAI-09, D5)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from palaver.context import Breaker
from palaver.core.errors import MessageError


@pytest.mark.row("KAI-09")
def test_the_third_failure_opens_it_and_one_probe_passes_later() -> None:
    breaker = Breaker()
    for now in (1.0, 2.0):
        breaker = breaker.failed(now)
        assert breaker.allows(now)
    breaker = breaker.failed(3.0)
    assert not breaker.allows(3.0)
    assert not breaker.allows(32.9)
    assert breaker.allows(33.0)
    probed = breaker.start()
    assert not probed.allows(33.0)
    assert not probed.allows(1000.0), "undecided, however long it takes"
    assert probed.succeeded() == Breaker()
    again = probed.failed(40.0)
    assert not again.allows(69.9)
    assert again.allows(70.0)


def test_a_probe_that_was_cancelled_lets_another_one_pass() -> None:
    breaker = Breaker(max_failures=1).failed(0.0).start()
    assert not breaker.allows(30.0)
    assert breaker.cancelled().allows(30.0)
    assert Breaker().cancelled() == Breaker().start() == Breaker()


def test_a_success_begins_the_count_anew() -> None:
    breaker = Breaker().failed(0.0).failed(0.0).succeeded().failed(0.0).failed(0.0)
    assert breaker.allows(0.0)
    assert not breaker.failed(0.0).allows(0.0)


@pytest.mark.parametrize("wrong", [{"max_failures": 0}, {"max_failures": -1}, {"seconds": -0.1}, {"seconds": math.nan}])
def test_what_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(MessageError, match=next(iter(wrong))):
        Breaker(**wrong)  # type: ignore[arg-type]


@given(st.lists(st.sampled_from(["try", "fail", "succeed", "cancel", "wait"]), max_size=40), st.integers(1, 4))
def test_no_two_tries_at_once_while_it_is_open(steps: list[str], most: int) -> None:
    """Against a plain count: it is open after so many failures in a row, and then one at a time may try."""
    breaker, now = Breaker(max_failures=most), 0.0
    failures, last, probes = 0, 0.0, 0
    for step in steps:
        is_open = failures >= most
        assert breaker.allows(now) == (not is_open or (now - last >= 30.0 and not probes))
        match step:
            case "try" if breaker.allows(now):
                breaker, probes = breaker.start(), int(is_open)
            case "fail":
                breaker, failures, last, probes = breaker.failed(now), failures + 1, now, 0
            case "succeed":
                breaker, failures, probes = breaker.succeeded(), 0, 0
            case "cancel":
                breaker, probes = breaker.cancelled(), 0
            case "wait":
                now += 10.0
            case _:
                pass
