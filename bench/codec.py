"""Measure palaver's codecs against their peers, in one process, and print one table.

Rules:

- ``make bench`` runs everything and writes ``bench/results/codec.json`` and ``codec.md``. A run of part
  of it (``--quick``, ``--only``, another corpus) prints and writes nothing, unless ``-o`` names a folder.
- The exit code is 1 when a row failed, which is a fault to look at. A target that was missed is a result,
  and the table shows it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import conversations
import measure
import processes
import report
import responses
import stored
import turns

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure palaver's codecs against their peers.")
    parser.add_argument("--quick", action="store_true", help="3 rounds over 100 conversations")
    parser.add_argument("--rounds", type=int, help="how often everything is measured (7)")
    parser.add_argument("--corpus", choices=sorted(conversations.SHAPES), default="short", help="size of tool results")
    parser.add_argument("--only", metavar="NUMBERS", help="the cases to run, such as 13 for the first and the third")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="where the results are written")
    return parser.parse_args()


def _measure(case: measure.Case, rounds: int) -> list[measure.Row]:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{case.name.strip()} …", end="", file=sys.stderr, flush=True)
    return measure.run(case, rounds)


def _sections(corpus: stored.Corpus, rounds: int, *, quick: bool) -> dict[str, Callable[[], list[measure.Row]]]:
    def run(cases: list[measure.Case]) -> list[measure.Row]:
        return [row for case in cases for row in _measure(case, rounds)]

    def bodies() -> list[measure.Row]:
        rows = run(turns.cases())
        return [*rows, turns.flatness(rows)]

    reading, collected, writing = stored.cases(corpus)
    starts = 3 if quick else 10
    return {
        "1": lambda: run([reading, collected]),
        "2": lambda: run([writing]),
        "3": lambda: run(responses.cases(quick=quick)),
        "4": bodies,
        "5": lambda: processes.imports(starts),
        "6": lambda: processes.convert(starts),
    }


def _about(corpus: stored.Corpus, rounds: int) -> dict[str, Any]:
    return {
        "benchmark": "codec",
        "data": (
            f"Corpus: {corpus.count:,} conversations of {conversations.LENGTH} messages, {corpus.shape.name}, "
            f"seed {conversations.SEED}, {corpus.megabytes:.1f} MB."
        ),
        "versions": report.versions(),
        "corpus": {
            "shape": corpus.shape.name,
            "conversations": corpus.count,
            "messages_each": conversations.LENGTH,
            "seed": conversations.SEED,
            "megabytes": round(corpus.megabytes, 1),
        },
        "rounds": rounds,
    }


def main() -> int:
    given = _arguments()
    rounds = given.rounds or (3 if given.quick else 7)
    corpus = stored.Corpus(100 if given.quick else 1000, conversations.SHAPES[given.corpus])
    sections = _sections(corpus, rounds, quick=given.quick)
    chosen = given.only or "".join(sections)
    rows = [row for number, section in sections.items() if number in chosen for row in section()]
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    about = _about(corpus, rounds)
    report.show(rows, about)
    partial = given.quick or given.only or given.corpus != "short" or given.rounds
    if given.output or not partial:
        report.write(given.output or RESULTS, rows, about)
    return 1 if any(row.error for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
