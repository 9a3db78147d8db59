"""Load a swarm for ``palaver swarm``, ``serve`` and ``work``: ``FILE.py``, ``FILE.py:NAME`` or ``FILE.toml``.

- A Python file is executed. Without a name, the swarm is the only ``Swarm`` among its public names; else the only
  ``Agent``, as a swarm of one whose answers are streamed.
- A TOML file is a configuration (``palaver.swarm.config``). The tools, policies, states and storages that it names are
  the public names of the Python file beside it: ``shop.py`` for ``shop.toml``.
- The file's folder comes first on ``sys.path``. Its module gets a unique name, so that it hides no other module.

Stability: experimental.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from palaver.agent.agent import Agent, is_agent
from palaver.cli.terminal import bad_input
from palaver.core.errors import PalaverError, SwarmError
from palaver.swarm.agent import swarm_agent
from palaver.swarm.config import swarm_from
from palaver.swarm.swarm import Swarm

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType


def load_python(file: str, kind: str) -> ModuleType:
    """Execute a file whose name ends in ``.py``. Raises ``click.ClickException`` with the file and the cause."""
    path = Path(file)
    if not path.is_file():
        bad_input(file, "no such file")
    name = f"palaver_{kind}_{path.stem}"
    found = spec_from_file_location(name, path)
    assert found is not None  # noqa: S101 (its name ends in .py)
    assert found.loader is not None  # noqa: S101
    made = module_from_spec(found)
    sys.modules[name] = made  # annotations are looked up there
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        found.loader.exec_module(made)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (any error of the user's file)
        bad_input(file, f"{type(error).__name__}: {error}")
    return made


_MAX_NAMED: Final = 6


def swarm(named: str) -> Swarm:
    """Load a swarm.

    Raises ``click.ClickException`` when the file cannot be executed or has no such swarm, ``click.UsageError`` when
    ``named`` is neither a Python file nor a TOML file.
    """
    if named.endswith(".toml"):
        return _from_toml(named)
    file, name = named, ""
    if not named.endswith(".py"):
        file, _, name = named.rpartition(":")
    if not file.endswith(".py"):
        raise click.UsageError(f"{named}: neither FILE.py, FILE.py:name, nor FILE.toml")
    module = load_python(file, "swarm")
    found = {key: value for key, value in vars(module).items() if isinstance(value, Swarm)}
    if name:
        if name in (agents := _agents(module)):
            return _of_agent(file, {name: agents[name]})
        if name not in found:
            exists = hasattr(module, name)
            bad_input(file, f"{name!r} is not a Swarm" if exists else f"there is no {name!r} in it{_names(found)}")
        return found[name]
    public = {key: value for key, value in found.items() if not key.startswith("_")}
    different = list({id(value): value for value in public.values()}.values())
    if not different:
        return _of_agent(file, _agents(module))
    if len(different) > 1:
        names = ", ".join(f"{file}:{key}" for key in list(public)[:_MAX_NAMED])
        bad_input(
            file,
            f"there are several swarms in it; name one: {names}",
        )
    return different[0]


def _agents(module: ModuleType) -> dict[str, Agent[Any]]:
    """Return the agents among the public names of a module, each once."""
    found: dict[int, tuple[str, Agent[Any]]] = {}
    for name, value in vars(module).items():
        if is_agent(value) and not name.startswith("_"):
            found.setdefault(id(value), (name, value))
    return dict(found.values())


def _of_agent(file: str, agents: Mapping[str, Agent[Any]]) -> Swarm:
    """Return a swarm of one agent, whose answers are streamed. Raises ``click.ClickException``."""
    if not agents:
        bad_input(file, "there is neither a Swarm nor an Agent in it")
    if len(agents) > 1:
        names = ", ".join(f"{file}:{key}" for key in list(agents)[:_MAX_NAMED])
        bad_input(file, f"there are several agents in it; name one: {names}")
    (agent,) = agents.values()
    try:
        return Swarm(agent.name, [swarm_agent(agent)])
    except PalaverError as error:
        bad_input(file, error)


def _from_toml(file: str) -> Swarm:
    beside = Path(file).with_suffix(".py")
    given = vars(load_python(str(beside), "swarm")) if beside.is_file() else {}
    try:
        text = Path(file).read_text("utf-8")
        return swarm_from(text, parts={key: value for key, value in given.items() if not key.startswith("_")})
    except OSError as error:
        bad_input(file, "no such file" if isinstance(error, FileNotFoundError) else error.strerror)
    except (UnicodeDecodeError, SwarmError) as error:
        bad_input(file, error)


def _names(found: dict[str, Swarm]) -> str:
    return f"; its swarms: {', '.join(list(found)[:_MAX_NAMED])}" if found else ""
