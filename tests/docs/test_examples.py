"""Every Python example of the documentation runs, and shows what it really prints.

The ```python blocks of one page share one namespace, from top to bottom. A block with `>>>` prompts
is a doctest: its output must match. The blocks of README.md run one by one (``test_readme.py``). Other languages
(```console, ```json, ```text) are not run. The official clients of ``use-with-*`` ask a server on loopback.
"""

import doctest
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from palaver.models.providers import PROVIDERS
from tests.docs.provider import provider

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
PAGES = [
    ROOT / "CONTRIBUTING.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts),
]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(page):
    """The line and the code of each example of a page."""
    text = page.read_text("utf-8")
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield line, re.sub(f"^{match['indent']}", "", match["code"], flags=re.MULTILINE)


def run(page, line, code, namespace):
    """Run one block as if it stood at its line of the page."""
    if ">>> " not in code:
        exec(compile("\n" * line + code, page, "exec"), namespace)
        return
    test = doctest.DocTestParser().get_doctest(code, {}, str(page), str(page), line)
    test.globs = namespace
    report = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.append, clear_globs=False)
    if report:
        pytest.fail("".join(report), pytrace=False)


@pytest.mark.parametrize("page", [p for p in PAGES if any(blocks(p))], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an example may write files
    for name in {name for row in PROVIDERS.values() for name in row.keys}:
        monkeypatch.delenv(name, raising=False)  # an example asks no provider
    with provider() if page.stem.startswith("use-with-") else nullcontext({}) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        for name in [name for name in sys.modules if environment and name.partition(".")[0] == "cohere"]:
            monkeypatch.delitem(sys.modules, name)  # it reads its address when it is imported
        namespace = {"__name__": "__main__"}
        for line, code in blocks(page):
            run(page, line, code, namespace)


def test_an_example_that_lies_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nx = 1\n```\n\n- item\n\n  ```python\n  >>> x + 1\n  3\n\n  ```\n")
    (first, code), (second, lie) = blocks(page)
    assert (first, code, second) == (3, "x = 1\n", 9)
    namespace = {}
    run(page, first, code, namespace)
    with pytest.raises(pytest.fail.Exception, match="Expected:\n    3\nGot:\n    2"):
        run(page, second, lie, namespace)
