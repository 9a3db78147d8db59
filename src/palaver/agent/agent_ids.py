"""Ids of agents, ``publisher/name@version``, and which agents a reference means.

Rules (docs/spec/codebuff.md#4.5, CBF-30):

- Publisher and version may be missing. In a reference, what is missing may be anything; in the id of an agent it is
  nothing. So ``coder`` means ``acme/coder@1.2``, and ``acme/coder`` does not mean ``coder``.
- Where a reference means several agents, it means the first.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class AgentId(Struct, frozen=True):
    """The parts of an id; ``None`` for what is missing."""

    name: str
    publisher: str | None = None
    version: str | None = None

    def means(self, agent: AgentId) -> bool:
        """Whether this reference means an agent."""
        return (
            self.name == agent.name
            and self.publisher in (None, agent.publisher)
            and self.version in (None, agent.version)
        )


def agent_id(text: str) -> AgentId:
    """Read an id. A slash or an at sign with nothing beside it is as if it were not there."""
    publisher, _, rest = text.strip().rpartition("/")
    name, _, version = rest.partition("@")
    return AgentId(name, publisher or None, version or None)


def meant(reference: str, agents: Iterable[str]) -> str | None:
    """The first of some ids that a reference means; ``None`` where it means none of them."""
    wanted = agent_id(reference)
    return next((each for each in agents if wanted.means(agent_id(each))), None)
