"""Which models answer: a circuit breaker for each.

Rules:

- A model is ``closed`` (asked in its turn), ``open`` (asked last), or ``half_open``: its rest is over, and one request
  tries it while the others still ask it last.
- ``hop_of`` says which errors count. A provider that names a wait is not asked before it is over, unless no other model
  is left.
- The state belongs to a target of the configuration, whatever names lead to it, and outlives a reload.

Stability: experimental.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from msgspec import json
from starlette.responses import Response

from palaver.core.errors import PalaverError, ProviderError
from palaver.gateway.apis import APIS
from palaver.models.redaction import shown_url
from palaver.serve.http.errors import Refused

if TYPE_CHECKING:
    from starlette.requests import Request

    from palaver.gateway.config import Breaker, Target
    from palaver.gateway.live import LiveGateway

State: TypeAlias = Literal["closed", "open", "half_open"]
_KNOWN: Final = 1000
_MAX_WAIT: Final = 600.0
"""The most seconds that a model rests because it has said so."""
"""How many targets are remembered; one name with ``*`` may stand for any number."""


@final
class TargetHealth:
    """The state of one target. ``clock`` returns seconds that only grow."""

    def __init__(self, name: str, breaker: Breaker, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin as ``closed``."""
        self.name = name
        self.label: str | None = None
        """What the configuration calls it."""
        self.breaker = breaker
        self.failures = 0
        """Failures in a row."""
        self._clock = clock
        self._until: float | None = None
        self._tried = False

    @property
    def state(self) -> State:
        """The state now."""
        if self._until is None:
            return "closed"
        return "open" if self._clock() < self._until else "half_open"

    @property
    def available(self) -> bool:
        """Whether it is asked in its turn."""
        return self._until is None or (not self._tried and self._clock() >= self._until)

    def ask(self) -> None:
        """Note that it is asked."""
        self._tried = self._until is not None

    def answered(self) -> None:
        """Note that it answered, be it with a refusal that says nothing about the model."""
        self.failures, self._until, self._tried = 0, None, False

    def failed(self, error: PalaverError) -> None:
        """Note a failure."""
        self._tried = False
        self.failures += 1
        wait = min(error.retry_after or 0.0, _MAX_WAIT) if isinstance(error, ProviderError) else 0.0
        rest = self.breaker.rest if self.failures >= self.breaker.failures else 0.0
        if (seconds := max(rest, wait)) > 0:
            self._until = self._clock() + seconds

    def released(self) -> None:
        """Note that it was asked, and that nothing is known of how it went."""
        self._tried = False


@final
class Health:
    """The states of all targets."""

    def __init__(self, breaker: Breaker) -> None:
        """Begin without any."""
        self._breaker = breaker
        self._targets: dict[Target, TargetHealth] = {}

    @property
    def targets(self) -> Collection[TargetHealth]:
        """Those that were asked for so far."""
        return self._targets.values()

    def use(self, breaker: Breaker) -> None:
        """Replace the settings; the states stay."""
        self._breaker = breaker
        for each in self._targets.values():
            each.breaker = breaker

    def find(self, target: Target) -> TargetHealth:
        """Return the state of a target. It is the same object each time, as long as it is remembered."""
        found = self._targets.get(target)
        if found is None:
            if len(self._targets) >= _KNOWN:
                made_up = (name for name, each in self._targets.items() if each.label is None)
                del self._targets[next(made_up, next(iter(self._targets)))]
            found = self._targets[target] = TargetHealth(_named(target), self._breaker)
        return found


async def show_health(live: LiveGateway, request: Request) -> Response:
    """Answer 200 while the gateway takes requests, and 503 when it stops, or when no model answers that was asked.

    Where the configuration lists models, only those count: a client could ask for others that never answer.

    Clients that may use the gateway see the state of each model.
    """
    states = [{"name": each.name, "state": each.state, "failures": each.failures} for each in live.targets]
    listed = [each for each in live.targets if each.label is not None or not live.gateway.config.models]
    failing = bool(listed) and all(each.state == "open" for each in listed)
    status = "draining" if live.draining else "failing" if failing else "ok"
    shown: dict[str, object] = {"status": status, "exchanges": live.active}
    with suppress(Refused, PalaverError):
        await live.gateway.caller(APIS[0], request)
        shown["targets"] = states
    return Response(json.encode(shown), 200 if status == "ok" else 503, media_type="application/json")


def _named(target: Target) -> str:
    return target.model if target.url is None else f"{target.model} at {shown_url(target.url)}"
