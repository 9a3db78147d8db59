"""Measure reading a folder of sessions and importing it, beside others that read the same files, and print one table.

Rules:

- The folder is generated (``sessions``): 2,000 Claude Code sessions, 1 GB. Each contender is a process of its own,
  which says how long it took and what it held at most; the clock is the wall, from the first file to the last, and does
  not count the start of the process. The files were read once before: what is measured is not the disk.
- ``json.loads`` of every line is the limit for whoever reads JSON in Python. Peers are given
  the first sessions only, and say so. A peer that holds a folder in memory is given one file after another.
- ``make bench BENCH=file_formats`` writes ``bench/results/dialects.json`` and ``dialects.md``. A run of part of it
  (``--quick``, ``--rounds``) prints and writes nothing, unless ``-o`` names a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import report
import sessions
from measure import Row, Spread, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESULTS = Path(__file__).parent / "results"
_ELSEWHERE = Path(__file__).resolve().parents[1] / ".venv-peers/bin/python"
"""The environment of a peer that does not go together with the others (``make test-peers`` installs it)."""
_PART = 60
"""So many sessions are given to who is slow."""
_PEAK_MB = 300.0
_AGAIN = 20.0


# -- what is measured, each in a process of its own --------------------------------------------------------------------


def _loads(files: Sequence[Path]) -> None:
    for path in files:
        with path.open("rb") as file:
            for line in file:
                json.loads(line)


def _read(files: Sequence[Path]) -> None:
    from palaver import transcripts
    from palaver.transcripts.file_reader import steps_of

    file_format = transcripts.get("claude_code")
    for path in files:
        with path.open("rb") as file:
            for _ in steps_of(file_format, file, str(path)):
                pass


def _write(files: Sequence[Path]) -> None:
    from palaver import transcripts

    file_format = transcripts.get("claude_code")
    for path in files:
        data = path.read_bytes()
        assert file_format.write_many(file_format.read(data)).body == data


def _session_migrate(files: Sequence[Path]) -> None:
    from session_migrate.formats import claude

    for path in files:
        claude.parse(path)


def _claude_code_log(files: Sequence[Path]) -> None:
    from claude_code_log.converter import load_transcript

    for path in files:
        load_transcript(path, silent=True)


def _inspect_scout(files: Sequence[Path]) -> None:
    import asyncio

    from inspect_scout.sources._claude_code import claude_code

    async def all_of() -> None:
        for path in files:
            async for _ in claude_code(path):
                pass

    asyncio.run(all_of())


_DOES: dict[str, Callable[[Sequence[Path]], None]] = {
    "loads": _loads,
    "read": _read,
    "write": _write,
    "session-migrate": _session_migrate,
    "claude-code-log": _claude_code_log,
    "inspect_scout": _inspect_scout,
}


def _peak() -> float:
    """What this process held at most, in MB."""
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1000


def _child(name: str, folder: Path, part: int | None) -> None:
    files = sorted(folder.rglob("*.jsonl"))[:part]
    size = sum(path.stat().st_size for path in files)
    begun = time.perf_counter()
    _DOES[name](files)
    print(json.dumps({"seconds": time.perf_counter() - begun, "bytes": size, "peak": _peak()}))


def _import(folder: Path, store: Path) -> None:
    """``palaver import``, told how long it took and what it held."""
    from palaver.cli import main

    begun = time.perf_counter()
    with Path(os.devnull).open("w") as nowhere:
        kept, sys.stdout = sys.stdout, nowhere
        code = main(["import", str(folder), "--into", str(store)])
        sys.stdout = kept
    assert code == 0
    print(json.dumps({"seconds": time.perf_counter() - begun, "bytes": 0, "peak": _peak()}))


# -- the table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Done:
    seconds: float
    bytes: int
    peak: float

    @property
    def speed(self) -> float:
        return self.bytes / 1e6 / self.seconds


def _run(*arguments: object, python: Path = Path(sys.executable)) -> _Done:
    words = [str(python), __file__, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it failed"])[-1])
    return _Done(**json.loads(done.stdout.strip().splitlines()[-1]))


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure reading and importing sessions.")
    parser.add_argument("--quick", action="store_true", help="50 MB, 1 round")
    parser.add_argument("--rounds", type=int, help="how often everything is measured (3)")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="where the results are written")
    parser.add_argument("--do", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="where the sessions are, or are to be generated")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.do == "import":
        _import(given.folder, given.store)
        return 0
    if given.do:
        _child(given.do, given.folder, given.part)
        return 0
    count, size, rounds = (100, 50_000_000, 1) if given.quick else (2_000, 1_000_000_000, 3)
    rounds = given.rounds or rounds
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch) / "projects"
        if not folder.exists():
            _say("generating")
            sum(sessions.generate(folder, sessions=count, size=size))
        _say("reading once")
        whole = _run("--do", "loads", "--folder", folder).bytes
        rows = _measured(folder, Path(scratch), rounds)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    about = {
        "benchmark": "formats",
        "data": f"{count:,} generated Claude Code sessions, {whole / 1e6:,.0f} MB; each contender is a process.",
        "versions": report.versions(),
        "rounds": rounds,
    }
    report.show(rows, about)
    if given.output or not (given.quick or given.rounds):
        report.write(given.output or RESULTS, rows, about)
    return 1 if any(row.error for row in rows) else 0


def _measured(folder: Path, scratch: Path, rounds: int) -> list[Row]:
    names: dict[str, tuple[str, int | None]] = {
        "read": ("palaver: to messages", None),
        "loads": ("json.loads of every line: the limit", None),
        "write": ("palaver: read, written and compared", _PART),
        "session-migrate": ("session-migrate", _PART),
        "claude-code-log": ("claude-code-log", _PART),
        "inspect_scout": ("inspect_scout", _PART),
    }
    found: dict[str, list[_Done]] = {name: [] for name in names}
    failed: dict[str, str] = {}
    first: list[_Done] = []
    second: list[_Done] = []
    for number in range(rounds):
        for name, (_, part) in names.items():
            _say(f"round {number + 1}: {name}")
            python = _ELSEWHERE if name == "inspect_scout" else Path(sys.executable)
            if not python.exists():
                failed[name] = "not installed: make test-peers"
                continue
            try:
                rest = () if part is None else ("--part", part)
                found[name].append(_run("--do", name, "--folder", folder, *rest, python=python))
            except RuntimeError as error:
                failed[name] = str(error)
        store = scratch / f"store-{number}.db"
        _say(f"round {number + 1}: importing")
        first.append(_run("--do", "import", "--folder", folder, "--store", store))
        _say(f"round {number + 1}: importing again")
        second.append(_run("--do", "import", "--folder", folder, "--store", store))
    reading = "reading"
    rows = [_speed(reading, names[name], found[name], found["read"], failed.get(name, "")) for name in names]
    whole = found["read"][0].bytes if found["read"] else 0
    took = [_Done(each.seconds, whole, each.peak) for each in first]
    again = [_Done(each.seconds, whole, each.peak) for each in second]
    case = "import into SQLite"
    rows += [
        _speed(case, ("palaver import", None), took, took),
        _memory(case, "palaver import, at most held", took),
        _speed(case, ("palaver import, nothing new", None), again, took, target=_AGAIN),
    ]
    return rows


def _speed(
    case: str,
    named: tuple[str, int | None],
    done: list[_Done],
    base: list[_Done],
    error: str = "",
    *,
    target: float = 0,
) -> Row:
    """The ratio is the time that a byte takes, over that of palaver in the same round."""
    name, part = named
    note = "" if part is None else f"the first {part} sessions"
    if error or not done:
        return Row(case, name, "MB/s", error=describe(error or "not measured"), note=note)
    value = Spread([each.speed for each in done])
    ratio = None if done is base else Spread([one.speed / each.speed for one, each in zip(base, done, strict=False)])
    if not target:
        return Row(case, name, "MB/s", value, ratio, note=note)
    met = ratio is not None and 1 / ratio.median >= target
    return Row(case, name, "MB/s", value, ratio, f"{target:g} times as fast as the first", met, note=note)


def _memory(case: str, name: str, done: list[_Done]) -> Row:
    value = Spread([each.peak for each in done])
    return Row(case, name, "MB", value, target=f"< {_PEAK_MB:g} MB", met=value.median < _PEAK_MB)


def _say(what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what} …", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
