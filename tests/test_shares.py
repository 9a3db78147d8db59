"""A share of the cases of a matrix has every value of every parameter; the long tests run the others."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INNER = """
import pytest

@pytest.fixture(params=["asyncio", "trio"])
def backend(request):
    return request.param

@pytest.mark.share(2)
@pytest.mark.parametrize(("name", "path"), [(each, each * 2) for each in "abcd"])
def test_pairs(name, path, backend):
    pass

@pytest.mark.share(3)
@pytest.mark.parametrize("one", range(6))
@pytest.mark.parametrize("other", range(4))
def test_matrix(one, other):
    pass

@pytest.mark.share(5)
@pytest.mark.parametrize("few", ["x", "y"])
def test_few(few):
    pass

@pytest.mark.share(2)
def test_plain():
    pass
"""


def test_a_share_has_every_value_of_every_parameter(tmp_path):
    (tmp_path / "test_inner.py").write_text(INNER)
    now = collected(tmp_path)
    shares = {name: [each[1] for each in now if each[0] == name] for name, _ in now}
    assert {name: len(cases) for name, cases in shares.items()} == {
        "test_pairs": 4,
        "test_matrix": 8,
        "test_few": 1,
        "test_plain": 1,
    }
    for name, places in (("test_pairs", ("abcd", ["asyncio", "trio"])), ("test_matrix", ("0123", "012345"))):
        found = [{value for case in shares[name] for value in case if value in each} for each in places]
        assert found == [set(each) for each in places]


def collected(folder):
    """The name and the values of each case that is run; the others are there, and `long`."""
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-n", "0", "--collect-only", "-q"]
    done = subprocess.run(
        [*command, "-p", "tests.conftest", "-p", "no:cacheprovider", "test_inner.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "14/35 tests collected (21 deselected)" in done.stdout
    ids = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    return {(name, tuple(values.rstrip("]").split("-"))) for name, _, values in (each.partition("[") for each in ids)}
