"""Measure palaver's stores against their peers, in one process, and print one table.

Rules:

- ``make bench`` runs everything and writes ``bench/results/store.json`` and ``store.md``. A run of part of it
  (``--quick``, ``--only``, ``--whole``) prints and writes nothing, unless ``-o`` names a folder.
- What grows with the square is given the beginning of the conversation only, and says so; ``--whole`` gives it all,
  which takes minutes and gigabytes.
- The exit code is 1 when a row failed, which is a fault to look at. A target that was missed is a result, and the
  table shows it. So is a server that is not there.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import appends
import conversations
import places
import reading
import report
from measure import Skipped

from palaver.core import canonical

if TYPE_CHECKING:
    from collections.abc import Callable

    from measure import Row

    from palaver import Message

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class _Scale:
    """How much is measured."""

    sizes: tuple[int, ...] = (250, 500, 1_000, 2_000)
    sessions: int = 64
    each: int = 32
    long: int = 10_000
    rounds: int = 5


_QUICK = _Scale((50, 100, 200), 8, 8, 400, 2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure palaver's stores against their peers.")
    parser.add_argument("--quick", action="store_true", help="2 rounds over 200 messages")
    parser.add_argument("--rounds", type=int, help="how often everything is measured that is not slow (5)")
    parser.add_argument("--only", metavar="NUMBERS", help="the cases to run, such as 13 for the first and the third")
    parser.add_argument("--whole", action="store_true", help="give all messages to what grows with the square, too")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="where the results are written")
    return parser.parse_args()


def _say(name: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{name} …", end="", file=sys.stderr, flush=True)


def _messages(count: int, shape: conversations.Shape = conversations.LONG) -> list[Message]:
    return conversations.generate(1, count, shape=shape)[0]


def _short(count: int) -> list[Message]:
    """Messages that nobody compresses."""
    found = [each for each in _messages(2 * count, conversations.SHORT) if len(canonical.encode(each)) < appends.SHORT]
    assert len(found) >= count
    return found[:count]


def _sections(scale: _Scale, rounds: int, *, whole: bool) -> dict[str, Callable[[], list[Row]]]:
    most = scale.sizes[-1]
    return {
        "1": lambda: appends.to_one(_messages(most), rounds, whole=whole),
        "2": lambda: appends.to_many(
            conversations.generate(scale.sessions, scale.each, shape=conversations.LONG), rounds
        ),
        "3": lambda: appends.on_disk(_messages(most), _short(most), scale.sizes, whole=whole),
        "4": lambda: reading.opening(_messages(scale.long), rounds),
        "5": lambda: reading.turning(_messages(scale.long + reading.HELD), rounds),
    }


def _about(scale: _Scale, rounds: int) -> dict[str, Any]:
    count = scale.sizes[-1]
    size = appends.unique(_messages(count)) / 1e6
    try:
        server = places.server()
    except Skipped as reason:
        server = str(reason)
    return {
        "benchmark": "store",
        "data": (
            f"{count:,} messages, long, seed {conversations.SEED}, {size:.1f} MB of JSON; fewer rounds of what is slow."
        ),
        "versions": report.versions() | {"sqlite": sqlite3.sqlite_version, "postgresql": server},
        "messages": count,
        "megabytes": round(size, 1),
        "rounds": rounds,
    }


def main() -> int:
    given = _arguments()
    scale = _QUICK if given.quick else _Scale()
    rounds = given.rounds or scale.rounds
    sections = _sections(scale, rounds, whole=given.whole)
    chosen = given.only or "".join(sections)
    rows: list[Row] = []
    for number, section in sections.items():
        if number in chosen:
            _say(f"case {number} of {len(sections)}")
            rows += section()
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    about = _about(scale, rounds)
    report.show(rows, about)
    partial = given.quick or given.only or given.rounds or given.whole
    if given.output or not partial:
        report.write(given.output or RESULTS, rows, about)
    return 1 if any(row.error for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
