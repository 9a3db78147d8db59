"""Diagrams of a swarm: its description as Markdown, and its hand-overs as Mermaid or PlantUML.

- A diagram is made from the description alone: no model is asked and no function is called. A value that a function
  would give is marked as such. The same swarm gives the same text.
- An arrow leads to each agent that a navigation tool of an agent names, with the tool's name, and to each agent in its
  ``depends_on``. A navigation tool without a target leads to the default agent.
- Names and texts are escaped.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Struct

from palaver.core import jsontext

if TYPE_CHECKING:
    from palaver.swarm.agent import SwarmAgent
    from palaver.swarm.swarm import Swarm
    from palaver.swarm.tool import SwarmTool

_FUNCTION: Final = "*given by a function*"
_SCHEMA: Final = "*a schema of its own*"
_FENCES: Final = re.compile(r"`{3,}")
_TICKS: Final = re.compile(r"`+")
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]<>()#|~])")


def markdown(swarm: Swarm) -> str:
    """Return the description of a swarm as a Markdown document."""
    return "\n".join(_document(swarm)).rstrip("\n") + "\n"


def _document(swarm: Swarm) -> Iterator[str]:
    yield f"# Swarm {_code(swarm.name)}"
    yield ""
    yield f"- Default agent: {_code(swarm.default)}"
    if swarm.realm != swarm.name:
        yield f"- Realm: {_code(swarm.realm)}"
    yield f"- A turn takes at most {swarm.deadline:g} seconds and {swarm.nested} model calls."
    yield ""
    if swarm.instructions:
        yield "## Instructions"
        yield ""
        for text in swarm.instructions:
            yield from _quoted(text)
    yield "## Hand-overs"
    yield ""
    yield "```mermaid"
    yield mermaid(swarm).rstrip("\n")
    yield "```"
    yield ""
    yield "## Agents"
    yield ""
    for agent in swarm.agents.values():
        yield from _agent(swarm, agent)
    yield from _policies(swarm)
    yield from _states(swarm)
    yield from _storages(swarm)
    yield from _computes(swarm)


def _agent(swarm: Swarm, agent: SwarmAgent) -> Iterator[str]:
    yield f"### {_code(agent.name)}"
    yield ""
    if agent.description:
        yield _plain(agent.description)
        yield ""
    yield f"- Model: {'a person' if agent.model is None else _code(agent.model.name)}"
    targets = dict.fromkeys(to for to, _ in _arrows(swarm, agent))
    lists: tuple[tuple[str, Iterable[str]], ...] = (
        ("Hands over to", targets),
        ("States", sorted(agent.states)),
        ("Storages", sorted(agent.storages)),
    )
    for what, names in lists:
        if listed := ", ".join(_code(each) for each in names):
            yield f"- {what}: {listed}"
    yield f"- Sees the last {agent.keep} messages." if agent.keep is not None else "- Sees all messages."
    if agent.sources:
        yield f"- More tools come from {len(agent.sources)} sources, which are asked before each model call."
    yield ""
    yield from _prompts(agent)
    if agent.tools:
        yield "| tool | parameters | what it does |"
        yield "| --- | --- | --- |"
        for tool in agent.tools:
            yield f"| {_code(tool.name)}{_kind(tool)} | {_parameters(tool)} | {_plain(tool.definition.description)} |"
        yield ""


def _prompts(agent: SwarmAgent) -> Iterator[str]:
    if not isinstance(agent.instructions, str):
        yield f"Prompt: {_FUNCTION}"
        yield ""
    elif agent.instructions:
        yield from _quoted(agent.instructions)
    for text in (*agent.system, *agent.flags):
        yield from _quoted(text)
    if agent.dynamic is not None:
        yield f"More of the prompt: {_FUNCTION}"
        yield ""


def _kind(tool: SwarmTool) -> str:
    kinds = {"navigation": " (hands over)", "commit": " (commits)"}
    return kinds.get(tool.kind, "")


class _Property(Struct):
    type: Any = None


class _Schema(Struct):
    properties: dict[str, _Property | bool] = {}
    required: list[str] = []


def _parameters(tool: SwarmTool) -> str:
    """Return the parameters of a tool with their types; ``?`` marks optional ones."""
    raw = tool.definition.parameters_json
    try:
        schema = msgspec.json.decode(b"{}" if raw is UNSET else raw, type=_Schema)
    except msgspec.MsgspecError:  # a schema may have any content
        return _SCHEMA
    return ", ".join(
        _code(f"{name}{'' if name in schema.required else '?'}{_type(each)}")
        for name, each in schema.properties.items()
    )


def _type(of: _Property | bool) -> str:  # noqa: FBT001 (a schema may be true)
    kind: Any = of.type if isinstance(of, _Property) else None
    if kind is None:
        return ""
    return f": {kind if isinstance(kind, str) else _json(kind)}"


def _table(title: str, heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    rows = tuple(rows)
    if not rows:
        return
    yield f"## {title}"
    yield ""
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _policies(swarm: Swarm) -> Iterator[str]:
    return _table(
        "Policies",
        ("policy", "checks", "bans by itself", "says"),
        [
            (
                _code(each.name),
                " and ".join(
                    what for what, by in (("input", each.validate_input), ("output", each.validate_output)) if by
                )
                or "bans only",
                _yes(each.auto_ban),
                _plain(each.ban_message) if each.get_ban_message is None else _FUNCTION,
            )
            for each in swarm.policies
        ],
    )


def _states(swarm: Swarm) -> Iterator[str]:
    rows = [
        (_code(each.name), _yes(each.shared), _FUNCTION if callable(each.default) else _code(_json(each.default)))
        for each in swarm.states.values()
    ]
    return _table("States", ("state", "shared", "default"), rows)


def _storages(swarm: Swarm) -> Iterator[str]:
    rows = [(_code(each.name), _yes(each.shared), _yes(each.embed is not None)) for each in swarm.storages.values()]
    return _table("Storages", ("storage", "shared", "searched by meaning"), rows)


def _computes(swarm: Swarm) -> Iterator[str]:
    rows = [
        (_code(each.name), _yes(each.shared), ", ".join(_code(state.name) for state in each.depends_on))
        for each in swarm.computes.values()
    ]
    return _table("Derived values", ("value", "shared", "made of"), rows)


def _yes(given: object) -> str:
    return "yes" if given else "no"


def _json(value: object) -> str:
    try:
        return jsontext.encode(value).decode()
    except Exception:  # noqa: BLE001 (a default of any type: what it is called has to do)
        return type(value).__name__


def _code(text: str) -> str:
    """Return a name as code, also in a table."""
    text = _line(text).replace("|", "\\|")
    ticks = max((len(each) for each in _TICKS.findall(text)), default=0)
    pad = " " if ticks else ""
    return f"{'`' * (ticks + 1)}{pad}{text}{pad}{'`' * (ticks + 1)}"


def _plain(text: str | None) -> str:
    """Return text with its markup escaped, on one line."""
    return _MARKUP.sub(r"\\\1", _line(text or ""))


def _line(text: str) -> str:
    return " ".join(text.split())


def _quoted(text: str) -> Iterator[str]:
    """Yield text unchanged, in a fence that it cannot close."""
    longest = max((len(each) for each in _FENCES.findall(text)), default=2)
    fence = "`" * (longest + 1)
    yield f"{fence}text"
    yield text
    yield fence
    yield ""


def mermaid(swarm: Swarm) -> str:
    """Return the hand-overs as a Mermaid flowchart."""
    ids = _ids(swarm)
    lines = ["flowchart LR"]
    for name, key in ids.items():
        shape = ("([", "])") if name == swarm.default else ("[", "]")
        lines.append(f"    {key}{shape[0]}{_mermaid(name)}{shape[1]}")
    for agent in swarm.agents.values():
        for to, by in _arrows(swarm, agent):
            label = f"|{_mermaid(by)}|" if by else ""
            lines.append(f"    {ids[agent.name]} {'-->' if by else '-.->'}{label} {ids[to]}")
    return "\n".join(lines) + "\n"


def plantuml(swarm: Swarm) -> str:
    """Return the hand-overs as a PlantUML state diagram."""
    ids = _ids(swarm)
    lines = ["@startuml", f"title {_plantuml(swarm.name)}"]
    for name, key in ids.items():
        lines.append(f'state "{_plantuml(name)}" as {key}')
    lines.append(f"[*] --> {ids[swarm.default]}")
    for agent in swarm.agents.values():
        for to, by in _arrows(swarm, agent):
            label = f" : {_plantuml(by)}" if by else ""
            lines.append(f"{ids[agent.name]} {'-->' if by else '..>'} {ids[to]}{label}")
    return "\n".join([*lines, "@enduml"]) + "\n"


def _arrows(swarm: Swarm, agent: SwarmAgent) -> Iterator[tuple[str, str]]:
    """Yield the targets of an agent's hand-overs, each with its tool; ``""`` for ``depends_on``."""
    seen: set[str] = set()
    for tool in agent.tools:
        if tool.kind == "navigation":
            to = swarm.default if tool.target is None else tool.target
            if to in swarm.agents:
                seen.add(to)
                yield to, tool.name
    for to in agent.depends_on:
        if to not in seen:
            seen.add(to)
            yield to, ""


def _ids(swarm: Swarm) -> dict[str, str]:
    """Return an id for each agent that is valid in both languages."""
    return {name: f"agent{number}" for number, name in enumerate(swarm.agents, 1)}


def _mermaid(text: str) -> str:
    """Return quoted text, with markup as Mermaid's entities."""
    safe = _line(text).replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
    return '"' + safe.replace("`", "#96;") + '"'


def _plantuml(text: str) -> str:
    """Return text, with markup as HTML entities."""
    return re.sub(r"[\"<>\\~%]", lambda found: f"&#{ord(found[0])};", _line(text))


FORMATS: Final[Mapping[str, Callable[[Swarm], str]]] = {"markdown": markdown, "mermaid": mermaid, "plantuml": plantuml}
"""The diagram functions by name."""
