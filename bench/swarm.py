"""Measure palaver's swarms against their peers, and print one table.

Rules:

- What each swarm does in a turn is said in ``swarm_runners.py`` for Python, and in ``swarm_peers/run.mjs`` for
  agent-swarm-kit, which runs under Node. How it is measured is said in ``swarming.py``: each measurement is a process
  of its own, the clock is the wall clock, and every answer is compared with the question.
- Contenders run in turns, round by round; a ratio is taken within a round. Whoever took more than 20 seconds for a
  measurement is measured once, and the row has no spread.
- Whoever has not come to an end within a minute is stopped, and its row says at which turn: nothing is multiplied up.
  What a turn took then stands beside palaver's at the same turn.
- What is not installed is skipped by name. agent-swarm-kit is installed by ``npm install`` in ``swarm_peers``.
- ``make bench BENCH=swarm`` runs everything and writes ``bench/results/swarm.json`` and ``swarm.md``. A run of part of
  it (``--quick``, ``--only``, ``--rounds``) prints and writes nothing, unless ``-o`` names a folder.
- The exit code is 1 when a row failed. A target that was missed is a result, and the table shows it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import report
import swarm_runners
import swarming
import worker_turns
from measure import Row, Spread, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESULTS = Path(__file__).parent / "results"
_KIT = Path(__file__).parent / "swarm_peers/node_modules/agent-swarm-kit/package.json"
_PATIENCE = 20.0
_MOST = 590.0
_FLAT = 1.5
_NOTES = (
    """palaver and agent-swarm-kit show their model the last 15 messages of the dialogue; the Python peers show it all,
    and so does palaver's second row.""",
    """palaver, like agent-swarm-kit, tells each step of a turn as events on a bus, and checks each answer;
    openai-agents, langgraph-swarm and autogen-core do not. langgraph-swarm keeps a checkpoint at each step, to which
    one can go back.""",
    """Workers share the machine with the clients, with NATS and with PostgreSQL: where its cores are all busy with one
    worker, a second one takes from them.""",
    """autogen-core is a runtime that passes messages to agents. The conversation is a list in an agent that was written
    for this benchmark: nothing is checked or handed over.""",
)
_WITHOUT_NODE = """agent-swarm-kit was not installed where this was run: nothing here is held against it, and its target
    is open. `swarm_peers/run.mjs` was written from its documentation, and has not run against the library."""


@dataclass(frozen=True)
class _Scale:
    """How much is measured."""

    turns: int = 5_000
    marks: tuple[int, ...] = (10, 1_000, 2_000, 5_000)
    target_at: int = 2_000
    seconds: float = 60.0
    clients: int = 200
    each: int = 5
    sessions: int = 10_000
    listeners: int = 100
    events: int = 1_000
    rounds: int = 5


_QUICK = _Scale(200, (10, 100, 200), 100, 4.0, 20, 5, 200, 20, 100, 2)


@dataclass(frozen=True)
class _Contender:
    """A swarm and what starts it. ``at_least`` is the target at turn 2,000."""

    name: str
    start: Callable[..., dict[str, Any]] = swarming.start
    at_least: float | None = None
    ours: bool = False

    @property
    def party(self) -> swarm_runners.Party | None:
        """What is known of it, when it is Python."""
        return swarm_runners.PARTIES.get(self.name)


_PALAVER = _Contender(swarm_runners.OURS.name, ours=True)
_KITS = (
    _Contender("agent-swarm-kit, in memory", swarming.start_node, 20),
    _Contender("agent-swarm-kit, keeping files", swarming.start_node),
)
_CONTENDERS = (
    _PALAVER,
    _Contender(swarm_runners.WHOLE.name, ours=True),
    *_KITS,
    *(_Contender(party.name, at_least=5) for party in swarm_runners.PEERS),
)


