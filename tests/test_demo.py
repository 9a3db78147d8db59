"""The demo plays, again and again, and its recording is what its agent asks for."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[1] / "demo"


def played(*arguments):
    command = [sys.executable, DEMO / "demo.py", *arguments]
    return subprocess.run(command, capture_output=True, check=False, encoding="utf-8")


def test_the_demo_is_read_in_a_minute():
    done = played()
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert 20 < len(lines) <= 60
    assert max(map(len, lines)) <= 120
    assert "the same bytes: True" in done.stdout
    assert "every hash is right: True" in done.stdout


def test_the_whole_tour_plays():
    done = played("--full")
    assert (done.returncode, done.stderr) == (0, "")
    assert "berth 7 in Husum is kept" in done.stdout.split("reserve_berth: approve")[1]
    assert "failed" not in done.stdout
