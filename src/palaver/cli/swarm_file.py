"""The swarm that ``palaver swarm`` and ``palaver serve`` are given: ``FILE.py``, or ``FILE.py:name``.

Rules:

- The file is run. Without a name, the swarm is the only ``Swarm`` among its public names.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

import click

from palaver.cli import python_file
from palaver.cli.failure import bad_input
from palaver.swarm.swarm import Swarm

_MANY: Final = 6


def swarm(named: str) -> Swarm:
    """Load a swarm.

    Raises ``click.ClickException`` for a file that cannot be run or holds no such swarm, ``click.UsageError`` for what
    names no Python file.
    """
    file, name = named, ""
    if not named.endswith(".py"):
        file, _, name = named.rpartition(":")
    if not file.endswith(".py"):
        raise click.UsageError(f"{named}: neither FILE.py nor FILE.py:name")
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


def _names(found: dict[str, Swarm]) -> str:
    return f"; its swarms: {', '.join(list(found)[:_MANY])}" if found else ""
