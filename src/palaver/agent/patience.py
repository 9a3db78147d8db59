"""How long the code of others may keep a run waiting.

Rules:

- A hook, a policy, a function of instructions, and the part of a wrapper that is its own have ``HOOK_SECONDS`` each;
  then the run fails, with a sentence that names what took so long (ASK-30). What they wait for is not counted: a model
  has time-outs of its own, and a person who decides has all the time.
- A function that blocks the event loop cannot be bounded by anybody: run it in a thread.

Stability: experimental.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

import anyio

HOOK_SECONDS: float = 60.0
GRACE: float = 1.0
"""Seconds that all ``after_agent`` hooks have together when a run was cancelled (KAI-21)."""

_bounding: Final[ContextVar[anyio.CancelScope | None]] = ContextVar("palaver.agent.patience", default=None)
"""What bounds the hook or wrapper that runs."""

A = TypeVar("A")
R = TypeVar("R")


@contextmanager
def hook_time(what: str, at_most: float = math.inf) -> Generator[None]:
    """Bound what stands inside, also to ``at_most`` seconds. Raises ``TimeoutError``."""
    with anyio.move_on_after(min(HOOK_SECONDS, at_most)) as scope:
        token = _bounding.set(scope)
        try:
            yield
        finally:
            _bounding.reset(token)
    if scope.cancelled_caught:
        raise _late(what)


@contextmanager
def uncounted() -> Generator[None]:
    """What a hook or wrapper waits for inside is not counted: it has a limit of its own."""
    scope = _bounding.get()
    if scope is None:
        yield
        return
    left, scope.deadline = scope.deadline - anyio.current_time(), math.inf
    try:
        yield
    finally:
        scope.deadline = anyio.current_time() + left


async def around(
    wrap: Callable[[A, Callable[[A], Awaitable[R]]], Awaitable[R]], call: Callable[[A], Awaitable[R]], given: A
) -> R:
    """Run a wrapper around a call, whose own time is not counted. Raises ``TimeoutError``."""
    with anyio.move_on_after(HOOK_SECONDS) as scope:

        async def within(given: A) -> R:
            scope.deadline = math.inf
            try:
                return await call(given)
            finally:
                scope.deadline = anyio.current_time() + HOOK_SECONDS

        token = _bounding.set(scope)
        try:
            return await wrap(given, within)
        finally:
            _bounding.reset(token)
    raise _late("a wrapper of the model")


def _late(what: str) -> TimeoutError:
    return TimeoutError(f"{what} took longer than {HOOK_SECONDS:g} seconds")
