"""A Python file that the user names, run for what it defines.

Rules:

- The file's folder comes first on the path, as Python does for a file that it runs.
- Its module has a name of its own, so that it hides no other one.

Stability: experimental.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

from palaver.cli.failure import bad_input

if TYPE_CHECKING:
    from types import ModuleType


def module(file: str, kind: str) -> ModuleType:
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
