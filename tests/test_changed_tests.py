"""The short way to test a change: which tests it needs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools.changed_tests import ROOT, needed

pytestmark = pytest.mark.finding("F-93")


@pytest.mark.parametrize(
    ("changed", "test"),
    [
        ("src/palaver/core/factories.py", "tests/core/test_values.py"),
        ("src/palaver/wires/cohere_chat/encode.py", "tests/wires/cohere_chat"),
        ("src/palaver/wires/cohere_chat/encode.py", "tests/wires/test_laws.py"),
        ("tests/core/test_values.py", "tests/core/test_values.py"),
        ("tests/transcripts/files/atif/newer.json", "tests/transcripts"),
        ("tests/corpus.py", "tests"),
        ("README.md", "tests/docs"),
        ("constraints.txt", None),
    ],
)
def test_a_change_needs_its_tests(changed, test):
    found = needed([Path(changed)])
    wanted = None if test is None else ROOT / test
    assert found == set() if wanted is None else any(each == wanted or each in wanted.parents for each in found)


def check(*arguments):
    """Run the checks with these arguments."""
    command = [sys.executable, ROOT / "tools" / "check.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)


def test_a_check_runs_over_one_file(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import os\n")
    done = check("lint", str(wrong))
    assert done.returncode == 1
    assert "F401" in done.stdout


def test_a_check_that_takes_no_files_refuses_them():
    done = check("layers", "README.md")
    assert done.returncode == 2
    assert "layers" in done.stdout
