"""A circuit breaker: after several failures in a row, calls stop for a while. A value; the caller supplies the time.

Rules (docs/spec/kairo.md#3.4, #D5; KAI-09):

- ``max_failures`` failures in a row open it. While open it allows nothing for ``seconds`` after the last failure.
- Then it is half open and allows one probe (``start``). A success closes it, a failure opens it again, and
  ``cancelled`` frees the probe for another caller.
- A success resets the count.
- ``now`` is seconds of any clock that does not go back.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, structs

from palaver.core.errors import MessageError

FAILURES: Final = 3
SECONDS: Final = 30.0


class Breaker(Struct, frozen=True):
    """What is known of something that may fail. ``opened_at`` is ``None`` while it is closed."""

    failures: int = 0
    opened_at: float | None = None
    half_open: bool = False
    max_failures: int = FAILURES
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        """Refuse a breaker that would always be open. Raises ``MessageError``."""
        if self.max_failures < 1:
            raise MessageError(f"max_failures: {self.max_failures}: a breaker that is always open lets nothing happen")
        if not self.seconds >= 0:
            raise MessageError(f"seconds: {self.seconds} is no length of time")

    def allows(self, now: float) -> bool:
        """Whether to try."""
        if self.opened_at is None:
            return True
        return not self.half_open and now - self.opened_at >= self.seconds

    def start(self) -> Breaker:
        """A try that was allowed has begun; where the breaker is open, it is the probe."""
        return self if self.opened_at is None or self.half_open else structs.replace(self, half_open=True)

    def failed(self, now: float) -> Breaker:
        """It failed. Enough of that opens the breaker, and one that is open stays so from now on."""
        failures = self.failures + 1
        opened_at = now if failures >= self.max_failures else None
        return structs.replace(self, failures=failures, opened_at=opened_at, half_open=False)

    def succeeded(self) -> Breaker:
        """It went well: the breaker is closed, and nothing is held against anybody."""
        return structs.replace(self, failures=0, opened_at=None, half_open=False)

    def cancelled(self) -> Breaker:
        """It was cancelled: nothing is known, and another may probe."""
        return structs.replace(self, half_open=False) if self.half_open else self
