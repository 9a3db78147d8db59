"""Stores from async code: ``await to_thread(store.append, "trip", [user("hi")])``.

``to_thread`` takes a function and its arguments, as ``asyncio.to_thread`` does, and works on asyncio and trio.

Rules:

- Values and exceptions arrive unchanged.
- A call that has begun finishes. A caller in a cancelled scope waits for it and is cancelled afterwards; a call that
  has no thread yet does not begin. ``asyncio.Task.cancel`` (and ``asyncio.timeout``) does not wait: the call finishes
  behind the caller.
- An event loop runs at most ``MAX_THREADS`` of these calls at once. They do not count against anyio's default limiter,
  so a slow disk does not block other work; there are many, so that a store can group appends into one commit.

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
