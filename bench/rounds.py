"""Cases: runs of an agent in a row, one long run turn by turn, and many at once.

Rules:

- A turn is one answer of the model with what it costs the loop: a run of ten calls has eleven. The model answers at
  once, the tool does nothing; so what is measured is the loop's own time.
- In one long run the model notes the time when it is asked. What lies between is a turn; the median of those around a
  mark counts, so that a collection of garbage does not decide. The average of all turns stands beside it.
- What is at once runs in a process of its own (``crowd.py``), so that its memory can be told. Memory is what the
  process grew by since everything was imported and one run was made; the target on sessions is on all of the process.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import crowd
import runners
from measure import Case, Contender, Job, Row, Spread, describe, run
from runners import Script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners import Runner

FASTER = 20
FLAT = 1.5
CALLS = 10
SESSIONS_MB = 1_000
PATIENCE = 20.0
_AROUND = 10
"""Turns on either side of a mark."""


@cache
def loop() -> asyncio.AbstractEventLoop:
    """The event loop of all runs."""
    return asyncio.new_event_loop()


# -- in a row --------------------------------------------------------------------------------------------------------


def in_a_row(ours: int, peers: int, rounds: int) -> list[Row]:
    """Many runs, one after the other."""
    contenders = [
        Contender(each.name, _Row(each, ours if each in runners.OURS[:4] else peers), _target(each))
        for each in (*runners.OURS, *runners.PEERS)
    ]
    return run(Case(f"1. {ours:,} runs in a row, {CALLS} calls and an answer", "ms", contenders, PATIENCE), rounds)


def _target(runner: Runner) -> float | None:
    return FASTER if runner in runners.PEERS else None


@dataclass(frozen=True)
class _Row:
    """Runs in a row, as a contender's setup."""

    runner: Runner
    count: int

    def __call__(self) -> Job:
        play = self.runner.play(Script(CALLS))

        async def many() -> list[str]:
            return [self.runner.answer(await play()) for _ in range(self.count)]

        def check(answers: list[str]) -> None:
            answered(answers, self.count)

        note = "" if self.count >= 1_000 else f"{self.count:,} runs"
        return Job(lambda _: loop().run_until_complete(many()), per=self.count * (CALLS + 1), note=note, check=check)


def answered(answers: Sequence[str], count: int) -> None:
    """Raise unless all runs came to their answer."""
    if list(answers) != [runners.FOUND] * count:
        msg = "a run did not come to its answer"
        raise ValueError(msg)


# -- turn by turn ----------------------------------------------------------------------------------------------------


def turn_by_turn(marks: tuple[int, ...], rounds: int) -> list[Row]:
    """One run, as long as the last mark."""
    chosen = (runners.PALAVER, runners.WIRED, *runners.PEERS)
    found: dict[str, _Laps | str] = {}
    for each in chosen:
        try:
            found[each.name] = _laps(each, marks, rounds)
        except Exception as error:  # noqa: BLE001 (whatever a peer raises belongs into its row)
            found[each.name] = describe(error)
    rows = [_at(mark, each, found) for mark in marks for each in chosen]
    rows += [_average(marks[-1], each, found) for each in chosen]
    return rows + [_growth(marks, each, found[each.name]) for each in chosen]


@dataclass(frozen=True)
class _Laps:
    """Milliseconds at each mark, and of the average turn, in each round."""

    at: dict[int, list[float]]
    average: list[float]


def _laps(runner: Runner, marks: tuple[int, ...], rounds: int) -> _Laps:
    found = _Laps({mark: [] for mark in marks}, [])
    begun = time.perf_counter()
    for round_ in range(rounds):
        script = Script(marks[-1], laps=[])
        made = loop().run_until_complete(runner.play(script)())
        answered([runner.answer(made)], 1)
        times = script.laps or []
        turns = [(after - before) * 1e3 for before, after in pairwise(times)]
        for mark in marks:
            found.at[mark].append(statistics.median(turns[max(0, mark - _AROUND - 1) : mark + _AROUND]))
        found.average.append(statistics.mean(turns))
        if (time.perf_counter() - begun) * (round_ + 2) / (round_ + 1) > PATIENCE:
            break
    return found


