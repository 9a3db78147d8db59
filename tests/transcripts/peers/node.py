"""Packages of Node for the checks of this folder: their location, and how a script with them is run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
MODULES = Path(os.environ.get("PALAVER_NODE_PEERS", FOLDER / "node_modules"))


def needed(*packages):
    """Skip, by name, packages that cannot be run here."""
    if shutil.which("node") is None:
        pytest.skip("needs node")
    for package in packages:
        if not (MODULES / package).is_dir():
            pytest.skip(f"needs the package {package} of Node in PALAVER_NODE_PEERS")


def run(script, *arguments, given=None):
    """Run a script of this folder; its input and output are JSON."""
    done = subprocess.run(
        ["node", str(FOLDER / script), str(MODULES), *arguments],
        input=given if isinstance(given, bytes) else json.dumps(given).encode(),
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def program(folder, path, *arguments):
    """Run a program of a package in a folder of its own, which is its home too; return its output."""
    names = ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")
    said = folder / "said"  # a file: opencode exits before a pipe has received everything
    with said.open("wb") as out:
        done = subprocess.run(
            [str(MODULES / path), *arguments],
            cwd=folder / "project",
            env={"PATH": os.environ["PATH"], "OPENCODE_DISABLE_AUTOUPDATE": "1", **dict.fromkeys(names, str(folder))},
            stdout=out,
            stderr=subprocess.PIPE,
            check=False,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr.decode()
    return said.read_bytes()
