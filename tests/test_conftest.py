"""A test that needs a server may be skipped at home, and not where servers are required."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
INNER = """
import pytest

@pytest.mark.server
def test_of_a_server():
    pytest.skip("no server")

def test_of_nothing():
    pytest.skip("another reason")
"""


@pytest.mark.parametrize(
    ("workers", "required", "code"),
    [
        ("0", "", 0),
        pytest.param("0", "1", 1, marks=pytest.mark.long),
        ("1", "1", 1),
        pytest.param("1", "", 0, marks=pytest.mark.long),
    ],
)
def test_skipping_a_server_fails_where_servers_are_required(tmp_path, workers, required, code):
    (tmp_path / "test_inner.py").write_text(INNER)
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-n", workers]
    done = subprocess.run(
        [*command, "-p", "tests.conftest", "-p", "no:cacheprovider", "test_inner.py"],
        cwd=tmp_path,
        env={**os.environ, "PALAVER_REQUIRE_SERVERS": required, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "no server" in done.stdout
    warned = done.stdout.partition("tests that need a server were skipped")[2].splitlines()[1:2]
    assert [line.partition("::")[2] for line in warned] == ["test_of_a_server"] * bool(required)
