"""Tools of MCP servers for the agents of a swarm: a source of tools that lists them once for each session.

Rules (docs/spec/agent-swarm-kit.md#6, #K12):

- ``McpSource`` is for ``SwarmAgent(sources=[…])``. It wraps ``palaver.agent.mcp.mcp_tools``, which holds the
  connections, or any function of a client's id that returns tools.
- A tool is called ``mcp_<name>``; those of several servers ``mcp_<server>__<name>``. The result of a tool is
  committed, and the model is asked again.
- A list is cached for the session. ``update`` drops it earlier: the next model call lists the tools again.
- A failed list is not cached, and is an event ``agent error``; the turn continues with the tools that it has. Of
  several servers, the tools of those that answer are offered, and the others are tried again in the next turn.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias, final
from weakref import WeakKeyDictionary

import anyio
from msgspec import structs

from palaver.agent.mcp import McpTools
from palaver.core.errors import SwarmError
from palaver.core.type_checks import check_arguments
from palaver.swarm.call import CallContext, called, watched
from palaver.swarm.session import Session
from palaver.turn.tool import AgentTool

List: TypeAlias = "Callable[[str], Awaitable[Sequence[AgentTool]] | Sequence[AgentTool]]"

PREFIX: Final = "mcp_"
_LONGEST: Final = 64
"""The most characters of a tool's name that every wire accepts (docs/spec/wires.md#1.5)."""


@final
class McpSource:
    """A source of tools. Observers: ``on_list`` (client, tools) and ``on_update`` (client, or ``None`` for all)."""

    def __init__(
        self,
        tools: McpTools | List,
        *,
        prefix: str = PREFIX,
        on_list: Callable[[str, Sequence[AgentTool]], Any] | None = None,
        on_update: Callable[[str | None], Any] | None = None,
    ) -> None:
        """Wrap ``tools``, which outlive the swarm; ``prefix`` begins the name of each."""
        check_arguments("McpSource", McpSource.__init__, locals(), SwarmError)
        self._tools, self._prefix = tools, prefix
        self._on_list, self._on_update = on_list, on_update
        self._kept: WeakKeyDictionary[Session, tuple[Sequence[AgentTool], str | None]] = WeakKeyDictionary()
        """The tools of a session, and the turn for which alone they are cached."""
        self._stale = False
        self._lock = anyio.Lock()

    async def __call__(self, place: CallContext) -> Sequence[AgentTool]:
        """Return the tools for the session of ``place``. Raises what the listing raises."""
        kept = self._kept.get(place.session)
        if kept is not None and kept[1] in {None, place.run}:
            return kept[0]
        tools, failed = await self._listed(place.client)
        named = tuple([self._named(each) for each in tools])
        self._kept[place.session] = (named, None if failed is None else place.run)
        if failed is not None:
            place.session.publish_event("agent", "error", place.agent, output={"error": f"SwarmError: {failed}"})
        await watched("on_list", self._on_list, place.client, named)
        return named

    async def update(self, client: str | None = None) -> None:
        """Drop the list for ``client``; ``None`` means all clients. They share the connections to servers."""
        self._stale = True
        for session in tuple(self._kept):
            if client is None or session.client == client:
                self._kept.pop(session, None)
        await watched("on_update", self._on_update, client)

    async def _listed(self, client: str) -> tuple[Sequence[AgentTool], SwarmError | None]:
        """Return the tools, and the failures."""
        if not isinstance(self._tools, McpTools):
            return tuple(await called(self._tools, client)), None
        async with self._lock:
            if self._stale or self._failed():
                await self._tools.refresh()
                self._stale = False
            return self._tools.tools, self._failed()

    def _failed(self) -> SwarmError | None:
        """Return what is wrong with the servers."""
        if not isinstance(self._tools, McpTools):
            return None
        failed = [
            f"the MCP server {name!r} has failed: {status.error}"
            for name, status in self._tools.statuses.items()
            if status.state == "failed"
        ]
        return SwarmError("; ".join(failed)) if failed else None

    def _named(self, tool: AgentTool) -> AgentTool:
        name = tool.name
        if isinstance(self._tools, McpTools) and len(self._tools.statuses) == 1:
            name = name.partition("__")[2] or name
        named = f"{self._prefix}{name}"[:_LONGEST]
        return structs.replace(tool, definition=tool.definition.replace(name=named))
