"""Swarms from configuration files, with references by name.

Rules:

- A file is TOML: the swarm's own values at the top, one table ``[agents.<name>]`` for each agent. Models are named as
  ``palaver.models.model`` takes them; tools, operators, policies, states and storages by the names under which the
  program passes them in ``parts``.
- ``policy`` of an agent is ``"allow"``, ``"ask"`` or ``"deny"``, or a table of these by tool.
- ``hand_over`` names the agents to which an agent can hand over; each gives it a tool ``to_<agent>``.
- Each error in a file is a ``SwarmError`` that names the place. Unknown keys are errors: their author expects an
  effect.

Stability: experimental.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from palaver.core.errors import PalaverError, SwarmError
from palaver.models.language_model import LanguageModel
from palaver.models.names import model as model_named
from palaver.swarm.agent import MAX_TOOL_CALLS, SwarmAgent
from palaver.swarm.extras.storage import Storage
from palaver.swarm.navigation_tools import navigation
from palaver.swarm.policy import Policy
from palaver.swarm.rescue import Flush, Recomplete
from palaver.swarm.state import State
from palaver.swarm.swarm import DEADLINE, Swarm
from palaver.swarm.turn import NESTED
from palaver.threads.agent_view import KEEP
from palaver.turn.tool import Judgement

_KINDS: Final[Mapping[str, type]] = {"policy": Policy, "state": State, "storage": Storage}
"""The types of parts; tools and operators are checked when an agent is made with them."""


class _Agent(Struct, forbid_unknown_fields=True):
    model: str | None = None
    operator: str | None = None
    operator_timeout: float | None = None
    instructions: str = ""
    system: tuple[str, ...] = ()
    description: str = ""
    tools: tuple[str, ...] = ()
    hand_over: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    storages: tuple[str, ...] = ()
    policy: Judgement | dict[str, Judgement] = "allow"
    keep: int = KEEP
    max_tool_calls: int = MAX_TOOL_CALLS
    rescue: Literal["flush", "recomplete"] = "flush"
    rescue_scope: Literal["turn", "agent", "thread"] = "turn"
    placeholders: tuple[str, ...] = ()
    stream: bool = False


class _Swarm(Struct, forbid_unknown_fields=True):
    name: str
    agents: dict[str, _Agent]
    default: str | None = None
    instructions: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    storages: tuple[str, ...] = ()
    realm: str | None = None
    deadline: float = DEADLINE
    nested: int = NESTED


def swarm_from(
    text: str,
    *,
    parts: Mapping[str, Any] | None = None,
    models: Callable[[str], LanguageModel] = model_named,
) -> Swarm:
    """Make a swarm from a configuration (TOML). Raises ``SwarmError`` that names the error."""
    parts = parts or {}
    try:
        config = msgspec.convert(tomllib.loads(text), _Swarm)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:  # ValueError: also a number of 5000 digits
        raise SwarmError(f"the configuration of a swarm: {error}") from None

    def named(kind: str, names: Sequence[str], where: str) -> list[Any]:
        missing = [name for name in names if name not in parts]
        if missing:
            raise SwarmError(f"{where}: no {kind} was passed for {', '.join(map(repr, missing))}")
        others = [name for name in names if not isinstance(parts[name], _KINDS.get(kind, object))]
        if others:
            raise SwarmError(f"{where}: the value passed for {', '.join(map(repr, others))} is not a {kind}")
        return [parts[name] for name in names]

    agents = [_agent(name, agent, named, models) for name, agent in config.agents.items()]
    return Swarm(
        config.name,
        agents,
        default=config.default,
        instructions=config.instructions,
        policies=named("policy", config.policies, "policies"),
        states=named("state", config.states, "states"),
        storages=named("storage", config.storages, "storages"),
        realm=config.realm,
        deadline=config.deadline,
        nested=config.nested,
    )


def _agent(
    name: str,
    config: _Agent,
    named: Callable[[str, Sequence[str], str], list[Any]],
    models: Callable[[str], LanguageModel],
) -> SwarmAgent:
    where = f"agents.{name}"
    try:
        model = None if config.model is None else models(config.model)
    except PalaverError as error:
        raise SwarmError(f"{where}.model: {error}") from error
    operators = named("operator", [] if config.operator is None else [config.operator], where)
    tools = [*named("tool", config.tools, where), *(navigation(each) for each in config.hand_over)]
    given: dict[str, Any] = {"placeholders": config.placeholders} if config.placeholders else {}
    try:
        return SwarmAgent(
            name,
            model,
            instructions=config.instructions,
            system=config.system,
            description=config.description,
            tools=tools,
            states=config.states,
            storages=config.storages,
            policy=config.policy,
            depends_on=config.hand_over,
            keep=config.keep,
            max_tool_calls=config.max_tool_calls,
            rescue=Recomplete() if config.rescue == "recomplete" else Flush(),
            rescue_scope=config.rescue_scope,
            operator=next(iter(operators), None),
            operator_timeout=config.operator_timeout,
            stream=config.stream,
            **given,
        )
    except PalaverError as error:
        raise SwarmError(f"{where}: {error}") from error
