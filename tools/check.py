"""Run every check in turn, print its name and its seconds, and list those that failed at the end.

- `python tools/check.py` runs all of them, `python tools/check.py lint types` those that are named.
- `python tools/check.py types src/palaver/core/parts.py` checks one file; files alone run every check of `FILES`.
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
    "types": ["pyright", "--threads"],
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

FILES = {
    "format": ["ruff", "format", "--check", "--quiet"],
    "lint": ["ruff", "check", "--quiet"],
    "types": ["pyright"],
    "mypy": ["mypy"],
}
"""The checks that can be run over files, each without what it runs over."""


def run(name: str, files: list[str]) -> bool:
    """Run one step, over the files if there are any; show what it printed only when it failed."""
    started = time.monotonic()
    step = [*FILES[name], *files] if files else STEPS[name]
    command = [str(BIN / step[0]), *step[1:]]
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


def main(arguments: list[str]) -> int:
    files = [each for each in arguments if each not in STEPS and (ROOT / each).exists()]
    names = [each for each in arguments if each not in files]
    known = FILES if files else STEPS
    unknown = [name for name in names if name not in known]
    if unknown:
        where = "over files" if files else "and no such file"
        print(f"no such check {where}: {', '.join(unknown)}; there are: {', '.join(known)}")
        return 2
    failed = [name for name in names or known if not run(name, files)]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
