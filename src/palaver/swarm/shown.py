"""What a client sees of the events of a swarm: one filter for every front.

Rules:

- Events of ``agent``, ``execution``, ``session`` and ``swarm`` are shown, and those under topics of the application;
  states, storages, policies and the history are not.
- Of an event of the swarm's own only the fields of ``_FIELDS`` are shown: what a client is answered with, and which
  agent speaks. Errors, answers before they were changed, arguments, results and prompts are for operators, who listen
  to the bus itself.
- A delta is shown where the agent's text is the answer as it is. Where ``map``, ``transform``, ``validate`` or a policy
  may change or refuse it, the delta is marked (``UNCHECKED``), and a client is not shown it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from palaver.swarm.events import SOURCES, Event
from palaver.swarm.output import not_empty

if TYPE_CHECKING:
    from palaver.swarm.agent import SwarmAgent
    from palaver.swarm.swarm import Swarm

SHOWN: Final = frozenset({"agent", "execution", "session", "swarm"})
"""The sources of the swarm's own events that are shown."""
UNCHECKED: Final = "unchecked"
"""The field that marks a delta whose answer may still be changed or refused."""
REMOTE: Final = "a2a"
"""The topic of what a remote agent sent beside its text, which no check has seen."""

_FIELDS: Final[Mapping[tuple[str, str], tuple[Collection[str], Collection[str]]]] = {
    ("agent", "delta"): ((), ("text",)),
    ("agent", "emit-output"): (("mode",), ("result",)),
    ("agent", "tool-progress"): (("value",), ()),
    ("session", "answer"): ((), ("result",)),
    ("session", "emit"): (("message",), ()),
    ("session", "execute"): (("mode",), ("result",)),
    ("swarm", "get-agent"): ((), ("agentName", "result")),
    ("swarm", "get-agent-name"): ((), ("activeAgent",)),
    ("swarm", "set-agent-name"): (("agentName",), ()),
    ("swarm", "set-agent-ref"): (("agentName",), ()),
    ("swarm", "wait-for-output"): ((), ("result",)),
}
"""The fields of ``input`` and ``output`` that are shown, by source and type; of other types none."""


def is_shown(event: Event) -> bool:
    """Whether a client sees that an event happened."""
    if event.source not in SOURCES:
        return event.source != REMOTE
    return event.source in SHOWN and not event.input.get(UNCHECKED)


def for_client(event: Event) -> Event:
    """Give an event as a client sees it, for one that is shown."""
    if event.source not in SOURCES:
        return event
    given, made = _FIELDS.get((event.source, event.type), ((), ()))
    return structs.replace(event, input=_only(event.input, given), output=_only(event.output, made))


def delta_input(swarm: Swarm, agent: SwarmAgent) -> Mapping[str, Any]:
    """Give the ``input`` of a delta: marked where the answer of the agent may still be changed or refused."""
    plain = agent.map is None and agent.transform is None and agent.validate is not_empty
    if plain and not any(policy.validate_output for policy in swarm.policies):
        return {}
    return {UNCHECKED: True}


def _only(values: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    return {name: values[name] for name in names if name in values}
