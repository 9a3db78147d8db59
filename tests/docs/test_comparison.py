"""The comparison page is counted, and names the versions that are measured against."""

import re
from pathlib import Path

import pytest
from tools.comparison import BEGIN, END, count, lines, rows

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/explanation/comparison.md").read_text("utf-8")
PINNED = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "bench/constraints.txt").read_text("utf-8"), re.MULTILINE))


def test_an_import_a_comment_and_an_empty_line_do_not_count():
    assert (
        count('from a import (\n    b,\n    c,\n)\n\n# why\nimport d\nx = 1  # how\n\n\ndef f():\n    """Say."""\n')
        == 3
    )


def test_the_table_counts_the_code_of_each_job():
    table = PAGE.partition(BEGIN)[2].partition(END)[0].splitlines()
    assert table == list(lines(PAGE)), "run: python tools/comparison.py"
    assert len(table) == 2 + 12


def test_a_job_without_code_of_ours_is_refused():
    with pytest.raises(ValueError, match="not enough values"):
        list(rows("## 1. Sing\n\nla 1:\n\n```py\nx = 1\n```\n"))


def test_the_versions_are_those_that_are_measured_against():
    named = [
        re.sub("pydantic-ai ", "pydantic-ai-slim ", each).rsplit(" ", 1)
        for *_, theirs, who in rows(PAGE)
        if theirs is not None
        for each in who.split(", ")
    ]
    for name, version in named:
        pinned = PINNED.get(name)
        assert pinned is None or f"{pinned}.".startswith(f"{version}."), (name, version, pinned)
    assert {name for name, _ in named if name not in PINNED} == {"fastmcp"}  # no benchmark needs it


def test_the_other_code_is_python():
    for job, text in re.findall(r"^## (\d+)\. [^\n]*\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL):
        for code in re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            compile(code, f"job {job}", "exec")