@dataclass
class _Found:
    """What the processes of one contender said, by round."""

    contender: _Contender
    rounds: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    error: str = ""
    skipped: str = ""
    enough: bool = False

    def measure(self, number: int, what: str, given: dict[str, Any]) -> None:
        """Start it once, unless it failed, or was slow."""
        if self.error or self.skipped or self.enough:
            return
        began = time.monotonic()
        try:
            self.rounds[number] = self.contender.start(what, self.contender.name, given, most=_MOST)
        except swarming.Missing as reason:
            self.skipped = str(reason)
        except RuntimeError as error:
            self.error = describe(error)
        self.enough = time.monotonic() - began > _PATIENCE

    def values(self, read: Callable[[dict[str, Any]], float | None]) -> dict[int, float]:
        """One of the things it said, by round; rounds that do not have it are left out."""
        return {number: value for number, said in self.rounds.items() if (value := read(said)) is not None}


Found = dict[str, _Found]


def _measured(what: str, given: dict[str, Any], rounds: int, contenders: Sequence[_Contender] = _CONTENDERS) -> Found:
    found = {each.name: _Found(each) for each in contenders}
    for number in range(rounds):
        for name, each in found.items():
            _say(f"{what}, round {number + 1} of {rounds}: {name}")
            each.measure(number, what, given)
    return found


def _row(
    case: str,
    unit: str,
    each: _Found,
    base: _Found,
    read: Callable[[dict[str, Any]], float | None],
    *,
    scale: float = 1.0,
    rate: bool = False,
    at_least: float | None = None,
    without: str = "",
    note: str = "",
) -> Row:
    """One line. ``rate`` says that more is better; ``without`` is the reason where nothing was read."""
    row = Row(case, each.contender.name, unit, error=each.error, skipped=each.skipped, note=note)
    if at_least is not None:
        row.target = f"≥ {at_least:g}×"
    values = each.values(read)
    if row.error or row.skipped:
        return row
    if not values:
        row.skipped = without
        return row
    row.value = Spread([value * scale for value in values.values()])
    ours = base.values(read)
    both = [(values[number], ours[number]) for number in values if number in ours]
    if each is base or not both:
        return row
    row.ratio = Spread([own / value if rate else value / own for value, own in both])
    if at_least is not None:
        row.met = row.ratio.median >= at_least
    return row


# -- 1. one client -----------------------------------------------------------------------------------------------------


def _turn(number: int) -> Callable[[dict[str, Any]], float | None]:
    place = number // swarming.STEP - 1
    return lambda said: said["medians"][place] if place < len(said["medians"]) else None


def _speed_to(number: int) -> Callable[[dict[str, Any]], float | None]:
    places = number // swarming.STEP

    def read(said: dict[str, Any]) -> float | None:
        return number / sum(said["sums"][:places]) if places <= len(said["sums"]) else None

    return read


def _reached(each: _Found) -> int:
    return min((len(said["medians"]) * swarming.STEP for said in each.rounds.values()), default=0)


def _stopped(each: _Found) -> str:
    whys = {said["why"] for said in each.rounds.values() if said["why"]}
    return f"stopped at turn {_reached(each):,}, after {' or '.join(sorted(whys))}"


def one_client(scale: _Scale, rounds: int) -> list[Row]:
    """What a turn costs as a conversation grows, turns per second, and growth."""
    found = _measured("turns", {"turns": scale.turns, "seconds": scale.seconds}, rounds)
    base, every = found[_PALAVER.name], list(found.values())
    rows: list[Row] = []
    for mark in scale.marks:
        for each in every:
            target = each.contender.at_least if mark == scale.target_at else None
            reads = _turn(mark)
            case = f"1. One client: turn {mark:,}"
            rows.append(
                _row(case, "ms", each, base, reads, scale=1e3, at_least=target, without=_stopped(each)),
            )
    rows += [_last(each, base, scale) for each in every if 0 < _reached(each) < scale.turns]
    half = scale.turns // 5
    for number in (half, scale.turns):
        case = f"1. One client: turns per second, of {number:,}"
        rows += [_row(case, "/s", each, base, _speed_to(number), rate=True, without=_stopped(each)) for each in every]
    rows += [_growth(each, scale) for each in every if _reached(each) >= scale.turns]
    return rows


