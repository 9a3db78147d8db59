"""Calling the function of a tool, whether it is asynchronous or not.

Rules:

- An asynchronous function is awaited where the call is made, so cancellation reaches it at once.
- Any other runs in a worker thread, with the context variables of the caller. A thread cannot be stopped: when the call
  is cancelled or times out it is abandoned, goes on by itself, and what it gives back is thrown away. What must not go
  on is written asynchronously, or looks at an event of its own.
- What such a function gives back is awaited, where it can be.
- A generator is no tool: what it would say on the way goes through ``ctx.emit``.

Stability: experimental.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

from anyio import to_thread

from palaver.core.errors import MessageError


def invoker(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Make one asynchronous function of either kind. Raises ``MessageError`` for a generator."""
    inner = called(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise MessageError("a generator is no tool; return the result, and show progress with ctx.emit")
    if inspect.iscoroutinefunction(inner):
        return function

    async def in_thread(*args: Any, **kwargs: Any) -> Any:
        def work() -> tuple[Any]:  # in a tuple: trio refuses a thread that gives back what can be awaited
            return (function(*args, **kwargs),)

        (result,) = await to_thread.run_sync(work, abandon_on_cancel=True)
        return await result if inspect.isawaitable(result) else result

    return in_thread


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a call of ``function`` runs: behind partials, and behind an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isfunction(function) or inspect.ismethod(function) or inspect.isbuiltin(function):
        return function
    return function if inspect.isclass(function) else cast("Callable[..., Any]", getattr(type(function), "__call__"))  # noqa: B004, B009
