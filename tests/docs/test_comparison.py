"""The lines of the comparison page are counted, not written in."""

import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "explanation" / "comparison.md").read_text("utf-8")
ROW = re.compile(r"^\| (\d+)\. .* \| (\d+) \| (\d+|–) \|", re.MULTILINE)


def lines(code):
    return sum(1 for line in code.split("\n") if line.strip() and not re.match(r"(from|import) |#", line.strip()))


def test_the_table_counts_the_code_of_each_job():
    table = {int(job): (int(ours), None if theirs == "–" else int(theirs)) for job, ours, theirs in ROW.findall(PAGE)}
    assert list(table) == list(range(1, 13))
    for job, text in re.findall(r"^## (\d+)\. .*?\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL):
        (ours,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        theirs = re.findall(r"```py\n(.*?)```", text, re.DOTALL)
        assert table[int(job)] == (lines(ours), lines(theirs[0]) if theirs else None), job


def test_no_job_takes_more_lines_than_elsewhere_but_those_that_say_so():
    more = {int(job) for job, ours, theirs in ROW.findall(PAGE) if theirs != "–" and int(ours) > int(theirs)}
    assert more <= {12}  # tracing, which “where we lose” names
