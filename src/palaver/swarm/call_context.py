"""Where in a swarm something is called: what every hook, check and tool may know.

Rules:

- ``CURRENT`` is the turn that the running code belongs to, and ``CALL`` the call of a tool, by context variables: a
  task that a tool begins belongs to its turn too. A turn that is over is nobody's (K2).
- A hook that only looks on is guarded: what it raises is logged and disturbs nothing. What changes an answer
  (``transform``, ``map``, ``validate``, a prompt) is not: what it raises is the error of its turn.
- A cancellation that no scope asked for (of asyncio alone: that of a task which an application awaits) is an error of
  the code that let it out, and ends nothing else.

Stability: experimental.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
from msgspec import Struct

if TYPE_CHECKING:
    from palaver.swarm.call import Call
    from palaver.swarm.session import Session
    from palaver.swarm.turn import Turn

T = TypeVar("T")

LOGGER: Final = logging.getLogger("palaver.swarm")
STRAY: Final = "what it waited for was cancelled"
"""What is said of a stray cancellation."""

CURRENT: Final[ContextVar[Turn | None]] = ContextVar("palaver.swarm.turn", default=None)
CALL: Final[ContextVar[Call | None]] = ContextVar("palaver.swarm.call", default=None)


class CallContext(Struct, frozen=True, kw_only=True):
    """A client, the agent that speaks to it, the session, and the turn (``run``) where there is one."""

    client: str
    agent: str
    swarm: str
    session: Session
    run: str | None = None
    payload: Any = None
    """What came with the client's message, beside its text."""


async def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that may be asynchronous. Raises what it raises."""
    made = function(*arguments)
    return await made if inspect.isawaitable(made) else made


async def watched(what: str, function: Callable[..., Any] | None, *arguments: Any) -> None:
    """Call a hook that only looks on; what it raises is logged."""
    if function is None:
        return
    try:
        await called(function, *arguments)
    except Exception:
        LOGGER.exception("%s raised; nothing else is disturbed", what)


def is_cancelled() -> bool:
    """Whether a scope around the running code was cancelled; what is caught else is a stray cancellation."""
    return anyio.current_effective_deadline() == -math.inf
