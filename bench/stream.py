"""Measure palaver's streams against their peers, in one process, and print one table.

Rules:

- ``make bench`` runs everything and writes ``bench/results/stream.json`` and ``stream.md``. A run of part of it
  (``--quick``, ``--only``) prints and writes nothing, unless ``-o`` names a folder.
- The exit code is 1 when a row failed, which is a fault to look at. A target that was missed is a result, and
  the table shows it. So is a wire that cannot read streams yet.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import assembly
import deltas
import end_to_end
import growth
import measure
import report
import wire_streams

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure palaver's streams against their peers.")
    parser.add_argument("--quick", action="store_true", help="2 rounds over 1,000 deltas")
    parser.add_argument("--rounds", type=int, help="how often everything is measured that is not slow (7)")
    parser.add_argument("--only", metavar="NUMBERS", help="the cases to run, such as 13 for the first and the third")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="where the results are written")
    return parser.parse_args()


def _say(name: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{name} …", end="", file=sys.stderr, flush=True)


def _sections(rounds: int, *, quick: bool) -> dict[str, Callable[[], list[measure.Row]]]:
    count = 1000 if quick else assembly.COUNT
    sizes = growth.QUICK if quick else growth.SIZES
    patience = 0.3 if quick else growth.PATIENCE
    looks = (2000, 500) if quick else (assembly.LOOKS, 5000)

    def run(cases: list[measure.Case]) -> list[measure.Row]:
        rows: list[measure.Row] = []
        for case in cases:
            _say(case.name)
            rows += measure.run(case, rounds)
        return rows

    def grown(number: str) -> list[measure.Row]:
        rows: list[measure.Row] = []
        for growing in growth.all_of_them():
            if growing.case.startswith(number):
                _say(f"{growing.case}, {growing.name}")
                rows.append(growth.measured(growing, rounds, sizes, patience))
        return rows

    return {
        "1": lambda: run(assembly.cases(count)),
        "2": lambda: run(end_to_end.cases(count)),
        "3": lambda: grown("3"),
        "4": lambda: [*run([assembly.looks(*looks)]), *grown("4")],
        "5": lambda: run(end_to_end.writing(count)),
    }


def _about(rounds: int, *, quick: bool) -> dict[str, Any]:
    count = 1000 if quick else assembly.COUNT
    return {
        "benchmark": "stream",
        "data": (
            f"Streams of {count:,} deltas, arguments in pieces of {deltas.WIDTH} characters, "
            f"bytes in chunks of {wire_streams.CHUNK:,}, seed {deltas.SEED}; fewer rounds of what is slow."
        ),
        "versions": report.versions(),
        "rounds": rounds,
    }


def main() -> int:
    given = _arguments()
    rounds = given.rounds or (2 if given.quick else 7)
    sections = _sections(rounds, quick=given.quick)
    chosen = given.only or "".join(sections)
    rows = [row for number, section in sections.items() if number in chosen for row in section()]
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    about = _about(rounds, quick=given.quick)
    report.show(rows, about)
    partial = given.quick or given.only or given.rounds
    if given.output or not partial:
        report.write(given.output or RESULTS, rows, about)
    return 1 if any(row.error for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
