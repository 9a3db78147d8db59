"""Measure palaver's agents against their peers, and print one table.

Rules:

- ``make bench`` runs everything and writes ``bench/results/loop.json`` and ``loop.md``. A run of part of it
  (``--quick``, ``--only``) prints and writes nothing, unless ``-o`` names a folder.
- Peers are slow: in a row they get fewer runs, and as many rounds as fit into a time; their rows say so.
- The exit code is 1 when a row failed, which is a fault to look at. A target that was missed is a result, and the
  table shows it.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asking
import conversations
import report
import rounds as cases

if TYPE_CHECKING:
    from collections.abc import Callable

    from measure import Row

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class _Scale:
    """How much is measured."""

    runs: int = 1_000
    of_peers: int = 100
    marks: tuple[int, ...] = (10, 100, 640, 1_000)
    at_once: int = 1_000
    sessions: int = 10_000
    history: int = 400
    rounds: int = 5


_QUICK = _Scale(50, 5, (10, 20, 40), 50, 200, 40, 2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure palaver's agents against their peers.")
    parser.add_argument("--quick", action="store_true", help="2 rounds of short runs")
    parser.add_argument("--rounds", type=int, help="how often everything is measured that is not slow (5)")
    parser.add_argument("--only", metavar="NUMBERS", help="the cases to run, such as 13 for the first and the third")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="where the results are written")
    return parser.parse_args()


def _say(name: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{name} …", end="", file=sys.stderr, flush=True)


def _sections(scale: _Scale, rounds: int) -> dict[str, Callable[[], list[Row]]]:
    return {
        "1": lambda: cases.in_a_row(scale.runs, scale.of_peers, rounds),
        "2": lambda: cases.turn_by_turn(scale.marks, rounds),
        "3": lambda: cases.at_once(scale.at_once, rounds),
        "4": lambda: cases.sessions(scale.sessions, min(rounds, 3)),
        "5": lambda: asking.turns(scale.history, rounds),
    }


def _about(rounds: int) -> dict[str, Any]:
    return {
        "benchmark": "loop",
        "data": f"A model that answers at once, seed {conversations.SEED}; fewer rounds of what is slow.",
        "versions": report.versions(),
        "rounds": rounds,
    }


def main() -> int:
    given = _arguments()
    # Keys that a peer might find here would have it report to a server.
    for name in [name for name in os.environ if name.startswith(("LANGSMITH_", "LANGCHAIN_", "OPENAI_", "LOGFIRE_"))]:
        del os.environ[name]
    scale = _QUICK if given.quick else _Scale()
    rounds = given.rounds or scale.rounds
    sections = _sections(scale, rounds)
    chosen = given.only or "".join(sections)
    rows: list[Row] = []
    for number, section in sections.items():
        if number in chosen:
            _say(f"case {number} of {len(sections)}")
            rows += section()
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    about = _about(rounds)
    report.show(rows, about)
    partial = given.quick or given.only or given.rounds
    if given.output or not partial:
        report.write(given.output or RESULTS, rows, about)
    return 1 if any(row.error for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
