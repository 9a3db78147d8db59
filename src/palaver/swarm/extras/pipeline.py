"""Pipelines: work for a client that one agent does, after which the client is back with its former agent.

- ``run`` makes the pipeline's agent active, if it has one, calls the function with the session and the payload, and
  makes the former agent active again, also after an error.
- An error goes to ``on_error``, and ``run`` returns ``None``. Observers change nothing.
- The client's route and stack are the same afterwards: this is not a hand-over.

See docs/spec/agent-swarm-kit.md#6.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from palaver.core.errors import NavigationError
from palaver.swarm.call import LOGGER, called, watched
from palaver.swarm.session import Session
from palaver.swarm.state import named

T = TypeVar("T")


class PipelineChanges(TypedDict, Generic[T], total=False):
    """What ``Pipeline.replace`` changes: the fields of ``Pipeline``."""

    name: str
    function: Callable[[Session, Any], Awaitable[T] | T]
    agent: str | None
    on_start: Callable[[Session, Any], Any] | None
    on_error: Callable[[Session, Any, Exception], Any] | None
    on_end: Callable[[Session, Any, bool], Any] | None


@dataclass(frozen=True, eq=False, slots=True)
class Pipeline(Generic[T]):
    """A function of a session and a payload, run while ``agent`` is active. ``pipeline.replace(…)`` returns a copy.

    ``name`` is that of the pipeline, and ``function`` may be asynchronous. Without ``agent``, the active one stays.

    Observers: ``on_start`` (session, payload), ``on_error`` (session, payload, error), and ``on_end`` (session,
    payload, whether it failed).
    """

    name: str
    function: Callable[[Session, Any], Awaitable[T] | T]
    _: KW_ONLY
    agent: str | None = None
    on_start: Callable[[Session, Any], Any] | None = None
    on_error: Callable[[Session, Any, Exception], Any] | None = None
    on_end: Callable[[Session, Any, bool], Any] | None = None

    def __post_init__(self) -> None:
        """Raise ``SwarmError`` without a name, and for a field of the wrong type."""
        named("pipeline", self)

    def replace(self, **changes: Unpack[PipelineChanges[T]]) -> Pipeline[T]:
        """Return a copy edited by ``changes``."""
        return replace(self, **changes)

    async def run(self, session: Session, payload: Any = None) -> T | None:
        """Call the function with ``session`` and ``payload``. Return its result; ``None`` when it failed.

        Raises ``NavigationError`` when the session's swarm has no such agent.
        """
        if self.agent is not None and self.agent not in session.swarm.agents:
            raise NavigationError(
                f"the pipeline {self.name!r} is for the agent {self.agent!r}, "
                f"which the swarm {session.swarm.name!r} does not have"
            )
        await watched("on_start", self.on_start, session, payload)
        result: T | None = None
        failed = False
        try:
            async with session.as_agent(self.agent or session.agent):
                result = await called(self.function, session, payload)
        except Exception as error:  # noqa: BLE001 (``on_error`` gets it)
            LOGGER.error("the pipeline %r failed for the client %r", self.name, session.client, exc_info=error)
            failed, result = True, None
            await watched("on_error", self.on_error, session, payload, error)
        await watched("on_end", self.on_end, session, payload, failed)
        return result
