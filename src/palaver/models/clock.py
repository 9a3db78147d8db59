"""Time and chance, as a model needs them; a test gives its own.

Stability: experimental.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct


class Clock(Struct, frozen=True, kw_only=True):
    """``now`` measures (seconds since some moment), ``date`` is the time of day (seconds since 1970).

    ``sleep`` waits (seconds), ``chance`` gives a number from 0 up to 1.
    """

    now: Callable[[], float] = time.monotonic
    date: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    chance: Callable[[], float] = random.random
