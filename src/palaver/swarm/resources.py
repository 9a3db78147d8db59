"""Shared resources of a running swarm: its states, storages, derived values and policies.

Rules:

- There is one cell for each client and description, or one for all clients if the description says ``shared``. Cells
  are made on first use.
- In a tool call, an agent may use the states and storages that it lists, and no others; elsewhere, those of the swarm.
  An undescribed one raises ``SwarmError``.
- Shared values and bans are stored in the thread ``<realm>/shared`` of the store.

A session's access to the swarm's policies, states, storages, derived values and memory.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from palaver.core.errors import SwarmError
from palaver.store.memory import MemoryStore
from palaver.swarm.call import CALL
from palaver.swarm.events import SHARED, Event
from palaver.swarm.extras.compute import LiveCompute
from palaver.swarm.extras.memory import Memory
from palaver.swarm.extras.storage import LiveStorage, Storage
from palaver.swarm.log import SharedRecords, Values
from palaver.swarm.names import client_thread
from palaver.swarm.policy import Policies, PolicyCell
from palaver.swarm.state import State, StateCell

if TYPE_CHECKING:
    from palaver.store.store import Store
    from palaver.swarm.extras.compute import Compute
    from palaver.swarm.swarm import LiveSwarm, Swarm


# --- resources --------------------------------------------------------------------------------------------------------


T = TypeVar("T")
Publish: TypeAlias = Callable[[Event], None]


class Shared:
    """The values shared by all clients of a swarm."""

    def __init__(self, swarm: Swarm, values: Values, publish: Callable[[Event], None]) -> None:
        """Store them in ``values``. ``open_shared`` makes one."""
        self.swarm, self.values, self.publish = swarm, values, publish
        self.policies = Policies([PolicyCell(each, swarm.name, values, publish) for each in swarm.policies])
        self.cells: dict[tuple[str, str], Any] = {}


async def open_shared(swarm: Swarm, store: Store | None, publish: Callable[[Event], None]) -> Shared:
    """Open the shared values; a thread is created only if something is shared. Raises ``StoreError``."""
    shared = [
        *[each.shared for each in swarm.states.values()],
        *[each.shared for each in swarm.storages.values()],
        *[each.shared for each in swarm.computes.values()],
    ]
    needed = bool(swarm.policies) or any(shared)
    place = store if store is not None and needed else MemoryStore()
    values = await SharedRecords.load(place, client_thread(swarm.realm, SHARED))
    return Shared(swarm, values, publish)


class Resources:
    """The resources of one client: its own, and the shared ones."""

    def __init__(self, shared: Shared, client: str, values: Values) -> None:
        """Combine a client's values and the shared ones."""
        self._shared, self._client, self._values = shared, client, values
        self._cells: dict[tuple[str, str], Any] = {}
        self.memory = Memory(values)
        """The memory of the client, for all agents: a dictionary into which writes are merged."""

    def state(self, state: State[T] | str) -> StateCell[T]:
        """Return the cell of a state, by its description or its name. Raises ``SwarmError``."""
        found: State[T] = self._described("state", state, self._shared.swarm.states)
        self._allowed("state", found.name, "states")
        return self._state(found)

    def _state(self, state: State[T]) -> StateCell[T]:
        cell: StateCell[T] = self._cell("state", state, lambda *how: StateCell(state, *how))
        return cell

    def storage(self, storage: Storage[T] | str) -> LiveStorage[T]:
        """Return the cell of a storage, by its description or its name. Raises ``SwarmError``."""
        found: Storage[T] = self._described("storage", storage, self._shared.swarm.storages)
        self._allowed("storage", found.name, "storages")
        cache = self._shared.values
        cell: LiveStorage[T] = self._cell("storage", found, lambda *how: LiveStorage(found, *how, cache=cache))
        return cell

    def compute(self, compute: Compute[T] | str) -> LiveCompute[T]:
        """Return the cell of a derived value, by its description or its name. Raises ``SwarmError``."""
        found: Compute[T] = self._described("compute", compute, self._shared.swarm.computes)
        states = [self._state(each) for each in found.depends_on]

        def make(_: Values, client: str, publish: Publish) -> LiveCompute[T]:
            return LiveCompute(found, states, client, publish)

        cell: LiveCompute[T] = self._cell("compute", found, make)
        return cell

    def _described(self, kind: str, given: Any, known: Mapping[str, Any]) -> Any:
        name = given if isinstance(given, str) else given.name
        found = known.get(name)
        if found is None or (not isinstance(given, str) and found is not given):
            raise SwarmError(f"the swarm {self._shared.swarm.name!r} has no {kind} {name!r}")
        return found

    def _allowed(self, kind: str, name: str, listed: str) -> None:
        call = CALL.get()
        if call is None or call.client != self._client or call.place.swarm != self._shared.swarm.name:
            return
        if name not in getattr(self._shared.swarm.agents[call.agent], listed):
            raise SwarmError(f"the agent {call.agent!r} does not list the {kind} {name!r}")

    def _cell(self, kind: str, described: Any, make: Callable[..., Any]) -> Any:
        shared = self._shared
        cells, client, values = (
            (shared.cells, SHARED, shared.values) if described.shared else (self._cells, self._client, self._values)
        )
        key = (kind, described.name)
        if key not in cells:
            cells[key] = make(values, client, shared.publish)
        return cells[key]


# --- session resources ------------------------------------------------------------------------------------------------


class SessionResources:
    """The part of a session that gives access to its resources."""

    client: str
    live: LiveSwarm
    resources: Resources

    async def refused_input(self, text: str) -> str | None:
        """Return the text of a policy that refuses a message; ``None`` when all accept it."""
        return await self.live.shared.policies.check_input(text, self.client)

    async def refused_output(self, text: str) -> str | None:
        """Return the text of a policy that refuses an answer; ``None`` when all accept it."""
        return await self.live.shared.policies.check_output(text, self.client)

    def state(self, state: State[T] | str) -> StateCell[T]:
        """Return ``state``, a value that agents share, by its description or name.

        Raises ``SwarmError`` for an unknown one, and in a tool of an agent that does not list it.
        """
        return self.resources.state(state)

    def storage(self, storage: Storage[T] | str) -> LiveStorage[T]:
        """Return ``storage``, to search and to fill, by its description or name. Raises as ``state`` does."""
        return self.resources.storage(storage)

    def compute(self, compute: Compute[T] | str) -> LiveCompute[T]:
        """Return ``compute``, a derived value, by its description or name. Raises ``SwarmError`` for an unknown one."""
        return self.resources.compute(compute)

    @property
    def memory(self) -> Memory:
        """The memory of the client."""
        return self.resources.memory
