"""Pipelines: work for a client that an agent of its own does, and then the client is back with the agent before.

Rules (docs/spec/agent-swarm-kit.md#6):

- ``run`` lets the pipeline's agent speak, where it has one that is not active, calls the function with the session and
  what it was given, and lets the agent that was active before speak again, also when the function failed.
- Whatever is raised goes to ``on_error``, and ``run`` gives ``None``. Observers only look on.
- Going there and back is no hand-over of a conversation: route and stack of the client are afterwards what they were.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from palaver.core.errors import NavigationError
from palaver.swarm.call_context import LOGGER, called, watched
from palaver.swarm.session import Session
from palaver.swarm.shared_value import named

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
    """A function of a session and a payload, done by ``agent``. Changing one is a copy: ``pipeline.replace(…)``.

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
        """Give an edited copy."""
        return replace(self, **changes)

    async def run(self, session: Session, payload: Any = None) -> T | None:
        """Do it for a client; ``None`` when it failed.

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
            async with session.visiting(self.agent or session.agent):
                result = await called(self.function, session, payload)
        except Exception as error:  # noqa: BLE001 (it is told to whoever asked for it)
            LOGGER.error("the pipeline %r failed for the client %r", self.name, session.client, exc_info=error)
            failed, result = True, None
            await watched("on_error", self.on_error, session, payload, error)
        await watched("on_end", self.on_end, session, payload, failed)
        return result
