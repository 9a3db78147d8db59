"""The demo plays, again and again, and its recording is what its agent asks for."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[1] / "demo"


def test_the_demo_plays():
    done = subprocess.run([sys.executable, DEMO / "demo.py"], capture_output=True, check=False, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    assert "berth 7 in Husum is kept" in done.stdout.split("reserve_berth: approve")[1]
    assert "failed" not in done.stdout
