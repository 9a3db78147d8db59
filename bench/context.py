"""Measure what keeps a conversation within its window against its peers, and print one table.

Rules:

- ``make bench BENCH=context`` runs everything and writes ``bench/results/context.json`` and ``context.md``. A run of
  part of it (``--quick``, ``--only``) prints and writes nothing, unless ``-o`` names a folder.
- How good the estimates are is measured on recordings, and stands in ``results/estimates.md`` (``estimates.py``).
- The exit code is 1 when a row failed, which is a fault to look at. A target that was missed is a result, and the
  table shows it.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import accounting
import conversations
import planning
import report
import windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from measure import Row

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class _Scale:
    """How much is measured."""

    sizes: tuple[int, ...] = accounting.SIZES
    planned: int = 10_000
    turns: int = 200
    rounds: int = 5


_QUICK = _Scale((100, 1_000), 1_000, 60, 2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure palaver's context against its peers.")
    parser.add_argument("--quick", action="store_true", help="2 rounds of short conversations")
    parser.add_argument("--rounds", type=int, help="how often everything is measured that is not slow (5)")
    parser.add_argument("--only", metavar="NUMBERS", help="the cases to run, such as 13 for the first and the third")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="where the results are written")
    return parser.parse_args()


def _say(name: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{name} …", end="", file=sys.stderr, flush=True)


def _sections(scale: _Scale, rounds: int) -> dict[str, Callable[[], list[Row]]]:
    return {
        "1": lambda: accounting.cases(scale.sizes, rounds),
        "2": lambda: planning.planning(scale.planned, rounds),
        "3": lambda: windows.run(scale.turns),
        "4": lambda: planning.idle(scale.turns, rounds),
    }


def _about(rounds: int) -> dict[str, Any]:
    return {
        "benchmark": "context",
        "data": f"Seed {conversations.SEED}; fewer rounds of what is slow, one of case 3, which is the same each time.",
        "versions": report.versions(),
        "rounds": rounds,
        "notes": windows.NOTES,
    }


def main() -> int:
    given = _arguments()
    # Keys that a peer might find here would have it report to a server.
    for name in [name for name in os.environ if name.startswith(("LANGSMITH_", "LANGCHAIN_", "OPENAI_", "LOGFIRE_"))]:
        del os.environ[name]
    warnings.filterwarnings("ignore", module="pydantic_ai")
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
