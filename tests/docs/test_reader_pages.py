"""What users read has no numbers of our own specifications, and decisions come last in the search."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ROW = re.compile(r"\b(?:ASK|KAI|CBF|DAS|MSG|GW)-\d{2}\b")
PAGES = [
    page
    for page in (ROOT / "README.md", *DOCS.rglob("*.md"))
    if not {"spec", "adr", "_build"} & set(page.relative_to(ROOT).parts)
]
RENDERED = re.compile(r"auto(?:module|class|function|data|exception):: ([\w.]+)")


def test_pages_cite_no_row():
    assert len(PAGES) > 60
    assert not [f"{page.relative_to(ROOT)}: {row}" for page in PAGES for row in ROW.findall(page.read_text("utf-8"))]


def test_module_docstrings_that_are_rendered_cite_no_row():
    names = {name for page in PAGES for name in RENDERED.findall(page.read_text("utf-8"))}
    found = []
    for name in names:
        for path in (
            (ROOT / "src" / name.replace(".", "/")).with_suffix(".py"),
            ROOT / "src" / name.replace(".", "/") / "__init__.py",
        ):
            if path.is_file():
                found += [f"{name}: {row}" for row in ROW.findall(path.read_text("utf-8").split('"""')[1])]
    assert len(names) > 20
    assert not found


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_decisions_and_specifications_come_last_in_the_search():
    pages = ["how-to/read-a-receipt", "adr/0008", "spec/wires"]
    asked = f"{json.dumps(pages)}.map((name) => Scorer.score([name, '', '', null, 15]))"
    script = f"{(DOCS / 'scorer.js').read_text('utf-8')}; console.log(JSON.stringify({asked}))"
    page, *last = json.loads(subprocess.run(["node", "-e", script], capture_output=True, check=True, text=True).stdout)
    assert page == 15
    assert max(last) < 2  # less than the weakest match of any other page