def _row(case: str, runner: Runner, values: list[float] | None, base: list[float] | None) -> Row:
    row = Row(case, runner.name, "ms")
    if values is not None:
        row.value = Spread(values)
        if base is not None and runner is not runners.PALAVER:
            row.ratio = Spread([value / statistics.median(base) for value in values])
    return row


def _at(mark: int, runner: Runner, found: dict[str, _Laps | str]) -> Row:
    mine, base = found[runner.name], found[runners.PALAVER.name]
    case = f"2. One run: turn {mark:,}"
    if isinstance(mine, str):
        return Row(case, runner.name, "ms", error=mine)
    return _row(case, runner, mine.at[mark], base.at[mark] if isinstance(base, _Laps) else None)


def _average(length: int, runner: Runner, found: dict[str, _Laps | str]) -> Row:
    mine, base = found[runner.name], found[runners.PALAVER.name]
    case = f"2. One run: average of {length:,} turns"
    if isinstance(mine, str):
        return Row(case, runner.name, "ms", error=mine)
    return _row(case, runner, mine.average, base.average if isinstance(base, _Laps) else None)


def _growth(marks: tuple[int, ...], runner: Runner, mine: _Laps | str) -> Row:
    row = Row(f"2. One run: turn {marks[-1]:,} against turn {marks[0]}", runner.name, "×")
    held = runner in runners.OURS
    if held:
        row.target = f"≤ {FLAT:g}×"
    if isinstance(mine, str):
        row.error = mine
        return row
    row.value = Spread([last / first for last, first in zip(mine.at[marks[-1]], mine.at[marks[0]], strict=True)])
    if held:
        row.met = row.value.median <= FLAT
    return row


# -- at once ---------------------------------------------------------------------------------------------------------


def at_once(count: int, rounds: int) -> list[Row]:
    """Many runs at once, each in a process of its own."""
    times = f"3. {count:,} runs at once, {CALLS} calls each"
    sizes = f"3. {count:,} runs at once, memory"
    chosen = (runners.PALAVER, runners.WIRED, *runners.PEERS)
    found = {each.name: _crowds("runs", each, count, rounds if each in runners.OURS else 1) for each in chosen}
    rows: list[Row] = []
    for case, unit, key in ((times, "ms", "milliseconds"), (sizes, "MB", "grown")):
        for each in chosen:
            row = _compared(Row(case, each.name, unit), found[each.name], found[runners.PALAVER.name], key)
            if key == "milliseconds" and each in runners.PEERS:
                row.target = f"≥ {FASTER}×"
                row.met = row.ratio.median >= FASTER if row.ratio is not None else None
            rows.append(row)
    return rows


def _crowds(what: str, runner: Runner, count: int, rounds: int) -> list[dict[str, float]] | str:
    try:
        return [crowd.start(what, runner.name, count) for _ in range(rounds)]
    except (RuntimeError, OSError, ValueError) as error:
        return describe(error)


def _compared(row: Row, found: Any, base: Any, key: str) -> Row:
    if isinstance(found, str):
        row.error = found
        return row
    row.value = Spread([each[key] for each in found])
    if found is not base and not isinstance(base, str):
        middle = statistics.median([each[key] for each in base])
        row.ratio = Spread([each[key] / middle for each in found])
    return row


_SESSIONS: tuple[tuple[str, str, str], ...] = (
    ("each with one turn behind it", "MB", "kept"),
    ("each in its second turn, waiting for a tool", "MB", "waiting"),
    ("each with one turn behind it, grown by session", "KB", "kept_each"),
    ("each waiting, grown by session", "KB", "waiting_each"),
)


def sessions(count: int, rounds: int) -> list[Row]:
    """Many conversations that are open, in a process of their own."""
    found = _crowds("sessions", runners.WIRED, count, rounds)
    rows: list[Row] = []
    for name, unit, key in _SESSIONS:
        row = _compared(Row(f"4. {count:,} sessions open at once", f"palaver, {name}", unit), found, found, key)
        if unit == "MB":
            row.target = f"≤ {SESSIONS_MB:,} MB"
            row.met = None if row.value is None else row.value.median <= SESSIONS_MB
        rows.append(row)
    return rows
