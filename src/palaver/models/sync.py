"""Call async code from code that is not async: one event loop in a thread of its own, for the whole process.

Rules:

- The loop starts with the first call and stops with the process, so connections are shared between calls. A forked
  process starts its own, and so does a call that is made after the end, by a handler of ``atexit``. A loop that a task
  blocks ends with the process, without closing its connections. What was left open is left with its loop.
- Whatever a call raises is raised to its caller, and the loop goes on.
- A call works wherever it is made, also where an event loop runs already, as in a notebook; that loop waits. A call
  from the background loop itself would wait for itself, and raises ``MessageError``.
- Ctrl-C cancels the call, waits until it has cleaned up, and is raised again.
- A warning that is issued while a call runs on the loop is issued again at the line of the caller.
- ``SyncFacade`` is the base of every facade. ``sync_method`` makes its methods from the async ones, with the same
  names, parameters and docstrings, so nothing is written twice.

Stability: experimental.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import ContextVar
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, cast

import anyio
from anyio.from_thread import BlockingPortal

from palaver.core.errors import MessageError

if TYPE_CHECKING:
    from types import TracebackType

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
E = TypeVar("E")
S = TypeVar("S")
F = TypeVar("F")

_STOP_SECONDS: Final = 2.0
"""How long the end of the process waits for the loop to close its connections."""
_PACKAGE: Final = f"{Path(__file__).parents[1]}{os.sep}"

_warned: ContextVar[list[tuple[str, type[Warning]]] | None] = ContextVar("palaver_warned", default=None)
"""The warnings of a call on the background loop, which its caller's thread issues."""


def warn_caller(text: str, category: type[Warning]) -> None:
    """Issue a warning at the line outside Palaver that made the call."""
    waiting = _warned.get()
    if waiting is not None:
        waiting.append((text, category))
        return
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


class _BackgroundLoop:
    """An event loop in a daemon thread."""

    is_over = False
    """It has ended, or is about to. In a forked process: it was that of the parent."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self.thread = threading.Thread(target=anyio.run, args=(self._serve,), name="palaver-loop", daemon=True)
        self.thread.start()
        self._ready.wait()
        atexit.register(self.stop)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = anyio.Event()
        async with BlockingPortal() as self.portal:
            self._ready.set()
            await self._stopping.wait()
            await self.portal.stop(cancel_remaining=True)

    def stop(self) -> None:
        """Cancel what still runs, and wait for the thread for ``_STOP_SECONDS``."""
        self.is_over = True
        if self.thread.is_alive():
            with suppress(RuntimeError):  # the loop has just ended
                # Every call of the portal waits for the loop, and a task may block that.
                self._loop.call_soon_threadsafe(self._stopping.set)
            self.thread.join(_STOP_SECONDS)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function between the steps of the tasks. Raises what it raises, and ``MessageError`` in the loop."""
        self.check_caller()
        return self.portal.call(function)

    def check_caller(self) -> None:
        if threading.current_thread() is self.thread:
            raise MessageError(
                "a blocking call was made inside the background event loop: await the async method instead"
            )


_lock = threading.Lock()
_loops: Final[list[_BackgroundLoop]] = []
"""The loop of this process, once it has been started."""


def _forget() -> None:
    """Forget the loop of the parent process, whose thread does not exist here."""
    global _lock  # noqa: PLW0603 (the parent may hold it while it forks)
    _lock = threading.Lock()
    for loop in _loops:
        loop.is_over = True
    _loops.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _loop() -> _BackgroundLoop:
    with _lock:
        if _loops and _loops[0].is_over:
            _loops.clear()
        if not _loops:
            if sys.is_finalizing():  # no thread runs any more: it would be waited for forever
                raise MessageError("a blocking call was made after the end of the process had begun")
            _loops.append(_BackgroundLoop())
        loop = _loops[0]
    loop.check_caller()
    return loop


