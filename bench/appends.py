"""Cases: appending to one thread and to many at once, and what that leaves on the disk.

Rules:

- The clock is a wall clock: what is measured waits for a disk. It runs from the first append to the return of the
  last one; opening and closing stand outside, beginning a thread inside. Whatever else writes to the same disk shows
  in it, and changes from one second to the next: run it on a quiet machine, and trust ratios more than times.
- Each run begins in an empty place. Sizes are taken after closing, once for each length.
- The first and the last twentieth of the appends of a run are compared by their medians, so that one slow
  synchronisation does not decide.
- Every size is divided by the JSON of the messages, without the ids and times that a thread adds: what is unique. The
  generated text compresses to 0.4 of that; messages below 1,000 bytes, which nobody compresses, are shown beside it.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import conversations
import keepers
import places
from measure import Case, Contender, Job, Row, Skipped, Spread, describe, run, slope
from report import number

from palaver.core import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keepers import Keeper

    from palaver import Message

DURABLE = 5
ON_DISK = 1.3
LINEAR = 1.05
PATIENCE = 20.0
_FILES = (
    keepers.SQLITE,
    keepers.JSONL,
    keepers.FILE,
    keepers.RAW,
    keepers.RAW_NORMAL,
    keepers.AGENTS,
    keepers.SAVER,
)
_SERVER = (keepers.POSTGRES, keepers.RAW_POSTGRES, keepers.POSTGRES_SAVER)
_AT_ONCE = (
    (keepers.SQLITE, keepers.RAW, keepers.RAW_SHARED, keepers.AGENTS, keepers.SAVER),
    (keepers.POSTGRES, keepers.RAW, keepers.RAW_POSTGRES, keepers.POSTGRES_SAVER),
    (keepers.JSONL, keepers.RAW),
)
SHORT = 1000
"""JSON of fewer bytes is compressed by nobody."""


class Begun:
    """A contender at work in a new place."""

    def __init__(self, keeper: Keeper) -> None:
        self.place = keeper.place()
        try:
            self.before = self.place.written()
            self.opened = keeper.opened(self.place)
        except BaseException:
            self.place.drop()
            raise

    def end(self) -> tuple[int, int | None]:
        """Close; give the bytes that lie there, and those that were written."""
        try:
            self.opened.close()
            after = self.place.written()
            written = None if after is None or self.before is None else after - self.before
            return self.place.size(), written
        finally:
            self.place.drop()


class _Timed:
    """A contender, and what each append of each run took."""

    def __init__(self, keeper: Keeper, sessions: Sequence[Sequence[Message]]) -> None:
        self.keeper = keeper
        self._sessions = sessions
        self._most = keeper.most if len(sessions) == 1 else None
        self._runs: list[list[float]] = []

    def job(self) -> Job:
        """Append to all sessions at once, to each one message at a time."""
        formed = {f"session {at}": self.keeper.form(each)[: self._most] for at, each in enumerate(self._sessions)}

        def timed(begun: Begun) -> None:
            self._runs.append(begun.opened.together(formed))

        count = sum(map(len, formed.values()))
        return Job(timed, partial(Begun, self.keeper), count, self._bound(count), finish=Begun.end)

    def _bound(self, count: int) -> str:
        return f"the first {count:,} only" if self._most is not None else ""

    def rate(self, row: Row) -> Row:
        """Say in the note how many messages a second that is, and how long one waits."""
        if row.value is not None:
            laps = sorted(lap * 1e3 for laps in self._runs[1:] for lap in laps)
            rate = f"{number(1e6 / row.value.median)}/s"
            waits = f"one takes {number(statistics.median(laps))} ms, 1 % above {number(laps[len(laps) * 99 // 100])}"
            row.note = "; ".join(filter(None, (rate, waits, row.note)))
        return row

    def evenness(self, case: str) -> Row | None:
        """Compare the end of each run with its beginning."""
        if len(self._runs) < 2:
            return None
        share = len(self._runs[0]) // 20
        ends = [statistics.median(laps[-share:]) / statistics.median(laps[:share]) for laps in self._runs[1:]]
        return Row(case, self.keeper.name, "×", Spread(ends), note=self._bound(len(self._runs[0])))


def _bounded(group: Sequence[Keeper], *, whole: bool) -> Sequence[Keeper]:
    """Take the bounds away where everything is asked for."""
    return [replace(keeper, most=None) for keeper in group] if whole else group


def _run(
    name: str, group: Sequence[Keeper], sessions: Sequence[Sequence[Message]], rounds: int
) -> tuple[list[_Timed], list[Row]]:
    timed = [_Timed(keeper, sessions) for keeper in group]
    contenders = [
        Contender(each.keeper.name, each.job, DURABLE if each.keeper is keepers.RAW and len(sessions) > 1 else None)
        for each in timed
    ]
    rows = run(Case(name, "µs", contenders, PATIENCE, time.perf_counter), rounds)
    return timed, [each.rate(row) for each, row in zip(timed, rows, strict=True)]


def to_one(messages: Sequence[Message], rounds: int, *, whole: bool) -> list[Row]:
    """Append to one thread; then, how the last appends compare with the first."""
    rows: list[Row] = []
    ends: list[Row | None] = []
    for where, group in (("a file", _FILES), ("a server", _SERVER)):
        case = f"1. Append {len(messages):,} messages to one thread in {where}; one append"
        timed, found = _run(case, _bounded(group, whole=whole), [messages], rounds)
        rows += found
        ends += [each.evenness("1. The last 5 % of these appends against the first 5 %") for each in timed]
    return [*rows, *filter(None, ends)]


def to_many(sessions: Sequence[Sequence[Message]], rounds: int) -> list[Row]:
    """Append in many sessions at once, each to a thread of its own."""
    case = f"2. Append in {len(sessions)} sessions at once, {len(sessions[0])} messages to each thread"
    return [row for group in _AT_ONCE for row in _run(f"{case}; {group[0].name}", group, sessions, rounds)[1]]


# -- the disk ------------------------------------------------------------------------------------------------------


@dataclass
class _Sized:
    """What a contender left behind, by the number of messages."""

    keeper: Keeper
    json: dict[int, int]
    kept: dict[int, int] = field(default_factory=dict[int, int])
    written: dict[int, int | None] = field(default_factory=dict[int, "int | None"])
    error: str = ""
    skipped: str = ""

    def measure(self, messages: Sequence[Message], sizes: Sequence[int]) -> None:
        try:
            formed = self.keeper.form(messages)
            for size in sizes:
                if size <= (self.keeper.most or size):
                    begun = Begun(self.keeper)
                    try:
                        begun.opened.serial("one", formed[:size])
                        begun.opened.settle()
                    finally:
                        self.kept[size], self.written[size] = begun.end()
        except Skipped as reason:
            self.skipped = str(reason)
        except Exception as error:  # noqa: BLE001 (whatever a peer raises belongs into its rows)
            self.error = describe(error)

    def _row(self, case: str, unit: str, target: float | None = None) -> Row:
        row = Row(case, self.keeper.name, unit, error=self.error, skipped=self.skipped)
        if target is not None and self.keeper in keepers.OURS:
            row.target = f"≤ {target:g}{unit if unit == '×' else ''}"
        return row

    def at_rest(self, case: str, target: float | None = None) -> Row:
        """What lies on the disk."""
        row = self._row(case, "×", target)
        if self.kept:
            last = max(self.kept)
            row.value = Spread([self.kept[last] / self.json[last]])
            row.note = _megabytes(self.kept[last]) + self._bound(last)
            row.met = row.value.median <= target if row.target and target else None
        return row

    def growth(self, case: str) -> Row:
        """How that grows with the number of messages."""
        row = self._row(case, "exponent", LINEAR)
        if len(self.kept) > 1:
            row.value = Spread([slope(list(self.kept), list(self.kept.values()))])
            row.note = ", ".join(f"{size:,}: {_megabytes(kept)}" for size, kept in self.kept.items())
            row.met = row.value.median <= LINEAR if row.target else None
        return row

    def written_for(self, case: str) -> Row:
        """What was written until it lay there."""
        row = self._row(case, "×")
        last = max(self.written, default=0)
        written = self.written.get(last)
        if written:
            row.value = Spread([written / self.json[last]])
            log = ", the log of the server" if self.keeper.place is places.Schema else ""
            row.note = _megabytes(written) + log + self._bound(last)
        elif self.written:
            row.skipped = "not counted here"
        return row

    def _bound(self, last: int) -> str:
        return "" if self.keeper.most is None else f", the first {last:,} only"


def _megabytes(size: int) -> str:
    return f"{number(size / 1e6)} MB"


def unique(messages: Sequence[Message]) -> int:
    """The bytes of the messages as JSON, each different one once."""
    return sum(map(len, {canonical.encode(message) for message in conversations.unstamped(messages)}))


def on_disk(messages: Sequence[Message], short: Sequence[Message], sizes: Sequence[int], *, whole: bool) -> list[Row]:
    """Sizes of one thread, by its length; then one of short messages."""
    json = {size: unique(messages[:size]) for size in sizes}
    sized = [_Sized(keeper, json) for keeper in _bounded((*_FILES, *_SERVER), whole=whole)]
    for each in sized:
        each.measure(messages, sizes)
    rows = [each.at_rest(f"3. On disk, {sizes[-1]:,} messages", ON_DISK) for each in sized]
    rows += [each.growth("3. Growth on disk") for each in sized]
    rows += [each.written_for(f"3. Written for {sizes[-1]:,} messages, one at a time") for each in sized]
    for keeper in [keeper for keeper in (*_FILES, *_SERVER) if keeper.most is None]:
        little = _Sized(keeper, {len(short): unique(short)})
        little.measure(short, [len(short)])
        rows.append(little.at_rest(f"3. On disk, {len(short):,} messages below {SHORT:,} bytes"))
    return rows
