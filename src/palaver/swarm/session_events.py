"""The events that a session publishes.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from palaver.swarm.events import Event

if TYPE_CHECKING:
    from palaver.swarm.live import LiveSwarm
    from palaver.swarm.log import Log
    from palaver.swarm.swarm import Swarm
    from palaver.swarm.turn import Turn


class SessionEvents:
    """The part of a session that publishes what happens in it."""

    client: str
    live: LiveSwarm
    swarm: Swarm
    log: Log
    turn: Turn | None

    def tell(
        self,
        source: str,
        type: str,
        agent: str | None = None,
        *,
        input: Mapping[str, Any] | None = None,
        output: Mapping[str, Any] | None = None,
    ) -> None:
        """Publish an event of this session. Costs next to nothing where nobody listens, and never raises."""
        turn = self.turn
        self.live.publish(
            Event(
                source=source,
                type=type,
                client=self.client,
                swarm=self.swarm.name,
                agent=agent,
                thread=self.log.id,
                run=None if turn is None else turn.id,
                input=input or {},
                output=output or {},
            )
        )
