"""How a case is measured.

Rules:

- What is compared in a case runs in turns, round by round: palaver, first peer, second peer, palaver, …
  A ratio is taken within a round, so that whatever else the machine does hits both sides.
- The clock is the CPU time of the process, unless the case waits for a disk or a server: then it is a wall clock,
  and the name of the case or its module says so. Within a round what is quick runs up to five times, still in
  turns, and its best time stands for the round: what other programs add is never negative. The median of
  the rounds counts, smallest and largest are shown. One round before the first is not counted; what a job
  made in it is checked, where the job says how.
- Where a case has ``patience``, what is slow is measured in as many rounds as fit into that many seconds, and
  in two at least.
- The collector is on, as in a program, unless a name says otherwise. It has been run before each
  measurement, and everything that was there before is frozen: it walks what the measured code makes and
  nothing else. What is made is kept until the clock has stopped; letting it go is not measured.
- A contender that raises is a row with its error. The others go on.
"""

from __future__ import annotations

import gc
import math
import statistics
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parent.parent


class Skipped(Exception):  # noqa: N818 (it is no error)
    """Raised by a contender that has nothing to measure here; the text says why."""


@dataclass(frozen=True)
class Elapsed:
    """Given back by a run that stopped the clock itself."""

    seconds: float


@dataclass
class Job:
    """What is timed: ``run(prepare())``, of which only ``run`` counts, divided by ``per``.

    ``check`` is given what the first run made, and raises when that is wrong. ``finish`` is given what was prepared,
    after the clock has stopped, also when the run failed.
    """

    run: Callable[[Any], object]
    prepare: Callable[[], object] = lambda: None
    per: float = 1
    note: str = ""
    check: Callable[[Any], object] | None = None
    finish: Callable[[Any], object] = lambda _: None


@dataclass(frozen=True)
class Contender:
    """One way to do the work of a case. ``setup`` builds the data once and gives the job.

    ``at_least`` is the target: that many times the CPU time of the case's first contender.
    """

    name: str
    setup: Callable[[], Job]
    at_least: float | None = None
    collector: bool = True


@dataclass(frozen=True)
class Case:
    """A group of contenders; the first is palaver, and the ratios are to it."""

    name: str
    unit: str
    contenders: list[Contender]
    patience: float = math.inf
    clock: Callable[[], float] = time.process_time


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of the rounds."""

    samples: list[float]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.samples)

    @property
    def low(self) -> float:
        """The smallest."""
        return min(self.samples)

    @property
    def high(self) -> float:
        """The largest."""
        return max(self.samples)


@dataclass
class Row:
    """One line of the table. ``target`` is in words; ``met`` is ``None`` where there is no target."""

    case: str
    name: str
    unit: str
    value: Spread | None = None
    ratio: Spread | None = None
    target: str = ""
    met: bool | None = None
    error: str = ""
    skipped: str = ""
    note: str = ""

    @property
    def verdict(self) -> str:
        """``met``, ``not met``, ``failed``, ``skipped``, ``not measured`` or nothing."""
        if self.error:
            return "failed"
        if self.skipped:
            return "skipped"
        if self.met is None:
            return "not measured" if self.target else ""
        return "met" if self.met else "not met"


_MOST = 5
_ENOUGH = 0.3
SCALE = {"s": 1.0, "ms": 1e3, "µs": 1e6}


@dataclass
class _Running:
    """A contender while its case runs."""

    contender: Contender
    clock: Callable[[], float]
    job: Job | None = None
    error: str = ""
    skipped: str = ""
    samples: dict[int, float] = field(default_factory=dict[int, float])

    def attempt(self, work: Callable[[], object]) -> None:
        """Do a step, unless an earlier one failed."""
        if self.error or self.skipped:
            return
        try:
            work()
        except Skipped as reason:
            self.skipped = str(reason)
        except Exception as error:  # noqa: BLE001 (whatever a peer raises belongs into its row)
            self.error = describe(error)

    def set_up(self) -> None:
        """Build the data."""
        self.job = self.contender.setup()

    @property
    def seconds(self) -> float:
        """What a run took in the round that is not counted."""
        return self.samples.get(-1, 0.0) * (self.job.per if self.job else 1)

    def repeats(self, round_: int, patience: float) -> int:
        """How often to run in one round."""
        if round_ < 0 or not self.seconds:
            return 1
        if round_ >= max(2, patience // self.seconds):
            return 0
        return max(1, min(_MOST, int(_ENOUGH / self.seconds)))

    def measure(self, round_: int) -> None:
        """Run once; the best time of a round is kept."""
        job = self.job
        assert job is not None
        state = job.prepare()
        gc.collect()
        gc.freeze()
        if not self.contender.collector:
            gc.disable()
        try:
            start = self.clock()
            made = job.run(state)
            seconds = self.clock() - start
        finally:
            gc.enable()
            job.finish(state)
        if isinstance(made, Elapsed):
            seconds = made.seconds
        if round_ < 0 and job.check is not None:
            job.check(made)
        self.samples[round_] = min(seconds / job.per, self.samples.get(round_, math.inf))


def describe(error: BaseException | str) -> str:
    """Name an error in one line, without the paths of this machine."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    for path in (str(ROOT), sys.prefix, sys.base_prefix, str(Path.home())):
        text = text.replace(path, "…")
    line = " ".join(text.split())
    return line if len(line) <= 160 else line[:159] + "…"


def run(case: Case, rounds: int) -> list[Row]:
    """Measure a case and give its rows."""
    running = [_Running(contender, case.clock) for contender in case.contenders]
    for each in running:
        each.attempt(each.set_up)
    for round_ in range(-1, rounds):
        for repeat in range(_MOST if round_ >= 0 else 1):
            for each in running:
                if repeat < each.repeats(round_, case.patience):
                    each.attempt(partial(each.measure, round_))
    gc.unfreeze()
    for each in running:
        each.samples.pop(-1, None)
    first = running[0]
    return [_row(case, each, None if each is first else first) for each in running]


def _row(case: Case, each: _Running, base: _Running | None) -> Row:
    contender = each.contender
    row = Row(case.name, contender.name, case.unit, error=each.error, skipped=each.skipped)
    if contender.at_least is not None:
        row.target = f"≥ {contender.at_least:.3g}×"
    if each.job is not None:
        row.note = each.job.note
    if row.error or row.skipped:
        return row
    row.value = Spread([seconds * SCALE[case.unit] for seconds in each.samples.values()])
    if base is None:
        return row
    if base.error or base.skipped:
        row.note = "; ".join(filter(None, (row.note, "no ratio: palaver's own row has no result")))
        return row
    both = [(each.samples[round_], base.samples[round_]) for round_ in each.samples if round_ in base.samples]
    row.ratio = Spread([seconds / palaver for seconds, palaver in both])
    if contender.at_least is not None:
        row.met = row.ratio.median >= contender.at_least
    return row


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The exponent of growth: the slope of a line through the logarithms, by least squares."""
    xs, ys = [math.log(size) for size in sizes], [math.log(value) for value in values]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)