def _last(each: _Found, base: _Found, scale: _Scale) -> Row:
    """The last turn of whom was stopped, beside palaver's at the same turn."""
    reached = _reached(each)
    target = each.contender.at_least if reached < scale.target_at else None
    case = "1. One client: the last turn of who was stopped"
    return _row(case, "ms", each, base, _turn(reached), scale=1e3, at_least=target, note=f"turn {reached:,}")


def _growth(each: _Found, scale: _Scale) -> Row:
    first, last = each.values(_turn(scale.marks[0])), each.values(_turn(scale.turns))
    value = Spread([last[number] / first[number] for number in last])
    case = f"1. One client: turn {scale.turns:,} against turn {scale.marks[0]}"
    row = Row(case, each.contender.name, "×", value)
    if each.contender is _PALAVER:
        row.target, row.met = f"≤ {_FLAT:g}×", value.median <= _FLAT
    return row


# -- 2. to 5. ----------------------------------------------------------------------------------------------------------


def many_clients(scale: _Scale, rounds: int) -> list[Row]:
    """Clients at once."""
    found = _measured("clients", {"clients": scale.clients, "turns": scale.each}, rounds)
    base = found[_PALAVER.name]
    case = f"2. {scale.clients} clients at once, {scale.each} turns each, all of it"
    return [_row(case, "ms", each, base, lambda said: said["seconds"], scale=1e3) for each in found.values()]


def idle(scale: _Scale, rounds: int) -> list[Row]:
    """Conversations that are open, and nobody speaks."""
    count = scale.sessions
    contenders = [each for each in _CONTENDERS if each is _PALAVER or not each.ours]
    found = _measured("idle", {"sessions": count}, rounds, contenders)
    base, every = found[_PALAVER.name], list(found.values())
    nothing = "has none: a conversation is there when it has had a turn"
    case = f"3. {count:,} idle sessions"

    def grown(key: str) -> Callable[[dict[str, Any]], float | None]:
        return lambda said: None if said[key] is None else (said[key] - said["before"]) * 1e3 / count

    def opening(said: dict[str, Any]) -> float | None:
        return None if said["open_seconds"] is None else said["open_seconds"] / count

    kinds: list[tuple[str, str, Callable[[dict[str, Any]], float | None], float]] = [
        ("opening one", "µs", opening, 1e6),
        ("the first turn of one", "µs", lambda said: said["turn_seconds"] / count, 1e6),
        ("memory of the process, opened", "MB", lambda said: said["open_megabytes"], 1),
        ("memory of the process, one turn behind each", "MB", lambda said: said["turn_megabytes"], 1),
        ("grown by session, opened", "KB", grown("open_megabytes"), 1),
        ("grown by session, one turn behind each", "KB", grown("turn_megabytes"), 1),
    ]
    return [
        _row(f"{case}: {kind}", unit, each, base, read, scale=by, without=nothing)
        for place, (kind, unit, read, by) in enumerate(kinds)
        for each in every
        if not (each.skipped and place)  # once is enough
    ]


def fan_out(scale: _Scale, rounds: int) -> list[Row]:
    """One event to many listeners."""
    with_events = [each for each in _CONTENDERS if each.party is None or each.party.listening is not None]
    given = {"listeners": scale.listeners, "events": scale.events}
    found = _measured("events", given, rounds, [each for each in with_events if each is not _KITS[1]])
    base = found[_PALAVER.name]
    case = f"4. One event to {scale.listeners} listeners, until all were called"
    rows = [_row(case, "µs", each, base, lambda said: said["seconds"], scale=1e6) for each in found.values()]
    without = [each for each in _CONTENDERS if each not in with_events and not each.ours]
    return rows + [Row(case, each.name, "µs", skipped="has no events of its own") for each in without]


