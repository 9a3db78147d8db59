"""Run every check, two at a time, print the name and the seconds of each, and list those that failed at the end.

- `python tools/check.py` runs all of them, `python tools/check.py lint types` those that are named.
- `python tools/check.py types src/palaver/core/parts.py` checks one file; files alone run every check of `FILES`.

The documentation is read anew as a whole when code, settings or versions changed, or its last build failed:
pages hold docstrings, and a page warns only when it is read. Else only the pages that changed are read;
all of them are written (`-a`), which finds a link to what is no longer there. With no change nothing is built.
"""

import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent  # of the environment, whether it is activated or not
BUILT = ROOT / "docs" / "_build" / "check"
SETTINGS = ("pyproject.toml", "constraints.txt", "tools/check.py")  # and versions, for what pages are built from
AT_ONCE = min(2, os.cpu_count() or 1)

# The longest come first, so that no core is idle at the end.
STEPS = {
    "types": ["pyright"],
    "docs": ["sphinx-build", "-W", "--keep-going", "-q", "-a", "-b", "html", "docs", str(BUILT)],
    "mypy": ["mypy"],
    "api": ["python", "tools/api_lock.py", "--check"],
    "layers": ["lint-imports", "--no-logo"],
    "lint": ["ruff", "check", "--quiet", "."],
    "format": ["ruff", "format", "--check", "--quiet", "."],
    "changes": ["towncrier", "build", "--draft"],
    "package": ["python", "tools/package.py"],
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
    done = documented(step) if name == "docs" else called(step)
    failed = done.returncode != 0
    shown = f"{name:<10}{time.monotonic() - started:6.1f} s  {'FAILED' if failed else 'ok'}\n"
    sys.stdout.write(shown + (f"{done.stdout}\n" if failed else ""))  # at once: another step may print too
    sys.stdout.flush()
    return not failed


def called(step: list[str]) -> "subprocess.CompletedProcess[str]":
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    return subprocess.run(
        [str(BIN / step[0]), *step[1:]],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def documented(step: list[str]) -> "subprocess.CompletedProcess[str]":
    """Build the documentation, without pages kept from a build that failed or that read other code."""
    docs = ROOT / "docs"
    behind = hashed(sorted((ROOT / "src").rglob("*.py")), [docs / "conf.py", *map(ROOT.joinpath, SETTINGS)])
    pages = hashed(sorted(path for path in docs.rglob("*") if path.is_file() and docs / "_build" not in path.parents))
    stamp = BUILT / "passed"
    passed = stamp.read_text().split() if stamp.is_file() else []
    if passed == [behind, pages]:
        return subprocess.CompletedProcess(step, 0, "")
    if passed[:1] != [behind]:
        shutil.rmtree(BUILT, ignore_errors=True)
    stamp.unlink(missing_ok=True)
    done = called(step)
    if done.returncode == 0:
        stamp.write_text(f"{behind} {pages}")
    return done


def hashed(*groups: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in itertools.chain(*groups):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def main(arguments: list[str]) -> int:
    files = [each for each in arguments if each not in STEPS and (ROOT / each).exists()]
    names = [each for each in arguments if each not in files]
    known = FILES if files else STEPS
    unknown = [name for name in names if name not in known]
    if unknown:
        where = "over files" if files else "and no such file"
        print(f"no such check {where}: {', '.join(unknown)}; there are: {', '.join(known)}")
        return 2
    chosen = names or list(known)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        passed = dict(zip(chosen, threads.map(lambda name: run(name, files), chosen), strict=True))
    failed = [name for name in chosen if not passed[name]]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