class _Exit(Exception):  # noqa: N818 (no error of the loop's own)
    """Carries an exception that is no ``Exception``, which would end the loop, to the caller's thread."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


class _Task(Generic[T]):
    """A function that runs on the background loop, and is cancelled when its caller is interrupted."""

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self._function = function
        self._over = threading.Event()
        self._scope: anyio.CancelScope | None = None
        self._warnings: list[tuple[str, type[Warning]]] = []
        self.loop = _loop()
        try:
            self.future: Future[T] = self.loop.portal.start_task_soon(self._work)
        except BaseException:  # interrupted while the loop was starting it
            self.cancel()
            raise

    async def _work(self) -> T:
        _warned.set(self._warnings)
        try:
            with anyio.CancelScope() as self._scope:
                return await self._function()
        except (Exception, anyio.get_cancelled_exc_class()):
            raise
        except BaseException as error:
            raise _Exit(error) from error
        finally:
            self._over.set()
        raise CancelledError

    def wait(self, future: Future[Any]) -> Any:
        """Wait for a result. An interruption cancels the function, and waits until it has cleaned up."""
        try:
            result = future.result()
        except _Exit as ended:
            raise ended.error from None
        except BaseException:
            if not self._over.is_set() and not self.loop.is_over:
                self.cancel()
            raise
        while self._warnings:
            warn_caller(*self._warnings.pop(0))
        return result

    def cancel(self) -> None:
        """Cancel the function, and wait until it has cleaned up."""
        self.loop.call(self._stop)
        self._over.wait()

    def _stop(self) -> None:
        if self._scope is None:
            self._over.set()  # it never began
        else:
            self._scope.cancel()


def run(function: Callable[[], Awaitable[T]]) -> T:
    """Run ``function`` on the background loop, and return what it returns. Raises what it raises."""
    task = _Task(function)
    result: T = task.wait(task.future)
    return result


def on_loop(function: Callable[[], T]) -> T:
    """Call a function that is not async on the background loop, between the steps of its tasks."""
    return _loop().call(function)


class _Entered:
    """An async context that is entered and left in one task, as cancel scopes require."""

    def __init__(self, manager: AbstractAsyncContextManager[Any]) -> None:
        self._manager = manager
        self._entered: Future[Any] = Future()
        self._error: BaseException | None = None
        self._task = _Task(self._work)
        self._task.future.add_done_callback(self._failed)
        self.value = self._task.wait(self._entered)

    async def _work(self) -> None:
        self._leave = anyio.Event()
        async with self._manager as value:
            self._entered.set_result(value)
            await self._leave.wait()
            if self._error is not None:
                raise self._error

    def _failed(self, future: Future[None]) -> None:
        """Pass on what was raised before the context was entered."""
        if not self._entered.done():
            self._entered.set_exception(future.exception() or CancelledError())

    def leave(self, error: BaseException | None) -> None:
        """Leave the context, because of ``error`` where there is one."""
        self._error = error if isinstance(error, Exception) else None
        if self._task.loop.is_over:  # which has left it
            return
        self._task.loop.call(self._leave.set)
        try:
            self._task.wait(self._task.future)
        except Exception as raised:
            if raised is not error:
                raise


class SyncFacade(Generic[A]):
    """An object whose async methods are called without ``await``."""

    def __init__(self, wrapped: A) -> None:
        """Wrap ``wrapped``, the async object."""
        self.wrapped = wrapped

    def __repr__(self) -> str:
        """Show what is wrapped."""
        return f"{self.wrapped!r}.sync"


class SyncContext(SyncFacade[A]):
    """An async context manager that is entered and left by ``with``."""

    _entered: _Entered | None = None

    def __enter__(self) -> Self:
        """Enter the async context. Raises what it raises."""
        self._entered = _Entered(cast("AbstractAsyncContextManager[Any]", self.wrapped))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the async context."""
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.leave(error)


class SyncStream(SyncContext[A], Generic[A, E]):
    """Items as they arrive: ``with … as stream: for item in stream: …``.

    Leaving the block ends the stream, read to its end or not.
    """

    _items: AsyncIterator[E] | None = None

    def __iter__(self) -> Iterator[E]:
        """Return the stream itself."""
        return self

    def __next__(self) -> E:
        """Return the next item. Raises what the stream raises."""
        if self._items is None:
            self._items = aiter(cast("AsyncIterator[E]", self.wrapped))
        items = self._items

        async def step() -> tuple[E, ...]:
            try:
                return (await anext(items),)
            except StopAsyncIteration:
                return ()

        for item in run(step):
            return item
        raise StopIteration


def sync_method(method: Callable[Concatenate[A, P], Awaitable[T]]) -> Callable[Concatenate[SyncFacade[A], P], T]:
    """Return the method of a facade that calls the async ``method`` of what it wraps."""

    @wraps(method)
    def call(self: SyncFacade[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound: Callable[P, Awaitable[T]] = partial(method, self.wrapped)
        return run(partial(bound, *args, **kwargs))

    return call


def sync_stream(
    method: Callable[Concatenate[A, P], S], facade: Callable[[S], F]
) -> Callable[Concatenate[SyncFacade[A], P], F]:
    """Return the method of a facade that wraps what ``method`` returns: an async stream, in a ``SyncStream``."""

    @wraps(method)
    def call(self: SyncFacade[A], /, *args: P.args, **kwargs: P.kwargs) -> F:
        wrapped = self.wrapped

        async def make() -> S:
            return method(wrapped, *args, **kwargs)

        return facade(run(make))

    return call
