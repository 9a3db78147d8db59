"""Print the tests that a change needs: files and folders below `tests`, one a line.

`python tools/changed_tests.py` looks at what differs from `main`, committed or not; `--base REV` compares with REV.

A changed test is needed itself. For a changed module of `palaver` these are needed:

- the tests that mirror it: for `store/sqlite/schema.py` the files `tests/store/**/test_schema*.py` and
  `test_sqlite*.py`;
  the folder `tests/store` where no file mirrors it;
- the laws of its package, `test_laws*.py`;
- the tests that import it by name;
- the tests that mirror the modules that import it by name.

A changed fixture or data file needs the innermost folder of tests around it, a changed document `tests/docs`. This is
the short way while working; what is left out is run by `make test`.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"


def changed(base: str) -> list[Path]:
    """The files that differ from a revision, or are not tracked yet; paths inside the project."""
    diff = ["git", "diff", "--name-only", "--diff-filter=d", "--merge-base", base]
    new = ["git", "ls-files", "--others", "--exclude-standard"]
    lists = [subprocess.run(each, cwd=ROOT, capture_output=True, text=True, check=True).stdout for each in (diff, new)]
    return [Path(line) for text in lists for line in text.splitlines()]


def module_of(path: Path) -> str:
    """`src/palaver/store/records.py` is `palaver.store.records`; a package is named by its folder."""
    parts = path.relative_to("src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def mirrors(module: str) -> Iterator[Path]:
    """The tests that mirror a module: files named after it or its package, else the folder of its package."""
    _, *names = module.split(".")
    folder = TESTS / names[0] if names else TESTS
    if not folder.is_dir():
        return
    if len(names) == 1:
        yield folder
        return
    yield from folder.glob("test_laws*.py")
    inner = folder / names[1]
    found = [file for name in names[1:] for file in folder.rglob(f"test_{name}*.py")]
    yield from [inner] if inner.is_dir() else found or [folder]


def importers(module: str) -> Iterator[Path]:
    """The tests that import a module by name."""
    package, _, name = module.rpartition(".")
    named = re.compile(rf"\b{re.escape(module)}\b|from {re.escape(package or module)} import [^\n]*\b{name}\b")
    yield from (file for file in TESTS.rglob("test_*.py") if named.search(file.read_text("utf-8")))


def nearest(place: Path) -> Path:
    """The innermost folder around a file that holds tests."""
    return next(each for each in place.parents if each == TESTS or any(each.glob("test_*.py")))


def needed(paths: Iterable[Path]) -> set[Path]:
    """The tests that these changed files need."""
    graph = grimp.build_graph("palaver")
    tests: set[Path] = set()
    for path in paths:
        place = ROOT / path
        if path.parts[0] == "tests":
            tests.add(place if path.name.startswith("test_") else nearest(place))
        elif path.parts[0] == "docs" or path.suffix == ".md":
            tests.add(TESTS / "docs")
        elif path.parts[:2] == ("src", "palaver") and path.suffix == ".py":
            module = module_of(path)
            users = graph.find_modules_that_directly_import(module) if module in graph.modules else set()
            for each in (module, *users - {"palaver"}):
                tests.update(mirrors(each))
            tests.update(importers(module))
    return {each for each in tests if not any(outer in tests for outer in each.parents)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="main", help="the revision that the change is measured from (main)")
    tests = sorted(needed(changed(parser.parse_args().base)))
    print(*(each.relative_to(ROOT) for each in tests), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
