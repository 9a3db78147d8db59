"""Killed at any point, a run is gone on with by another process: law 7, DAS-29, KAI-26, KAI-27, CBF-23.

The issue's sentence: no tool that is not marked repeatable runs twice without being asked.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import palaver as p
from palaver.store.sqlite import SQLiteStore
from tests.agent.crashing import ROUNDS
from tests.agent.wholeness import broken_pairs, refused_path, said

ROOT = Path(__file__).resolve().parents[2]


def process(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    script = [sys.executable, "-m", "tests.agent.crashing", *arguments]
    return subprocess.Popen(script, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)


def killed_once(folder: Path, after: int, wait: float) -> tuple[list[str], bool]:
    """Begin a run, kill it when ``after`` messages are kept and ``wait`` seconds more; give what it told was kept."""
    child = process(str(folder / "store.db"), str(folder / "side"), "trip", "killed")
    told: list[str] = []
    assert child.stdout is not None
    for line in child.stdout:
        told.append(line.strip())
        if len(told) >= after:
            break
    time.sleep(wait)
    child.send_signal(signal.SIGKILL)
    told += [line.strip() for line in child.stdout if line.endswith("\n")]
    child.stdout.close()
    child.wait()
    return [each for each in told if each != "over"], "over" in told


def one_crash(folder: Path, random_: random.Random) -> bool:
    """Kill, look, resume, look. Gives whether a call had to be asked."""
    folder.mkdir()
    with SQLiteStore(folder / "store.db") as store:
        store.create("trip")
    kept, _ = killed_once(folder, random_.randint(1, 20), random_.random() * 0.01)
    side = folder / "side"
    with SQLiteStore(folder / "store.db") as store:
        path = store.open("trip").path()
        assert set(kept) <= {each.id for each in path}
        assert path[0].message.text == "Write four rounds."
        assert refused_path(path) == {}
        assert store.verify().ok
    before = Counter(line.split()[0] for line in side.read_text().splitlines()) if side.exists() else Counter()
    results = {each.message.tool_call_id for each in path if isinstance(each.message, p.ToolMessage)}
    calls = {each.id for entry in path for each in getattr(entry.message, "tool_calls", ())}

    child = process(str(folder / "store.db"), str(side), "trip", "resumed")
    told, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    outcome, _, asked = told.strip().partition(" ")
    assert outcome == "completed"
    lines = [line.split() for line in side.read_text().splitlines()]
    after = Counter(line for line, _ in lines)
    assert {line: count for line, count in after.items() if line.startswith("w") and count > 1} == {}
    assert set(after) == {f"w{n}{x}" for n in range(ROUNDS) for x in "ab"} | {f"x{n}" for n in range(ROUNDS)}
    assert len({key for _, key in lines}) == len(after), "a call has one key, however often it runs"
    open_writes = {each for each in calls - results if each.startswith("w")}
    assert set(filter(None, asked.split(","))) == open_writes, "what may have run is asked, and nothing else"
    assert set(before) <= set(after)
    with SQLiteStore(folder / "store.db") as store:
        path = store.open("trip").path()
        assert {each.id for each in path} >= set(kept)
        assert broken_pairs(path.messages) == []
        assert refused_path(path) == {}
        assert [each.text for each in said(path.messages)].count("Write four rounds.") == 1
        assert path.messages[-1].text == "All written."
        assert store.verify().ok
    return bool(asked)


@pytest.mark.law(7)
@pytest.mark.row("DAS-29")
@pytest.mark.row("KAI-26")
@pytest.mark.row("KAI-27")
def test_no_tool_runs_twice_unasked_after_a_kill(tmp_path):
    random_ = random.Random(20)
    asked = [one_crash(tmp_path / str(number), random_) for number in range(3)]
    assert any(asked)


@pytest.mark.long
@pytest.mark.law(7)
@pytest.mark.row("DAS-29")
@pytest.mark.row("KAI-26")
def test_no_tool_runs_twice_unasked_after_any_of_many_kills(tmp_path):
    random_ = random.Random()
    asked = [one_crash(tmp_path / str(number), random_) for number in range(200)]
    assert any(asked)
