"""Which agent speaks to a client, and where the conversation has been.

Rules (docs/spec/agent-swarm-kit.md#5.4, #K17):

- The active agent and the stack of those before it are kept in the client's thread, for each swarm, in one record. An
  agent that the swarm does not have any more is the default one.
- The route is what was visited since the client's last message: nobody is visited twice, so that agents cannot hand a
  conversation round in a circle. The agent that it began with is not on it.
- ``previous`` goes back by the stack, and is not held up by the route. The stack is bounded: the oldest are forgotten.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from palaver.core.errors import NavigationError
from palaver.swarm.log import Values

KIND: Final = "navigation"
"""The kind of the record."""
STACK: Final = 64
"""How many agents back one can go."""


class Navigator:
    """Where one client stands in one swarm. Nothing here speaks to an agent."""

    def __init__(self, swarm: str, agents: Collection[str], default: str, values: Values) -> None:
        """Stand where the client's thread says."""
        self._swarm, self._agents, self._default, self._values = swarm, agents, default, values
        kept: dict[str, Any] = values.get(KIND, swarm, {})
        active = kept.get("active", default)
        self.active: str = active if active in agents else default
        self.stack: list[str] = [each for each in kept.get("stack", ()) if each in agents]
        self.route: dict[str, None] = {}
        """The agents visited since the last message of the client, in order."""

    def enter(self, agent: str, *, again: bool = False) -> None:
        """Put an agent on the route. Raises ``NavigationError`` when it is there, and not ``again``."""
        if agent in self.route and not again:
            path = "->".join((*self.route, agent))
            raise NavigationError(f"navigation skipped due to recursion: {agent!r} was visited already, route={path}")
        self.route[agent] = None

    def previous(self) -> tuple[str, list[str]]:
        """The agent to go back to, and the stack without it and without the active one."""
        stack = list(self.stack)
        if stack and stack[-1] == self.active:
            stack.pop()
        return (stack.pop() if stack else self._default), stack

    async def move(self, agent: str, behind: Sequence[str] | None = None) -> None:
        """Make an agent the active one, on the stack or on ``behind``; nothing changes when it cannot be kept."""
        stack = [*(self.stack if behind is None else behind), agent][-STACK:]
        kept = {"active": agent, "stack": stack}
        try:
            await self._values.put(KIND, self._swarm, kept)
        finally:  # kept is kept, also when the caller was cancelled meanwhile
            if self._values.get(KIND, self._swarm) == kept:
                self.active, self.stack = agent, stack
