"""Whether and how long a model is waited for."""

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given, strategies as st

from palaver.core.errors import (
    AuthenticationError,
    ContextOverflowError,
    MessageError,
    OverloadedError,
    ProviderError,
    RateLimitError,
    StreamError,
    TimedOutError,
    TransportError,
)
from palaver.models import Retry
from palaver.models.failures import parse_wait, retry_after

NOW = 1_760_000_000.0
LIMITED = RateLimitError("w", "slow down")


@pytest.mark.row("KAI-22")
@pytest.mark.parametrize(("header", "seconds"), [("5", 5), ("12", 12), ("400", 300)])
def test_seconds_are_seconds(header, seconds):
    """Golden `retry_after_header`."""
    told = retry_after({"retry-after": header}, NOW)
    assert Retry().wait(1, RateLimitError("w", "", retry_after=told), 0.0) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": " 7 "}, 7),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "Thu, 09 Oct 2025 08:53:40 GMT"}, 20),
        ({"retry-after": "Thu, 09 Oct 2025 08:53:00 GMT"}, 0),
        ({"retry-after": "Thursday, 09-Oct-25 08:53:40 GMT"}, 20),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "?", "retry-after": "2"}, 2),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-remaining-requests": "4"}, None),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-remaining-requests": "0"}, 1),
        ({"x-ratelimit-reset-tokens": "6m0.5s", "x-ratelimit-remaining-tokens": "0"}, 360.5),
        (
            {
                "x-ratelimit-reset-tokens": "20ms",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-requests": "2s",
                "x-ratelimit-remaining-requests": "0",
            },
            2,
        ),
        ({"x-ratelimit-reset": f"{int(NOW + 9)}000", "x-ratelimit-remaining": "0"}, 9),
        ({"x-ratelimit-reset": f"{int(NOW + 9)}", "x-ratelimit-remaining": "0"}, 9),
        ({"x-ratelimit-reset-after": "3"}, 3),
        (
            {
                "anthropic-ratelimit-input-tokens-reset": "2025-10-09T08:53:30Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
            },
            10,
        ),
    ],
)
def test_what_providers_say(headers, seconds):
    assert retry_after(headers, NOW) == seconds


@given(st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)))  # noqa: DTZ001 (made aware below)
def test_every_date_is_read_in_each_spelling(moment):
    moment = moment.replace(microsecond=0, tzinfo=UTC)
    expected = max(0.0, moment.timestamp() - NOW)
    assert parse_wait(format_datetime(moment, usegmt=True), NOW) == expected
    assert parse_wait(moment.isoformat(), NOW) == expected


@given(st.text(max_size=40))
def test_no_header_breaks_it(text):
    told = retry_after({"retry-after": text, "retry-after-ms": text, "x-ratelimit-reset-after": text}, NOW)
    assert told is None or told >= 0


@pytest.mark.parametrize("text", ["1" * 600_000, "9" * 400 + "s", "1.5" * 200_000, "NaN", "-5", "1e309", " " * 600_000])
def test_a_wait_that_is_no_number_is_ignored_at_once(text):
    # so long that quadratic time would run for many minutes
    assert retry_after({"retry-after": text, "retry-after-ms": text, "x-ratelimit-reset-after": text}, NOW) is None


@given(
    st.builds(
        Retry,
        attempts=st.integers(1, 8),
        first=st.floats(0, 60),
        factor=st.floats(0, 1e9),
        cap=st.floats(0, 100),
        jitter=st.floats(0, 1),
        longest=st.floats(0, 1000),
    ),
    st.integers(1, 400),
    st.floats(0, 1, exclude_max=True),
    st.none() | st.floats(0, 1e6),
)
@pytest.mark.row("KAI-22")
def test_waits_are_bounded_and_end(policy, attempt, chance, told):
    wait = policy.wait(attempt, RateLimitError("w", "", retry_after=told), chance)
    if attempt >= policy.attempts:
        assert wait is None
    elif told is not None:
        assert wait == min(told, policy.longest)
    else:
        assert 0 <= wait <= policy.cap * (1 + policy.jitter)


def test_waits_grow_and_move_by_chance():
    policy = Retry(attempts=9)
    assert [policy.wait(number, LIMITED, 0.5) for number in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
    assert policy.wait(1, LIMITED, 0.0) == 0.75
    assert policy.wait(1, LIMITED, 1.0) == 1.25


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (LIMITED, True),
        (OverloadedError("w", ""), True),
        (TransportError("reset"), True),
        (TimedOutError("late", phase="idle"), True),
        (ProviderError("w", ""), False),
        (AuthenticationError("w", ""), False),
        (ContextOverflowError("w", ""), False),
        (MessageError("no"), False),
        (StreamError("w", "", kind="torn", response=None), False),
    ],
)
def test_only_what_passes_is_tried_again(error, again):
    assert (Retry().wait(1, error, 0.5) is not None) is again


@pytest.mark.parametrize("numbers", [{"attempts": 0}, {"first": -1}, {"jitter": 2}, {"longest": -1}])
def test_a_policy_that_makes_no_sense_is_refused(numbers):
    with pytest.raises(MessageError, match="no retry policy"):
        Retry(**numbers)