def workers(scale: _Scale, rounds: int) -> list[Row]:
    """Turns per second through one worker and two, in processes of their own: only palaver has them."""
    rows: list[Row] = []
    for computing in _COMPUTING:
        what = f"each computing {1000 * computing:g} ms" if computing else "each answered at once"
        rows += _workers(
            f"5. Turns per second through workers: {scale.clients} clients, {what}", scale, rounds, computing
        )
    return rows


def _workers(case: str, scale: _Scale, rounds: int, computing: float) -> list[Row]:
    found: dict[int, list[worker_turns.Measured]] = {1: [], 2: []}
    rows = [Row(case, f"palaver, {count} worker{'s' * (count > 1)}", "/s") for count in found]
    try:
        for _ in range(min(rounds, _WORKER_ROUNDS)):
            for count, seen in found.items():
                seen.append(
                    worker_turns.turns_a_second(count, clients=scale.clients, turns=scale.each, computing=computing)
                )
    except Exception as error:  # noqa: BLE001 (a server that is not there is a row that says so)
        for row in rows:
            row.skipped = f"{type(error).__name__}: {error}"
        return rows
    for row, seen in zip(rows, found.values(), strict=True):
        row.value = Spread([each.turns for each in seen])
        busy = [each.cores for each in seen if each.cores is not None]
        if busy:
            row.note = f"{median(busy):.1f} of {os.cpu_count()} cores busy"
    rows[1].ratio = Spread([two.turns / one.turns for one, two in zip(found[1], found[2], strict=True)])
    rows[1].target, rows[1].met = f"≥ {_NEAR_LINEAR:g}×", rows[1].ratio.median >= _NEAR_LINEAR
    return rows


# -- the table ---------------------------------------------------------------------------------------------------------

_WORKER_ROUNDS, _NEAR_LINEAR = 3, 1.7
_COMPUTING = (0.0, 0.01)
"""Seconds that a turn computes."""
_SECTIONS: dict[str, Callable[[_Scale, int], list[Row]]] = {
    "1": one_client,
    "2": many_clients,
    "3": idle,
    "4": fan_out,
    "5": workers,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure palaver's swarms against their peers.")
    parser.add_argument("--quick", action="store_true", help="2 rounds of short conversations")
    parser.add_argument("--rounds", type=int, help="how often everything is measured that is not slow (5)")
    parser.add_argument("--only", metavar="NUMBERS", help="the cases to run, such as 13 for the first and the third")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="where the results are written")
    return parser.parse_args()


def _say(name: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{name} …", end="", file=sys.stderr, flush=True)


def _versions() -> dict[str, str]:
    found = report.versions()
    node = shutil.which("node")
    found["node"] = "not installed"
    if node:
        found["node"] = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    found["agent-swarm-kit"] = json.loads(_KIT.read_text())["version"] if _KIT.exists() else "not installed"
    return found


def main() -> int:
    given = _arguments()
    scale = _QUICK if given.quick else _Scale()
    rounds = given.rounds or scale.rounds
    rows: list[Row] = []
    for number, section in _SECTIONS.items():
        if not given.only or number in given.only:
            rows += section(scale, rounds)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    about = {
        "benchmark": "swarm",
        "data": "A model that repeats what it was told, at once; processes of their own; one round of what is slow.",
        "versions": _versions(),
        "rounds": rounds,
        "notes": [" ".join(note.split()) for note in (*_NOTES, *(() if _KIT.exists() else (_WITHOUT_NODE,)))],
    }
    report.show(rows, about)
    if given.output or not (given.quick or given.only or given.rounds):
        report.write(given.output or RESULTS, rows, about)
    return 1 if any(row.error for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
