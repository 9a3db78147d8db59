"""Whatever code, tests and documentation cite of a specification can be opened."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.finding("F-95")

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "docs" / "spec"
PAGES = {page.name: page.read_text("utf-8") for page in SPEC.glob("*.md")}
ANCHORS = {name: set(re.findall(r'<a id="([^"]+)"></a>', text)) for name, text in PAGES.items()}

FRAGMENT = r"[A-Z]?\d+(?:\.\d+)*"
CITATION = re.compile(rf"docs/spec/([\w-]+\.md)((?:(?:, |\s+and\s+|\s+to\s+)?#{FRAGMENT})*)")
BARE = re.compile(rf"(?<![\w/.-])({'|'.join(re.escape(name) for name in PAGES)}),? \d")
ROW = re.compile(r"\b(?:MSG|ASK|KAI|CBF|DAS|GW)-\d{2}\b")


PLACES = ("src", "tests", "docs", "bench", "demo", "examples", "fuzz", "tools")


def sources():
    """Each text file of the project except the specifications and this test: its path and its text."""
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*")):
            if path.suffix not in {".py", ".md"} or path == Path(__file__) or SPEC in path.parents:
                continue
            if not {"node_modules", "_build"} & set(path.parts):
                yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8", errors="replace")


def test_every_cited_section_exists():
    missing = [
        f"{name}: docs/spec/{page}#{fragment}"
        for name, text in sources()
        for page, fragments in CITATION.findall(text)
        for fragment in re.findall(FRAGMENT, fragments) or [None]
        if page not in PAGES or (fragment and fragment not in ANCHORS[page])
    ]
    assert not missing


def test_a_section_is_cited_by_its_path():
    bare = [f"{name}: {found[0]}" for name, text in sources() for found in BARE.finditer(text)]
    assert not bare, "write docs/spec/PAGE.md#SECTION"


def test_every_row_that_is_named_stands_in_a_specification():
    rows = {row for text in PAGES.values() for row in ROW.findall(text)}
    unknown = {f"{name}: {row}" for name, text in sources() for row in ROW.findall(text) if row not in rows}
    assert not unknown


def test_every_row_of_a_specification_has_a_test():
    marked = {
        row
        for name, text in sources()
        if name.startswith("tests/")
        for marks in re.findall(r"\.row\(([^)]*)\)", text)
        for row in ROW.findall(marks)
    }
    assert not {row for text in PAGES.values() for row in ROW.findall(text)} - marked
