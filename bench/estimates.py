"""How far estimates of tokens lie from what providers count, on recorded traffic: the distribution of the error.

Rules:

- ``make bench BENCH=estimates`` reads the recordings and writes ``bench/results/estimates.md``; without recordings it
  says so and writes nothing. What is predicted, and from what, stands in ``tests/context/turns.py``.
- An error is the difference to the provider's own count, as a share of that count.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.context import turns  # noqa: E402 (found in the folder above)

RESULT = Path(__file__).parent / "results" / "estimates.md"
WITHIN = 0.1
_HOW = {
    "anchored": "The next prompt, from what the last answer reported",
    "anchored, seeded": "The same, by a ledger that heard other conversations with the model",
    "whole": "The next prompt, estimated whole, after the first answer (as behind a compaction)",
    "seeded": "A prompt nobody answered yet, by what other conversations with the model taught",
    "anchored, seeded, strict": "The second, without other conversations of the same test",
    "seeded, strict": "The fourth, without other conversations of the same test",
}


def _row(guesses: list[turns.Guess]) -> str:
    errors = sorted(each.error for each in guesses)
    near = sum(error <= WITHIN for error in errors)
    ninth = errors[min(len(errors) - 1, len(errors) * 9 // 10)]
    return f"{len(errors)} | {median(errors):.1%} | {ninth:.1%} | {near / len(errors):.0%}"


def table(guesses: list[turns.Guess]) -> str:
    """All of it, as Markdown."""
    lines = [
        "# Estimates of tokens",
        "",
        "Written by `make bench BENCH=estimates`; `tests/context/turns.py` says what is predicted from what.",
        "An error is a share of the provider's own count.",
        "Constants, and what images and pages cost, were chosen on these recordings: nothing here was held back.",
    ]
    for how, title in _HOW.items():
        lines += ["", f"## {title}", "", "| Wire | Kind | Prompts | Median | 90th percentile | Within 10 % |"]
        lines.append("|---|---|---:|---:|---:|---:|")
        groups: dict[tuple[str, str], list[turns.Guess]] = defaultdict(list)
        for each in guesses:
            if each.how == how:
                groups[each.wire, each.kind].append(each)
                groups["all wires", each.kind].append(each)
        lines += [f"| {wire} | {kind} | {_row(found)} |" for (wire, kind), found in sorted(groups.items())]
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure estimates of tokens against recorded counts.")
    parser.add_argument("--quick", action="store_true", help="print, and write nothing")
    quick = parser.parse_args().quick
    folder = Path(os.environ.get("PALAVER_CORPUS") or ROOT.parent / "shared" / "corpus")
    exchanges = turns.recorded(folder)
    if not exchanges:
        print("skipped: the recorded corpus is absent; PALAVER_CORPUS names its folder")
        return 0
    strict = [each._replace(how=f"{each.how}, strict") for each in turns.seeded(exchanges, apart=turns.function)]
    text = table([*turns.following(exchanges), *turns.seeded(exchanges), *strict])
    print(text)
    if not quick:
        RESULT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
