"""Stores from async code: ``await to_thread(store.append, "trip", [user("hi")])``.

Rules:

- The call runs in a worker thread, on asyncio or trio, whichever runs the caller; its value and its exceptions come
  back as they are.
- What was begun is finished. A cancelled caller waits for the end of the call, and then learns of the cancellation;
  a call that still waits for a thread is never begun. asyncio's own ``Task.cancel`` (so ``asyncio.timeout`` too) goes
  past that: the caller does not wait, and the call ends behind it. Either way an append that was begun is kept.
- An event loop runs at most ``MAX_THREADS`` such calls at once. They are counted apart from anyio's other threads, so
  that a slow disk holds up nobody else; and they are many, so that a store can group appends into one commit.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, ParamSpec, TypeVar

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

MAX_THREADS: Final = 256

_P = ParamSpec("_P")
_T = TypeVar("_T")
_limiter: Final = RunVar[CapacityLimiter]("palaver.store.to_thread")


async def to_thread(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function that blocks, such as a method of a store, without blocking the event loop."""
    return await run_sync(partial(function, *args, **kwargs), limiter=_current_limiter())


def _current_limiter() -> CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(MAX_THREADS)
        _limiter.set(limiter)
        return limiter
