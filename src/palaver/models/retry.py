"""Retry policy as data, and the waits that providers ask for in headers.

Rules:

- ``attempts`` is one budget for one call of a model, the first request included. Nothing else retries (D24).
- An error says whether a retry may help (``retryable``): 408, 409, 429, every 5xx, a timeout, a broken connection, a
  stream that failed before its first content. Nothing is retried after that.
- A wait that the provider names is kept, up to ``longest``. Otherwise it grows by ``factor`` from ``first`` to ``cap``,
  and ``jitter`` varies it by that share.
- ``retry_after`` reads, in this order: ``retry-after-ms``; ``retry-after`` in seconds or as a date; the latest reset of
  an exhausted limit; ``x-ratelimit-reset-after``.
- ``Clock`` supplies time and chance; tests pass their own.

Source: KAI-22; RFC 9110 10.2.3; https://platform.openai.com/docs/guides/rate-limits,
https://docs.anthropic.com/en/api/rate-limits, https://console.groq.com/docs/rate-limits.

Stability: experimental.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import anyio
from msgspec import Struct, structs

from palaver.core.errors import MessageError, PalaverError, ProviderError
from palaver.core.type_checks import check_arguments

# --- retry ------------------------------------------------------------------------------------------------------------


class Retry(Struct, frozen=True, kw_only=True):
    """A policy. Waits are in seconds; ``jitter`` is a share of the wait. ``attempts=1`` asks once.

    Raises ``MessageError`` for numbers that make no sense.
    """

    attempts: int = 3
    first: float = 1.0
    factor: float = 2.0
    cap: float = 30.0
    jitter: float = 0.25
    longest: float = 300.0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_arguments("Retry", Retry, structs.asdict(self))
        if self.attempts < 1 or min(self.first, self.factor, self.cap, self.longest) < 0 or not 0 <= self.jitter <= 1:
            raise MessageError(f"no retry policy: {self}")

    def wait(self, attempt: int, error: PalaverError, chance: float) -> float | None:
        """Seconds to wait after the ``attempt``-th request failed, or ``None`` to give up.

        ``chance`` is a number from 0 up to 1.
        """
        if attempt >= self.attempts or not error.retryable:
            return None
        if isinstance(error, ProviderError) and error.retry_after is not None:
            return min(error.retry_after, self.longest)
        try:
            grown = self.first * self.factor ** (attempt - 1)
        except OverflowError:
            grown = self.cap
        return min(grown, self.cap) * (1 + self.jitter * (2 * chance - 1))


_LIMITS: Final = (
    *((f"x-ratelimit-reset-{what}", f"x-ratelimit-remaining-{what}") for what in ("requests", "tokens")),
    *(
        (f"anthropic-ratelimit-{what}-reset", f"anthropic-ratelimit-{what}-remaining")
        for what in ("requests", "tokens", "input-tokens", "output-tokens")
    ),
    ("x-ratelimit-reset", "x-ratelimit-remaining"),
)
"""Headers that say when a limit is reset, each with the one that says what remains of it."""

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_MAX_TEXT: Final = 64
"""Characters of a text that can be a wait; what is longer is none, and is not searched."""
_MIN_TIMESTAMP: Final = 1e9
"""A number of seconds beyond this is a time of day; one that is a thousand times as large is in milliseconds."""


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """In how many seconds the provider wants to be asked again; ``None`` when it does not say, or not readably.

    Names of ``headers`` are in lower case; ``now`` is the time of day, in seconds since 1970.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    told = parse_wait(headers.get("retry-after", ""), now)
    if told is not None:
        return told
    resets = [parse_wait(headers.get(reset, ""), now) for reset, left in _LIMITS if _number(headers.get(left, "")) == 0]
    known = [each for each in resets if each is not None]
    return max(known) if known else parse_wait(headers.get("x-ratelimit-reset-after", ""), now)


def parse_wait(text: str, now: float) -> float | None:
    """Read ``5``, ``0.5``, ``6m0s``, ``20ms``, a time of day as a number, an HTTP date, or an RFC 3339 date.

    A moment that is over is no wait: 0.
    """
    if len(text) > _MAX_TEXT:
        return None
    text = text.strip()
    number = _number(text)
    if number is not None:
        moment = number / 1000 if number > _MIN_TIMESTAMP * 1000 else number
        return max(0.0, moment - now) if moment > _MIN_TIMESTAMP else moment
    spans = _SPAN.findall(text)
    if spans and "".join(amount + unit for amount, unit in spans) == text:
        return sum(float(amount) * _UNITS[unit] for amount, unit in spans)
    found = _date(text)
    return None if found is None else max(0.0, found - now)


def _number(text: str) -> float | None:
    if len(text) > _MAX_TEXT or not _NUMBER.fullmatch(text.strip()):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _date(text: str) -> float | None:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 (it loads the whole of `email`)

    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = read(text)
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None


# --- clock ------------------------------------------------------------------------------------------------------------


class Clock(Struct, frozen=True, kw_only=True):
    """``now`` measures (seconds since some moment), ``date`` is the time of day (seconds since 1970).

    ``sleep`` waits (seconds), ``chance`` gives a number from 0 up to 1.
    """

    now: Callable[[], float] = time.monotonic
    date: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    chance: Callable[[], float] = random.random
