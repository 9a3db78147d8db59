"""The tasks of a session that run beside its turns.

Rules:

- A task runs until it returns or the session closes. One that belongs to a turn is cancelled with that turn too.
- What a task raises is logged, and fails its turn.
- A task that has not started yet can be cancelled too.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVarTuple

import anyio

from palaver.core.errors import TurnError
from palaver.swarm.call import LOGGER, STRAY, is_cancelled

if TYPE_CHECKING:
    from palaver.swarm.swarm import LiveSwarm
    from palaver.swarm.turn import Turn

P = TypeVarTuple("P")


class Background:
    """The tasks of one client's session, run by the task group of the swarm."""

    def __init__(self, live: LiveSwarm, client: str) -> None:
        """Start without tasks."""
        self._live, self._client = live, client
        self._scopes: set[anyio.CancelScope] = set()

    def spawn(self, turn: Turn | None, function: Callable[[*P], Awaitable[Any]], *arguments: *P) -> None:
        """Run a function beside the turn."""
        scope = anyio.CancelScope()
        scopes = (self._scopes,) if turn is None else (self._scopes, turn.scopes)
        for each in scopes:
            each.add(scope)
        self._live.spawn(self._run, scope, scopes, turn, function, arguments)

    def cancel(self) -> None:
        """Cancel all tasks."""
        for scope in tuple(self._scopes):
            scope.cancel()

    async def _run(
        self,
        scope: anyio.CancelScope,
        scopes: Iterable[set[anyio.CancelScope]],
        turn: Turn | None,
        function: Callable[..., Awaitable[Any]],
        arguments: Iterable[Any],
    ) -> None:
        with scope:
            try:
                await function(*arguments)
            except (Exception, anyio.get_cancelled_exc_class()) as error:  # nobody awaits the task
                if not isinstance(error, Exception) and is_cancelled():
                    raise
                LOGGER.exception("background work for the client %r failed", self._client)
                if turn is not None:
                    turn.fail(error if isinstance(error, Exception) else TurnError(STRAY))
            finally:
                for each in scopes:
                    each.discard(scope)
