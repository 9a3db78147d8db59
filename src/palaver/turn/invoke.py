"""Calling the function of a tool, whether it is asynchronous or not.

Rules:

- An asynchronous function is awaited where the call is made, so cancellation reaches it at once.
- Any other runs in a worker thread, with the context variables of the caller. A thread cannot be stopped: when the call
  is cancelled or times out it is abandoned, goes on by itself, and what it gives back is thrown away. What must not go
  on is written asynchronously, or looks at an event of its own.
- What such a function gives back is awaited, where it can be.
- A tool cannot end the program: ``SystemExit`` (a parser of arguments raises it), ``GeneratorExit`` and a cancellation
  of its own, which nobody around it asked for, are failures of its call. So is ``KeyboardInterrupt`` in a worker
  thread, where no Ctrl-C arrives. Elsewhere it may be the user's, and goes through.
- A generator is no tool: what it would say on the way goes through ``ctx.emit``.

Stability: experimental.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import anyio
from anyio import to_thread

from palaver.core.errors import MessageError, ToolError


def invoker(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Make one asynchronous function of either kind. Raises ``MessageError`` for a generator."""
    inner = called(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise MessageError("a generator is no tool; return the result, and show progress with ctx.emit")
    if inspect.iscoroutinefunction(inner):
        return function

    async def in_thread(*args: Any, **kwargs: Any) -> Any:
        def work() -> tuple[Any]:  # in a tuple: trio refuses a thread that gives back what can be awaited
            try:
                return (function(*args, **kwargs),)
            except Exception:
                raise
            except BaseException as error:
                raise _ended(error) from error

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


@contextmanager
def own_exits() -> Generator[None]:
    """Raise ``ToolError`` where the tool inside raises what would end more than its call."""
    try:
        yield
    except (SystemExit, GeneratorExit) as error:
        raise _ended(error) from error
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        raise ToolError("What the tool waited for was cancelled.") from error


def _ended(error: BaseException) -> ToolError:
    return ToolError(f"The tool ended itself: {type(error).__name__} {error}".rstrip())


def _is_cancelled() -> bool:
    """Whether somebody around the running code cancelled it: a scope, or whoever holds its task."""
    if anyio.current_effective_deadline() == -math.inf:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:  # another event loop, whose cancellations this is none of
        return False
    return task is None or task.cancelling() > 0
