"""The swarm that ``palaver swarm`` and ``palaver serve`` are given: ``FILE.py``, ``FILE.py:name``, or ``FILE.toml``.

Rules:

- A Python file is run. Without a name, the swarm is the only ``Swarm`` among its public names.
- A TOML file is a configuration (``palaver.swarm.config``). The tools, policies, states and storages that it names are
  the public names of the Python file beside it, where there is one: ``shop.py`` of ``shop.toml``.

Stability: experimental.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from palaver.cli import python_file
from palaver.cli.failure import bad_input
from palaver.core.errors import SwarmError
from palaver.swarm.config import swarm_from
from palaver.swarm.swarm import Swarm

_MANY: Final = 6


def swarm(named: str) -> Swarm:
    """Load a swarm.

    Raises ``click.ClickException`` for a file that cannot be run or holds no such swarm, ``click.UsageError`` for what
    names neither a Python file nor a TOML file.
    """
    if named.endswith(".toml"):
        return _configured(named)
    file, name = named, ""
    if not named.endswith(".py"):
        file, _, name = named.rpartition(":")
    if not file.endswith(".py"):
        raise click.UsageError(f"{named}: neither FILE.py, FILE.py:name, nor FILE.toml")
    module = python_file.module(file, "swarm")
    found = {key: value for key, value in vars(module).items() if isinstance(value, Swarm)}
    if name:
        if name not in found:
            there = hasattr(module, name)
            bad_input(file, f"{name!r} is no Swarm" if there else f"holds nothing called {name!r}{_names(found)}")
        return found[name]
    public = {key: value for key, value in found.items() if not key.startswith("_")}
    different = list({id(value): value for value in public.values()}.values())
    if not different:
        bad_input(file, "holds no Swarm")
    if len(different) > 1:
        bad_input(file, f"holds several swarms; name one: {', '.join(f'{file}:{key}' for key in list(public)[:_MANY])}")
    return different[0]


def _configured(file: str) -> Swarm:
    beside = Path(file).with_suffix(".py")
    given = vars(python_file.module(str(beside), "swarm")) if beside.is_file() else {}
    try:
        text = Path(file).read_text("utf-8")
        return swarm_from(text, parts={key: value for key, value in given.items() if not key.startswith("_")})
    except OSError as error:
        bad_input(file, "no such file" if isinstance(error, FileNotFoundError) else error.strerror)
    except (UnicodeDecodeError, SwarmError) as error:
        bad_input(file, error)


def _names(found: dict[str, Swarm]) -> str:
    return f"; its swarms: {', '.join(list(found)[:_MANY])}" if found else ""
