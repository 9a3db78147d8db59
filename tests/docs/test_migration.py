"""The names that the migration tables give as ours exist."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import palaver

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "migrate").glob("*.md"))
CODE = re.compile(r"`([^`]+)`")
NAME = re.compile(r"(?<![\w\"'/.:])([A-Za-z_]\w*)(?=\()|(?<![\w\"'/.])([A-Z][a-z]\w+)")
KEYWORD = re.compile(r"(?<![\w\"'])([a-z_]+)=(?!=)")
EXAMPLES = {"Boat", "True", "function"}


def known():
    """Every public name, every method of a public class, and every parameter of either."""
    names, keywords = {"print"}, set()
    packages = ["palaver", *(name for _, name, _ in pkgutil.walk_packages(palaver.__path__, "palaver."))]
    for package in packages:
        if ".testing" in package or ".wires." in package or "__main__" in package:
            continue
        module = importlib.import_module(package)
        public = getattr(module, "__all__", None) or [
            each for each, value in vars(module).items() if getattr(value, "__module__", "") == package
        ]
        for each in public:
            value = getattr(module, each, None)
            names.add(each)
            members = vars(value).items() if isinstance(value, type) else ()
            for function in (value, *(member for name, member in members if not name.startswith("__"))):
                if callable(function):
                    names.add(getattr(function, "__name__", each))
                    try:
                        keywords |= set(inspect.signature(function).parameters)
                    except (TypeError, ValueError, NameError):
                        continue
            names |= {name for name, _ in members}
    return names, keywords


@pytest.fixture(scope="module")
def ours():
    return known()


def rows():
    for page in PAGES:
        for line in page.read_text("utf-8").splitlines():
            cells = line.split(" | ")
            if line.startswith("| ") and len(cells) == 2 and cells[0] != "| there":
                yield page.stem, cells[1]


def test_every_name_on_our_side_exists(ours):
    names, keywords = ours
    found = list(rows())
    assert len(found) > 100
    missing = []
    for page, cell in found:
        for code in CODE.findall(cell):
            plain = re.sub(r'"[^"]*"', '""', code)
            used = {first or second for first, second in NAME.findall(plain)} - EXAMPLES
            missing += [f"{page}: {name}" for name in used if name not in names]
            missing += [f"{page}: {name}=" for name in KEYWORD.findall(plain) if name not in keywords]
    assert not missing
