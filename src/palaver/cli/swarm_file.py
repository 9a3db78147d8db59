"""The swarm that ``palaver swarm`` and ``palaver serve`` are given: ``FILE.py``, ``FILE.py:name``, or ``FILE.toml``.

Rules:

- A Python file is run. Without a name, the swarm is the only ``Swarm`` among its public names.
- A TOML file is a configuration (``palaver.swarm.config``). The tools, policies, states and storages that it names are
  the public names of the Python file beside it, where there is one: ``shop.py`` of ``shop.toml``.

A Python file that the user names, run for what it defines.

Rules:

- The file's folder comes first on the path, as Python does for a file that it runs.
- Its module has a name of its own, so that it hides no other one.

Stability: experimental.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from palaver.cli.terminal import bad_input
from palaver.core.errors import SwarmError
from palaver.swarm.config import swarm_from
from palaver.swarm.swarm import Swarm

if TYPE_CHECKING:
    from types import ModuleType


# --- python file ------------------------------------------------------------------------------------------------------


def load_python(file: str, kind: str) -> ModuleType:
    """Run a file, whose name ends in ``.py``. Raises ``click.ClickException`` naming the file and what is wrong."""
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
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever the file does wrong)
        bad_input(file, f"{type(error).__name__}: {error}")
    return made


# --- swarm file -------------------------------------------------------------------------------------------------------


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
    module = load_python(file, "swarm")
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
    given = vars(load_python(str(beside), "swarm")) if beside.is_file() else {}
    try:
        text = Path(file).read_text("utf-8")
        return swarm_from(text, parts={key: value for key, value in given.items() if not key.startswith("_")})
    except OSError as error:
        bad_input(file, "no such file" if isinstance(error, FileNotFoundError) else error.strerror)
    except (UnicodeDecodeError, SwarmError) as error:
        bad_input(file, error)


def _names(found: dict[str, Swarm]) -> str:
    return f"; its swarms: {', '.join(list(found)[:_MANY])}" if found else ""
