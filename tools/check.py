"""Runs every check in turn, with its name and its seconds; says at the end which failed.

`python tools/check.py` runs all of them, `python tools/check.py lint types` those that are named.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent  # of the environment, whether it is activated or not

STEPS = {
    "format": ["ruff", "format", "--check", "--quiet", "."],
    "lint": ["ruff", "check", "--quiet", "."],
    "types": ["pyright"],
    "mypy": ["mypy"],
    "layers": ["lint-imports", "--no-logo"],
    "api": ["python", "tools/api_lock.py", "--check"],
    "changes": ["towncrier", "build", "--draft"],
    "docs": [
        "sphinx-build",
        "-W",
        "-E",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "docs",
        "docs/_build/html",
    ],
    "examples": ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/docs"],
}


def run(name: str) -> bool:
    """Run one step; show what it printed only when it failed."""
    started = time.monotonic()
    command = [str(BIN / STEPS[name][0]), *STEPS[name][1:]]
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    failed = done.returncode != 0
    print(f"{name:<10}{time.monotonic() - started:6.1f} s  {'FAILED' if failed else 'ok'}", flush=True)
    if failed:
        print(done.stdout, flush=True)
    return not failed


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        print(f"no such check: {', '.join(unknown)}; there are: {', '.join(STEPS)}")
        return 2
    failed = [name for name in names or STEPS if not run(name)]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
