"""A swarm: agents that share a conversation with each client, and what they share besides.

Rules:

- A swarm is a description and holds no conversation; ``start`` brings it to life. Every reference in it is checked
  when it is made (K16).
- ``realm`` says whose threads, states and storages are used: by default the swarm's own. Two swarms of one realm
  share a client's thread, each with an active agent of its own (K17: sharing is explicit).
- ``deadline`` is how long a turn may take, in seconds; ``nested`` how often one may ask models. ``recursion`` says
  what becomes of an agent that hands the conversation back in a circle: ``raise`` or ``refuse``.
- ``instructions`` are said to every agent, behind its prompt.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack

from palaver.core.errors import SwarmError
from palaver.core.type_checks import check_arguments
from palaver.swarm.agent import SwarmAgent
from palaver.swarm.extras.compute import Compute
from palaver.swarm.extras.storage import Storage
from palaver.swarm.live import LiveSwarm
from palaver.swarm.policy import Policy
from palaver.swarm.state import State
from palaver.swarm.turn import NESTED

if TYPE_CHECKING:
    from palaver.store.store import Store
    from palaver.swarm.bus import Bus

DEADLINE: Final = 300.0
"""Seconds that a turn may take, where nothing else is said."""


class SwarmChanges(TypedDict, total=False):
    """What ``Swarm.replace`` changes: the arguments of ``Swarm``."""

    name: str
    agents: Iterable[SwarmAgent]
    default: str | None
    instructions: Iterable[str]
    policies: Iterable[Policy]
    states: Iterable[State[Any]]
    storages: Iterable[Storage[Any]]
    computes: Iterable[Compute[Any]]
    realm: str | None
    deadline: float
    nested: int
    recursion: Literal["raise", "refuse"]
    on_open: Callable[..., Any] | None
    on_close: Callable[..., Any] | None
    on_execute: Callable[..., Any] | None
    on_emit: Callable[..., Any] | None
    on_agent_changed: Callable[..., Any] | None


class Swarm:
    """What a swarm is. Changing one is a copy: ``swarm.replace(default="sales")``."""

    def __init__(
        self,
        name: str,
        agents: Iterable[SwarmAgent],
        *,
        default: str | None = None,
        instructions: Iterable[str] = (),
        policies: Iterable[Policy] = (),
        states: Iterable[State[Any]] = (),
        storages: Iterable[Storage[Any]] = (),
        computes: Iterable[Compute[Any]] = (),
        realm: str | None = None,
        deadline: float = DEADLINE,
        nested: int = NESTED,
        recursion: Literal["raise", "refuse"] = "raise",
        on_open: Callable[..., Any] | None = None,
        on_close: Callable[..., Any] | None = None,
        on_execute: Callable[..., Any] | None = None,
        on_emit: Callable[..., Any] | None = None,
        on_agent_changed: Callable[..., Any] | None = None,
    ) -> None:
        """Describe a swarm; the first agent is the default one where no other is named.

        The hooks get the session first, and only look on. Raises ``SwarmError`` naming what refers to nothing, is
        there twice, is less than nothing, or is of the wrong type.
        """
        self._given: dict[str, Any] = {key: value for key, value in locals().items() if key != "self"}
        whose = f"the swarm {name!r}"
        check_arguments(whose, Swarm.__init__, self._given, SwarmError)
        for each in ("agents", "instructions", "policies", "states", "storages", "computes"):
            self._given[each] = tuple(self._given[each])  # what can be read only once is read here
        check_arguments(whose, Swarm.__init__, self._given, SwarmError)
        listed: tuple[SwarmAgent, ...] = self._given["agents"]
        self.name, self.realm = name, realm or name
        self.agents: Mapping[str, SwarmAgent] = _by_name(whose, "agents", listed)
        if not listed:
            raise SwarmError(f"the swarm {name!r} has no agents")
        self.default = default or listed[0].name
        self.instructions: tuple[str, ...] = self._given["instructions"]
        self.policies: tuple[Policy, ...] = self._given["policies"]
        self.states: Mapping[str, State[Any]] = _by_name(whose, "states", self._given["states"])
        self.storages: Mapping[str, Storage[Any]] = _by_name(whose, "storages", self._given["storages"])
        self.computes: Mapping[str, Compute[Any]] = _by_name(whose, "computes", self._given["computes"])
        self.deadline, self.nested, self.recursion = deadline, nested, recursion
        self.on_open, self.on_close, self.on_execute = on_open, on_close, on_execute
        self.on_emit, self.on_agent_changed = on_emit, on_agent_changed
        problems = self._problems()
        if problems:
            raise SwarmError(f"the swarm {name!r}: " + "; ".join(problems))

    def _problems(self) -> Sequence[str]:
        """What refers to something that is not there, and limits that nothing can keep."""
        found: list[str] = []
        if not self.name:
            found.append("it needs a name")
        if not self.deadline > 0:
            found.append(f"its turns have no time: {self.deadline} seconds")
        if self.nested < 1:
            found.append(f"its turns may ask no model: {self.nested} times")
        if self.default not in self.agents:
            found.append(f"its default agent {self.default!r} is none of its agents")
        for agent in self.agents.values():
            kinds = (
                ("agent", agent.depends_on, self.agents),
                ("state", agent.states, self.states),
                ("storage", agent.storages, self.storages),
            )
            for kind, names, known in kinds:
                found += [
                    f"the agent {agent.name!r} refers to the {kind} {each!r}, which it does not have"
                    for each in sorted(names)
                    if each not in known
                ]
            found += [
                f"the tool {tool.name!r} of the agent {agent.name!r} hands over to {tool.target!r}, "
                "which it does not have"
                for tool in agent.tools
                if tool.target is not None and tool.target not in self.agents
            ]
        for compute in self.computes.values():
            found += [
                f"the compute {compute.name!r} depends on the state {each.name!r}, which it does not have"
                for each in compute.depends_on
                if each.name not in self.states
            ]
        return found

    def replace(self, **changes: Unpack[SwarmChanges]) -> Swarm:
        """Give an edited copy. Raises as the constructor does."""
        given: dict[str, Any] = {**self._given, **changes}
        return Swarm(**given)

    def start(self, *, store: Store | None = None, bus: Bus | None = None) -> LiveSwarm:
        """Bring it to life: ``async with swarm.start() as live``.

        Without a store, conversations last as long as their sessions.
        """
        return LiveSwarm(self, store=store, bus=bus)

    def __repr__(self) -> str:
        """Show the name and the agents."""
        return f"Swarm({self.name!r}, {list(self.agents)})"


def _by_name(whose: str, kind: str, given: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in given:
        if each.name in found:
            raise SwarmError(f"{whose}: two of its {kind} are called {each.name!r}")
        found[each.name] = each
    return found
