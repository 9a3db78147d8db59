"""What a session reaches of the swarm's policies, states, storages, derived values and memory.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from palaver.swarm.resources import Resources

if TYPE_CHECKING:
    from palaver.swarm.compute import Compute, ComputeCell
    from palaver.swarm.live import LiveSwarm
    from palaver.swarm.memory import Memory
    from palaver.swarm.state import State, StateCell
    from palaver.swarm.storage import Storage, StorageCell

T = TypeVar("T")


class SessionResources:
    """The part of a session that stands before its resources."""

    client: str
    live: LiveSwarm
    resources: Resources

    async def refused_input(self, text: str) -> str | None:
        """What a policy says instead of passing a message on; ``None`` when all pass it."""
        return await self.live.shared.policies.check_input(text, self.client)

    async def refused_output(self, text: str) -> str | None:
        """What a policy says instead of an answer; ``None`` when all pass it."""
        return await self.live.shared.policies.check_output(text, self.client)

    def state(self, state: State[T] | str) -> StateCell[T]:
        """A state that agents share, by description or name. Raises ``SwarmError`` for an unknown one."""
        return self.resources.state(state)

    def storage(self, storage: Storage[T] | str) -> StorageCell[T]:
        """A storage, to search and to fill. Raises ``SwarmError`` for an unknown one."""
        return self.resources.storage(storage)

    def compute(self, compute: Compute[T] | str) -> ComputeCell[T]:
        """A derived value. Raises ``SwarmError`` for an unknown one."""
        return self.resources.compute(compute)

    @property
    def memory(self) -> Memory:
        """What is remembered of the client."""
        return self.resources.memory
